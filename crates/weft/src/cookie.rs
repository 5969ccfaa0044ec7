//! Cookies (RFC 6265): those of a request, and those that a response sets.
//!
//! The types are those of the crate `cookie`. Names and values are percent-encoded on the way
//! out and decoded on the way in, so a value may be any text.
//!
//! ```
//! use weft::{Request, Response, cookie};
//!
//! async fn visits(request: Request) -> Response {
//!     let seen = request.cookies().get("visits").and_then(|seen| seen.value().parse().ok());
//!     let visits = seen.unwrap_or(0_u64).saturating_add(1);
//!     Response::text(format!("{visits}\n"))
//!         .with_cookie(cookie::build("visits", visits.to_string()))
//! }
//!
//! let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: theme=dark; visits=4\r\n\r\n";
//! let reply = weft::testing::call(visits, weft::testing::request(request));
//! reply.assert_text("5\n");
//! let set = "visits=5; HttpOnly; SameSite=Lax; Secure; Path=/";
//! assert_eq!(reply.header("set-cookie"), Some(set));
//! ```
//!
//! Jars whose cookies are signed or encrypted ([`CookieJar`]'s `signed` and `private`, and their
//! `Key`) come with the feature `secret-cookies`, which is not on by default.

use std::borrow::Cow;

use http::header::{COOKIE, SET_COOKIE};

use crate::message::request::Head;
use crate::message::response::Response;

#[doc(no_inline)]
pub use ::cookie::*;

/// A cookie as it is best set: not shown to scripts (`HttpOnly`), not sent without encryption
/// (`Secure`; browsers count `localhost` as safe), not sent along by other sites but where they
/// link to this one (`SameSite=Lax`), and for all paths (`Path=/`). It lasts as long as the
/// browser runs, unless its `max_age` is set.
pub fn build<'c>(
    name: impl Into<Cow<'c, str>>,
    value: impl Into<Cow<'c, str>>,
) -> CookieBuilder<'c> {
    Cookie::build((name, value)).http_only(true).secure(true).same_site(SameSite::Lax).path("/")
}

impl Head {
    /// The cookies of the request. What is no cookie is left out; of two with the same name
    /// the first stays, which is that of the longer path (RFC 6265 §5.4).
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
    /// The same response with this cookie set. Those that [`build`] makes are the safe ones.
    ///
    /// To take a cookie away, set it with the same path and domain, and no time to live:
    ///
    /// ```
    /// use weft::{Response, cookie};
    ///
    /// let mut gone = cookie::build("session", "").build();
    /// gone.make_removal();
    /// let response = Response::text("Goodbye.\n").with_cookie(gone);
    /// let set = response.header("set-cookie").unwrap().to_str().unwrap();
    /// assert!(set.starts_with("session=; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=0; "));
    /// ```
    pub fn with_cookie<'c>(self, cookie: impl Into<Cookie<'c>>) -> Response {
        self.with_header(SET_COOKIE, cookie.into().encoded().to_string())
    }

    /// The same response with each cookie set that was added to a jar or removed from it.
    pub fn with_cookies(self, jar: &CookieJar) -> Response {
        jar.delta().fold(self, |response, cookie| response.with_cookie(cookie.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn the_cookies_of_a_request() {
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
    fn a_value_comes_back_as_it_was_and_sets_nothing_else() {
        for value in ["", "a b", "a;b; Path=/x", "a\r\nb\0", "días", "100%", "a=b,c\"d\"\\"] {
            let response = Response::text("").with_cookie(build("n;o", value));
            let set = response.header("set-cookie").unwrap().to_str().unwrap();
            assert_eq!(set.matches(';').count(), 4, "{set}");
            let (pair, _) = set.split_once(';').unwrap();
            let request = request(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {pair}\r\n\r\n"));
            assert_eq!(request.cookies().get("n;o").unwrap().value(), value, "{pair}");
        }
        let odd = Cookie::build(("a", "b")).path("/\r\nx-evil: 1");
        let response = Response::text("").with_cookie(odd);
        assert_eq!(response.header("set-cookie").unwrap(), "a=b; Path=/  x-evil: 1");
    }

    #[test]
    fn what_was_done_to_a_jar_is_set() {
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
