//! Cookies (RFC 6265) of requests, and cookies set by responses.
//!
//! The types come from the crate `cookie`. Names and values are percent-encoded in responses and
//! decoded in requests, so a value may be any text.
//!
//! ```
//! use weft::{Request, Response, cookie};
//!
//! async fn visits(request: Request) -> Response {
//!     let previous = request.cookies().get("visits").and_then(|c| c.value().parse().ok());
//!     let visits = previous.unwrap_or(0_u64).saturating_add(1);
//!     Response::text(format!("{visits}\n"))
//!         .with_cookie(cookie::build("visits", visits.to_string()))
//! }
//!
//! let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: theme=dark; visits=4\r\n\r\n";
//! let response = weft::testing::call(visits, weft::testing::request(request));
//! response.assert_text("5\n");
//! let set = "visits=5; HttpOnly; SameSite=Lax; Secure; Path=/";
//! assert_eq!(response.header("set-cookie"), Some(set));
//! ```
//!
//! Jars of signed or encrypted cookies ([`CookieJar`]'s `signed` and `private`, and their `Key`)
//! require the feature `secret-cookies`, which is not enabled by default.

use std::borrow::Cow;

use http::header::{COOKIE, SET_COOKIE};

use crate::message::request_head::RequestHead;
use crate::message::response::Response;

#[doc(no_inline)]
pub use ::cookie::*;

/// Builds a cookie with safe attributes: not readable by scripts (`HttpOnly`), not sent without
/// encryption (`Secure`; browsers treat `localhost` as secure), not sent with cross-site requests
/// except top-level navigation (`SameSite=Lax`), and valid for all paths (`Path=/`). It is a
/// session cookie, unless its `max_age` is set.
pub fn build<'c>(
    name: impl Into<Cow<'c, str>>,
    value: impl Into<Cow<'c, str>>,
) -> CookieBuilder<'c> {
    Cookie::build((name, value)).http_only(true).secure(true).same_site(SameSite::Lax).path("/")
}

impl RequestHead {
    /// Returns the cookies of the request. Malformed cookies are ignored. Of several with the same
    /// name the first is kept, which is the one with the longer path (RFC 6265 §5.4).
    pub fn cookies(&self) -> CookieJar {
        let mut jar = CookieJar::new();
        for line in self.headers().get_all(COOKIE.as_str()) {
            for cookie in Cookie::split_parse_encoded(String::from_utf8_lossy(line)).flatten() {
                if jar.get(cookie.name()).is_none() {
                    jar.add_original(cookie.into_owned());
                }
            }
        }
        jar
    }
}

impl Response {
    /// Adds a `Set-Cookie` field. Cookies from [`build`] have safe attributes.
    ///
    /// To delete a cookie, set it with the same path and domain, and an expiry time in the past:
    ///
    /// ```
    /// use weft::{Response, cookie};
    ///
    /// let mut removal = cookie::build("session", "").build();
    /// removal.make_removal();
    /// let response = Response::text("Logged out.\n").with_cookie(removal);
    /// let set = response.header("set-cookie").unwrap().to_str().unwrap();
    /// assert!(set.starts_with("session=; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=0; "));
    /// ```
    pub fn with_cookie<'c>(self, cookie: impl Into<Cookie<'c>>) -> Response {
        self.with_appended_header(SET_COOKIE, cookie.into().encoded().to_string())
    }

    /// Adds a `Set-Cookie` field for each cookie that was added to the jar or removed from it.
    pub fn with_cookies(self, jar: &CookieJar) -> Response {
        jar.delta().fold(self, |response, cookie| response.with_cookie(cookie.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn parses_request_cookies() {
        for (lines, expected) in [
            ("", &[][..]),
            ("Cookie: a=1\r\n", &[("a", "1")]),
            ("Cookie: a=1; b=2;c=3\r\n", &[("a", "1"), ("b", "2"), ("c", "3")]),
            ("Cookie: a=1\r\ncookie: b=2\r\n", &[("a", "1"), ("b", "2")]),
            ("Cookie: a=1; a=2\r\n", &[("a", "1")]),
            ("Cookie: ; x; =y; a=; b=%C3%AD; c=%ff; d=%\r\n", &[("a", ""), ("b", "í"), ("d", "%")]),
            ("Cookie: a=\"1\"\r\n", &[("a", "\"1\"")]),
            ("Cookie: a=\u{ed}=\u{ed}\r\n", &[("a", "í=í")]),
        ] {
            let request = request(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
            let jar = request.cookies();
            let mut found: Vec<_> = jar.iter().map(Cookie::name_value).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{lines}");
            assert_eq!(jar.delta().count(), 0, "{lines}");
        }
    }

    #[test]
    fn value_round_trips_and_cannot_inject_attributes() {
        for value in ["", "a b", "a;b; Path=/x", "a\r\nb\0", "días", "100%", "a=b,c\"d\"\\"] {
            let response = Response::text("").with_cookie(build("n;o", value));
            let set = response.header("set-cookie").unwrap().to_str().unwrap();
            assert_eq!(set.matches(';').count(), 4, "{set}");
            let (pair, _) = set.split_once(';').unwrap();
            let request = request(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {pair}\r\n\r\n"));
            assert_eq!(request.cookies().get("n;o").unwrap().value(), value, "{pair}");
        }
        let injection = Cookie::build(("a", "b")).path("/\r\nx-evil: 1");
        let response = Response::text("").with_cookie(injection);
        assert!(response.header("set-cookie").is_none(), "the field is not valid");
    }

    #[test]
    fn with_cookies_sends_the_changes_of_a_jar() {
        let request = request("GET / HTTP/1.1\r\nHost: a\r\nCookie: old=1; kept=2\r\n\r\n");
        let mut jar = request.cookies();
        jar.add(build("new", "3"));
        jar.remove(Cookie::build("old").path("/"));
        let response = Response::new(crate::StatusCode::OK).with_cookies(&jar);
        let mut set: Vec<_> = response.headers.iter().map(|(_, v)| v.to_str().unwrap()).collect();
        set.sort_unstable();
        assert_eq!(set[0], "new=3; HttpOnly; SameSite=Lax; Secure; Path=/");
        assert!(set[1].starts_with("old=; Path=/; Max-Age=0; Expires="), "{set:?}");
        assert_eq!(set.len(), 2);
    }
}
