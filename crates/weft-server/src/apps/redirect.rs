//! Another place, for a path and all that is below it.

use std::sync::Arc;

use weft::{Request, Response, StatusCode};

/// Redirects to a target, to which the rest of the path and the query are appended.
#[derive(Clone)]
pub(crate) struct Redirect {
    to: Arc<str>,
    status: StatusCode,
}

impl Redirect {
    /// The target has neither a query nor a fragment.
    pub(crate) fn new(to: &str, status: StatusCode) -> Redirect {
        Redirect { to: to.into(), status }
    }

    pub(crate) fn answer(&self, request: &Request) -> Response {
        let location = location(&self.to, request.path(), request.query());
        Response::redirect(self.status, &location)
    }
}

/// The target and the rest of a path, with exactly one slash between them: so the rest can
/// neither be taken for the end of the target's host nor begin a host of its own.
fn location(to: &str, rest: &str, query: Option<&str>) -> String {
    let mut location = String::with_capacity(to.len() + rest.len() + 1);
    match rest.trim_start_matches('/') {
        // `OPTIONS *` is about no path.
        "" | "*" => location.push_str(to),
        rest => {
            location.push_str(to.strip_suffix('/').unwrap_or(to));
            location.push('/');
            escape(&mut location, rest);
        }
    }
    if let Some(query) = query {
        location.push('?');
        escape(&mut location, query);
    }
    location
}

/// Appends a text in which what cannot stand in a reference is percent-encoded, and a
/// backslash, which browsers take for a slash. What is encoded already stays as it is.
pub(crate) fn escape(out: &mut String, text: &str) {
    for b in text.bytes() {
        match b {
            b'\\' | b'"' | b'<' | b'>' | b'#' => out.push_str(&format!("%{b:02X}")),
            b'!'..=b'~' => out.push(b.into()),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        for (to, rest, query, expected) in [
            ("https://a/new/", "/", None, "https://a/new/"),
            ("https://a/new", "/", None, "https://a/new"),
            ("https://a/new/", "/b/c", Some("d=e"), "https://a/new/b/c?d=e"),
            ("https://a/new", "/b", None, "https://a/new/b"),
            ("https://a", "/.evil.example", None, "https://a/.evil.example"),
            ("https://a", "/@evil.example", None, "https://a/@evil.example"),
            ("/", "/", Some("q"), "/?q"),
            ("/", "//evil.example", None, "/evil.example"),
            ("/", "/\\evil.example", None, "/%5Cevil.example"),
            ("/new/", "/a%2Fb%0d%0aX:y", None, "/new/a%2Fb%0d%0aX:y"),
            ("/new/", "/a b\r\nX: y", Some("é\n"), "/new/a%20b%0D%0AX:%20y?%C3%A9%0A"),
            ("/new/", "*", None, "/new/"),
        ] {
            assert_eq!(location(to, rest, query), expected, "{to} {rest}");
        }
    }
}
