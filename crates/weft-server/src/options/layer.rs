//! The middleware of a route, made of its options.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::cache::{Cache, Store};
use weft::net::IpNetwork;
use weft::{Application, Middleware, Request, Response};
use weft_upstream::spool::BufferSpace;

use super::RouteOptions;
use crate::route::RouteName;
use crate::sections::cluster::OpenedCluster;

/// The middleware of a route, shared by all workers with its state, such as the rates of the
/// clients.
pub(crate) struct RouteMiddleware {
    /// Outermost first.
    layers: Vec<Layer>,
    has_cors: bool,
    /// The cache of one of the layers.
    cache: Option<Cache>,
}

/// Values of the plan on which middleware depends, besides the options of the route.
pub(crate) struct OpenContext<'a> {
    pub(crate) trusted_proxies: &'a [IpNetwork],
    pub(crate) buffer_space: &'a Arc<BufferSpace>,
    pub(crate) response_store: &'a Store,
    pub(crate) cluster: Option<&'a OpenedCluster>,
    /// Host and key of the route, the same on all machines of the cluster.
    pub(crate) route: &'a RouteName,
    /// The route has upstreams or scripts.
    pub(crate) has_application: bool,
}

/// A layer of middleware: wraps the application of a worker.
pub(crate) struct Layer {
    wrap: Box<Wrap>,
    cache: Option<Cache>,
}

type Wrap = dyn Fn(WrappedApp, &NamedRoutes) -> WrappedApp + Send + Sync;

/// The named routes of the hosts, to which middleware passes requests on.
#[derive(Clone)]
pub(crate) struct NamedRoutes(Rc<PassOn>);

type PassOn = dyn Fn(Request, &str) -> LocalBoxFuture<'static, Response>;

impl NamedRoutes {
    pub(crate) fn new(
        pass_on: impl Fn(Request, &str) -> LocalBoxFuture<'static, Response> + 'static,
    ) -> NamedRoutes {
        NamedRoutes(Rc::new(pass_on))
    }

    /// Passes a request to the route of its host with this name.
    pub(super) fn respond(
        &self,
        request: Request,
        name: &str,
    ) -> LocalBoxFuture<'static, Response> {
        (self.0)(request, name)
    }
}

/// An application with the middleware of its route.
#[derive(Clone)]
pub(crate) struct WrappedApp(Rc<dyn Fn(Request) -> LocalBoxFuture<'static, Response>>);

/// Middleware that passes most requests on without waiting, and so needs no future for them. Each
/// worker has its own.
pub(super) trait WorkerLayer: Sized + 'static {
    /// Handles a request.
    fn respond(
        self: &Rc<Self>,
        request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response>;
}

impl WrappedApp {
    pub(crate) fn new(
        respond: impl Fn(Request) -> LocalBoxFuture<'static, Response> + 'static,
    ) -> WrappedApp {
        WrappedApp(Rc::new(respond))
    }

    /// Wraps an application of another type.
    fn of(app: impl Application + 'static) -> WrappedApp {
        let app = Rc::new(app);
        WrappedApp::new(move |request| {
            let app = app.clone();
            async move { app.call(request).await }.boxed_local()
        })
    }

    /// Handles a request. The future borrows nothing, so that a reload may replace the router.
    pub(crate) fn respond(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        (self.0)(request)
    }
}

impl Application for WrappedApp {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.respond(request)
    }
}

impl Layer {
    /// Makes a layer of middleware of the library.
    pub(super) fn of_middleware(
        middleware: impl Middleware + Clone + Send + Sync + 'static,
    ) -> Layer {
        Layer::new(move |app, _| WrappedApp::of(app.wrap(middleware.clone())))
    }

    /// Makes a layer with the cache of the route.
    pub(super) fn of_cache(cache: Cache) -> Layer {
        let wrapping = cache.clone();
        let layer = Layer::new(move |app, _| WrappedApp::of(wrapping.over(app)));
        Layer { cache: Some(cache), ..layer }
    }

    fn new(wrap: impl Fn(WrappedApp, &NamedRoutes) -> WrappedApp + Send + Sync + 'static) -> Layer {
        Layer { wrap: Box::new(wrap), cache: None }
    }

    /// Makes a layer that is created anew for each worker.
    pub(super) fn of_worker<L: WorkerLayer>(
        for_worker: impl Fn() -> L + Send + Sync + 'static,
    ) -> Layer {
        Layer::with_routes(move |_| for_worker())
    }

    /// Makes a layer that is created anew for each worker, and passes requests to named routes.
    pub(super) fn with_routes<L: WorkerLayer>(
        for_worker: impl Fn(&NamedRoutes) -> L + Send + Sync + 'static,
    ) -> Layer {
        Layer::new(move |app, routes| {
            let layer = Rc::new(for_worker(routes));
            WrappedApp::new(move |request| layer.respond(request, &app))
        })
    }
}

impl RouteMiddleware {
    /// Opens the middleware of a route; `None` if its options need none.
    ///
    /// # Errors
    /// If a file of the options cannot be read.
    pub(crate) fn open(
        options: &RouteOptions,
        context: &OpenContext<'_>,
    ) -> Result<Option<RouteMiddleware>, String> {
        if *options == RouteOptions::default() {
            return Ok(None);
        }
        let layers = options.layers(context)?;
        let has_cors = options.cors.has_origins();
        let cache = layers.iter().find_map(|layer| layer.cache.clone());
        Ok((!layers.is_empty()).then_some(RouteMiddleware { layers, has_cors, cache }))
    }

    /// Returns the cache of the route, if it has one.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// Returns true if preflight requests are answered.
    pub(crate) fn has_cors(&self) -> bool {
        self.has_cors
    }

    /// Wraps the application of a worker.
    pub(crate) fn wrap(&self, app: WrappedApp, routes: &NamedRoutes) -> WrappedApp {
        // With one type for all layers, the future of each request would contain a copy of the
        // request for every layer that the route does not use.
        self.layers.iter().rev().fold(app, |app, layer| (layer.wrap)(app, routes))
    }
}
