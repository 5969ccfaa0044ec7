//! Which fields are passed on. Pure.

use weft::Headers;

/// Fields that belong to one connection (RFC 9110 §7.6.1), and `Proxy`, which programs behind
/// CGI take for a setting of their own.
static OF_THE_CONNECTION: Names = Names::new(&[
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

/// Fields that may only stand in a head (RFC 9110 §6.5.1), beside those of the connection.
static OF_THE_HEAD: Names = Names::new(&[b"content-length", b"host", b"set-cookie", b"trailer"]);

/// Some names of fields.
pub(super) struct Names {
    names: &'static [&'static [u8]],
    /// A bit for each length that one of them has: most others have another.
    lengths: u32,
}

impl Names {
    /// Names in small letters, none of them longer than 31.
    pub(super) const fn new(names: &'static [&'static [u8]]) -> Names {
        let (mut lengths, mut at) = (0, 0);
        while at < names.len() {
            lengths |= 1 << names[at].len();
            at += 1;
        }
        Names { names, lengths }
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        let may_be = name.len() < 32 && self.lengths >> name.len() & 1 == 1;
        may_be && self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The fields of a head that end with its connection: by their nature, or because `Connection`
/// names them.
pub(super) struct OfTheConnection<'a>(Vec<&'a [u8]>);

impl<'a> OfTheConnection<'a> {
    pub(super) fn new(headers: &'a Headers) -> OfTheConnection<'a> {
        static OPTIONS: Names = Names::new(&[b"close", b"keep-alive"]);
        let mut named = Vec::new();
        for value in headers.get_all("connection") {
            // What is mostly said names no field.
            if !OPTIONS.has(value) {
                named.extend(value.split(|&b| b == b',').map(<[u8]>::trim_ascii));
            }
        }
        OfTheConnection(named)
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        OF_THE_CONNECTION.has(name) || self.0.iter().any(|named| named.eq_ignore_ascii_case(name))
    }
}

/// Whether a field may stand behind a body.
pub(super) fn may_be_trailer(name: &[u8]) -> bool {
    !OF_THE_HEAD.has(name) && !OF_THE_CONNECTION.has(name)
}

/// Appends the line of a field, its name in small letters.
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
    fn names_are_known_without_regard_to_case() {
        for (name, is_known) in [
            ("te", true),
            ("TE", true),
            ("ta", false),
            ("", false),
            ("Proxy-Authorization", true),
            ("Proxy-Authorisation", false),
            ("a-name-that-is-longer-than-all-of-them", false),
        ] {
            assert_eq!(OF_THE_CONNECTION.has(name.as_bytes()), is_known, "{name}");
        }
    }
}
