//! The keys of a table of `response_cache`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use weft::Request;
use weft::cache::{Cache, QueryKey, Store};
use weft::header::HeaderName;
use weft_config::{
    ConfigResult, Given, Key, Located, Pair, ValueKind, parse_time, quoted, quoted_list,
    quoted_table, quoted_time, show_size, show_time,
};

use crate::options::access_log::StatusRange;
use crate::route::{CONDITIONS, Conditions, RequestValues, read_conditions, show_conditions};

/// Maximum number of names and of lifetimes of a route, each.
pub(super) const MAX_ITEMS: usize = 64;

/// Maximum of all times. Longer ones, as `never`, mean this.
const MAX_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The cache of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheSettings {
    max_object: u64,
    min_uses: u64,
    /// Names of parameters in the key, or with `!= ` of all others. `None`: all.
    query: Option<Vec<String>>,
    key_fields: Vec<String>,
    key_cookies: Vec<String>,
    lifetimes: Vec<(StatusRange, Duration)>,
    is_heuristic: bool,
    ignores_client: bool,
    stores_cookies: bool,
    stale_if_error: Duration,
    stale_while_revalidate: Duration,
    collapse_timeout: Duration,
    finishes_abandoned: bool,
    bypass: Option<RequestConditions>,
    refresh: Option<RequestConditions>,
    no_store: Option<RequestConditions>,
}

/// Conditions of requests, such as for passing the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestConditions(Arc<Conditions>);

impl RequestConditions {
    /// Returns true if the conditions apply; `None` if that cannot be decided.
    fn match_request(&self, request: &Request) -> Option<bool> {
        self.0.match_request(&RequestValues::new(request)).ok()
    }
}

impl Hash for RequestConditions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        show_conditions(&self.0).hash(state);
    }
}

impl Default for CacheSettings {
    fn default() -> CacheSettings {
        CacheSettings {
            max_object: 8 << 20,
            min_uses: 1,
            query: None,
            key_fields: Vec::new(),
            key_cookies: Vec::new(),
            lifetimes: Vec::new(),
            is_heuristic: true,
            ignores_client: false,
            stores_cookies: false,
            stale_if_error: Duration::ZERO,
            stale_while_revalidate: Duration::ZERO,
            collapse_timeout: Duration::from_secs(5),
            finishes_abandoned: true,
            bypass: None,
            refresh: None,
            no_store: None,
        }
    }
}

impl CacheSettings {
    /// Creates the cache of a route.
    pub(super) fn cache(&self, store: &Store) -> Cache {
        let cache = Cache::new(store)
            // The range of the key is within the range of `usize`.
            .max_object_bytes(self.max_object as usize)
            .min_uses(self.min_uses as u32)
            .query(self.query_key())
            .key_fields(&self.key_fields)
            .key_cookies(&self.key_cookies)
            .heuristic(self.is_heuristic)
            .ignore_client(self.ignores_client)
            .store_cookies(self.stores_cookies)
            .stale_if_error(self.stale_if_error)
            .stale_while_revalidate(self.stale_while_revalidate)
            .collapse_timeout(self.collapse_timeout)
            .finish_abandoned(self.finishes_abandoned);
        let lifetimes = self.lifetimes.iter();
        let cache =
            lifetimes.fold(cache, |cache, (status, time)| cache.lifetime(status.range(), *time));
        let all = [&self.bypass, &self.refresh, &self.no_store];
        if all.iter().all(|conditions| conditions.is_none()) {
            return cache;
        }
        let [bypass, refresh, no_store] = all.map(Clone::clone);
        let others = [refresh.clone(), no_store.clone()];
        let applies = |conditions: Option<RequestConditions>| {
            move |request: &Request| {
                let conditions = conditions.as_ref();
                conditions.and_then(|it| it.match_request(request)).unwrap_or(false)
            }
        };
        let bypass = move |request: &Request| {
            // Undecided: the conditions may be there to protect a response.
            let is_undecided = |it: &RequestConditions| it.match_request(request).is_none();
            bypass.as_ref().is_some_and(|it| it.match_request(request).unwrap_or(true))
                || others.iter().flatten().any(is_undecided)
        };
        cache.bypass(bypass).refresh(applies(refresh)).no_store(applies(no_store))
    }

    fn query_key(&self) -> QueryKey {
        let Some(names) = &self.query else { return QueryKey::All };
        let excepted: Vec<_> = names.iter().filter_map(|name| excepted(name)).collect();
        match excepted.is_empty() {
            true => QueryKey::Only(names.clone()),
            false => QueryKey::Except(excepted.into_iter().map(str::to_owned).collect()),
        }
    }
}

/// Returns the name behind `!=`.
fn excepted(name: &str) -> Option<&str> {
    name.strip_prefix("!=").map(str::trim_start)
}

macro_rules! switch {
    ($name:literal, $field:ident, $help:literal) => {
        Key {
            name: $name,
            help: $help,
            kind: ValueKind::Bool(|cache, switch| cache.$field = switch),
            show: |cache| cache.$field.to_string(),
            ..Key::FILE_ONLY
        }
    };
}

macro_rules! time {
    ($name:literal, $field:ident, $help:literal) => {
        Key {
            name: $name,
            help: $help,
            kind: ValueKind::Time(|cache, time| cache.$field = time.min(MAX_TIME)),
            // No time of a file is 0.
            show: |cache| match cache.$field {
                Duration::ZERO => String::new(),
                time => quoted_time(time),
            },
            ..Key::FILE_ONLY
        }
    };
}

macro_rules! conditions {
    ($name:literal, $field:ident, $help:literal) => {
        Key {
            name: $name,
            help: $help,
            kind: ValueKind::Custom(&CONDITIONS, |cache, given| {
                if let Given::Values([value]) = given {
                    let conditions = Arc::new(read_conditions(value)?);
                    cache.$field = Some(RequestConditions(conditions));
                }
                Ok(())
            }),
            show: |cache| {
                cache.$field.as_ref().map_or_else(String::new, |it| show_conditions(&it.0))
            },
            ..Key::FILE_ONLY
        }
    };
}

/// The keys of a table of `response_cache`.
pub(crate) static RESPONSE_CACHE: [Key<CacheSettings>; 16] = [
    Key {
        name: "lifetimes",
        help: "lifetimes of responses that state none, by status: `{ 200 = \"10m\", 4xx = \"5s\" }`; the \
               first that matches applies",
        kind: ValueKind::Pairs(set_lifetimes),
        show: |cache| match cache.lifetimes.is_empty() {
            true => String::new(),
            false => quoted_table(
                cache.lifetimes.iter().map(|(status, time)| (status.to_string(), show_time(*time))),
            ),
        },
        ..Key::FILE_ONLY
    },
    switch!(
        "heuristic",
        is_heuristic,
        "responses without a lifetime have a tenth of the time since `Last-Modified`"
    ),
    Key {
        name: "max_object",
        help: "maximum size of the body of a response that is stored; larger ones pass",
        kind: ValueKind::Size(0..=1 << 40, |cache, bytes| cache.max_object = bytes),
        show: |cache| quoted(&show_size(cache.max_object)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "min_uses",
        help: "number of requests of a URL after which its response is stored",
        kind: ValueKind::Count(1..=1_000, |cache, count| cache.min_uses = count),
        show: |cache| cache.min_uses.to_string(),
        ..Key::FILE_ONLY
    },
    Key {
        name: "query",
        help: "parameters of the query that are part of the key, or with `!= ` before each name, all others: \
               `[\"!= utm_source\", \"!= fbclid\"]`; []: none (all)",
        kind: ValueKind::Texts(set_query),
        show: |cache| cache.query.as_ref().map_or_else(String::new, |it| quoted_list(it.iter())),
        ..Key::FILE_ONLY
    },
    Key {
        name: "key_fields",
        help: "fields of requests that are part of the key",
        kind: ValueKind::Texts(|cache, texts| {
            let name =
                |text: Located<String>| match text.value.parse::<HeaderName>() {
                    Ok(name) => Ok(name.as_str().to_owned()),
                    Err(_) => Err(text
                        .problem(format!("expected the name of a field, found {:?}", text.value))),
                };
            let names = limited(texts)?.into_iter().map(name);
            cache.key_fields = names.collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |cache| list(&cache.key_fields),
        ..Key::FILE_ONLY
    },
    Key {
        name: "key_cookies",
        help: "cookies of requests that are part of the key",
        kind: ValueKind::Texts(|cache, texts| {
            let texts = limited(texts)?;
            if let Some(invalid) = texts.iter().find(|it| !is_cookie_name(&it.value)) {
                let found = &invalid.value;
                return Err(
                    invalid.problem(format!("expected the name of a cookie, found {found:?}"))
                );
            }
            cache.key_cookies = texts.into_iter().map(|text| text.value).collect();
            Ok(())
        }),
        show: |cache| list(&cache.key_cookies),
        ..Key::FILE_ONLY
    },
    conditions!(
        "bypass",
        bypass,
        "conditions, as of `when`, under which GET and HEAD requests pass the cache: their \
         responses are neither looked for nor stored"
    ),
    conditions!(
        "refresh",
        refresh,
        "conditions, as of `when`, under which stored responses are validated or replaced first, as \
         with `Cache-Control: no-cache` of a client"
    ),
    conditions!(
        "no_store",
        no_store,
        "conditions, as of `when`, under which responses are not stored, though stored ones are sent"
    ),
    switch!(
        "ignore_client",
        ignores_client,
        "`Cache-Control` and `Pragma` of requests have no effect, so that clients cannot have the \
         upstream asked"
    ),
    switch!(
        "store_cookies",
        stores_cookies,
        "store responses with `Set-Cookie` that are not `public`, whose cookie all clients then get"
    ),
    time!(
        "stale_while_revalidate",
        stale_while_revalidate,
        "time for which a stale response is sent while it is validated, if it does not state it"
    ),
    time!(
        "stale_if_error",
        stale_if_error,
        "time for which a stale response replaces errors of the upstream (500, 502, 503, 504), if it \
         does not state it"
    ),
    time!(
        "collapse_timeout",
        collapse_timeout,
        "maximum time for which a request waits for the response to another one"
    ),
    switch!(
        "finish_abandoned",
        finishes_abandoned,
        "a response is received to its end, and stored, also if all of its clients have left"
    ),
];

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => quoted_list(names.iter()),
    }
}

fn limited(texts: Vec<Located<String>>) -> ConfigResult<Vec<Located<String>>> {
    match texts.get(MAX_ITEMS) {
        Some(text) => Err(text.problem(format!("expected at most {MAX_ITEMS} names"))),
        None => Ok(texts),
    }
}

/// Returns true if a cookie may have this name (RFC 6265 §4.1.1).
fn is_cookie_name(name: &str) -> bool {
    let is_permitted = |b: u8| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b);
    !name.is_empty() && name.bytes().all(is_permitted)
}

fn set_query(cache: &mut CacheSettings, texts: Vec<Located<String>>) -> ConfigResult {
    let texts = limited(texts)?;
    for text in &texts {
        let name = excepted(&text.value).unwrap_or(&text.value);
        if name.is_empty() || name.contains(['&', '=', '#']) {
            let message = format!("expected the name of a parameter, found {:?}", text.value);
            return Err(text.problem(message));
        }
        if excepted(&text.value).is_some() != excepted(&texts[0].value).is_some() {
            return Err(text.problem("either all names have `!=`, or none"));
        }
    }
    cache.query = Some(texts.into_iter().map(|text| text.value).collect());
    Ok(())
}

fn set_lifetimes(cache: &mut CacheSettings, pairs: Vec<Pair>) -> ConfigResult {
    if let Some(pair) = pairs.get(MAX_ITEMS) {
        return Err(pair.name.problem(format!("expected at most {MAX_ITEMS} lifetimes")));
    }
    let lifetime = |Pair { name, value, .. }: Pair| {
        let status = StatusRange::read(&name)?;
        let time = parse_time(&value.value).map_err(|message| value.problem(message))?;
        Ok((status, time.min(MAX_TIME)))
    };
    cache.lifetimes = pairs.into_iter().map(lifetime).collect::<ConfigResult<_>>()?;
    Ok(())
}
