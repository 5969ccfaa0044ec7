//! The decisions of the crate `http-cache-semantics`, and the reasons for which they may differ.

use std::time::{Duration, SystemTime};

use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};

use crate::rfc9111::{Messages, Settings, Unstorable, Wish, effective};

/// The policy of the other implementation for a response.
#[derive(Clone, Debug)]
pub struct SecondOpinion(CachePolicy);

/// A reason for which the decision about a response differs, and its condition.
type Reason = (&'static str, fn(&Difference<'_>) -> bool);

/// A decision that differs.
pub struct Difference<'a> {
    pub messages: &'a Messages,
    pub settings: &'a Settings,
    /// The later request, and its time.
    pub reuse: Option<(&'a HeaderMap, u64)>,
    /// The decision of the model about the storage.
    pub storage: Result<(), Unstorable>,
    pub opinion: &'a SecondOpinion,
}

fn time(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn request(fields: &HeaderMap) -> http::request::Parts {
    let mut parts = Request::get("http://a/").body(()).unwrap().into_parts().0;
    parts.headers = fields.clone();
    parts
}

/// Writes the directives in the form that the crate reads: it knows neither targeted fields nor
/// commas in quoted strings, nor names in capitals, and takes the first of several values.
fn readable(response: &HeaderMap) -> HeaderMap {
    let (directives, is_targeted) = effective(response);
    let mut fields = response.clone();
    if is_targeted {
        fields.remove("expires");
    }
    fields.remove("cache-control");
    let mut lines: Vec<String> = Vec::new();
    let mut sorted = directives.clone();
    // The shortest of several durations is the first.
    let number = |value: &Option<String>| value.as_ref().map(|it| it.parse().unwrap_or(0_u64));
    sorted.sort_by_key(|(name, value)| (name.clone(), number(value)));
    sorted.dedup_by_key(|(name, _)| name.clone());
    for (name, value) in sorted {
        // A list of fields is none of the crate's directives.
        match value.filter(|value| !value.contains(',')) {
            Some(value) => lines.push(format!("{name}={value}")),
            None => lines.push(name),
        }
    }
    if !lines.is_empty() {
        fields.insert("cache-control", HeaderValue::from_str(&lines.join(", ")).unwrap());
    }
    fields
}

impl SecondOpinion {
    pub fn about(messages: &Messages) -> SecondOpinion {
        let mut parts =
            Response::builder().status(messages.status).body(()).unwrap().into_parts().0;
        parts.headers = readable(&messages.response);
        let received = time(messages.received);
        let options = CacheOptions::default();
        let request = request(&messages.request);
        SecondOpinion(CachePolicy::new_options(&request, &parts, received, options))
    }

    pub fn is_storable(&self) -> bool {
        self.0.is_storable()
    }

    pub fn is_fresh(&self, fields: &HeaderMap, now: u64) -> bool {
        matches!(self.0.before_request(&request(fields), time(now)), BeforeRequest::Fresh(_))
    }
}

impl Difference<'_> {
    fn has(&self, directive: &str) -> bool {
        effective(&self.messages.response).0.iter().any(|(name, _)| name == directive)
    }

    fn states_lifetime(&self) -> bool {
        let (_, is_targeted) = effective(&self.messages.response);
        let has_expires = self.messages.response.contains_key("expires") && !is_targeted;
        self.has("max-age") || self.has("s-maxage") || has_expires
    }

    fn wish(&self) -> Wish {
        self.reuse.map(|(request, _)| Wish::of(request)).unwrap_or_default()
    }

    /// Returns the name of the first reason that applies. `is_stricter` is true if only the other
    /// implementation stores or reuses the response.
    pub fn reason(&self, is_stricter: bool) -> Option<&'static str> {
        let reasons = match (self.reuse.is_some(), is_stricter) {
            (false, true) => STRICTER_STORAGE,
            (false, false) => MORE_STORAGE,
            (true, true) => STRICTER_REUSE,
            (true, false) => MORE_REUSE,
        };
        reasons.iter().find(|(_, applies)| applies(self)).map(|(name, _)| *name)
    }
}

/// Reasons for which only the other implementation stores a response.
const STRICTER_STORAGE: &[Reason] = &[
    ("`Set-Cookie` without `public`: the crate stores it without a lifetime", |it| {
        it.storage == Err(Unstorable::Cookie)
    }),
    ("`Vary: *`: the crate stores it without a lifetime", |it| it.storage == Err(Unstorable::Vary)),
    ("no later request can gain from the response", |it| it.storage == Err(Unstorable::Useless)),
];

/// Reasons for which only Weft stores a response.
const MORE_STORAGE: &[Reason] = &[
    ("the crate stores responses of some statuses only", |it| {
        ![200, 204, 301, 302, 404, 410, 501].contains(&it.messages.status.as_u16())
    }),
    ("the crate does not know `must-understand`", |it| {
        it.has("must-understand") && it.has("no-store")
    }),
    ("the crate takes `private=\"x\"` for `private`", |it| it.has("private")),
];

/// Reasons for which only the other implementation reuses a response.
const STRICTER_REUSE: &[Reason] = &[
    ("the crate lets `max-stale` override `no-cache`", |it| {
        it.wish().max_stale.is_some() && it.has("no-cache")
    }),
    ("the crate lets `max-stale` override `proxy-revalidate`", |it| {
        it.wish().max_stale.is_some() && it.has("proxy-revalidate")
    }),
    ("the crate lets `max-stale` override `s-maxage`", |it| {
        it.wish().max_stale.is_some() && it.has("s-maxage")
    }),
    ("the crate assumes a day for `immutable`", |it| {
        it.has("immutable") && !it.has("max-age") && !it.has("s-maxage")
    }),
    ("the crate does not compare `Date` with its clock", |it| {
        it.messages.age(it.messages.received) > 0 && it.messages.response.contains_key("date")
    }),
    ("the crate does not know the delay of the response", |it| {
        it.messages.received > it.messages.requested
    }),
    ("the crate ignores an `Age` with parameters or further members", |it| {
        it.messages.response.get("age").is_some_and(|it| it.len() > 2)
    }),
    ("the crate estimates more than a day", |it| {
        !it.states_lifetime() && it.messages.response.contains_key("last-modified")
    }),
];

/// Reasons for which only Weft reuses a response.
const MORE_REUSE: &[Reason] = &[
    ("the crate does not store the response", |it| !it.opinion.is_storable()),
    ("the crate takes `proxy-revalidate` for a lifetime of 0", |it| it.has("proxy-revalidate")),
    ("the crate reads `Pragma` beside `Cache-Control`", |it| {
        it.reuse.is_some_and(|(request, _)| {
            request.contains_key("pragma") && request.contains_key("cache-control")
        })
    }),
    ("the crate does not include the last second of `max-stale`", |it| {
        it.wish().max_stale.is_some()
    }),
    ("the crate compares values of selecting fields without their normalization", |it| {
        it.messages.response.contains_key("vary")
    }),
    ("a setting gives the response its lifetime", |it| {
        it.settings.lifetime_of_404.is_some() && it.messages.status.as_u16() == 404
    }),
    ("a setting permits `Set-Cookie`", |it| {
        it.settings.stores_cookies && it.messages.response.contains_key("set-cookie")
    }),
    ("the crate gives `Set-Cookie` no lifetime", |it| {
        it.messages.response.contains_key("set-cookie") && !it.has("public")
    }),
];
