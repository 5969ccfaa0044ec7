//! Replacement of fields.

use crate::error::Result;
use crate::message::request_head::RequestHead;
use weft_proto::headers::HeadersBuilder;
use weft_proto::http1::framing;

impl RequestHead {
    /// Replaces the fields with the names of `added`, which are lowercase; an empty value removes a
    /// field. The head is copied.
    ///
    /// # Errors
    /// [`HeadTooLarge`](crate::ErrorKind::HeadTooLarge) if the fields exceed the maximum size of a
    /// head.
    pub(in crate::message) fn replace_fields(&mut self, added: &[(&str, &[u8])]) -> Result<()> {
        let head = &self.inner;
        let target = self.target().as_bytes();
        let is_kept = |name: &str| !added.iter().any(|(other, _)| name.eq_ignore_ascii_case(other));
        let kept = || head.headers.iter().filter(|(name, _)| is_kept(name));
        let new = || added.iter().copied().filter(|(_, value)| !value.is_empty());
        let length =
            kept().chain(new()).map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let mut fields = HeadersBuilder::with_capacity(target.len() + length)?;
        let target = fields.part(target);
        for (name, value) in kept().chain(new()) {
            fields.field(name.as_bytes(), value);
        }
        let (authority, _) = framing::target(self.received_method(), target, fields.text())?;
        let inner = self.changed();
        (inner.target, inner.authority) = (target, authority);
        inner.headers = fields.into_headers();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::request;

    #[test]
    fn replaces_fields_and_keeps_the_rest_of_the_head() {
        let mut request = request(
            "POST http://a.example/p/q?r HTTP/1.1\r\nHost: a.example\r\nTE: x\r\nA: 1\r\nte: y\r\n\r\n",
        );
        request.take_prefix("/p".len());
        let before = request.head().clone();
        request.replace_fields(&[("te", b"trailers"), ("a", b""), ("b", b"2")]).unwrap();
        let fields: Vec<_> = request.headers().iter().collect();
        let expected = [("Host", "a.example"), ("te", "trailers"), ("b", "2")];
        assert_eq!(fields, expected.map(|(name, value)| (name, value.as_bytes())));
        assert_eq!((request.target(), request.host()), (before.target(), Some("a.example")));
        assert_eq!((request.mount(), request.path(), request.query()), ("/p", "/q", Some("r")));
        assert_eq!(before.headers().get("te"), Some("x"));
    }
}
