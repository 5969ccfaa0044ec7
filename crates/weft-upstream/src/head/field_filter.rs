//! Rules for forwarding fields. Pure.

use weft::header::Headers;
use weft_proto::names::{is_same_name, push_lower_case};

use super::client_certificate::{NAME_PREFIXES, is_certificate_field, starts_with};
use super::field_names::{FieldNames, NameFilter};
use crate::settings::proxy_settings::ForwardedNames;

/// Hop-by-hop fields, which apply to one connection only (RFC 9110 §7.6.1), and `Proxy`, which CGI
/// programs mistake for a configuration variable (`HTTP_PROXY`).
static HOP_BY_HOP: FieldNames<9> = FieldNames::new([
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
static HEAD_ONLY: FieldNames<4> =
    FieldNames::new([b"content-length", b"host", b"set-cookie", b"trailer"]);

/// The hop-by-hop fields of a head: the fixed ones, and those named by `Connection`.
#[derive(Default)]
pub(crate) struct HopByHopFields<'a>(Vec<&'a [u8]>);

impl<'a> HopByHopFields<'a> {
    pub(crate) fn new(headers: &'a Headers) -> HopByHopFields<'a> {
        static OPTIONS: FieldNames<2> = FieldNames::new([b"close", b"keep-alive"]);
        let mut listed = Vec::new();
        for value in headers.get_all("connection") {
            // The common values name no field.
            if !OPTIONS.contains(value) {
                listed.extend(value.split(|&b| b == b',').map(<[u8]>::trim_ascii));
            }
        }
        HopByHopFields(listed)
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        HOP_BY_HOP.contains(name) || self.lists(name)
    }

    fn lists(&self, name: &[u8]) -> bool {
        self.0.iter().any(|listed| is_same_name(listed, name))
    }
}

/// Fields of a request that the proxy generates instead of forwarding them.
static GENERATED: FieldNames<7> = FieldNames::new([
    b"host",
    b"content-length",
    b"expect",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
]);

/// Fields by which proxies and content delivery networks pass on the address, the scheme, the host
/// or the target of the original request, besides `X-Forwarded-*`. Frameworks trust many of them
/// without a setting: chi and gin `X-Real-IP`, Rails `Client-IP`, Symfony and IIS `X-Original-URL`,
/// and the packages request-ip and axum-client-ip the fields of the networks.
static ABOUT_CLIENT: FieldNames<35> = FieldNames::new([
    // The address.
    b"cf-connecting-ip",
    b"cf-connecting-ipv6",
    b"cf-pseudo-ipv4",
    b"client-ip",
    b"cloudfront-viewer-address",
    b"do-connecting-ip",
    b"fastly-client-ip",
    b"fly-client-ip",
    b"forwarded-for",
    b"true-client-ip",
    b"x-appengine-user-ip",
    b"x-azure-clientip",
    b"x-azure-socketip",
    b"x-client-ip",
    b"x-cluster-client-ip",
    b"x-envoy-external-address",
    b"x-forwarded",
    b"x-original-forwarded-for",
    b"x-originating-ip",
    b"x-real-ip",
    b"x-remote-addr",
    b"x-remote-ip",
    // The scheme.
    b"cloudfront-forwarded-proto",
    b"front-end-https",
    b"x-arr-ssl",
    b"x-original-proto",
    b"x-scheme",
    b"x-url-scheme",
    // Names that an application gives its files in `X-Accel-Redirect`: Rack::Sendfile obeys them.
    b"x-accel-mapping",
    b"x-sendfile-type",
    // The host and the target, which routes and access rules have been applied to.
    b"x-host",
    b"x-original-host",
    b"x-original-uri",
    b"x-original-url",
    b"x-rewrite-url",
]);

/// The list of the trailers of a request. The proxy sends a list of the forwarded ones.
const TRAILER: &[u8] = b"trailer";

/// Prefix of the names of the fields by which proxies describe the original request.
const FORWARDED_PREFIX: &[u8] = b"x-forwarded-";

/// Filter for the names of dropped fields. Most fields of requests have other names.
static MAY_BE_DROPPED: NameFilter = NameFilter::new()
    .with_names(&GENERATED.names)
    .with_names(&HOP_BY_HOP.names)
    .with_names(&ABOUT_CLIENT.names)
    .with_names(&[TRAILER])
    .with_prefixes(&[FORWARDED_PREFIX])
    .with_prefixes(&NAME_PREFIXES);

/// Selection of the fields of a client's request that an upstream gets.
pub(crate) struct RequestFieldFilter<'a> {
    pub(crate) hop_by_hop: HopByHopFields<'a>,
    pub(crate) names: ForwardedNames,
    /// The client is a trusted proxy, which may describe the original client.
    pub(crate) is_trusted: bool,
}

impl RequestFieldFilter<'_> {
    /// Returns true for a field to forward whose name has letters, digits and hyphens only.
    #[inline]
    pub(crate) fn selects(&self, name: &[u8]) -> bool {
        let is_dropped = MAY_BE_DROPPED.may_contain(name) && self.drops(name);
        !is_dropped && !self.hop_by_hop.lists(name)
    }

    /// Returns true for a field that is not forwarded, independent of the names in `Connection`.
    fn drops(&self, name: &[u8]) -> bool {
        GENERATED.contains(name)
            || HOP_BY_HOP.contains(name)
            || !self.is_trusted && describes_client(name)
            || is_same_name(name, TRAILER)
    }

    /// Acts as [`selects`](RequestFieldFilter::selects) for a name with other bytes. Some upstreams
    /// map these bytes to hyphens or underscores. The mapped name must not be the name of a dropped
    /// field.
    #[cold]
    pub(crate) fn selects_unusual(&self, name: &[u8]) -> bool {
        let is_permitted = match self.names {
            ForwardedNames::Plain => false,
            ForwardedNames::Underscores => {
                name.iter().all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            }
            ForwardedNames::Any => true,
        };
        let to_plain = |&b: &u8| if b.is_ascii_alphanumeric() { b } else { b'-' };
        is_permitted && self.selects(&name.iter().map(to_plain).collect::<Vec<_>>())
    }
}

/// Returns true for a field by which a proxy describes its client or the client's certificate.
pub(crate) fn describes_client(name: &[u8]) -> bool {
    // The first letters of these names are rare among other fields.
    let may_be_known = matches!(
        name.first().map(u8::to_ascii_lowercase),
        Some(b'c' | b'd' | b'f' | b's' | b't' | b'x')
    );
    may_be_known
        && (starts_with(name, FORWARDED_PREFIX)
            || ABOUT_CLIENT.contains(name)
            || is_certificate_field(name))
}

/// Returns true if an operator may permit the field in the trailer section of requests: it is
/// neither about framing, routing or authentication, nor about the content (RFC 9110 §6.5.1).
pub fn may_permit_in_request_trailers(name: &[u8]) -> bool {
    static HEAD_ONLY_IN_REQUESTS: FieldNames<6> = FieldNames::new([
        b"authorization",
        b"cookie",
        b"content-encoding",
        b"content-range",
        b"content-type",
        b"max-forwards",
    ]);
    is_allowed_in_trailers(name)
        && !GENERATED.contains(name)
        && !HEAD_ONLY_IN_REQUESTS.contains(name)
        && !describes_client(name)
}

/// Returns true if the field of a response is allowed in a trailer section.
pub(crate) fn is_allowed_in_trailers(name: &[u8]) -> bool {
    !HEAD_ONLY.contains(name) && !HOP_BY_HOP.contains(name)
}

/// Appends a field line. The name is in lower case.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    push_value(out, value);
}

/// Appends a field line with its name in lower case if that has letters, digits and hyphens only.
/// Otherwise returns false.
pub(crate) fn push_plain_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> bool {
    let is_plain = push_lower_case(out, name);
    if is_plain {
        push_value(out, value);
    }
    is_plain
}

/// Appends a field line with any name, in lower case.
pub(crate) fn push_any_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    push_value(out, value);
}

fn push_value(out: &mut Vec<u8>, value: &[u8]) {
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
        for name in ABOUT_CLIENT.names {
            assert!(ABOUT_CLIENT.contains(&name.to_ascii_uppercase()));
            assert!(!ABOUT_CLIENT.contains(&[name, b"x"].concat()));
        }
    }

    /// The filter may select no name that a rule drops.
    #[test]
    fn drops_all_names_of_the_rules() {
        let fixed = GENERATED.names.into_iter().chain(HOP_BY_HOP.names).chain(ABOUT_CLIENT.names);
        let prefixes = NAME_PREFIXES.into_iter().chain([FORWARDED_PREFIX]);
        let suffixes = ["", "x", "-verify", &"-x".repeat(20)];
        let begun = prefixes.flat_map(|prefix| suffixes.map(|it| [prefix, it.as_bytes()].concat()));
        let names = fixed.map(<[u8]>::to_vec).chain(begun);
        let headers = Headers::default();
        let filter = |is_trusted| RequestFieldFilter {
            hop_by_hop: HopByHopFields::new(&headers),
            names: ForwardedNames::Any,
            is_trusted,
        };
        for name in names.chain([TRAILER.to_vec()]) {
            let text = String::from_utf8_lossy(&name);
            let is_kept =
                !GENERATED.contains(&name) && !HOP_BY_HOP.contains(&name) && name != TRAILER;
            assert_eq!(filter(true).selects(&name), is_kept, "{text}");
            for name in [name.clone(), name.to_ascii_uppercase()] {
                assert!(!filter(false).selects(&name), "{text}");
            }
            let unusual: Vec<u8> = name.iter().map(|&b| if b == b'-' { b'_' } else { b }).collect();
            assert!(!filter(false).selects_unusual(&unusual), "{text}");
        }
        for name in ["cookie", "x-request-id", "client", "sec-fetch-site"] {
            assert!(filter(false).selects(name.as_bytes()), "{name}");
        }
    }
}
