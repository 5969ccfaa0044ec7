//! Parts of a head as slices of its text, for the types of `http`.

use bytes::Bytes;
use http::Uri;
use http::uri::InvalidUri;

use crate::message::request_head::RequestHead;

impl RequestHead {
    /// Returns the received target as a URI: a slice of the head's bytes.
    pub(crate) fn received_uri(&self) -> Result<Uri, InvalidUri> {
        let text = self.inner.headers.text();
        Uri::from_maybe_shared(text.slice_ref(self.inner.target.of(text)))
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
