//! RFC 9111 for a shared cache as an executable model. It shares no code with the library, keeps
//! the messages as they were received, and decides anew each time.

use std::collections::BTreeSet;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName};
use weft_proto::semantics::caching::Reuse;

/// Settings that the RFC leaves open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Lifetime of 404 without another one.
    pub lifetime_of_404: Option<u64>,
    pub is_heuristic: bool,
    pub stale_while_revalidate: u64,
    pub stale_if_error: u64,
    pub stores_cookies: bool,
}

/// An exchange of messages.
#[derive(Clone, Debug)]
pub struct Messages {
    pub request: HeaderMap,
    pub status: StatusCode,
    pub response: HeaderMap,
    pub requested: u64,
    pub received: u64,
}

/// The reason that a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstorable {
    Status,
    NoStore,
    Private,
    Authorization,
    /// `Set-Cookie` without `public`: the cache is stricter than the RFC.
    Cookie,
    Vary,
    /// §3, last condition.
    NoLifetime,
    /// No later request can gain from it.
    Useless,
}

/// Directives as pairs of a name in lowercase and an argument without its quotation marks.
pub type Directives = Vec<(String, Option<String>)>;

/// Splits at commas outside of quoted strings.
fn split_list(text: &str) -> Vec<String> {
    let (mut parts, mut is_quoted) = (vec![String::new()], false);
    for character in text.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(character);
    }
    parts.iter().map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

fn lines<'a>(fields: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    fields.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

fn list(fields: &HeaderMap, name: &str) -> Vec<String> {
    lines(fields, name).into_iter().flat_map(split_list).collect()
}

fn directives(fields: &HeaderMap) -> Directives {
    let pair = |member: String| match member.split_once('=') {
        Some((name, value)) => {
            (name.to_ascii_lowercase(), Some(value.trim_matches('"').to_owned()))
        }
        None => (member.to_ascii_lowercase(), None),
    };
    list(fields, "cache-control").into_iter().map(pair).collect()
}

/// Parses the values of `CDN-Cache-Control` that the generator knows (RFC 9213 §2.1); `None`
/// without a valid one.
fn targeted(fields: &HeaderMap) -> Option<Directives> {
    let mut directives = Directives::new();
    for member in list(fields, "cdn-cache-control") {
        let member = member.split(';').next().unwrap().to_owned();
        let (name, value) = match member.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (&*member, None),
        };
        let is_key = name.chars().all(|it| it.is_ascii_lowercase() || it == '-');
        let is_duration = name.ends_with("age");
        let is_integer = value.is_some_and(|it| it.chars().all(|digit| digit.is_ascii_digit()));
        if !is_key || is_duration && !is_integer {
            return None;
        }
        if value != Some("?0") {
            directives.push((name.to_owned(), value.map(str::to_owned)));
        }
    }
    (!directives.is_empty()).then_some(directives)
}

/// Returns the directives that a response has for this cache.
pub fn effective(response: &HeaderMap) -> (Directives, bool) {
    match targeted(response) {
        Some(directives) => (directives, true),
        None => (directives(response), false),
    }
}

fn has(directives: &Directives, name: &str) -> bool {
    directives.iter().any(|(other, _)| other == name)
}

/// Returns a duration: an invalid one is 0, and of several the shortest applies (§4.2.1).
fn seconds(directives: &Directives, name: &str) -> Option<u64> {
    let values = directives.iter().filter(|(other, _)| other == name);
    values.map(|(_, value)| value.as_ref().and_then(|it| it.parse().ok()).unwrap_or(0)).min()
}

/// Parses an IMF-fixdate.
fn parse_date(text: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let parts: Vec<&str> = text.split([' ', ':']).collect();
    let [_, day, month, year, hour, minute, second, "GMT"] = parts[..] else { return None };
    let number = |text: &str| text.parse::<u64>().ok();
    let (year, month) = (number(year)?, MONTHS.find(month)? as u64 / 3 + 1);
    // Days since 1970, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    let days = days + number(day)? - 1 - 719_468;
    Some(((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?)
}

impl Messages {
    fn date(&self, name: &str) -> Option<u64> {
        lines(&self.response, name).first().and_then(|text| parse_date(text))
    }

    fn has(&self, name: &str) -> bool {
        self.response.contains_key(name)
    }

    /// Freshness lifetime (§4.2.1, §4.2.2); `None` if nothing states or estimates it.
    fn lifetime(&self, settings: &Settings) -> Option<u64> {
        let (directives, is_targeted) = effective(&self.response);
        if let Some(seconds) = seconds(&directives, "s-maxage") {
            return Some(seconds);
        }
        if let Some(seconds) = seconds(&directives, "max-age") {
            return Some(seconds);
        }
        let date = self.date("date").unwrap_or(self.received);
        if self.has("expires") && !is_targeted {
            return Some(self.date("expires").unwrap_or(0).saturating_sub(date));
        }
        if let (Some(seconds), 404) = (settings.lifetime_of_404, self.status.as_u16()) {
            return Some(seconds);
        }
        let may_estimate = self.is_heuristically_cacheable() || has(&directives, "public");
        let modified = self.date("last-modified").filter(|_| may_estimate && settings.is_heuristic);
        modified.map(|modified| (date.saturating_sub(modified) / 10).min(86_400))
    }

    /// RFC 9110 §15.1.
    fn is_heuristically_cacheable(&self) -> bool {
        [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501].contains(&self.status.as_u16())
    }

    /// Current age (§4.2.3).
    pub fn age(&self, now: u64) -> u64 {
        let text = lines(&self.response, "age").first().copied().unwrap_or("0");
        let field: u64 = text.split([',', ';']).next().unwrap().parse().unwrap_or(0);
        let apparent = self.received.saturating_sub(self.date("date").unwrap_or(self.received));
        let corrected = field + (self.received - self.requested);
        apparent.max(corrected) + now.saturating_sub(self.received)
    }

    /// Storing of responses in caches (§3, §3.5, §5.2.2).
    pub fn may_be_stored(&self, settings: &Settings) -> Result<(), Unstorable> {
        let (directives, _) = effective(&self.response);
        let has = |name: &str| has(&directives, name);
        let is_understood = self.status.canonical_reason().is_some();
        let is_private =
            directives.iter().any(|(name, value)| name == "private" && value.is_none());
        let may_share = has("public") || has("must-revalidate") || has("s-maxage");
        let needs_sharing = self.request.contains_key("authorization");
        let is_cookie = self.has("set-cookie") && !has("public") && !settings.stores_cookies;
        let reasons = [
            (matches!(self.status.as_u16(), 206 | 304), Unstorable::Status),
            (has("must-understand") && !is_understood, Unstorable::Status),
            (has("no-store") && !has("must-understand"), Unstorable::NoStore),
            (is_private, Unstorable::Private),
            (needs_sharing && !may_share, Unstorable::Authorization),
            (is_cookie, Unstorable::Cookie),
            (list(&self.response, "vary").contains(&"*".to_owned()), Unstorable::Vary),
            (
                self.lifetime(settings).is_none()
                    && !has("public")
                    && !self.is_heuristically_cacheable(),
                Unstorable::NoLifetime,
            ),
            (!self.is_useful(settings), Unstorable::Useless),
        ];
        match reasons.iter().find(|(applies, _)| *applies) {
            Some((_, reason)) => Err(*reason),
            None => Ok(()),
        }
    }

    fn is_useful(&self, settings: &Settings) -> bool {
        let (directives, _) = effective(&self.response);
        let is_fresh = self.lifetime(settings).unwrap_or(0) > self.age(self.received);
        let (while_revalidating, if_error) = self.stale_times(settings);
        let is_useful_stale = self.may_be_stale() && (while_revalidating > 0 || if_error > 0);
        let may_be_sent = is_fresh && !has(&directives, "no-cache") || is_useful_stale;
        may_be_sent || self.has("etag") || self.has("last-modified")
    }

    /// RFC 5861. The settings do not override `s-maxage`, which forbids stale responses.
    fn stale_times(&self, settings: &Settings) -> (u64, u64) {
        let (directives, _) = effective(&self.response);
        let may_default = !has(&directives, "s-maxage");
        let time = |name: &str, default: u64| {
            seconds(&directives, name).unwrap_or(if may_default { default } else { 0 })
        };
        (
            time("stale-while-revalidate", settings.stale_while_revalidate),
            time("stale-if-error", settings.stale_if_error),
        )
    }

    /// Returns true if the response may be used stale by a directive of its own or by a setting
    /// (§4.2.4).
    fn may_be_stale(&self) -> bool {
        let (directives, _) = effective(&self.response);
        let forbidding = ["no-cache", "must-revalidate", "proxy-revalidate"];
        !forbidding.iter().any(|name| has(&directives, name))
    }

    /// Constructing responses from caches (§4).
    pub fn reuse(&self, request: &HeaderMap, now: u64, settings: &Settings) -> Reuse {
        let (directives, _) = effective(&self.response);
        let (age, lifetime) = (self.age(now), self.lifetime(settings).unwrap_or(0));
        let wish = Wish::of(request);
        let is_fresh = lifetime > age;
        let staleness = age.saturating_sub(lifetime);
        // §5.2.2.10: `s-maxage` has the semantics of `proxy-revalidate`.
        let client_may = self.may_be_stale() && !has(&directives, "s-maxage");
        let is_accepted = match is_fresh {
            true => lifetime - age >= wish.min_fresh,
            false => {
                client_may
                    && wish.min_fresh == 0
                    && wish.max_stale.is_some_and(|it| staleness <= it)
            }
        };
        let is_refused = wish.is_no_cache || wish.max_age.is_some_and(|max_age| age > max_age);
        if is_accepted && !is_refused && !has(&directives, "no-cache") {
            return Reuse::Fresh { age };
        }
        let (while_revalidating, if_error) = self.stale_times(settings);
        let is_within = |time: u64| self.may_be_stale() && time > 0 && staleness <= time;
        match !wish.is_particular && is_within(while_revalidating) {
            true => Reuse::WhileRevalidating { age },
            false => Reuse::Validate { age, may_replace_error: is_within(if_error) },
        }
    }

    /// Returns true if a request selects this response (§4.1).
    pub fn is_selected_by(&self, request: &HeaderMap) -> bool {
        let names = list(&self.response, "vary");
        names.iter().map(|name| name.to_ascii_lowercase()).all(|name| {
            let value = |fields| normalized(fields, &name);
            value(&self.request) == value(request)
        })
    }

    /// Removes the fields that are not stored (§3.1), except for `Age`, and returns the others.
    pub fn strip(&mut self) -> Vec<String> {
        let (directives, _) = effective(&self.response);
        let mut dropped: BTreeSet<String> =
            list(&self.response, "connection").into_iter().collect();
        let excluding =
            directives.iter().filter(|(name, _)| name == "private" || name == "no-cache");
        let names =
            excluding.filter(|(name, _)| name == "private").filter_map(|(_, it)| it.as_ref());
        dropped.extend(names.flat_map(|names| split_list(names)));
        dropped.insert("connection".to_owned());
        dropped.iter().for_each(|name| _ = self.response.remove(&**name));
        sorted(self.response.iter().filter(|(name, _)| *name != "age"))
    }

    /// Freshening stored responses (§3.2, §4.3.4). Returns false if the 304 is about another one.
    pub fn update(&mut self, confirmation: &Messages) -> bool {
        let tag = |fields: &HeaderMap| {
            lines(fields, "etag").first().map(|tag| tag.trim_start_matches("W/").to_owned())
        };
        if let (Some(old), Some(new)) = (tag(&self.response), tag(&confirmation.response))
            && old != new
        {
            return false;
        }
        let dropped = list(&confirmation.response, "connection");
        let mut response = self.response.clone();
        response.remove("age");
        let is_kept = |name: &HeaderName| {
            !dropped.contains(&name.to_string()) && name != "etag" && name != "connection"
        };
        for name in confirmation.response.keys().filter(|name| is_kept(name)) {
            response.remove(name);
            for value in confirmation.response.get_all(name) {
                response.append(name, value.clone());
            }
        }
        // The new selecting fields of the request that led to the stored response are unknown.
        let names = |fields: &HeaderMap| {
            list(fields, "vary").iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>()
        };
        let is_selected_alike = names(&response) == names(&self.response);
        *self = Messages { response, status: self.status, ..confirmation.clone() };
        is_selected_alike
    }
}

/// Sorts field lines.
pub fn sorted<'a>(
    fields: impl Iterator<Item = (&'a HeaderName, &'a http::HeaderValue)>,
) -> Vec<String> {
    let mut lines: Vec<_> =
        fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

/// Returns a value in the form in which it is compared.
fn normalized(fields: &HeaderMap, name: &str) -> Option<String> {
    fields.get(name)?;
    let members = list(fields, name);
    if name != "accept-encoding" {
        return Some(members.join(","));
    }
    let mut accepted = BTreeSet::new();
    for member in members {
        let member = member.to_ascii_lowercase();
        let (coding, quality) = member.split_once(";q=").unwrap_or((&member, "1"));
        match (coding, quality) {
            ("identity", "0") => accepted.insert("identity;q=0".to_owned()),
            ("identity", _) | (_, "0") => false,
            _ => accepted.insert(coding.to_owned()),
        };
    }
    Some(accepted.into_iter().collect::<Vec<_>>().join(","))
}

/// Directives of a request (§5.2.1, §5.4).
#[derive(Debug, Default)]
pub struct Wish {
    pub is_no_cache: bool,
    pub is_no_store: bool,
    pub is_only_if_cached: bool,
    max_age: Option<u64>,
    min_fresh: u64,
    pub max_stale: Option<u64>,
    /// The client wants more than any fresh response, and does not accept stale ones.
    is_particular: bool,
}

impl Wish {
    pub fn of(request: &HeaderMap) -> Wish {
        let mut wish = Wish::default();
        if !request.contains_key("cache-control") {
            wish.is_no_cache = lines(request, "pragma").contains(&"no-cache");
            wish.is_particular = wish.is_no_cache;
            return wish;
        }
        for (name, value) in directives(request) {
            let seconds = value.as_ref().and_then(|value| value.parse::<u64>().ok());
            match (&*name, seconds) {
                ("no-cache", _) => wish.is_no_cache = true,
                ("no-store", _) => wish.is_no_store = true,
                ("only-if-cached", _) => wish.is_only_if_cached = true,
                ("max-age", Some(seconds)) => wish.max_age = Some(seconds),
                ("min-fresh", Some(seconds)) => wish.min_fresh = seconds,
                ("max-stale", _) => wish.max_stale = Some(seconds.unwrap_or(1 << 31)),
                _ => {}
            }
        }
        let wishes = [wish.is_no_cache, wish.is_no_store, wish.is_only_if_cached];
        let is_any = wishes.contains(&true) || wish.max_age.is_some() || wish.min_fresh > 0;
        wish.is_particular = is_any && wish.max_stale.is_none();
        wish
    }
}
