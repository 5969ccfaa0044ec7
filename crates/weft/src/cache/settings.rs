//! The settings of a route.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use weft_proto::semantics::caching::Defaults;

use crate::cache::key::{KeySettings, QueryKey};
use crate::cache::statistics::{Counters, Event, Statistics};
use crate::cache::store::Store;
use crate::message::request::Request;

/// The cache of a route: its settings, and the [`Store`] that it uses.
///
/// ```
/// use std::time::Duration;
/// use weft::cache::{Cache, QueryKey, Store};
/// use weft::{Request, Response};
///
/// async fn report(_: Request) -> Response { Response::text("expensive\n") }
///
/// let cache = Cache::new(&Store::new())
///     .lifetime(200..=299, Duration::from_secs(10))
///     .query(QueryKey::Except(vec!["utm_source".into()]))
///     .stale_if_error(Duration::from_secs(3_600));
/// let app = cache.over(report);
/// weft::testing::get(app.clone(), "/?utm_source=mail");
/// assert_eq!(weft::testing::get(app, "/").header("age"), Some("0"));
/// assert_eq!(cache.statistics().hits, 1);
/// ```
#[derive(Clone)]
pub struct Cache {
    store: Store,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) key: KeySettings,
    pub(super) max_object_bytes: usize,
    pub(super) min_uses: u32,
    pub(super) collapse_timeout: Duration,
    pub(super) finishes_abandoned: bool,
    pub(super) ignores_client: bool,
    pub(super) bypass: Option<Arc<RequestPredicate>>,
    pub(super) refresh: Option<Arc<RequestPredicate>>,
    pub(super) no_store: Option<Arc<RequestPredicate>>,
    lifetimes: Vec<(RangeInclusive<u16>, u64)>,
    is_heuristic: bool,
    stale_while_revalidate: u64,
    stale_if_error: u64,
    stores_cookies: bool,
}

pub(super) type RequestPredicate = dyn Fn(&Request) -> bool + Send + Sync;

impl Cache {
    /// Creates a cache with default settings.
    pub fn new(store: &Store) -> Cache {
        let settings = Settings {
            name: "Weft".into(),
            key: KeySettings::default(),
            max_object_bytes: 8 << 20,
            min_uses: 1,
            collapse_timeout: Duration::from_secs(5),
            finishes_abandoned: true,
            ignores_client: false,
            bypass: None,
            refresh: None,
            no_store: None,
            lifetimes: Vec::new(),
            is_heuristic: true,
            stale_while_revalidate: 0,
            stale_if_error: 0,
            stores_cookies: false,
        };
        Cache { store: store.clone(), settings: Arc::new(settings), counters: Arc::default() }
    }

    /// Sets the name in `Cache-Status` (RFC 9211), a token. Default: `Weft`.
    pub fn name(self, name: &str) -> Cache {
        self.with(|settings| settings.name = name.into())
    }

    /// Sets the maximum length of a body in bytes. Larger responses pass. Default: 8 MiB; a
    /// response never occupies more than half of the store.
    pub fn max_object_bytes(self, bytes: usize) -> Cache {
        self.with(|settings| settings.max_object_bytes = bytes)
    }

    /// Stores the response to the nth request of a URL only, so that what is requested once takes
    /// no room. Default: 1.
    pub fn min_uses(self, uses: u32) -> Cache {
        self.with(|settings| settings.min_uses = uses)
    }

    /// Sets the parameters of the query that are part of the key. Default: all.
    pub fn query(self, query: QueryKey) -> Cache {
        self.with(|settings| settings.key.query = query)
    }

    /// Adds fields of requests to the key.
    pub fn key_fields<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Cache {
        let names = names.into_iter().map(|name| name.as_ref().to_ascii_lowercase());
        self.with(|settings| settings.key.fields.extend(names))
    }

    /// Adds cookies of requests to the key.
    pub fn key_cookies<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Cache {
        let names = names.into_iter().map(|name| name.as_ref().to_owned());
        self.with(|settings| settings.key.cookies.extend(names))
    }

    /// Sets the lifetime of responses that state none, by their status: the first range that
    /// contains it applies. Without one, only responses with `Last-Modified` have a lifetime.
    pub fn lifetime(self, statuses: RangeInclusive<u16>, lifetime: Duration) -> Cache {
        self.with(|settings| settings.lifetimes.push((statuses, lifetime.as_secs())))
    }

    /// Sets whether a lifetime is estimated from `Last-Modified` (RFC 9111 §4.2.2): a tenth of the
    /// time since then, at most one day. Default: true.
    pub fn heuristic(self, is_heuristic: bool) -> Cache {
        self.with(|settings| settings.is_heuristic = is_heuristic)
    }

    /// Ignores `Cache-Control` and `Pragma` of requests: a client can then not have the application
    /// asked. Default: false.
    pub fn ignore_client(self, ignores_client: bool) -> Cache {
        self.with(|settings| settings.ignores_client = ignores_client)
    }

    /// Sets the time for which stale responses are sent while they are validated in the background
    /// (RFC 5861 §3), if the response does not state it. Default: 0.
    pub fn stale_while_revalidate(self, time: Duration) -> Cache {
        self.with(|settings| settings.stale_while_revalidate = time.as_secs())
    }

    /// Sets the time for which stale responses replace errors of the application: 500, 502, 503 and
    /// 504 (RFC 5861 §4), if the response does not state it. Default: 0.
    pub fn stale_if_error(self, time: Duration) -> Cache {
        self.with(|settings| settings.stale_if_error = time.as_secs())
    }

    /// Stores responses with `Set-Cookie` also if they are not `public`: their cookie is sent to
    /// all clients. Default: false.
    pub fn store_cookies(self, stores_cookies: bool) -> Cache {
        self.with(|settings| settings.stores_cookies = stores_cookies)
    }

    /// Lets GET and HEAD requests for which `predicate` returns true pass the cache: their responses
    /// are neither looked for nor stored.
    pub fn bypass(self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Cache {
        self.with(|settings| settings.bypass = Some(Arc::new(predicate)))
    }

    /// Forwards GET and HEAD requests for which `predicate` returns true, and stores their responses
    /// in place of the stored ones: as if the client had sent `Cache-Control: no-cache`.
    pub fn refresh(self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Cache {
        self.with(|settings| settings.refresh = Some(Arc::new(predicate)))
    }

    /// Answers GET and HEAD requests for which `predicate` returns true with stored responses, but
    /// does not store theirs: as if the client had sent `Cache-Control: no-store`.
    pub fn no_store(self, predicate: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Cache {
        self.with(|settings| settings.no_store = Some(Arc::new(predicate)))
    }

    /// Sets the maximum time for which a request waits for the response to another. After that it
    /// is forwarded itself. Default: 5 seconds.
    pub fn collapse_timeout(self, timeout: Duration) -> Cache {
        self.with(|settings| settings.collapse_timeout = timeout)
    }

    /// Sets whether a response is received to its end, and stored, when all clients that wait for
    /// it have left. Default: true.
    pub fn finish_abandoned(self, finishes_abandoned: bool) -> Cache {
        self.with(|settings| settings.finishes_abandoned = finishes_abandoned)
    }

    /// Counts of this cache, and of its clones.
    pub fn statistics(&self) -> Statistics {
        self.counters.statistics()
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Cache {
        change(Arc::make_mut(&mut self.settings));
        self
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn count(&self, event: Event) {
        self.counters.add(event);
        self.store.counters().add(event);
    }

    pub(super) fn count_age(&self, seconds: u64) {
        if seconds > 0 {
            self.counters.add_age(seconds);
            self.store.counters().add_age(seconds);
        }
    }

    pub(super) fn count_sent(&self, bytes: u64) {
        self.counters.add_sent(bytes);
        self.store.counters().add_sent(bytes);
    }
}

impl Settings {
    pub(super) fn defaults(&self) -> Defaults<'_> {
        Defaults {
            lifetimes: &self.lifetimes,
            is_heuristic: self.is_heuristic,
            stale_while_revalidate: self.stale_while_revalidate,
            stale_if_error: self.stale_if_error,
            stores_cookies: self.stores_cookies,
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.settings.name).finish_non_exhaustive()
    }
}
