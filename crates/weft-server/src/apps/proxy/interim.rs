//! Interim responses (RFC 9110 §15.2), from an upstream to the client.

use std::sync::{Mutex, PoisonError};

use hyper::header::{HeaderMap, HeaderValue, LINK};
use tokio::sync::Notify;
use weft::Request;

/// The most `Link` fields of early hints that are passed on, for one response.
const MOST_HINTS: usize = 64;

/// What has come before the response: early hints (RFC 8297).
#[derive(Default)]
pub(super) struct Interim {
    links: Mutex<Vec<HeaderValue>>,
    /// There is something new.
    pub(super) news: Notify,
}

impl Interim {
    pub(super) fn add(&self, fields: &HeaderMap) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_HINTS.saturating_sub(links.len());
        links.extend(fields.get_all(LINK).iter().take(room).cloned());
        self.news.notify_one();
    }

    pub(super) fn pass_hints(&self, request: &Request) {
        let links = std::mem::take(&mut *self.links.lock().unwrap_or_else(PoisonError::into_inner));
        if !links.is_empty() {
            request.early_hints(links);
        }
    }
}
