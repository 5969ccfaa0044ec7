//! Removal of responses.

use crate::cache::key;
use crate::cache::stored_response::StoredResponse;

/// The responses that [`Store::purge`](super::Store::purge) removes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purge {
    /// All responses.
    All,
    /// The responses of a URL, such as `https://example.org/page?n=1`, in all variants.
    Url(String),
    /// All responses whose URL starts with this text, such as `https://example.org/images/`.
    Prefix(String),
    /// All responses with this tag in `Cache-Tag` or `Surrogate-Key`.
    Tag(String),
}

impl Purge {
    /// Returns the same in the form of keys: hosts in lowercase, no default port.
    pub(super) fn normalized(&self) -> Purge {
        let normalize = |url: &String| key::normalized(url).unwrap_or_else(|| url.clone());
        match self {
            Purge::Url(url) => Purge::Url(normalize(url)),
            Purge::Prefix(url) => Purge::Prefix(normalize(url)),
            other => other.clone(),
        }
    }

    /// Returns true if a URL may have such responses.
    pub(super) fn concerns(&self, url: &str) -> bool {
        match self {
            Purge::All | Purge::Tag(_) => true,
            Purge::Url(purged) => purged == url,
            Purge::Prefix(prefix) => url.starts_with(prefix.as_str()),
        }
    }

    /// Returns true if a response of a URL that is concerned has to be removed.
    pub(super) fn includes(&self, response: &StoredResponse) -> bool {
        match self {
            Purge::Tag(tag) => response.tags().iter().any(|other| **other == **tag),
            _ => true,
        }
    }
}
