//! Routes by listener and host → the text of the configuration.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use super::hostnames::includes;
use super::matches::{PathRule, Precedence};
use super::settings::PlanSettings;
use super::toml::{Table, quoted, texts};
use crate::objects::ObjectRef;

/// Maximum number of routes with conditions for one path, as in the configuration.
const MAX_ROUTES_OF_PATH: usize = 256;

/// Maximum number of expressions in the conditions of the routes for one path, as in the
/// configuration.
const MAX_EXPRESSIONS_OF_PATH: usize = 64;

/// Maximum number of expressions for the paths of a host. The configuration permits twice as many.
const MAX_PATTERNS_OF_HOST: usize = 128;

/// Routes of the configuration, by port and host.
pub(super) struct Sections {
    max_routes: usize,
    max_routes_per_namespace: usize,
    listeners: BTreeMap<u16, Listening>,
    hosts: BTreeMap<(u16, String), HostRoutes>,
    count: usize,
    counts_of_namespaces: HashMap<String, usize>,
}

/// A port and the host names of its listeners.
#[derive(Default)]
struct Listening {
    is_tls: bool,
    hostnames: BTreeSet<String>,
}

#[derive(Default)]
struct HostRoutes {
    routes: Vec<PlannedRoute>,
    /// Number of routes with conditions and of their expressions, by key.
    counts: HashMap<String, (usize, usize)>,
    patterns: HashSet<String>,
}

/// A route of the configuration.
#[derive(Clone, Debug)]
pub(super) struct PlannedRoute {
    pub(super) path: PathRule,
    pub(super) precedence: Precedence,
    /// Conditions; empty for none.
    pub(super) conditions: Table,
    pub(super) expressions: usize,
    /// Distinguishes routes with conditions for the same path.
    pub(super) label: String,
    /// Keys of the route.
    pub(super) table: Table,
    pub(super) owner: ObjectRef,
}

impl Sections {
    pub(super) fn new(settings: &PlanSettings) -> Sections {
        Sections {
            max_routes: settings.max_routes,
            max_routes_per_namespace: settings.max_routes_per_namespace,
            listeners: BTreeMap::new(),
            hosts: BTreeMap::new(),
            count: 0,
            counts_of_namespaces: HashMap::new(),
        }
    }

    /// Listens on a port for a host name; `*` is all names.
    pub(super) fn listen(&mut self, port: u16, is_tls: bool, hostname: &str) {
        let listening = self.listeners.entry(port).or_default();
        listening.is_tls = is_tls;
        let hostname = if hostname.is_empty() { "*" } else { hostname };
        listening.hostnames.insert(hostname.to_ascii_lowercase());
    }

    /// Listens on a port whether or not it has hosts.
    pub(super) fn open_port(&mut self, port: u16, is_tls: bool) {
        self.listeners.entry(port).or_default().is_tls = is_tls;
    }

    /// Adds a route to a host on a port. Routes must be added in the order of their age.
    ///
    /// # Errors
    /// If a limit is exceeded.
    pub(super) fn add(&mut self, port: u16, host: &str, route: PlannedRoute) -> Result<(), String> {
        let of_namespace =
            self.counts_of_namespaces.entry(route.owner.name.namespace.clone()).or_default();
        if *of_namespace >= self.max_routes_per_namespace {
            return Err(format!("the namespace has over {} routes", self.max_routes_per_namespace));
        }
        if self.count >= self.max_routes {
            return Err(format!("the cluster has over {} routes", self.max_routes));
        }
        let key = (port, host.to_owned());
        if self.hosts.entry(key).or_default().add(route)? {
            *of_namespace += 1;
            self.count += 1;
        }
        Ok(())
    }

    /// Returns the text, and the owner of the routes in each line, counted from 1.
    pub(super) fn into_text(mut self) -> (String, BTreeMap<usize, ObjectRef>) {
        // A listener without routes responds with 404, rather than the routes of a less specific
        // one.
        for (port, listening) in &self.listeners {
            for hostname in &listening.hostnames {
                self.hosts.entry((*port, hostname.clone())).or_default();
            }
        }
        let addresses = |is_tls| {
            let ports = self.listeners.iter().filter(move |(_, it)| it.is_tls == is_tls);
            ports.map(|(port, _)| format!(":{port}")).collect::<Vec<_>>()
        };
        let (plain, secure) = (addresses(false), addresses(true));
        let mut text = format!("listen = {}\n", list(&plain));
        if !secure.is_empty() {
            text += &format!("\n[tls]\nlisten = {}\nself_signed = true\n", list(&secure));
        }
        text += "\n[hosts.\"*\"]\n\"/\" = { respond = \"Not found\\n\", status = 404 }\n";
        let mut owners = BTreeMap::new();
        let mut line = text.lines().count();
        for ((port, host), routes) in self.hosts {
            let name = quoted(&format!("{host} @p{port}"));
            let prefix =
                if self.listeners.get(&port).is_some_and(|it| it.is_tls) { "tls://" } else { "" };
            let listen = quoted(&format!("{prefix}:{port}"));
            let _ = write!(text, "\n[hosts.{name}]\nlisten = {listen}\n");
            line += 3;
            for route in routes.in_order() {
                let _ = writeln!(text, "{} = {}", quoted(&route.key()), route.shown_table());
                line += 1;
                owners.insert(line, route.owner);
            }
        }
        (text, owners)
    }

    /// Returns true if a listener on the port has a host name that is more specific for `name` than
    /// `hostname`.
    pub(super) fn has_more_specific(&self, port: u16, hostname: &str, name: &str) -> bool {
        let listening = self.listeners.get(&port);
        let hostnames = listening.iter().flat_map(|it| &it.hostnames);
        let more_specific = hostnames.filter(|it| *it != hostname && includes(hostname, it));
        more_specific.into_iter().any(|it| includes(it, name))
    }
}

fn list(addresses: &[String]) -> String {
    match addresses {
        [] => "[]".to_owned(),
        addresses => texts(addresses.iter().map(String::as_str)),
    }
}

impl HostRoutes {
    /// Adds a route. Returns false if no request would get it.
    fn add(&mut self, route: PlannedRoute) -> Result<bool, String> {
        let key = route.path.key();
        if route.conditions.is_empty() {
            let is_same = |it: &&PlannedRoute| it.conditions.is_empty() && it.path == route.path;
            if self.routes.iter().rev().any(|it| is_same(&it)) {
                return Ok(false);
            }
        } else {
            let (routes, expressions) = self.counts.entry(key.clone()).or_default();
            if *routes >= MAX_ROUTES_OF_PATH {
                return Err(format!(
                    "the path {key:?} of the host has over {MAX_ROUTES_OF_PATH} matches"
                ));
            }
            if *expressions + route.expressions > MAX_EXPRESSIONS_OF_PATH {
                return Err(format!(
                    "the path {key:?} of the host has over {MAX_EXPRESSIONS_OF_PATH} expressions"
                ));
            }
            *routes += 1;
            *expressions += route.expressions;
        }
        let is_pattern = matches!(route.path, PathRule::Regex(_) | PathRule::RegexPrefix(_));
        if is_pattern && self.patterns.insert(key) && self.patterns.len() > MAX_PATTERNS_OF_HOST {
            return Err(format!("the host has over {MAX_PATTERNS_OF_HOST} expressions for paths"));
        }
        self.routes.push(route);
        Ok(true)
    }

    /// Returns the routes in the order of their precedence. The sort is stable, so that older
    /// routes come first among equals.
    fn in_order(self) -> Vec<PlannedRoute> {
        let mut routes = self.routes;
        let length = |path: &PathRule| match path {
            PathRule::Exact(text)
            | PathRule::Prefix(text)
            | PathRule::Regex(text)
            | PathRule::RegexPrefix(text) => text.len(),
        };
        let kind = |path: &PathRule| match path {
            PathRule::Exact(_) => 0,
            PathRule::Regex(_) | PathRule::RegexPrefix(_) => 1,
            PathRule::Prefix(_) => 2,
        };
        // The longest expression first. The order of other paths makes no difference.
        routes.sort_by(|a, b| {
            let of_path = |it: &PlannedRoute| {
                (kind(&it.path), std::cmp::Reverse(length(&it.path)), it.path.clone())
            };
            (of_path(a), a.precedence).cmp(&(of_path(b), b.precedence))
        });
        routes
    }
}

impl PlannedRoute {
    fn key(&self) -> String {
        match self.conditions.is_empty() {
            true => self.path.key(),
            false => format!("{} @{}", self.path.key(), self.label),
        }
    }

    fn shown_table(&self) -> String {
        let mut table = self.table.clone();
        table.set_table("when", &self.conditions);
        table.show()
    }
}
