//! Storing and reuse of responses.

use http::Method;

use crate::semantics::caching::control::Control;
use crate::semantics::caching::exchange::{Defaults, Exchange};
use crate::semantics::caching::fields::FieldValues;
use crate::semantics::caching::freshness::{self, Lifetime};
use crate::semantics::caching::request_control::RequestControl;
use crate::semantics::caching::vary;

/// The reason that a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The method is not GET.
    Method,
    /// The status is partial, interim, or unknown and `must-understand` requires to know it.
    Status,
    /// The request or the response has `no-store`.
    NoStore,
    /// The response is for one user.
    Private,
    /// The request has `Authorization`, and nothing permits to share the response.
    Authorization,
    /// The response sets a cookie and is not `public`.
    Cookie,
    /// The response varies by `*`, or by too many fields.
    Vary,
    /// Nothing says how long the response is fresh, and it cannot be validated.
    Lifetime,
}

/// Facts about a stored response that decide about its reuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(super) received: u64,
    pub(super) initial_age: u64,
    pub(super) lifetime: u64,
    pub(super) stale_while_revalidate: u64,
    pub(super) stale_if_error: u64,
    pub(super) is_no_cache: bool,
    pub(super) stale_use: StaleUse,
    pub(super) excluded_fields: Vec<String>,
}

/// The permission to send a stale response without its validation (RFC 9111 §4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleUse {
    /// If the origin, the client or a setting permits it.
    Permitted,
    /// If the origin states a time for it: the response has `s-maxage` (§5.2.2.10).
    OriginOnly,
    Forbidden,
}

/// The use that a request may make of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// To be sent as it is. Clients may also accept stale responses.
    Fresh {
        /// Seconds for `Age`.
        age: u64,
    },
    /// To be sent as it is, and to be validated after that.
    WhileRevalidating {
        /// Seconds for `Age`.
        age: u64,
    },
    /// To be validated first.
    Validate {
        /// Seconds for `Age`, if the response replaces an error.
        age: u64,
        /// The response may be sent if the validation fails: the origin cannot be reached, or it
        /// responds with 500, 502, 503 or 504.
        may_replace_error: bool,
    },
}

impl Policy {
    /// Decides whether a shared cache may store a response (RFC 9111 §3), and how long it is fresh.
    ///
    /// # Errors
    /// The reason that it may not.
    pub fn of<Q: FieldValues, R: FieldValues>(
        exchange: &Exchange<'_, Q, R>,
        defaults: &Defaults<'_>,
    ) -> Result<Policy, Refusal> {
        let (control, is_targeted) = Control::of(exchange.response);
        refusal(exchange, &control, defaults).map_or(Ok(()), Err)?;
        let lifetime = freshness::lifetime(exchange, (&control, is_targeted), defaults);
        let is_stated = matches!(lifetime, Some(Lifetime::Stated(_)));
        let is_storable = is_stated || control.is_public || lifetime.is_some();
        if !is_storable && !freshness::is_heuristically_cacheable(exchange.status) {
            return Err(Refusal::Lifetime);
        }
        let stale_use = StaleUse::of(&control);
        let default = |seconds| if stale_use == StaleUse::Permitted { seconds } else { 0 };
        let policy = Policy {
            received: exchange.received,
            initial_age: freshness::initial_age(exchange),
            lifetime: lifetime.map_or(0, Lifetime::seconds),
            stale_while_revalidate: control
                .stale_while_revalidate
                .unwrap_or(default(defaults.stale_while_revalidate)),
            stale_if_error: control.stale_if_error.unwrap_or(default(defaults.stale_if_error)),
            is_no_cache: control.is_no_cache,
            stale_use,
            excluded_fields: control.excluded_fields,
        };
        match policy.is_useful(exchange.response) {
            true => Ok(policy),
            false => Err(Refusal::Lifetime),
        }
    }

    /// Returns true if a later request can gain from the response.
    fn is_useful(&self, response: &impl FieldValues) -> bool {
        let may_be_stale = self.stale_use != StaleUse::Forbidden
            && (self.stale_while_revalidate > 0 || self.stale_if_error > 0);
        let may_be_sent = !self.is_no_cache && (self.lifetime > self.initial_age || may_be_stale);
        let is_validator = |name| response.first_value(name).is_some();
        may_be_sent || is_validator("etag") || is_validator("last-modified")
    }

    /// Decides about the reuse of the stored response (§4) at the time `now`.
    pub fn reuse(&self, control: &RequestControl, now: u64) -> Reuse {
        let age = self.age(now);
        let client_may = self.stale_use == StaleUse::Permitted;
        if !self.is_no_cache && control.accepts(age, self.lifetime, client_may) {
            return Reuse::Fresh { age };
        }
        let staleness = age.saturating_sub(self.lifetime);
        let may_be_stale = !self.is_no_cache && self.stale_use != StaleUse::Forbidden;
        let is_within = |window: u64| may_be_stale && window > 0 && staleness <= window;
        let asks_for_fresh = *control != RequestControl::default() && control.max_stale.is_none();
        if !asks_for_fresh && is_within(self.stale_while_revalidate) {
            return Reuse::WhileRevalidating { age };
        }
        Reuse::Validate { age, may_replace_error: is_within(self.stale_if_error) }
    }

    /// The age of the stored response (§4.2.3).
    pub fn age(&self, now: u64) -> u64 {
        self.initial_age.saturating_add(now.saturating_sub(self.received))
    }

    /// Seconds for which the response is still fresh; negative if it is stale.
    pub fn ttl(&self, now: u64) -> i64 {
        self.lifetime as i64 - self.age(now).min(i64::MAX as u64) as i64
    }

    /// Names in lowercase of fields that must not be stored (§5.2.2.7).
    pub fn excluded_fields(&self) -> &[String] {
        &self.excluded_fields
    }

    /// Makes the response stale. It is validated at its next use.
    pub fn expire(&mut self) {
        (self.lifetime, self.stale_while_revalidate) = (0, 0);
    }
}

impl StaleUse {
    fn of(control: &Control) -> StaleUse {
        if control.must_revalidate || control.proxy_revalidate {
            return StaleUse::Forbidden;
        }
        if control.s_maxage.is_some() { StaleUse::OriginOnly } else { StaleUse::Permitted }
    }
}

fn refusal<Q: FieldValues, R: FieldValues>(
    exchange: &Exchange<'_, Q, R>,
    control: &Control,
    defaults: &Defaults<'_>,
) -> Option<Refusal> {
    let status = exchange.status;
    let is_understood = status.canonical_reason().is_some();
    let is_no_store = control.is_no_store && !(control.must_understand && is_understood);
    let has_authorization = exchange.request.first_value("authorization").is_some();
    let may_share = control.is_public || control.must_revalidate || control.s_maxage.is_some();
    let sets_cookie = exchange.response.first_value("set-cookie").is_some();
    let mut findings = [
        (*exchange.method != Method::GET, Refusal::Method),
        (status.is_informational() || matches!(status.as_u16(), 206 | 304), Refusal::Status),
        (control.must_understand && !is_understood, Refusal::Status),
        (is_no_store, Refusal::NoStore),
        (control.is_private, Refusal::Private),
        (has_authorization && !may_share, Refusal::Authorization),
        (sets_cookie && !control.is_public && !defaults.stores_cookies, Refusal::Cookie),
        (!vary::is_selectable(exchange.response), Refusal::Vary),
    ]
    .into_iter();
    findings.find_map(|(is_found, refusal)| is_found.then_some(refusal))
}
