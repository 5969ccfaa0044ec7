//! Rules for forwarding fields. Pure.

use weft::Headers;

/// Hop-by-hop fields, which apply to one connection only (RFC 9110 §7.6.1), and `Proxy`, which CGI
/// programs mistake for a configuration variable (`HTTP_PROXY`).
static HOP_BY_HOP: FieldNames = FieldNames::new(&[
    b"connection",
    b"keep-alive",
    b"proxy",
    b"proxy-connection",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"transfer-encoding",
    b"upgrade",
]);

/// Fields allowed only in a head (RFC 9110 §6.5.1), besides the hop-by-hop fields.
static HEAD_ONLY: FieldNames =
    FieldNames::new(&[b"content-length", b"host", b"set-cookie", b"trailer"]);

/// A set of field names.
pub(super) struct FieldNames {
    names: &'static [&'static [u8]],
    /// A bit for each length that occurs, which rejects most other names.
    lengths: u32,
}

impl FieldNames {
    /// Creates a set of lower-case names of at most 31 bytes.
    pub(super) const fn new(names: &'static [&'static [u8]]) -> FieldNames {
        let (mut lengths, mut index) = (0, 0);
        while index < names.len() {
            lengths |= 1 << names[index].len();
            index += 1;
        }
        FieldNames { names, lengths }
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        let may_match = name.len() < 32 && self.lengths >> name.len() & 1 == 1;
        may_match && self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The hop-by-hop fields of a head: the fixed ones, and those named by `Connection`.
pub(super) struct HopByHopFields<'a>(Vec<&'a [u8]>);

impl<'a> HopByHopFields<'a> {
    pub(super) fn new(headers: &'a Headers) -> HopByHopFields<'a> {
        static OPTIONS: FieldNames = FieldNames::new(&[b"close", b"keep-alive"]);
        let mut listed = Vec::new();
        for value in headers.get_all("connection") {
            // The common values name no field.
            if !OPTIONS.contains(value) {
                listed.extend(value.split(|&b| b == b',').map(<[u8]>::trim_ascii));
            }
        }
        HopByHopFields(listed)
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        HOP_BY_HOP.contains(name) || self.0.iter().any(|listed| listed.eq_ignore_ascii_case(name))
    }
}

/// Returns true if the field is allowed in a trailer section.
pub(super) fn is_allowed_in_trailers(name: &[u8]) -> bool {
    !HEAD_ONLY.contains(name) && !HOP_BY_HOP.contains(name)
}

/// Appends a field line, with its name in lower case.
pub(super) fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_names_case_insensitively() {
        for (name, expected) in [
            ("te", true),
            ("TE", true),
            ("ta", false),
            ("", false),
            ("Proxy-Authorization", true),
            ("Proxy-Authorisation", false),
            ("a-name-that-is-longer-than-all-of-them", false),
        ] {
            assert_eq!(HOP_BY_HOP.contains(name.as_bytes()), expected, "{name}");
        }
    }
}
