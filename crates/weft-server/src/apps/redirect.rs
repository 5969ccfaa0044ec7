//! Redirects a path and everything below it.

use std::sync::Arc;

use weft::{Request, Response, StatusCode};

use crate::template::{Template, escape};

/// Redirects to a target URL. If it has no placeholders, the rest of the request's path and the
/// query are appended. A query in the target replaces that of the request.
#[derive(Clone)]
pub(crate) struct Redirect {
    target: Arc<Template>,
    status: StatusCode,
}

impl Redirect {
    /// A `target` without placeholders must have neither a query nor a fragment if requests have a
    /// rest of the path.
    pub(crate) fn new(target: &Template, status: StatusCode) -> Redirect {
        Redirect { target: Arc::new(target.clone()), status }
    }

    pub(crate) fn response(&self, request: &Request) -> Response {
        let location = match self.target.as_literal() {
            Some(target) => location(target, request.path(), request.query()),
            None => match self.target.expand_url(request) {
                Ok(url) => on_same_host(url),
                Err(error) => return error.into(),
            },
        };
        Response::redirect(self.status, &location)
    }
}

/// Removes all but one of the slashes at the beginning of a path: two begin the name of a host, and
/// a value behind the slash of a template may begin with another one.
fn on_same_host(url: String) -> String {
    match url.strip_prefix("//") {
        Some(rest) => format!("/{}", rest.trim_start_matches('/')),
        None => url,
    }
}

/// Joins the target and the rest of a path with exactly one slash, so that the rest can neither
/// extend the target's host name nor start an authority of its own.
fn location(target: &str, rest: &str, query: Option<&str>) -> String {
    let (target, fragment) = target.split_at(target.find('#').unwrap_or(target.len()));
    let mut location = String::with_capacity(target.len() + rest.len() + 1);
    match rest.trim_start_matches('/') {
        // The asterisk-form of `OPTIONS *` has no path (RFC 9112 §3.2.4).
        "" | "*" => location.push_str(target),
        rest => {
            location.push_str(target.strip_suffix('/').unwrap_or(target));
            location.push('/');
            escape(&mut location, rest);
        }
    }
    match query {
        // A question mark without a query removes the query.
        _ if target.ends_with('?') => drop(location.pop()),
        Some(query) if !target.contains('?') => {
            location.push('?');
            escape(&mut location, query);
        }
        _ => {}
    }
    location + fragment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_path_and_query_to_target() {
        for (target, rest, query, expected) in [
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
            ("/new?a=b", "/", Some("c"), "/new?a=b"),
            ("/new?", "/", Some("c"), "/new"),
            ("/new#d", "/", Some("c"), "/new?c#d"),
            ("/new?a#d", "/", Some("c"), "/new?a#d"),
        ] {
            assert_eq!(location(target, rest, query), expected, "{target} {rest}");
        }
    }
}
