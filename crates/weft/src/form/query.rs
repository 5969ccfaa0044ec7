//! The query of a request, decoded as the one of a form that is sent with GET (WHATWG URL §5).

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::message::request::Head;

impl Head {
    /// The names and values of the query, decoded, in their order. `+` is a space, and what is
    /// no UTF-8 is shown as U+FFFD.
    ///
    /// ```
    /// let request = weft::testing::request("GET /?a=1&b=d%C3%ADas+3&a HTTP/1.1\r\nHost: a\r\n\r\n");
    /// let pairs: Vec<_> = request.query_pairs().collect();
    /// assert_eq!(pairs, [("a".into(), "1".into()), ("b".into(), "días 3".into()), ("a".into(), "".into())]);
    /// let b = request.query_pairs().find(|(name, _)| name == "b");
    /// assert_eq!(b.unwrap().1, "días 3");
    /// ```
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.query().unwrap_or_default().as_bytes())
    }

    /// The query as a value of a type that serde can make. A name that occurs several times
    /// fits a `Vec`.
    ///
    /// ```
    /// use weft::{Request, Response};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Search {
    ///     q: String,
    ///     page: Option<u32>,
    ///     #[serde(default)]
    ///     tag: Vec<String>,
    /// }
    ///
    /// async fn search(request: Request) -> weft::Result<Response> {
    ///     let Search { q, page, tag } = request.query_as()?;
    ///     Ok(Response::text(format!("{q}, page {}, {tag:?}\n", page.unwrap_or(1))))
    /// }
    ///
    /// let reply = weft::testing::get(search, "/?q=weft+and+warp&tag=a&tag=b");
    /// reply.assert_text("weft and warp, page 1, [\"a\", \"b\"]\n");
    /// let reply = weft::testing::get(search, "/");
    /// assert_eq!(reply.status, 400);
    /// reply.assert_text("400 Bad Request: the query is not what is expected: missing field `q`\n");
    /// ```
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed), which becomes 400, if the query is no such value.
    pub fn query_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_html_form::from_str(self.query().unwrap_or_default()).map_err(|error| {
            Error::new(ErrorKind::Malformed, format!("the query is not what is expected: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::request;

    #[test]
    fn queries() {
        for (target, expected) in [
            ("/", &[][..]),
            ("/?", &[]),
            ("/?&&", &[]),
            ("/?a", &[("a", "")]),
            ("/?=b", &[("", "b")]),
            ("/?a=b=c&d=%26%3D", &[("a", "b=c"), ("d", "&=")]),
            ("/?a=1+2%2B3&a=", &[("a", "1 2+3"), ("a", "")]),
            ("/?a=%ff%zz%", &[("a", "\u{fffd}%zz%")]),
            ("/?a?b=/", &[("a?b", "/")]),
        ] {
            let request = request(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let found: Vec<_> = request.query_pairs().collect();
            let found: Vec<_> = found.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
            assert_eq!(found, expected, "{target}");
        }
    }

    #[test]
    fn what_middleware_has_set_is_what_is_read() {
        let mut request = request("GET /?a=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        request.set_path_and_query("/?a=2");
        assert_eq!(request.query_as::<Vec<(String, u8)>>().unwrap(), [("a".to_owned(), 2)]);
    }
}
