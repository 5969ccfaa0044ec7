//! Parts of a head as slices of its text, for the types of `http`.

use bytes::Bytes;

use crate::message::request_head::RequestHead;

impl RequestHead {
    /// Returns the request target as a slice of the head's bytes.
    pub(crate) fn shared_target(&self) -> Bytes {
        let text = self.inner.headers.text();
        text.slice_ref(self.inner.target.of(text))
    }

    /// Returns the authority as a slice of the head's bytes.
    pub(crate) fn shared_authority(&self) -> Option<Bytes> {
        Some(self.inner.headers.text().slice_ref(self.authority()?.as_bytes()))
    }

    /// Returns path and query, if middleware has changed them.
    pub(crate) fn rewritten(&self) -> Option<&str> {
        (self.inner.rewritten.is_some() || self.mount > 0).then(|| self.path_and_query())
    }
}
