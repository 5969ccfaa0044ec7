//! The cache of a route in a worker.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::cache::{Cache, Statistics, Store};
use weft::header::{HeaderName, HeaderValue};
use weft::{Application, Method, Request, Response};

use super::settings::CacheSettings;
use crate::options::layer::{Layer, WrappedApp};
use crate::route::{Conditions, RequestValues};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Value for a request that passes the cache (RFC 9211 §2.2).
const BYPASSED: HeaderValue = HeaderValue::from_static("Weft; fwd=bypass");

/// The cache of a route, shared by all workers.
#[derive(Clone)]
pub(crate) struct RouteCache {
    cache: Cache,
    bypass: Option<Arc<Conditions>>,
    /// Requests that have passed the cache because of `bypass`.
    bypassed: Arc<AtomicU64>,
}

impl RouteCache {
    pub(super) fn new(settings: &CacheSettings, store: &Store) -> RouteCache {
        let bypass = settings.bypass.as_ref().map(|bypass| bypass.0.clone());
        RouteCache { cache: settings.cache(store), bypass, bypassed: Arc::default() }
    }

    /// Returns the counts of the route.
    pub(crate) fn statistics(&self) -> Statistics {
        let mut statistics = self.cache.statistics();
        statistics.bypassed += self.bypassed.load(Relaxed);
        statistics
    }

    pub(super) fn into_layer(self) -> Layer {
        let cache = self.clone();
        Layer::of_cache(self, move |app| cache.wrap(app))
    }

    fn wrap(&self, app: WrappedApp) -> WrappedApp {
        let cached = Rc::new(self.cache.over(app.clone()));
        let cache = self.clone();
        WrappedApp::new(move |request| match cache.is_bypassed(&request) {
            true => cache.bypass(request, &app),
            false => {
                let cached = cached.clone();
                async move { cached.call(request).await }.boxed_local()
            }
        })
    }

    /// Returns true if a request passes the cache. Other methods than these reach the application
    /// anyway, and the cache must see them: they invalidate its responses (RFC 9111 §4.4).
    fn is_bypassed(&self, request: &Request) -> bool {
        let Some(conditions) = &self.bypass else { return false };
        matches!(*request.method(), Method::GET | Method::HEAD)
            // Undecided: the conditions may be there to protect a response.
            && conditions.match_request(&RequestValues::new(request)).unwrap_or(true)
    }

    fn bypass(&self, request: Request, app: &WrappedApp) -> LocalBoxFuture<'static, Response> {
        self.bypassed.fetch_add(1, Relaxed);
        let response = app.respond(request);
        async move { response.await.with_header(CACHE_STATUS, BYPASSED) }.boxed_local()
    }
}
