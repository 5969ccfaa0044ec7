//! A response as the client gets it: what belongs to the connection to the upstream is left
//! out. Pure.

use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, TRANSFER_ENCODING};
use hyper::http::response::Parts;
use weft::{Response, StatusCode};

use super::forwarded;
use super::request::is_of_the_connection;

/// What is wrong with a head, so that the response cannot be passed on.
pub(super) fn flaw(parts: &Parts) -> Option<&'static str> {
    let has = |name: &HeaderName| parts.headers.contains_key(name);
    if has(&TRANSFER_ENCODING) && has(&CONTENT_LENGTH) {
        // RFC 9112 §6.1: it may be an attempt to smuggle something.
        return Some("it has a Content-Length and a Transfer-Encoding");
    }
    None
}

/// Adds status and fields of the upstream's response to one that has its body.
pub(super) fn pass_on(mut parts: Parts, response: Response, via: &str) -> Response {
    if !via.is_empty() {
        forwarded::add_via(&mut parts.headers, parts.version, via);
    }
    let named: Vec<Vec<u8>> = parts.headers.get_all(CONNECTION).iter().flat_map(members).collect();
    let named: Vec<&[u8]> = named.iter().map(Vec::as_slice).collect();
    // RFC 9110 §8.6: a 204 has none.
    let has_no_length = parts.status == StatusCode::NO_CONTENT;
    let mut response = response.with_status(parts.status);
    for (name, value) in &parts.headers {
        if is_of_the_connection(name, &named) || (has_no_length && *name == CONTENT_LENGTH) {
            continue;
        }
        response = response.with_header(name.clone(), value);
    }
    response
}

fn members(value: &hyper::header::HeaderValue) -> Vec<Vec<u8>> {
    let members = value.as_bytes().split(|&b| b == b',');
    members.map(|member| member.trim_ascii().to_vec()).collect()
}

/// Trailers without what may only stand in a head (RFC 9110 §6.5.1).
pub(super) fn trailers(mut trailers: HeaderMap) -> HeaderMap {
    const OF_THE_HEAD: [HeaderName; 4] =
        [CONTENT_LENGTH, hyper::header::HOST, hyper::header::SET_COOKIE, hyper::header::TRAILER];
    let names: Vec<HeaderName> = trailers.keys().cloned().collect();
    for name in names {
        if OF_THE_HEAD.contains(&name) || is_of_the_connection(&name, &[]) {
            trailers.remove(name);
        }
    }
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Version;

    fn parts(status: u16, fields: &[(&'static str, &'static str)]) -> Parts {
        let mut message = hyper::Response::builder().status(status).version(Version::HTTP_11);
        for (name, value) in fields {
            message = message.header(*name, *value);
        }
        message.body(()).unwrap().into_parts().0
    }

    #[test]
    fn fields_that_reach_the_client() {
        for (status, fields, expected) in [
            (200, &[("content-type", "text/html")][..], "content-type: text/html, via: 1.1 w"),
            (
                200,
                &[("set-cookie", "a=1"), ("set-cookie", "b=2"), ("server", "up")],
                "set-cookie: a=1, set-cookie: b=2, server: up, via: 1.1 w",
            ),
            (
                200,
                &[
                    ("connection", "close, X-Mine"),
                    ("connection", "x-too"),
                    ("x-mine", "1"),
                    ("x-too", "1"),
                    ("keep-alive", "timeout=5"),
                    ("proxy-authenticate", "x"),
                    ("upgrade", "h2c"),
                    ("via", "1.0 up"),
                ],
                "via: 1.0 up, via: 1.1 w",
            ),
            (204, &[("content-length", "0")], "via: 1.1 w"),
            (
                304,
                &[("content-length", "5"), ("etag", "\"e\"")],
                "content-length: 5, etag: \"e\", via: 1.1 w",
            ),
        ] {
            let app = async |_| pass_on(parts(status, fields), Response::new(StatusCode::OK), "w");
            let reply = weft::testing::get(app, "/");
            let lines = reply.headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()));
            assert_eq!(reply.status, status);
            assert_eq!(lines.collect::<Vec<_>>().join(", "), expected, "{fields:?}");
        }
    }

    #[test]
    fn heads_that_contradict_themselves() {
        let both = [("content-length", "5"), ("transfer-encoding", "chunked")];
        for (fields, is_bad) in [(&both[..1], false), (&both[1..], false), (&both[..], true)] {
            assert_eq!(flaw(&parts(200, fields)).is_some(), is_bad);
        }
    }
}
