//! The static table (RFC 9204 appendix A).

use std::ops::Range;

use crate::field_coding::field_class::{FieldClass, Name};

/// Returns name, value and class of an entry.
#[inline]
pub(super) fn get(index: usize) -> Option<(&'static str, &'static str, FieldClass)> {
    let (name, value) = *STATIC.get(index)?;
    Some((name, value, FieldClass { name: NAMES[index], is_valid_value: true }))
}

/// Returns the first entries with this name that are adjacent.
pub(super) fn indices(name: &[u8]) -> Option<Range<usize>> {
    Some(match name {
        b":status" => 24..29,
        b"accept" => 29..31,
        b"accept-ranges" => 32..33,
        b"access-control-allow-credentials" => 73..75,
        b"access-control-allow-headers" => 33..35,
        b"access-control-allow-methods" => 76..79,
        b"access-control-allow-origin" => 35..36,
        b"access-control-expose-headers" => 79..80,
        b"age" => 2..3,
        b"alt-svc" => 83..84,
        b"cache-control" => 36..42,
        b"content-disposition" => 3..4,
        b"content-encoding" => 42..44,
        b"content-length" => 4..5,
        b"content-security-policy" => 85..86,
        b"content-type" => 44..55,
        b"date" => 6..7,
        b"etag" => 7..8,
        b"last-modified" => 10..11,
        b"link" => 11..12,
        b"location" => 12..13,
        b"server" => 92..93,
        b"set-cookie" => 14..15,
        b"strict-transport-security" => 56..59,
        b"timing-allow-origin" => 93..94,
        b"vary" => 59..61,
        b"x-content-type-options" => 61..62,
        b"x-frame-options" => 97..99,
        b"x-xss-protection" => 62..63,
        _ => return None,
    })
}

static NAMES: [Name; STATIC.len()] = {
    let mut names = [Name::Other; STATIC.len()];
    let mut at = 0;
    while at < STATIC.len() {
        names[at] = Name::of(STATIC[at].0.as_bytes());
        at += 1;
    }
    names
};

#[rustfmt::skip]
static STATIC: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_have_the_name() {
        let mut named = 0;
        for (index, (name, _)) in STATIC.iter().enumerate() {
            if let Some(indices) = indices(name.as_bytes()) {
                assert!(indices.clone().all(|index| STATIC[index].0 == *name), "{name}");
                named += usize::from(indices.start == index);
            }
        }
        assert_eq!(named, 29);
    }
}
