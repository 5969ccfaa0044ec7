//! The router: listener, host and path → application. The table is built once and shared by the
//! workers.
//!
//! # The rule for paths
//!
//! 1. `CleanPath` has removed empty segments and resolved `.` and `..`, percent-encoded or not.
//! 2. The path is split at its slashes, each segment is decoded once, and the longest prefix of
//!    these segments that is a route applies.
//! 3. Servers differ in `%2F`, in backslashes and in `;`. A path that belongs to another route in
//!    one of their [readings](reading) gets 400, and so does a path that is invalid in all of them:
//!    with `%00`, or with a `..` that only some servers find, as in `/a/..%2Fb`.
//!
//! An application gets the path as the client sent it, apart from step 1. So an identifier with
//! `%2F` reaches an upstream unchanged, as long as it is within one route.

mod endpoint; // path of the application, and try_files
mod listeners; // the route table
mod metrics; // metrics of a worker's routes
mod table; // the hosts of a listener

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::middleware::{ErrorPages, RealAddress};
use weft::{Request, Response};
use weft_acme::Acme;
use weft_upstream::{ReverseProxy, ThrottledWarning};

use self::endpoint::{Endpoint, enter};
pub(crate) use self::listeners::ListenEnds;
use self::listeners::{HostSection, RouteTable};
pub(crate) use self::metrics::{ByClass, Outcomes, RequestTimer, RouteCounts, RouteMetrics};
use self::table::{Host, HostName, HostRoutes, Match, Route};
use crate::apps::{App, ResponseFuture, respond_later, respond_now};
use crate::base::listen_end::HostBinding;
use crate::base::request_notes::{NotedRoute, RequestNotes};
use crate::config_change::{UpstreamChange, UpstreamChangeKind};
use crate::logs::{OpenLogs, RouteLogPlan};
use crate::options::{NamedRoutes, RouteMiddleware, WrappedApp};
use crate::route::{Conditions, PathKey, Rewrite, RouteKey, RouteName, Split, Unrouted};
use crate::template::{MapSource, PrefixLength, RequestMaps, escape};

/// The route table and the applications, from which the router of each worker is built.
pub(crate) struct Routing {
    table: Arc<RouteTable>,
    targets: Vec<Target>,
    /// Names of the routes, in the order of `targets`.
    names: Vec<RouteName>,
    /// The maps of the configuration, if it has any.
    maps: Option<Arc<dyn MapSource>>,
    /// Determines the clients of trusted proxies; `None` without such proxies.
    real_address: Option<Arc<RealAddress>>,
    /// Logged if requests are passed on in a loop.
    loop_warning: Arc<ThrottledWarning>,
}

/// The application of a route, and the middleware in front of it.
pub(crate) struct Target {
    pub(crate) app: Arc<App>,
    /// Conditions of the requests that the route gets.
    pub(crate) conditions: Option<Arc<Conditions>>,
    /// Texts of the route or formats of its logs have values of maps.
    pub(crate) uses_maps: bool,
    /// Set if notes about the requests of the route are taken for the log.
    pub(crate) noted: Option<RouteLogPlan>,
    pub(crate) middleware: Option<Arc<RouteMiddleware>>,
    pub(crate) rewrite: Option<Arc<Rewrite>>,
    pub(crate) split: Option<Arc<Split>>,
}

/// The router of a worker. It has its own applications, and shares the table with other workers.
///
/// Request paths must be normalized: without doubled slashes and without dot segments.
pub(crate) struct Router {
    table: Arc<RouteTable>,
    targets: Vec<WorkerTarget>,
    /// Metrics of each route, followed by the metrics of requests without a route. `None` if
    /// metrics are disabled.
    counts: Option<Vec<Arc<RouteCounts>>>,
    real_address: Option<Arc<RealAddress>>,
    maps: Option<Arc<dyn MapSource>>,
    /// Conditions have values of maps.
    routes_by_maps: bool,
    /// Validations of a certificate authority, which precede all routes; `None` if no certificates
    /// are ordered.
    acme: Option<Arc<Acme>>,
}

/// The future of the response to a request that the router has handled.
pub(crate) struct RoutedResponse {
    future: ResponseFuture,
    /// `None` if metrics are disabled.
    timer: Option<RequestTimer>,
}

impl RoutedResponse {
    /// Creates the future of a response that is not counted.
    pub(crate) fn without_route(response: LocalBoxFuture<'static, Response>) -> RoutedResponse {
        RoutedResponse { future: respond_later(response), timer: None }
    }
}

impl Future for RoutedResponse {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let polled = Pin::new(&mut self.future).poll(cx);
        if let Poll::Ready(response) = &polled
            && let Some(timer) = self.timer.take()
        {
            timer.finish(response.status());
        }
        polled
    }
}

/// The target of a route in one worker.
struct WorkerTarget {
    app: WorkerApp,
    uses_maps: bool,
    /// The application behind the middleware of the route and the changes of the path.
    wrapped: Option<WrappedApp>,
    /// Set if notes about the requests of the route are taken for the log.
    noted: Option<Arc<NotedRoute>>,
}

/// The application of a route in one worker.
#[derive(Clone)]
struct WorkerApp {
    /// The application of the route table, from which `own` is created.
    origin: Arc<App>,
    own: Rc<App>,
}

/// The names of a host section in their normal form, its title in metrics, and the connections
/// whose requests it gets.
pub(crate) struct HostNames<'a> {
    pub(crate) names: &'a [String],
    pub(crate) title: String,
    pub(crate) binding: HostBinding,
}

/// Maximum number of patterns of host names. Each pattern costs time.
const MAX_HOST_PATTERNS: usize = 64;

#[derive(Default)]
pub(crate) struct RoutingBuilder {
    sections: Vec<HostSection>,
    targets: Vec<Target>,
    names: Vec<RouteName>,
    real_address: Option<Arc<RealAddress>>,
    maps: Option<Arc<dyn MapSource>>,
}

impl Router {
    /// Answers the validations of a certificate authority.
    pub(crate) fn with_acme(self, acme: Option<Arc<Acme>>) -> Router {
        Router { acme, ..self }
    }

    /// Looks up the validation of a certificate authority that another machine of the cluster has
    /// begun. Afterwards, [`handle`](Router::handle) knows it. `None` for all other requests.
    pub(crate) fn look_up_validation(
        &self,
        request: &Request,
    ) -> Option<impl Future<Output = ()> + use<>> {
        self.acme.as_ref()?.look_up(request)
    }

    /// Handles a request with the application of its route.
    pub(crate) fn handle(&self, mut request: Request) -> RoutedResponse {
        if let Some(acme) = &self.acme
            && let Some(response) = acme.respond(&request)
        {
            return RoutedResponse { future: respond_now(response), timer: None };
        }
        if let Some(real_address) = &self.real_address {
            real_address.apply(&mut request);
        }
        if self.routes_by_maps {
            self.attach_maps(&mut request);
        }
        let found = self.table.hosts_of(&request).find(&request);
        let timer = self.counts.as_ref().map(|counts| {
            let unmatched = self.targets.len();
            counts[found.as_ref().map_or(unmatched, |found| found.route.target)].begin()
        });
        let future = match found {
            Err(unrouted) => respond_now(self.refuse(&request, unrouted)),
            Ok(found) => {
                let target = &self.targets[found.route.target];
                if target.uses_maps {
                    self.attach_maps(&mut request);
                }
                if let Some(noted) = &target.noted {
                    let groups = found.noted_groups(noted, &request);
                    RequestNotes::attach(&mut request, noted, groups);
                }
                self.respond(request, found)
            }
        };
        RoutedResponse { future, timer }
    }

    /// Handles a request that a route passes on to another one. The metrics count it for the first.
    fn pass_on(
        &self,
        mut request: Request,
        to: Destination<'_>,
    ) -> LocalBoxFuture<'static, Response> {
        let hosts = self.table.hosts_of(&request);
        let found = match to {
            Destination::Path => hosts.find(&request),
            Destination::Route(name) => hosts.find_name(request.head(), name),
        };
        match found {
            Err(unrouted) => ready(self.refuse(&request, unrouted)).boxed_local(),
            Ok(found) => {
                if self.targets[found.route.target].uses_maps {
                    self.attach_maps(&mut request);
                }
                self.respond(request, found).boxed_local()
            }
        }
    }

    /// Gives a request the maps, unless it has them.
    #[cold]
    fn attach_maps(&self, request: &mut Request) {
        if let Some(maps) = &self.maps {
            request.extensions_mut().get_or_insert_with(|| RequestMaps::new(maps.clone()));
        }
    }

    /// Responds to a request without a route, with the error pages of its host.
    #[cold]
    fn refuse(&self, request: &Request, unrouted: Unrouted) -> Response {
        let response = unrouted.response();
        match self.table.hosts_of(request).error_pages(request.head()) {
            Some(pages) => pages.apply(response),
            None => response,
        }
    }

    /// Handles a request with the application of this route.
    #[inline(always)]
    fn respond(&self, mut request: Request, found: Match<'_>) -> ResponseFuture {
        let Match { route, mount, captures, host_captures } = found;
        if let Some(captures) = captures {
            request.extensions_mut().insert(*captures);
        }
        if let Some(captures) = host_captures {
            request.extensions_mut().insert(*captures);
        }
        let target = &self.targets[route.target];
        if let Some(wrapped) = &target.wrapped {
            // Middleware gets the whole path. The first extension of a request is an allocation.
            if mount > 0 {
                request.extensions_mut().insert(PrefixLength(mount));
            }
            return respond_later(wrapped.respond(request));
        }
        match enter(&mut request, mount, route.directory.as_deref()) {
            None => target.app.own.call(request),
            Some(redirect) => respond_now(redirect),
        }
    }
}

/// Destination of a request that a route passes on.
#[derive(Clone, Copy)]
enum Destination<'a> {
    /// The route of the path of the request.
    Path,
    /// The route with this name.
    Route(&'a str),
}

impl Routing {
    /// Returns the names of the routes, each with its application.
    pub(crate) fn routes(&self) -> impl Iterator<Item = (&RouteName, &App)> {
        self.names.iter().zip(self.targets.iter().map(|target| &*target.app))
    }

    /// Returns the caches of the routes, each with the name of its route.
    pub(crate) fn caches(&self) -> impl Iterator<Item = (&RouteName, &weft::cache::Cache)> {
        let targets = self.names.iter().zip(&self.targets);
        targets.filter_map(|(name, target)| Some((name, target.middleware.as_ref()?.cache()?)))
    }

    /// Changes an upstream of all routes that have it, and logs that. Returns the number of
    /// changes: routes with the same settings share their upstreams.
    ///
    /// # Errors
    /// If an upstream cannot be added or removed.
    pub(crate) fn change_upstreams(&self, change: &UpstreamChange) -> Result<usize, String> {
        let mut proxies = HashMap::new();
        for (name, app) in self.routes().filter(|(name, _)| change.applies_to(name)) {
            if let Some(proxy) = app.proxy() {
                proxies.entry(proxy.identity()).or_insert((name, proxy));
            }
        }
        let mut changed = 0;
        for (RouteName { host, prefix }, proxy) in proxies.values() {
            let upstream = &change.upstream;
            let has_changed = match &change.kind {
                UpstreamChangeKind::Control(control) => proxy.change_upstream(upstream, *control),
                UpstreamChangeKind::Add => proxy.add_upstream(upstream).map(|()| true)?,
                UpstreamChangeKind::Remove => proxy.remove_upstream(upstream)?,
            };
            if !has_changed {
                continue;
            }
            changed += 1;
            let of = format!("the upstream {upstream} of {host} {prefix}");
            match &change.kind {
                UpstreamChangeKind::Control(control) => {
                    log::info!("a client changed {of}: {control}");
                }
                UpstreamChangeKind::Add => {
                    log::info!("a client added {of}, until the next reload");
                }
                UpstreamChangeKind::Remove => {
                    log::info!("a client removed {of}, until the next reload");
                }
            }
        }
        Ok(changed)
    }

    /// Restores the upstreams of the configuration: changes by clients of the status endpoint end.
    pub(crate) fn reset_upstreams(&self) {
        self.routes().filter_map(|(_, app)| app.proxy()).for_each(ReverseProxy::reset_upstreams);
    }

    /// Takes over the states of upstreams that operators have set, from the routes of the same
    /// names.
    pub(crate) fn take_over_upstreams(&self, former: &Routing) {
        let former: HashMap<_, _> = former.routes().collect();
        for (name, app) in self.routes() {
            let former = former.get(name).and_then(|app| app.proxy());
            if let (Some(proxy), Some(former)) = (app.proxy(), former) {
                proxy.take_over(former);
            }
        }
    }

    /// Builds the router of a worker. Applications that the worker's `former` router has are kept
    /// with their state, and metrics of routes with equal names continue. Routes that pass requests
    /// on do so to the `current` router.
    pub(crate) fn router(
        &self,
        former: Option<&Router>,
        route_metrics: Option<&RouteMetrics>,
        logs: &OpenLogs,
        current: &Weak<RefCell<Router>>,
    ) -> Router {
        let mut worker_logs = logs.for_worker();
        let former = former.iter().flat_map(|former| &former.targets).map(|target| &target.app);
        let mut existing: HashMap<*const App, WorkerApp> =
            former.map(|app| (Arc::as_ptr(&app.origin), app.clone())).collect();
        // Routes with the same application share it in the worker, too.
        let mut of_worker = |app: &Arc<App>| {
            let own = || Rc::new(app.for_worker(route_metrics.is_some()));
            let new = || WorkerApp { origin: app.clone(), own: own() };
            existing.entry(Arc::as_ptr(app)).or_insert_with(new).clone()
        };
        let mut targets: Vec<WorkerTarget> = self
            .targets
            .iter()
            .map(|target| WorkerTarget {
                app: of_worker(&target.app),
                uses_maps: target.uses_maps,
                wrapped: None,
                noted: target.noted.as_ref().map(|plan| worker_logs.route(plan)),
            })
            .collect();
        for route in self.table.routes() {
            let (own, shared) = (&mut targets[route.target], &self.targets[route.target]);
            let is_plain = shared.rewrite.is_none() && shared.split.is_none();
            if is_plain && shared.middleware.is_none() {
                continue;
            }
            let endpoint = Endpoint {
                app: own.app.own.clone(),
                directory: route.directory.clone(),
                rewrite: shared.rewrite.clone(),
                split: shared.split.clone(),
                router: current.clone(),
                loop_warning: self.loop_warning.clone(),
            };
            let endpoint = Rc::new(endpoint);
            let named = endpoint.clone();
            let app = WrappedApp::new(move |request| endpoint.respond(request));
            own.wrapped = Some(match &shared.middleware {
                Some(middleware) => {
                    let named = move |request, name: &str| named.respond_by_name(request, name);
                    middleware.wrap(app, &NamedRoutes::new(named))
                }
                None => app,
            });
        }
        let counts = route_metrics.map(|metrics| metrics.for_routes(&self.names));
        let real_address = self.real_address.clone();
        Router {
            table: self.table.clone(),
            targets,
            counts,
            real_address,
            maps: self.maps.clone(),
            routes_by_maps: self.targets.iter().any(Target::is_chosen_by_maps),
            acme: None,
        }
    }
}

impl Target {
    /// Returns true if the conditions of the route have values of maps.
    fn is_chosen_by_maps(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| conditions.use_maps())
    }
}

impl RoutingBuilder {
    /// Gives requests the values of maps.
    pub(crate) fn use_maps(&mut self, maps: Arc<dyn MapSource>) {
        self.maps = Some(maps);
    }

    /// Determines the client of each request.
    pub(crate) fn find_clients(&mut self, by: RealAddress) {
        self.real_address = Some(Arc::new(by));
    }

    /// Adds a host section, with its targets and their keys.
    ///
    /// # Errors
    /// If there are too many patterns.
    pub(crate) fn add(
        &mut self,
        section: HostNames<'_>,
        targets: Vec<(&RouteKey, Target)>,
        error_pages: Option<ErrorPages>,
    ) -> Result<(), String> {
        let HostNames { names, title, binding } = section;
        let mut routes = Vec::new();
        for (key, target) in targets {
            let prefix = key.prefix().filter(|_| target.app.is_directory());
            let directory = prefix.map(directory_reference);
            let takes_path = match &key.path {
                PathKey::Prefix(_) | PathKey::Name(_) => false,
                PathKey::Exact(_) => target.app.takes_path(true),
                PathKey::Pattern(_) => target.app.takes_path(false),
            };
            let has_cors =
                target.middleware.as_ref().is_some_and(|middleware| middleware.has_cors());
            let conditions = target.conditions.clone();
            let target_number = self.targets.len();
            let route =
                Route { target: target_number, conditions, directory, takes_path, has_cors };
            routes.push((key, route));
            self.targets.push(target);
            self.names.push(RouteName { host: title.clone(), prefix: key.to_string() });
        }
        let names =
            names.iter().map(|name| HostName::parse(name)).collect::<Result<Vec<_>, _>>()?;
        let host = Host { routes: HostRoutes::new(routes)?, error_pages };
        self.sections.push(HostSection { names, binding, host });
        let all = self.sections.iter().flat_map(|section| &section.names);
        match all.filter(|name| matches!(name, HostName::Pattern(_))).count() {
            0..=MAX_HOST_PATTERNS => Ok(()),
            _ => Err(format!("there are more than {MAX_HOST_PATTERNS} patterns of hosts")),
        }
    }

    /// Builds the route table.
    pub(crate) fn build(self, ends: ListenEnds) -> Routing {
        let RoutingBuilder { sections, targets, names, real_address, maps } = self;
        let loop_warning = Arc::default();
        let table = RouteTable::new(sections, ends);
        Routing { table: Arc::new(table), targets, names, maps, real_address, loop_warning }
    }
}

/// Returns the path of a directory as a URI reference.
fn directory_reference(prefix: &str) -> Arc<str> {
    let mut reference = String::new();
    escape(&mut reference, prefix);
    reference.push('/');
    reference.into()
}

#[cfg(test)]
mod tests;
