//! Replacement of fields.

use smallvec::SmallVec;

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
        let is_kept = |name: &str| !added.iter().any(|(other, _)| name.eq_ignore_ascii_case(other));
        let present = added.iter().copied().filter(|(_, value)| !value.is_empty());
        self.rewrite_fields(is_kept, &present.collect::<SmallVec<[_; 4]>>())
    }

    /// Keeps the fields for whose name `is_kept` returns true, and adds others. The head is copied.
    ///
    /// # Errors
    /// [`HeadTooLarge`](crate::ErrorKind::HeadTooLarge) if the fields exceed the maximum size of a
    /// head.
    pub(in crate::message) fn rewrite_fields(
        &mut self,
        is_kept: impl Fn(&str) -> bool,
        added: &[(&str, &[u8])],
    ) -> Result<()> {
        let head = &self.inner;
        let target = self.target().as_bytes();
        let kept = || head.headers.iter().filter(|(name, _)| is_kept(name));
        let all = || kept().chain(added.iter().copied());
        let length = all().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let mut fields = HeadersBuilder::with_capacity(target.len() + length)?;
        let target = fields.part(target);
        for (name, value) in all() {
            fields.field(name.as_bytes(), value);
        }
        let (authority, _) = framing::target(self.received_method(), target, fields.text())?;
        let inner = self.changed();
        (inner.target, inner.authority) = (target, authority);
        inner.headers = fields.into_headers();
        Ok(())
    }

    /// Removes all fields with these names. The head is copied if it has one of them.
    pub(in crate::message) fn remove_fields(&mut self, names: &[&str]) {
        if names.iter().any(|name| self.headers().contains(name)) {
            names.iter().for_each(|name| self.changed().headers.remove(name));
        }
    }

    /// Describes a body of this length, or of an unknown one.
    pub(in crate::message) fn set_content_length(&mut self, length: Option<u64>) {
        match length {
            None => self.remove_fields(&["content-length"]),
            Some(length) => {
                self.remove_fields(&["content-length", "transfer-encoding"]);
                if length > 0 {
                    let text = length.to_string();
                    // A head without room for it has a body of unknown length.
                    let _ = self.rewrite_fields(|_| true, &[("content-length", text.as_bytes())]);
                }
            }
        }
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
