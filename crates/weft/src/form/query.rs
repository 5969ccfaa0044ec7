//! The query of a request, decoded as `application/x-www-form-urlencoded` (WHATWG URL §5): the
//! format of forms submitted with GET.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::form::settings::FormSettings;
use crate::message::request_head::RequestHead;

impl RequestHead {
    /// Returns the decoded names and values of the query, in order. `+` is decoded to a space, and
    /// invalid UTF-8 to U+FFFD. Each is decoded when the iterator reaches it, and none is stored,
    /// so only the limit of the request line limits their number.
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

    /// Deserializes the query with serde, as [`FormSettings::query`] with the default settings. A
    /// name that occurs several times is deserialized to a `Vec`.
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
    /// let response = weft::testing::get(search, "/?q=weft+and+warp&tag=a&tag=b");
    /// response.assert_text("weft and warp, page 1, [\"a\", \"b\"]\n");
    /// let response = weft::testing::get(search, "/");
    /// assert_eq!(response.status, 400);
    /// response.assert_text("400 Bad Request: cannot deserialize the query: missing field `q`\n");
    /// ```
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed), which becomes 400, if the query does not fit the type
    /// or has more than 1,000 fields.
    pub fn query_as<T: DeserializeOwned>(&self) -> Result<T> {
        FormSettings::default().query(self)
    }
}

impl FormSettings {
    /// Deserializes the query of a request with serde, if it has at most
    /// [`max_fields`](FormSettings::max_fields).
    ///
    /// ```
    /// use weft::{Request, Response, form::FormSettings};
    ///
    /// async fn show(request: Request) -> weft::Result<Response> {
    ///     let settings = FormSettings { max_fields: 2, ..FormSettings::default() };
    ///     let fields: Vec<(String, String)> = settings.query(request.head())?;
    ///     Ok(Response::text(format!("{} fields\n", fields.len())))
    /// }
    ///
    /// weft::testing::get(show, "/?a=1&b=2").assert_text("2 fields\n");
    /// let response = weft::testing::get(show, "/?a=1&b=2&c=3");
    /// response.assert_text("400 Bad Request: the query has more than 2 fields\n");
    /// ```
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) if the query does not fit the type or has more fields.
    pub fn query<T: DeserializeOwned>(&self, head: &RequestHead) -> Result<T> {
        let query = head.query().unwrap_or_default();
        let max = self.max_fields;
        let malformed = |reason| Error::new(ErrorKind::Malformed, reason);
        if query.split('&').filter(|field| !field.is_empty()).nth(max).is_some() {
            return Err(malformed(format!("the query has more than {max} fields")));
        }
        serde_html_form::from_str(query)
            .map_err(|error| malformed(format!("cannot deserialize the query: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::request;

    #[test]
    fn decodes_query_pairs() {
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
    fn bounds_the_number_of_fields_to_deserialize() {
        let read = |fields: usize| {
            let request =
                request(format!("GET /?{} HTTP/1.1\r\nHost: a\r\n\r\n", "a&".repeat(fields)));
            request.query_as::<Vec<(String, String)>>().map(|fields| fields.len())
        };
        assert_eq!(read(1_000).unwrap(), 1_000);
        assert_eq!(read(1_001).unwrap_err().kind(), crate::error::ErrorKind::Malformed);
    }

    #[test]
    fn reads_the_query_that_middleware_has_set() {
        let mut request = request("GET /?a=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        request.set_path_and_query("/?a=2");
        assert_eq!(request.query_as::<Vec<(String, u8)>>().unwrap(), [("a".to_owned(), 2)]);
    }
}
