//! A request and its response, and the settings for what they leave open.

use std::ops::RangeInclusive;

use http::{Method, StatusCode};

/// A request and its response.
#[derive(Debug)]
pub struct Exchange<'a, Q, R> {
    /// The method that the client sent.
    pub method: &'a Method,
    /// The fields of the request.
    pub request: &'a Q,
    /// The final status.
    pub status: StatusCode,
    /// The fields of the response.
    pub response: &'a R,
    /// Time at which the request was sent to the origin.
    pub requested: u64,
    /// Time at which the head of the response was received.
    pub received: u64,
}

/// Settings of a cache for properties that responses do not state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults<'a> {
    /// Lifetimes in seconds of responses that state none, by their status. The first range that
    /// contains the status applies.
    pub lifetimes: &'a [(RangeInclusive<u16>, u64)],
    /// Estimates a lifetime from `Last-Modified` (RFC 9111 §4.2.2): a tenth of the time since
    /// then, at most one day.
    pub is_heuristic: bool,
    /// Seconds for which a stale response may be sent while it is validated (RFC 5861 §3).
    pub stale_while_revalidate: u64,
    /// Seconds for which a stale response replaces an error (RFC 5861 §4).
    pub stale_if_error: u64,
    /// Stores responses with `Set-Cookie` although they are not `public`.
    pub stores_cookies: bool,
}

impl Defaults<'_> {
    /// Returns the lifetime that is set for a status.
    pub(super) fn lifetime_of(&self, status: StatusCode) -> Option<u64> {
        let mut lifetimes = self.lifetimes.iter();
        let found = lifetimes.find(|(statuses, _)| statuses.contains(&status.as_u16()));
        found.map(|(_, seconds)| *seconds)
    }
}
