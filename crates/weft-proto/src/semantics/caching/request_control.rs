//! Directives of a request (RFC 9111 §5.2.1).

use crate::semantics::caching::control::{MAX_SECONDS, seconds, split_directive};
use crate::semantics::caching::fields::FieldValues;

/// The stored responses that a client accepts. The default accepts all fresh ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestControl {
    /// The client asks for validation of any stored response.
    pub is_no_cache: bool,
    /// Neither the request nor its response may be stored.
    pub is_no_store: bool,
    /// 504 in place of a request to the origin.
    pub is_only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    pub(super) min_fresh: u64,
    pub(super) max_stale: Option<u64>,
}

impl RequestControl {
    /// Reads the directives of `Cache-Control`, or of `Pragma` without it (RFC 9111 §5.4).
    /// Invalid durations are ignored.
    pub fn of(request: &impl FieldValues) -> RequestControl {
        let mut control = RequestControl::default();
        let mut is_present = false;
        for member in request.members("cache-control") {
            is_present = true;
            control.add(member);
        }
        if !is_present {
            let mut pragma = request.members("pragma");
            control.is_no_cache = pragma.any(|member| member.eq_ignore_ascii_case(b"no-cache"));
        }
        control
    }

    fn add(&mut self, member: &[u8]) {
        let (name, value) = split_directive(member);
        match name.to_ascii_lowercase().as_slice() {
            b"no-cache" => self.is_no_cache = true,
            b"no-store" => self.is_no_store = true,
            b"only-if-cached" => self.is_only_if_cached = true,
            b"max-age" => self.max_age = seconds(value).or(self.max_age),
            b"min-fresh" => self.min_fresh = seconds(value).unwrap_or(self.min_fresh),
            b"max-stale" if value.is_none() => self.max_stale = Some(MAX_SECONDS),
            b"max-stale" => self.max_stale = seconds(value).or(self.max_stale),
            _ => {}
        }
    }

    /// Returns true if the client accepts a response of this age, which is fresh for `lifetime`
    /// seconds in all. `may_be_stale` is false for responses that must not be used stale.
    pub(super) fn accepts(&self, age: u64, lifetime: u64, may_be_stale: bool) -> bool {
        if self.is_no_cache || self.max_age.is_some_and(|max_age| age > max_age) {
            return false;
        }
        match lifetime.checked_sub(age).filter(|rest| *rest > 0) {
            Some(rest) => rest >= self.min_fresh,
            None => {
                let allowed = self.max_stale.filter(|_| may_be_stale && self.min_fresh == 0);
                allowed.is_some_and(|allowed| age - lifetime <= allowed)
            }
        }
    }
}
