//! Random histories of a shared cache: the decisions of the library, of a model of RFC 9111, and of
//! another implementation, the crate `http-cache-semantics`.
//!
//! The model has to agree in each decision. The other implementation may differ for a reason that
//! `second_opinion` names. A million histories:
//! `WEFT_HISTORIES=1000000 cargo test --release -p weft-proto --test caching -- --nocapture`

mod random_exchange;
mod rfc9111;
mod second_opinion;

use std::collections::BTreeMap;
use std::fmt::Write;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use weft_proto::semantics::caching::vary::Selector;
use weft_proto::semantics::caching::{
    Defaults, Exchange, FieldValues, Policy, RequestControl, Reuse, stored_fields,
};

use random_exchange::Random;
use rfc9111::{Messages, Settings, Wish, sorted};
use second_opinion::{Difference, SecondOpinion};

/// Time at which a history begins.
const START: u64 = 1_700_000_000;

/// Number of histories without `WEFT_HISTORIES`.
const HISTORIES: u64 = 3_000;

/// Number of requests of a history.
const REQUESTS: u64 = 8;

/// A stored response, as each of the three has it.
struct Stored {
    policy: Policy,
    selector: Selector,
    fields: Vec<(HeaderName, HeaderValue)>,
    model: Messages,
    opinion: SecondOpinion,
}

/// A cache of one URL.
struct History<'a> {
    random: Random,
    settings: Settings,
    now: u64,
    stored: Vec<Stored>,
    /// The messages, for a report of a failure.
    log: String,
    /// Numbers of differences to the other implementation, by their reasons.
    reasons: &'a mut BTreeMap<&'static str, u64>,
}

impl History<'_> {
    fn run(&mut self) {
        for _ in 0..REQUESTS {
            self.now += self.random.seconds();
            let request = random_exchange::request(&mut self.random);
            _ = writeln!(self.log, "{} request {request:?}", self.now - START);
            if self.random.one_of(30) {
                // An unsafe request.
                self.stored.clear();
                continue;
            }
            self.answer(&request);
        }
    }

    /// Answers a request from the stored responses, or by the origin.
    fn answer(&mut self, request: &HeaderMap) {
        let (control, wish) = (RequestControl::of(request), Wish::of(request));
        assert_eq!(control.is_no_store, wish.is_no_store, "{}", self.log);
        assert_eq!(control.is_only_if_cached, wish.is_only_if_cached, "{}", self.log);
        let selected = self.stored.iter().rposition(|it| it.selector.matches(request));
        let expected = self.stored.iter().rposition(|it| it.model.is_selected_by(request));
        assert_eq!(selected, expected, "selected\n{}", self.log);
        let reuse = selected.map(|at| self.reuse(at, request, &control));
        match reuse {
            Some(Reuse::Fresh { .. }) => return,
            _ if control.is_only_if_cached => return,
            _ => {}
        }
        match selected {
            Some(at) if !wish.is_no_store && self.random.one_of(2) => self.confirm(at, request),
            // An error, which changes nothing that is stored.
            _ if self.random.one_of(8) => {}
            _ => self.store(request, wish.is_no_store),
        }
    }

    /// Compares the decisions about the reuse of a stored response.
    fn reuse(&mut self, at: usize, request: &HeaderMap, control: &RequestControl) -> Reuse {
        let (stored, now) = (&self.stored[at], self.now);
        let reuse = stored.policy.reuse(control, now);
        let expected = stored.model.reuse(request, now, &self.settings);
        assert_eq!(reuse, expected, "reuse of {at}\n{}", self.log);
        let is_fresh = matches!(reuse, Reuse::Fresh { .. });
        if is_fresh != stored.opinion.is_fresh(request, now) {
            let difference = Difference {
                messages: &stored.model,
                settings: &self.settings,
                reuse: Some((request, now)),
                storage: Ok(()),
                opinion: &stored.opinion,
            };
            explain(self.reasons, &difference, !is_fresh, &self.log);
        }
        reuse
    }

    /// Receives a response to a request.
    fn exchange(&mut self, request: &HeaderMap, status: Option<StatusCode>) -> Messages {
        let requested = self.now;
        self.now += if self.random.one_of(4) { self.random.below(20) } else { 0 };
        let (random_status, response) = random_exchange::response(&mut self.random, self.now);
        let status = status.unwrap_or(random_status);
        _ = writeln!(self.log, "{} response {status} {response:?}", self.now - START);
        Messages { request: request.clone(), status, response, requested, received: self.now }
    }

    /// Receives a new response, and stores it.
    fn store(&mut self, request: &HeaderMap, is_no_store: bool) {
        let mut messages = self.exchange(request, None);
        if is_no_store {
            return;
        }
        let Some(policy) = self.policy(&messages) else { return };
        let selector = Selector::of(request, &messages.response);
        let mut fields = lines(&messages.response);
        stored_fields::retain_stored(&mut fields, policy.excluded_fields());
        let opinion = SecondOpinion::about(&messages);
        let stored = sorted(fields.iter().map(|(name, value)| (name, value)));
        assert_eq!(stored, messages.strip(), "stored fields\n{}", self.log);
        self.stored.retain(|it| it.selector != selector);
        self.stored.push(Stored { policy, selector, fields, model: messages, opinion });
    }

    /// Compares the decisions about the storage of a response.
    fn policy(&mut self, messages: &Messages) -> Option<Policy> {
        let lifetimes = self.settings.lifetime_of_404.map(|seconds| (404..=404, seconds));
        let defaults = Defaults {
            lifetimes: lifetimes.as_slice(),
            is_heuristic: self.settings.is_heuristic,
            stale_while_revalidate: self.settings.stale_while_revalidate,
            stale_if_error: self.settings.stale_if_error,
            stores_cookies: self.settings.stores_cookies,
        };
        let exchange = Exchange {
            method: &Method::GET,
            request: &messages.request,
            status: messages.status,
            response: &messages.response,
            requested: messages.requested,
            received: messages.received,
        };
        let policy = Policy::of(&exchange, &defaults);
        let expected = messages.may_be_stored(&self.settings);
        let log = &self.log;
        assert_eq!(policy.is_ok(), expected.is_ok(), "{policy:?} {expected:?}\n{log}");
        let opinion = SecondOpinion::about(messages);
        if policy.is_ok() != opinion.is_storable() {
            let difference = Difference {
                messages,
                settings: &self.settings,
                reuse: None,
                storage: expected,
                opinion: &opinion,
            };
            explain(self.reasons, &difference, policy.is_err(), log);
        }
        policy.ok()
    }

    /// Receives a 304, and updates a stored response, or removes it.
    fn confirm(&mut self, at: usize, request: &HeaderMap) {
        let mut confirmation = self.exchange(request, Some(StatusCode::NOT_MODIFIED));
        let mut stored = self.stored.remove(at);
        let tag = |fields: &dyn Fn() -> Option<Vec<u8>>| {
            fields().map(|tag| tag.strip_prefix(b"W/").unwrap_or(&tag).to_vec())
        };
        let new = tag(&|| confirmation.response.first_value("etag").map(<[u8]>::to_vec));
        let old = tag(&|| stored.fields.first_value("etag").map(<[u8]>::to_vec));
        let is_same = new.is_none() || old.is_none() || new == old;
        stored_fields::update(&mut stored.fields, lines(&confirmation.response));
        let is_confirmed = is_same && stored.selector.has_fields_of(&stored.fields);
        // The model gets no entity tag that the stored response does not have.
        if old.is_none() {
            confirmation.response.remove("etag");
        }
        assert_eq!(stored.model.update(&confirmation), is_confirmed, "{}", self.log);
        if !is_confirmed {
            return;
        }
        let age = confirmation.response.get("age").cloned();
        let mut response: HeaderMap = HeaderMap::new();
        stored.fields.iter().for_each(|(name, value)| _ = response.append(name, value.clone()));
        age.into_iter().for_each(|age| _ = response.append("age", age));
        let expected = stored.model.response.iter();
        assert_eq!(sorted(response.iter()), sorted(expected), "updated fields\n{}", self.log);
        stored.model.response = response;
        let Some(policy) = self.policy(&stored.model) else { return };
        stored_fields::retain_stored(&mut stored.fields, policy.excluded_fields());
        stored.model.strip();
        stored.opinion = SecondOpinion::about(&stored.model);
        stored.policy = policy;
        self.stored.push(stored);
    }
}

fn lines(fields: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    fields.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Counts the reason for a difference to the other implementation; fails without one.
fn explain(
    reasons: &mut BTreeMap<&'static str, u64>,
    difference: &Difference<'_>,
    is_stricter: bool,
    log: &str,
) {
    let Some(reason) = difference.reason(is_stricter) else {
        panic!(
            "an unexplained difference: stricter {is_stricter}, {:?}, {:?}\n{:?}\n{log}",
            difference.reuse, difference.messages, difference.storage
        );
    };
    *reasons.entry(reason).or_default() += 1;
}

fn settings(random: &mut Random) -> Settings {
    if random.one_of(2) {
        return Settings { is_heuristic: true, ..Settings::default() };
    }
    Settings {
        lifetime_of_404: random.one_of(2).then(|| random.seconds()),
        is_heuristic: random.one_of(2),
        stale_while_revalidate: random.seconds() * random.below(2),
        stale_if_error: random.seconds() * random.below(2),
        stores_cookies: random.one_of(2),
    }
}

#[test]
fn decisions_agree_with_rfc_9111_and_another_implementation() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let histories = number("WEFT_HISTORIES").unwrap_or(HISTORIES);
    let seed = number("WEFT_SEED").unwrap_or(1);
    let mut reasons = BTreeMap::new();
    for history in 0..histories {
        let mut random = Random((seed << 32) + history);
        let settings = settings(&mut random);
        let log = format!("history {history} of seed {seed}, {settings:?}\n");
        let reasons = &mut reasons;
        History { random, settings, now: START, stored: Vec::new(), log, reasons }.run();
    }
    println!("{histories} histories; differences to http-cache-semantics:");
    reasons.iter().for_each(|(reason, count)| println!("{count:>9}  {reason}"));
}
