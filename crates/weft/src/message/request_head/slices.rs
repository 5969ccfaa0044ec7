//! Parts of a head as slices of its text, for the types of `http`.

use std::sync::OnceLock;

use bytes::Bytes;
use http::Uri;
use http::uri::{InvalidUri, PathAndQuery};

use crate::message::request_head::{Inner, RequestHead};

/// A target of path and query in the form of the URI, if the client requests it again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedUri {
    local: OnceLock<PathAndQuery>,
    /// Number of requests before with the same path and query, at most [`REPETITIONS`].
    repetitions: u8,
}

/// Number of repetitions after which the path is kept. It needs a copy of the target, so that the cache
/// does not keep the input buffer in memory.
const REPETITIONS: u8 = 2;

impl CachedUri {
    pub(super) fn clear(&mut self) {
        *self = CachedUri::default();
    }

    pub(super) fn count_repetition(&mut self) {
        self.repetitions = (self.repetitions + 1).min(REPETITIONS);
    }
}

impl RequestHead {
    /// Returns the received target as a URI: a slice of the head's bytes, or a clone of that of an
    /// earlier request.
    #[inline]
    pub(crate) fn received_uri(&self) -> Result<Uri, InvalidUri> {
        let Inner { uri: cached, target, original, headers, repeated, .. } = &*self.inner;
        let text = headers.text();
        let target = target.of(text);
        // Otherwise the target has an authority, too.
        let is_local = target.len() == original.len();
        let is_kept = repeated.is_some() || cached.repetitions == REPETITIONS;
        if !is_local || !is_kept {
            return Uri::from_maybe_shared(text.slice_ref(target));
        }
        if let Some(local) = cached.local.get() {
            return Ok(Uri::from(local.clone()));
        }
        let local = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(target))?;
        Ok(Uri::from(cached.local.get_or_init(|| local).clone()))
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
