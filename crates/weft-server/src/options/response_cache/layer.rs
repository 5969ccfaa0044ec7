//! The cache of a route in a worker.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::cache::{Cache, Store};
use weft::header::{HeaderName, HeaderValue};
use weft::{Application, Method, Request, Response};

use super::counts::RouteCacheCounts;
use super::settings::CacheSettings;
use crate::options::layer::{Layer, WrappedApp};
use crate::route::{Conditions, RequestValues};

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Value for a request that passes the cache (RFC 9211 §2.2).
const BYPASSED: HeaderValue = HeaderValue::from_static("Weft; fwd=bypass");

/// The cache of a route, shared by all workers.
#[derive(Clone)]
pub(super) struct RouteCache {
    cache: Cache,
    bypass: Option<Arc<Conditions>>,
    counts: RouteCacheCounts,
}

impl RouteCache {
    pub(super) fn new(settings: &CacheSettings, store: &Store) -> RouteCache {
        let bypass = settings.bypass.as_ref().map(|bypass| bypass.0.clone());
        let cache = settings.cache(store);
        RouteCache { counts: RouteCacheCounts::new(cache.clone()), cache, bypass }
    }

    pub(super) fn into_layer(self) -> Layer {
        Layer::of_cache(self.counts.clone(), move |app| self.wrap(app))
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
        self.counts.add_bypassed();
        let response = app.respond(request);
        async move { response.await.with_header(CACHE_STATUS, BYPASSED) }.boxed_local()
    }
}
