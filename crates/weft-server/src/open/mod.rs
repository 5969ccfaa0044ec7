//! Opens the directories and certificates of a [`Plan`]. No socket is bound yet.

pub(crate) mod active_plan; // the plan in effect, with everything that is open for it
pub(crate) mod application; // the application of a server: routes, or the status endpoint
mod cluster_events; // messages of other machines, and the entry for them
mod reloadable_router; // a worker's router, replaced at a reload
mod route_logs; // the logs of a route

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use weft::cache::Store;
use weft::middleware::RealAddress;
use weft::net::IpNetwork;
use weft_acme::Acme;
use weft_config::{ConfigLocation, Located, Problem};
use weft_upstream::spool::BufferSpace;

use self::active_plan::PlanReceiver;
use self::route_logs::route_logs;
use crate::apps::{self, App, Form};
use crate::base::listen_end::Ipv4Ports;
use crate::base::sys::{FileId, file_id};
use crate::config::{HostPlan, Plan, RoutePlan};
use crate::options::access_log::AccessLogOptions;
use crate::options::{OpenContext, RouteMiddleware, RouteOptions};
use crate::route::RouteName;
use crate::router::{HostNames, ListenEnds, Routing, RoutingBuilder, Target};
use crate::sections::cluster::OpenedCluster;
use crate::sections::response_cache::StoreSettings;
use crate::sections::streams::StreamConfig;
use crate::sections::tls::OpenedTls;
use crate::stream::Stream;

/// Maximum time for writing the responses in memory to files at the end of the process.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The opened resources of a plan.
pub(crate) struct Opened {
    apps: HashMap<AppSource, Arc<App>>,
    middleware: HashMap<MiddlewareSource, Option<Arc<RouteMiddleware>>>,
    /// The space for buffered bodies, which all plans of the process share.
    pub(crate) buffer_space: Arc<BufferSpace>,
    /// The stored responses, which the next plan keeps unless its settings differ.
    pub(crate) response_store: ResponseStore,
    /// This machine in its cluster, which the next plan keeps unless its settings differ.
    pub(crate) cluster: Option<Arc<OpenedCluster>>,
    pub(crate) routing: Routing,
    /// Streams by their addresses in the configuration.
    pub(crate) streams: HashMap<String, Arc<Stream>>,
    pub(crate) tls: Option<OpenedTls>,
    /// Routes that respond with 503, because they could not be opened.
    pub(crate) unavailable: Vec<UnavailableRoute>,
}

/// The store of responses, with the settings from which it was opened.
#[derive(Clone)]
pub(crate) struct ResponseStore {
    settings: StoreSettings,
    pub(crate) store: Store,
    /// The reason that the folder is not used.
    problem: Option<String>,
}

/// A route that could not be opened, with the reason.
pub(crate) struct UnavailableRoute {
    pub(crate) route: RouteName,
    pub(crate) problem: Problem,
}

/// Everything that an application is opened from. Applications of equal sources are
/// interchangeable.
#[derive(PartialEq, Eq, Hash)]
struct AppSource {
    form: Form,
    /// Device and inode of the root directory, so that a replaced directory is opened again. An
    /// example is a symbolic link with a new target.
    root: Option<FileId>,
}

/// The route that middleware belongs to, with its options, the trusted proxies, and what its cache
/// depends on: each route counts its own requests. The last value is the address of the cluster, if
/// the route shares something with it.
type MiddlewareSource =
    (RouteName, RouteOptions, Vec<IpNetwork>, Option<CacheSource>, Option<usize>);

/// The settings of the store, and whether the route has an application.
type CacheSource = (StoreSettings, bool);

impl Plan {
    /// Opens the resources of the plan. Those of `former` are kept with their state, such as the
    /// health of upstreams, if they are opened from the same source. Routes with the same action
    /// share one application.
    ///
    /// # Errors
    /// If nothing can be served, and with `strict_start` if anything cannot be opened.
    pub(crate) fn open(&self, former: Option<&Opened>) -> Result<Opened, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut builder = RoutingBuilder::default();
        if !self.top.trusted_proxies.is_empty() {
            builder.find_clients(self.real_address());
        }
        let response_store = ResponseStore::of(&self.response_cache, former, self.top.strict_start)
            .map_err(|message| vec![Problem::without_location(message)])?;
        let cluster = self.open_cluster(former, &mut problems);
        let mut opening = RouteOpening::new(self, former, response_store, cluster.clone());
        let ports = self.listening().ipv4_ports();
        for host in &self.hosts {
            let targets = host.routes.iter().map(|route| (&route.key, opening.open(host, route)));
            let targets = targets.collect();
            if let (Err(message), Some(route)) = (
                builder.add(host_names(host, &ports), targets, host.error_pages.middleware()),
                host.routes.first(),
            ) {
                problems.push(route.form.problem(message));
            }
        }
        let RouteOpening { apps, middleware, buffer_space, response_store, unavailable, .. } =
            opening;
        let streams = self.open_streams(former, &mut problems);
        let tls = self.open_tls(cluster.as_deref(), former, &mut problems);
        let count = self.hosts.iter().map(|host| host.routes.len()).sum::<usize>();
        let serves_none = count > 0 && unavailable.len() == count;
        if !problems.is_empty() || serves_none || self.top.strict_start && !unavailable.is_empty() {
            problems.splice(..0, unavailable.into_iter().map(|it| it.problem));
            return Err(problems);
        }
        if let Some(maps) = &self.maps.maps {
            builder.use_maps(maps.clone());
        }
        let routing = builder.build(self.listen_ends(&ports));
        if let Some(former) = former {
            routing.take_over_upstreams(&former.routing);
        }
        Ok(Opened {
            apps,
            middleware,
            buffer_space,
            response_store,
            cluster,
            routing,
            streams,
            tls,
            unavailable,
        })
    }
}

/// The resources of routes while they are opened.
struct RouteOpening<'a> {
    plan: &'a Plan,
    former: Option<&'a Opened>,
    /// Number of routes that serve a directory.
    directories: usize,
    apps: HashMap<AppSource, Arc<App>>,
    middleware: HashMap<MiddlewareSource, Option<Arc<RouteMiddleware>>>,
    buffer_space: Arc<BufferSpace>,
    response_store: ResponseStore,
    cluster: Option<Arc<OpenedCluster>>,
    unavailable: Vec<UnavailableRoute>,
}

impl<'a> RouteOpening<'a> {
    fn new(
        plan: &'a Plan,
        former: Option<&'a Opened>,
        response_store: ResponseStore,
        cluster: Option<Arc<OpenedCluster>>,
    ) -> RouteOpening<'a> {
        let forms = plan.hosts.iter().flat_map(|host| &host.routes).map(|route| &route.form.value);
        RouteOpening {
            plan,
            former,
            directories: forms.filter(|form| form.served_directory().is_some()).count(),
            apps: HashMap::new(),
            middleware: HashMap::new(),
            buffer_space: former.map(|former| former.buffer_space.clone()).unwrap_or_default(),
            response_store,
            cluster,
            unavailable: Vec::new(),
        }
    }

    /// Opens a route. One that cannot be opened responds with 503, without its middleware: a part
    /// of it, such as a file of passwords, may be missing.
    fn open(&mut self, host: &HostPlan, route: &RoutePlan) -> Target {
        let opened = self
            .open_app(route)
            .and_then(|app| self.open_middleware(host, route).map(|middleware| (app, middleware)));
        let noted = route_logs(route, &self.plan.log, self.plan.tracing.is_some());
        let conditions = route.conditions.clone();
        let maps = &self.plan.maps.maps;
        let uses_maps = maps.is_some() && !route.map_names(&self.plan.log).is_empty();
        match opened {
            Ok((app, middleware)) => {
                let rewrite = route.rewrite.clone().map(Arc::new);
                let split = route.split.clone().map(Arc::new);
                Target { app, conditions, uses_maps, middleware, noted, rewrite, split }
            }
            Err(message) => {
                let name = RouteName { host: host.title(), prefix: route.key.to_string() };
                let problem = route.form.problem(message);
                self.unavailable.push(UnavailableRoute { route: name, problem });
                let app = Arc::new(App::unavailable());
                let (middleware, rewrite, split) = (None, None, None);
                Target { app, conditions, uses_maps, middleware, noted, rewrite, split }
            }
        }
    }

    fn open_app(&mut self, route: &RoutePlan) -> Result<Arc<App>, String> {
        let source = AppSource::new(&route.form.value);
        let known = self.apps.get(&source).or_else(|| self.former?.apps.get(&source));
        let app = match known {
            Some(app) => app.clone(),
            None => {
                let (directories, buffer_space) = (self.directories, &self.buffer_space);
                let context = apps::OpenContext {
                    directories,
                    buffer_space,
                    services: &self.plan.provided.services,
                };
                Arc::new(route.form.value.open(&context)?)
            }
        };
        self.apps.insert(source, app.clone());
        Ok(app)
    }

    fn open_middleware(
        &mut self,
        host: &HostPlan,
        route: &RoutePlan,
    ) -> Result<Option<Arc<RouteMiddleware>>, String> {
        let trusted_proxies = &self.plan.top.trusted_proxies;
        // A change of its logs does not replace the middleware of a route.
        let options =
            RouteOptions { access_log: AccessLogOptions::default(), ..route.options.clone() };
        let has_application = route.form.value.runs_application();
        let caches = options.response_cache.is_enabled();
        let cache = caches.then(|| (self.plan.response_cache.clone(), has_application));
        let name = RouteName { host: host.title(), prefix: route.key.to_string() };
        let cluster = self.cluster.as_ref().filter(|_| options.rate.is_limited());
        let cluster = cluster.map(|cluster| Arc::as_ptr(cluster).addr());
        let source = (name, options, trusted_proxies.clone(), cache, cluster);
        let opened = match self.former.and_then(|former| former.middleware.get(&source)) {
            Some(opened) => opened.clone(),
            None => {
                let context = OpenContext {
                    trusted_proxies,
                    buffer_space: &self.buffer_space,
                    response_store: &self.response_store.store,
                    cluster: self.cluster.as_deref(),
                    route: &source.0,
                    has_application,
                };
                RouteMiddleware::open(&source.1, &context)?.map(Arc::new)
            }
        };
        self.middleware.insert(source, opened.clone());
        Ok(opened)
    }
}

impl ResponseStore {
    /// Keeps the store of the former plan, or opens another one if its settings have changed.
    ///
    /// # Errors
    /// With `is_strict`, if its folder cannot be used. Otherwise responses are in memory only.
    fn of(
        settings: &StoreSettings,
        former: Option<&Opened>,
        is_strict: bool,
    ) -> Result<ResponseStore, String> {
        if let Some(known) = former.map(|former| &former.response_store)
            && known.settings == *settings
        {
            return Ok(known.clone());
        }
        let settings = settings.clone();
        match settings.open() {
            Ok(store) => Ok(ResponseStore { settings, store, problem: None }),
            Err(problem) if is_strict => Err(problem),
            Err(problem) => {
                let store = settings.memory_store();
                Ok(ResponseStore { settings, store, problem: Some(problem) })
            }
        }
    }

    /// Writes the responses in memory to files, if there are any, and releases their folder.
    pub(crate) fn save(&self) {
        self.store.save(SAVE_TIMEOUT);
    }

    /// Returns true if both are the same store.
    pub(crate) fn is_same(&self, other: &ResponseStore) -> bool {
        self.settings == other.settings
    }

    /// Saves the responses in a thread of its own; `None` without one.
    pub(crate) fn save_in_background(self) -> Option<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name("weft-cache-save".to_owned());
        thread.spawn(move || self.save()).ok()
    }
}

impl Plan {
    fn listen_ends(&self, ports: &Ipv4Ports) -> ListenEnds {
        let tls = self.tls.as_ref().map(|tls| &tls.listen);
        let all = || std::iter::once(&self.top.listen).chain(tls);
        let ends = |address: &Located<String>| ports.ends(&address.value);
        ListenEnds {
            common: all().flat_map(|addresses| &addresses.list).flat_map(ends).collect(),
            of_hosts: all().flat_map(|addresses| &addresses.of_hosts).flat_map(ends).collect(),
        }
    }
}

fn host_names<'a>(host: &'a HostPlan, ports: &Ipv4Ports) -> HostNames<'a> {
    HostNames { names: &host.names, title: host.title(), binding: host.binding(ports) }
}

impl Opened {
    /// Orders the certificates of the plan from now on.
    pub(crate) fn order_certificates(&self) {
        self.tls.iter().for_each(OpenedTls::order_certificates);
    }

    /// Starts the exchange with the other machines of the cluster, if there are any.
    pub(crate) fn start_cluster(&self, plans: &PlanReceiver) {
        if let Some(cluster) = &self.cluster {
            cluster.start(
                cluster_events::handler(plans.clone()),
                cluster_events::machine_entry(plans.clone()),
            );
        }
    }

    /// Returns a warning if the store of the cluster cannot be used.
    pub(crate) fn check_cluster(&self) -> Option<Problem> {
        self.cluster.as_ref()?.check()
    }

    /// Returns the errors of the routes and certificates that could not be opened.
    pub(crate) fn unavailable_problems(&self) -> Vec<Problem> {
        let routes = self.unavailable.iter().map(|it| it.problem.clone());
        routes.chain(self.tls.iter().flat_map(OpenedTls::unusable)).collect()
    }

    /// Logs the routes, certificates and the folder that could not be opened, each with the effect.
    pub(crate) fn log_unavailable(&self) {
        for UnavailableRoute { route: RouteName { host, prefix }, problem } in &self.unavailable {
            log::error!(
                "{problem}; the route {prefix} of the host {host} responds with 503 until a reload"
            );
        }
        if let Some(problem) = &self.response_store.problem {
            log::error!("{problem}; responses are in memory only");
        }
        for problem in self.tls.iter().flat_map(OpenedTls::unusable) {
            log::error!(
                "{problem}; the other certificates are in use, and this one is loaded when its \
                 files have changed"
            );
        }
    }

    /// The orders of certificates, if there are any.
    pub(crate) fn acme(&self) -> Option<&Arc<Acme>> {
        self.tls.as_ref()?.acme.as_ref()
    }
}

impl Plan {
    fn open_streams(
        &self,
        former: Option<&Opened>,
        problems: &mut Vec<Problem>,
    ) -> HashMap<String, Arc<Stream>> {
        let mut streams = HashMap::new();
        for StreamConfig { listen, settings } in &self.streams {
            let known = listen.iter().find_map(|address| former?.streams.get(address));
            let stream = match known.filter(|known| *known.settings() == settings.value) {
                Some(known) => Ok(known.clone()),
                None => Stream::new(settings.value.clone()).map(Arc::new),
            };
            match stream {
                Ok(stream) => {
                    streams.extend(listen.iter().map(|text| (text.clone(), stream.clone())))
                }
                Err(message) => problems.push(settings.problem(message)),
            }
        }
        streams
    }

    fn open_cluster(
        &self,
        former: Option<&Opened>,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<OpenedCluster>> {
        let config = self.cluster.as_ref()?;
        let known = former.and_then(|former| former.cluster.as_ref());
        let opened = OpenedCluster::open(config, known);
        opened.map_err(|problem| problems.push(problem)).ok()
    }

    fn open_tls(
        &self,
        cluster: Option<&OpenedCluster>,
        former: Option<&Opened>,
        problems: &mut Vec<Problem>,
    ) -> Option<OpenedTls> {
        let tls = self.tls.as_ref()?;
        let former = former.and_then(|former| former.tls.as_ref());
        let certificate = tls.pairs().first();
        let location = certificate.map_or(ConfigLocation::Unknown, |first| first.location.clone());
        let identities = self.provided.identities.as_ref();
        let opened = OpenedTls::open(tls, self.acme.as_ref(), (cluster, identities), former)
            .map_err(|message| problems.push(Problem { location, message }))
            .ok()?;
        if self.top.strict_start {
            problems.extend(opened.unusable());
        }
        Some(opened)
    }

    fn real_address(&self) -> RealAddress {
        let (name, proxies) = (&self.top.client_ip_header, self.top.trusted_proxies.clone());
        let real_address = match name.as_str() {
            "forwarded" => RealAddress::forwarded(proxies),
            _ => RealAddress::header(name.clone(), proxies),
        };
        real_address.scheme()
    }
}

impl AppSource {
    fn new(form: &Form) -> AppSource {
        // Opening the directory reports the error.
        let metadata = form.root().and_then(|root| std::fs::metadata(root).ok());
        AppSource { form: form.clone(), root: metadata.as_ref().map(file_id) }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::config::{Config, print_plan};
    use weft_config::Sources;
    use weft_upstream::ProxySettings;

    fn plan(routes: &str) -> Plan {
        let text = format!("[hosts.\"*\"]\n{routes}");
        Plan::new(Config::parse(&Sources::of_text("f", text, Path::new("")))).unwrap()
    }

    /// Returns the plan of a proxy, after `change` was made to its settings.
    fn proxy_plan(change: fn(&mut ProxySettings)) -> Plan {
        let mut plan = plan("\"/\" = { proxy = \"http://127.0.0.1:9/\", check = \"/up\" }\n");
        let Form::Proxy(settings) = &mut plan.hosts[0].routes[0].form.value else {
            panic!("the route has another application");
        };
        settings.ca = Some(OsStr::from_bytes(b"\xfe").into());
        change(settings);
        plan
    }

    fn app(opened: &Opened, number: usize) -> &App {
        opened.routing.routes().nth(number).expect("a route").1
    }

    #[test]
    fn difference_that_is_not_printed_opens_another_application() {
        let former = proxy_plan(|_| {});
        let opened = former.open(None).unwrap();
        let changed = proxy_plan(|settings| settings.ca = Some(OsStr::from_bytes(b"\xff").into()));
        assert_eq!(print_plan(&changed), print_plan(&former));
        assert_ne!(changed, former);
        let reopened = changed.open(Some(&opened)).unwrap();
        assert!(!std::ptr::eq(app(&reopened, 0), app(&opened, 0)));
        let equal = proxy_plan(|_| {});
        assert_eq!(equal, former);
        let reopened = equal.open(Some(&opened)).unwrap();
        assert!(std::ptr::eq(app(&reopened, 0), app(&opened, 0)));
    }

    #[test]
    fn equal_actions_share_an_application_that_a_reload_keeps() {
        let route = "= { respond = \"a\" }\n";
        let opened = plan(&format!("\"/a\" {route}\"/b\" {route}")).open(None).unwrap();
        assert!(std::ptr::eq(app(&opened, 0), app(&opened, 1)));
        let moved = plan(&format!("\"/c\" = {{ respond = \"c\" }}\n# moved\n\n\"/d\" {route}"));
        let reopened = moved.open(Some(&opened)).unwrap();
        assert!(!std::ptr::eq(app(&reopened, 0), app(&opened, 0)));
        assert!(std::ptr::eq(app(&reopened, 1), app(&opened, 0)));
    }
}
