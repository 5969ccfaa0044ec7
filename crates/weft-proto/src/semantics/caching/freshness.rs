//! Lifetime and age of responses (RFC 9111 §4.2).

use http::StatusCode;

use crate::semantics::caching::control::{Control, MAX_SECONDS, seconds};
use crate::semantics::caching::exchange::{Defaults, Exchange};
use crate::semantics::caching::fields::FieldValues;
use crate::semantics::date::parse_http_date;

/// The longest lifetime that is estimated, one day.
const MAX_HEURISTIC: u64 = 86_400;

/// The source of a lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// The response states it.
    Stated(u64),
    /// The settings of the cache, or an estimate.
    Assigned(u64),
}

impl Lifetime {
    pub(super) fn seconds(self) -> u64 {
        let (Lifetime::Stated(seconds) | Lifetime::Assigned(seconds)) = self;
        seconds
    }
}

/// Returns the lifetime of a response: stated, set for its status, or estimated from
/// `Last-Modified` (§4.2.2). `None` if nothing says how long it is fresh.
pub(super) fn lifetime<R: FieldValues>(
    exchange: &Exchange<'_, impl FieldValues, R>,
    (control, is_targeted): (&Control, bool),
    defaults: &Defaults<'_>,
) -> Option<Lifetime> {
    if let Some(stated) = control.s_maxage.or(control.max_age) {
        return Some(Lifetime::Stated(stated));
    }
    let date = date(exchange).unwrap_or(exchange.received);
    if !is_targeted && exchange.response.first_value("expires").is_some() {
        // An invalid date, above all "0", is in the past (§5.3).
        let expires = single_date(exchange.response, "expires", exchange.received).unwrap_or(0);
        return Some(Lifetime::Stated(expires.saturating_sub(date).min(MAX_SECONDS)));
    }
    if let Some(seconds) = defaults.lifetime_of(exchange.status) {
        return Some(Lifetime::Assigned(seconds.min(MAX_SECONDS)));
    }
    let may_estimate = is_heuristically_cacheable(exchange.status) || control.is_public;
    if !defaults.is_heuristic || !may_estimate {
        return None;
    }
    let modified = single_date(exchange.response, "last-modified", exchange.received)?;
    Some(Lifetime::Assigned((date.saturating_sub(modified) / 10).min(MAX_HEURISTIC)))
}

/// Returns the age of a response when it was received (§4.2.3).
pub(super) fn initial_age<R: FieldValues>(exchange: &Exchange<'_, impl FieldValues, R>) -> u64 {
    let apparent = exchange.received.saturating_sub(date(exchange).unwrap_or(exchange.received));
    let delay = exchange.received.saturating_sub(exchange.requested);
    apparent.max(age_field(exchange.response).saturating_add(delay))
}

/// Reads `Age`: digits at the start of the first line (§5.1). An invalid value is ignored.
fn age_field(response: &impl FieldValues) -> u64 {
    let line = response.first_value("age").unwrap_or_default();
    let first = line.split(|byte| b",;".contains(byte)).next().unwrap_or(line).trim_ascii();
    let is_number = first.iter().all(u8::is_ascii_digit);
    seconds(Some(first)).filter(|_| is_number).unwrap_or(0)
}

/// The value of `Date`, if it is valid.
fn date<R: FieldValues>(exchange: &Exchange<'_, impl FieldValues, R>) -> Option<u64> {
    single_date(exchange.response, "date", exchange.received)
}

/// Reads a field with one date. `None` if it is absent, invalid, or there several times. The case
/// of names does not matter (§4.2).
pub(super) fn single_date(fields: &impl FieldValues, name: &str, now: u64) -> Option<u64> {
    let mut lines = fields.values(name);
    let (Some(date), None) = (lines.next(), lines.next()) else { return None };
    parse_http_date(date, now).or_else(|| parse_http_date(&capitalized(date), now))
}

/// Longest date that is read without regard to case.
const MAX_DATE_BYTES: usize = 40;

/// Writes names of days and months with a capital first letter, and the time zone in capitals.
fn capitalized(date: &[u8]) -> Vec<u8> {
    let date = &date[..date.len().min(MAX_DATE_BYTES)];
    let mut is_first = true;
    let mut text: Vec<u8> = date
        .iter()
        .map(|byte| {
            let byte = if is_first { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
            is_first = !byte.is_ascii_alphabetic();
            byte
        })
        .collect();
    if let Some(zone) = text.len().checked_sub(3).filter(|at| &text[*at..] == b"Gmt") {
        text[zone..].make_ascii_uppercase();
    }
    text
}

/// Statuses whose responses may be stored without a stated lifetime (RFC 9110 §15.1).
pub(super) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}
