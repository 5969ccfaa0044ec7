//! The hosts of a listener: host, path and method → route. They are shared by all workers.

use std::sync::Arc;

use weft::message::RequestHead;
use weft::middleware::ErrorPages;
use weft::{Method, Request};

use crate::base::request_notes::{MatchedGroups, NotedRoute};
use crate::route::{
    Conditions, Methods, PathKey, Readings, RequestValues, RouteKey, Undecided, Unrouted,
    all_readings, has_one_reading,
};
use crate::template::captures::{Captures, HostCaptures};
use crate::template::{Pattern, PatternSet, RequestMaps};

/// Hosts by name.
#[derive(Default)]
pub(super) struct HostTable {
    /// `None` if no section has a name: the host of a request is not looked for.
    named: Option<NamedHosts>,
    /// The section of all other hosts.
    fallback: Option<Host>,
}

/// Host sections by name. The lists of names are sorted.
#[derive(Default)]
struct NamedHosts {
    exact: Vec<(String, Host)>,
    /// The keys begin with the dot, without the `*`.
    wildcards: Vec<(String, Host)>,
    /// Hosts by pattern, in the order of the configuration.
    patterns: Vec<(Pattern, Host)>,
}

/// The section of a host, and the pattern by which it was found.
type Section<'t> = (&'t Host, Option<&'t Pattern>);

/// A host section.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) routes: HostRoutes,
    /// Pages for errors of the router.
    pub(super) error_pages: Option<ErrorPages>,
}

/// Maximum length of a host name that is compared with patterns (RFC 1035 §2.3.4).
const MAX_HOST_BYTES: usize = 255;

/// A name of a host section.
pub(super) enum HostName {
    /// All names that have no host, also on one port.
    Any,
    Exact(String),
    /// Begins with the dot, without the `*`.
    Wildcard(String),
    Pattern(Pattern),
}

impl HostName {
    /// Parses a name in its normal form.
    pub(super) fn parse(name: &str) -> Result<HostName, String> {
        match (name.strip_prefix('*'), name.strip_prefix("~ ")) {
            (Some(""), _) => Ok(HostName::Any),
            (Some(suffix), _) => Ok(HostName::Wildcard(suffix.to_owned())),
            (_, Some(pattern)) => Pattern::parse(pattern).map(HostName::Pattern),
            _ if name.starts_with(':') => Ok(HostName::Any),
            _ => Ok(HostName::Exact(name.to_owned())),
        }
    }
}

/// The routes of a host.
#[derive(Clone)]
pub(super) enum HostRoutes {
    /// Prefixes for all methods, as most hosts have.
    Prefixes(PrefixMap<Route>),
    Mixed(Arc<MixedRoutes>),
}

/// Prefixes of decoded paths, each with a value.
#[derive(Clone)]
pub(super) struct PrefixMap<T> {
    /// Sorted by prefix.
    list: Arc<[Prefix<T>]>,
}

pub(super) struct Prefix<T> {
    /// Segments, each with a slash before it.
    bytes: Box<[u8]>,
    value: T,
    /// Index of the longest other prefix whose bytes this one begins with.
    shorter: Option<usize>,
}

/// Routes of all kinds.
pub(super) struct MixedRoutes {
    /// Sorted by path.
    exact: Vec<(Box<[u8]>, PathRoutes)>,
    patterns: PatternSet,
    /// Routes of the patterns, in their order.
    of_patterns: Vec<(Pattern, PathRoutes)>,
    prefixes: PrefixMap<PathRoutes>,
    named: Vec<(String, Route)>,
}

/// The routes for one path.
#[derive(Default)]
struct PathRoutes {
    /// Routes with conditions, in the order of the configuration.
    conditional: Vec<ConditionalRoute>,
    /// Routes without conditions, by method.
    others: Vec<(Option<Methods>, Route)>,
}

/// A route for the requests that meet its conditions.
struct ConditionalRoute {
    methods: Option<Methods>,
    conditions: Arc<Conditions>,
    route: Route,
}

#[derive(Clone)]
pub(super) struct Route {
    /// Index of the target.
    pub(super) target: usize,
    pub(super) conditions: Option<Arc<Conditions>>,
    /// For a directory: `Location` of the redirect for the prefix without its trailing slash.
    pub(super) directory: Option<Arc<str>>,
    /// Set if the application gets no part of a path that an exact path or a pattern matches.
    pub(super) takes_path: bool,
    /// Set if preflight requests for its methods lead to it.
    pub(super) has_cors: bool,
}

/// The route of a request.
pub(super) struct Match<'t> {
    pub(super) route: &'t Route,
    /// Length of the path that the application does not get, as it was sent.
    pub(super) mount: usize,
    /// Groups of a pattern.
    pub(super) captures: Option<Box<Captures>>,
    /// Groups of the pattern of the host.
    pub(super) host_captures: Option<Box<HostCaptures>>,
}

impl<'t> Match<'t> {
    fn new(route: &'t Route, mount: usize) -> Match<'t> {
        Match { route, mount, captures: None, host_captures: None }
    }

    /// Returns the groups, and the values of maps, for the log of a route that has them. The path
    /// of the request has its prefix.
    pub(super) fn noted_groups(
        &self,
        noted: &NotedRoute,
        request: &Request,
    ) -> Option<Box<dyn MatchedGroups>> {
        if !noted.has_groups {
            return None;
        }
        let (path, host) = (self.captures.as_deref().cloned(), self.host_captures.as_deref());
        let rest = match &request.path()[self.mount..] {
            "" => "/",
            rest => rest,
        };
        let value = |name: &str| {
            let maps = request.extensions().get::<RequestMaps>()?;
            Some((name.into(), maps.value(name, request)?.text))
        };
        let maps = noted.maps.iter().filter_map(|name| value(name)).collect();
        Some(Box::new(NotedCaptures { path, host: host.cloned(), rest: rest.into(), maps }))
    }
}

/// Groups of the patterns that matched a request, and the path behind the prefix of its route, for
/// its line in the log.
#[derive(Debug)]
struct NotedCaptures {
    path: Option<Captures>,
    host: Option<HostCaptures>,
    rest: Box<str>,
    /// Values of maps, each with the name of its map.
    maps: Vec<(Box<str>, String)>,
}

impl MatchedGroups for NotedCaptures {
    fn group(&self, name: &str) -> Option<&str> {
        if name == "rest" {
            return Some(&self.rest);
        }
        match name.split_once('.')? {
            ("re", group) => self.path.as_ref()?.find(group),
            ("host", group) => self.host.as_ref()?.find(group),
            ("map", name) => {
                let found = self.maps.iter().find(|(known, _)| **known == *name);
                found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
            }
            _ => None,
        }
    }
}

impl HostTable {
    /// Adds a host under its names, unless another host has them already.
    pub(super) fn add(&mut self, names: &[HostName], host: &Host) {
        for name in names {
            match name {
                HostName::Any => drop(self.fallback.get_or_insert_with(|| host.clone())),
                name => self.named.get_or_insert_default().add(name, host.clone()),
            }
        }
    }

    /// Sorts the names, which is necessary before [`find`](HostTable::find).
    pub(super) fn sort(&mut self) {
        self.named.iter_mut().for_each(NamedHosts::sort);
    }

    /// Returns the route of a request for a path. Inlined, as are the functions that it calls for
    /// plain routes: calls would take as many instructions as the search itself.
    #[inline(always)]
    pub(super) fn find<'t>(&'t self, request: &Request) -> Result<Match<'t>, Unrouted> {
        let (head, path) = (request.head(), request.path());
        if path == "*" {
            return Err(Unrouted::WholeServer);
        }
        let (host, pattern) = self.find_section(head).ok_or(Unrouted::NotFound)?;
        let mut found = match &host.routes {
            HostRoutes::Prefixes(prefixes) => prefixes.find(path),
            HostRoutes::Mixed(routes) => routes.find(request),
        }?;
        // Finding the host in the head takes time, which hosts without patterns do not need.
        if let Some(pattern) = pattern
            && let Some(host) = head.host()
        {
            found.host_captures = pattern.host_captures(&host.to_ascii_lowercase()).map(Box::new);
        }
        Ok(found)
    }

    /// Returns the route with a name, of the host of a request.
    pub(super) fn find_name(&self, head: &RequestHead, name: &str) -> Result<Match<'_>, Unrouted> {
        let host = self.find_section(head).map(|(host, _)| &host.routes);
        let route = match host {
            Some(HostRoutes::Mixed(routes)) => routes.named.iter().find(|(known, _)| known == name),
            _ => None,
        };
        let (_, route) = route.ok_or(Unrouted::NotFound)?;
        Ok(Match::new(route, 0))
    }

    /// Returns the pages for errors of the router, of the host of a request.
    pub(super) fn error_pages(&self, head: &RequestHead) -> Option<&ErrorPages> {
        self.find_section(head)?.0.error_pages.as_ref()
    }

    /// Returns the section of the host of a request.
    #[inline(always)]
    fn find_section(&self, head: &RequestHead) -> Option<Section<'_>> {
        let named = self.named.as_ref().and_then(|named| named.find(head.host()?));
        named.or_else(|| self.fallback.as_ref().map(|host| (host, None)))
    }
}

impl NamedHosts {
    fn add(&mut self, name: &HostName, host: Host) {
        match name {
            HostName::Any => {}
            HostName::Exact(name) => self.exact.push((name.clone(), host)),
            HostName::Wildcard(suffix) => self.wildcards.push((suffix.clone(), host)),
            HostName::Pattern(pattern) => self.patterns.push((pattern.clone(), host)),
        }
    }

    /// Sorts the names. Of several hosts with a name, the first keeps it.
    fn sort(&mut self) {
        for list in [&mut self.exact, &mut self.wildcards] {
            list.sort_by(|(a, _), (b, _)| a.cmp(b));
            list.dedup_by(|(later, _), (first, _)| later == first);
        }
    }

    fn find(&self, host: &str) -> Option<Section<'_>> {
        let named = find_name(&self.exact, host).or_else(|| {
            // The `*` matches at least one byte. The first dot gives the longest suffix.
            let mut dots = host.match_indices('.').filter(|&(dot, _)| dot > 0);
            dots.find_map(|(dot, _)| find_name(&self.wildcards, &host[dot..]))
        });
        named.map(|routes| (routes, None)).or_else(|| self.find_pattern(host))
    }

    fn find_pattern(&self, host: &str) -> Option<Section<'_>> {
        // A longer name is none of the DNS.
        if self.patterns.is_empty() || host.len() > MAX_HOST_BYTES {
            return None;
        }
        let host = host.to_ascii_lowercase();
        let mut patterns = self.patterns.iter();
        let found = patterns.find(|(pattern, _)| pattern.matches(host.as_bytes()));
        found.map(|(pattern, routes)| (routes, Some(pattern)))
    }
}

/// Looks a name up in a sorted list, ignoring case.
fn find_name<'a>(list: &'a [(String, Host)], name: &str) -> Option<&'a Host> {
    let lower_case = || name.bytes().map(|b| b.to_ascii_lowercase());
    let at = list.binary_search_by(|(known, _)| known.bytes().cmp(lower_case())).ok()?;
    Some(&list[at].1)
}

impl HostRoutes {
    /// # Errors
    /// If there are too many patterns.
    pub(super) fn new(routes: Vec<(&RouteKey, Route)>) -> Result<HostRoutes, String> {
        let is_plain = |(key, route): &(&RouteKey, Route)| {
            key.methods.is_none() && key.prefix().is_some() && route.conditions.is_none()
        };
        match routes.iter().all(is_plain) {
            true => {
                let prefix = |key: &RouteKey| key.prefix().unwrap_or_default().to_owned();
                let list = routes.into_iter().map(|(key, route)| (prefix(key), route)).collect();
                Ok(HostRoutes::Prefixes(PrefixMap::new(list)))
            }
            false => MixedRoutes::new(routes).map(|routes| HostRoutes::Mixed(Arc::new(routes))),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        let (prefixes, mixed) = match self {
            HostRoutes::Prefixes(prefixes) => (Some(prefixes.list.iter()), None),
            HostRoutes::Mixed(routes) => (None, Some(routes.iter())),
        };
        let prefixes = prefixes.into_iter().flatten().map(|prefix| &prefix.value);
        prefixes.chain(mixed.into_iter().flatten())
    }
}

/// Maximum number of prefixes that are compared one by one: as many as take less time than a
/// search.
const MAX_SCANNED_PREFIXES: usize = 8;

impl<T> PrefixMap<T> {
    /// Prefixes are percent-decoded, without a trailing slash.
    fn new(list: Vec<(String, T)>) -> PrefixMap<T> {
        let mut list: Vec<_> = list.into_iter().map(|(prefix, it)| (bytes(prefix), it)).collect();
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut prefixes = Vec::<Prefix<T>>::new();
        for (bytes, value) in list {
            let mut shorter = prefixes.len().checked_sub(1);
            while let Some(at) = shorter.filter(|&at| !bytes.starts_with(&prefixes[at].bytes)) {
                shorter = prefixes[at].shorter;
            }
            prefixes.push(Prefix { bytes, value, shorter });
        }
        PrefixMap { list: prefixes.into() }
    }

    /// Returns the longest prefix of a decoded path.
    #[inline(always)]
    fn longest_match(&self, decoded: &[u8]) -> Option<&Prefix<T>> {
        match self.list.len() {
            0..=MAX_SCANNED_PREFIXES => self.scan(decoded),
            _ => self.search(decoded),
        }
    }

    /// Compares a path with each prefix. The prefixes are in the order of their bytes, so that the
    /// last match is the longest.
    #[inline]
    fn scan(&self, decoded: &[u8]) -> Option<&Prefix<T>> {
        self.list.iter().rev().find(|prefix| prefix.matches(decoded))
    }

    /// Returns the longest prefix of a decoded path. The prefixes are sorted by their bytes, so the
    /// search begins at the last prefix that does not follow the path. If the path does not begin
    /// with that prefix, the longest prefix of the path is also a prefix of that prefix.
    fn search(&self, decoded: &[u8]) -> Option<&Prefix<T>> {
        let following = self.list.partition_point(|prefix| prefix.precedes(decoded));
        let mut candidate = following.checked_sub(1);
        loop {
            let prefix = &self.list[candidate?];
            if prefix.matches(decoded) {
                return Some(prefix);
            }
            candidate = prefix.shorter;
        }
    }
}

impl<T> PrefixMap<T> {
    /// Returns all prefixes of a decoded path, the longest first, as `search` finds the first.
    fn all_matches(&self, decoded: &[u8]) -> impl Iterator<Item = &Prefix<T>> {
        let following = self.list.partition_point(|prefix| prefix.precedes(decoded));
        let last = following.checked_sub(1);
        let chain = std::iter::successors(last, |&at| self.list[at].shorter);
        chain.map(|at| &self.list[at]).filter(move |prefix| prefix.matches(decoded))
    }
}

// The empty prefix is not compared: on a processor with masked compares, comparing zero bytes at
// the dangling address of an empty slice takes a fault.
impl<T> Prefix<T> {
    /// Returns true if the path follows this prefix in the order of the bytes, or is the prefix.
    fn precedes(&self, decoded: &[u8]) -> bool {
        self.bytes.is_empty() || *self.bytes <= *decoded
    }

    /// Returns true if the path has these segments at its beginning.
    fn matches(&self, decoded: &[u8]) -> bool {
        let length = self.bytes.len();
        let ends_segment = || matches!(decoded.get(length), None | Some(b'/'));
        length == 0 || decoded.len() >= length && ends_segment() && decoded[..length] == *self.bytes
    }
}

impl PrefixMap<Route> {
    #[inline(always)]
    fn find(&self, path: &str) -> Result<Match<'_>, Unrouted> {
        if has_one_reading(path) {
            let found = self.longest_match(path.as_bytes()).ok_or(Unrouted::NotFound)?;
            return Ok(Match::new(&found.value, found.bytes.len()));
        }
        self.find_in_readings(path)
    }

    /// Finds the route of a path that servers read in several ways.
    #[cold]
    fn find_in_readings(&self, path: &str) -> Result<Match<'_>, Unrouted> {
        let readings = Readings::new(path).map_err(Unrouted::InvalidPath)?;
        let found = self.longest_match(&readings.by_segment);
        let target = |found: Option<&Prefix<Route>>| found.map(|found| found.value.target);
        if readings.of_others().any(|other| target(self.longest_match(other)) != target(found)) {
            return Err(Unrouted::AmbiguousPath);
        }
        let found = found.ok_or(Unrouted::NotFound)?;
        Ok(Match::new(&found.value, mount(&found.bytes, path)))
    }
}

/// Returns the length of a decoded prefix in the path as it was sent.
fn mount(prefix: &[u8], path: &str) -> usize {
    let segments = prefix.iter().filter(|&&b| b == b'/').count();
    end_of_segments(path.as_bytes(), segments)
}

/// Returns the length of the first `segments` segments of a path, which may have fewer.
fn end_of_segments(path: &[u8], segments: usize) -> usize {
    if segments == 0 || !path.starts_with(b"/") {
        return 0;
    }
    let mut slashes = path.iter().enumerate().filter(|&(_, &b)| b == b'/');
    slashes.nth(segments).map_or(path.len(), |(at, _)| at)
}

fn bytes(text: String) -> Box<[u8]> {
    text.into_bytes().into()
}

/// The routes for a path, with the reason that they are.
#[derive(Clone, Copy)]
enum Found<'t> {
    Exact(&'t PathRoutes),
    Pattern(&'t Pattern, &'t PathRoutes),
    Prefix(&'t [u8], &'t PathRoutes),
}

impl<'t> Found<'t> {
    fn routes(self) -> &'t PathRoutes {
        match self {
            Found::Exact(routes) | Found::Pattern(_, routes) | Found::Prefix(_, routes) => routes,
        }
    }
}

impl MixedRoutes {
    fn new(routes: Vec<(&RouteKey, Route)>) -> Result<MixedRoutes, String> {
        let mut by_path = Vec::<(&PathKey, PathRoutes)>::new();
        let mut named = Vec::new();
        for (key, route) in routes {
            if let PathKey::Name(name) = &key.path {
                named.push((name.clone(), route));
                continue;
            }
            let known = by_path.iter().position(|(known, _)| **known == key.path);
            let at = known.unwrap_or_else(|| {
                by_path.push((&key.path, PathRoutes::default()));
                by_path.len() - 1
            });
            by_path[at].1.add(key.methods.clone(), route);
        }
        let (mut exact, mut of_patterns, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for (path, routes) in by_path {
            match path {
                PathKey::Exact(path) => exact.push((bytes(path.clone()), routes)),
                PathKey::Pattern(pattern) => of_patterns.push((pattern.clone(), routes)),
                PathKey::Prefix(prefix) => prefixes.push((prefix.clone(), routes)),
                PathKey::Name(_) => {}
            }
        }
        exact.sort_by(|(a, _), (b, _)| a.cmp(b));
        let patterns = PatternSet::new(of_patterns.iter().map(|(pattern, _)| pattern))?;
        Ok(MixedRoutes { exact, patterns, of_patterns, prefixes: PrefixMap::new(prefixes), named })
    }

    fn iter(&self) -> impl Iterator<Item = &Route> {
        let exact = self.exact.iter().map(|(_, routes)| routes);
        let of_patterns = self.of_patterns.iter().map(|(_, routes)| routes);
        let prefixes = self.prefixes.list.iter().map(|prefix| &prefix.value);
        let all = exact.chain(of_patterns).chain(prefixes);
        let named = self.named.iter().map(|(_, route)| route);
        all.flat_map(PathRoutes::iter).chain(named)
    }

    /// Finds the route of a path. One that belongs to other routes in the reading of another server
    /// is rejected, whatever their methods are.
    #[inline(never)]
    fn find(&self, request: &Request) -> Result<Match<'_>, Unrouted> {
        let path = request.path();
        let readings = match has_one_reading(path) {
            true => None,
            false => Some(Readings::new(path).map_err(Unrouted::InvalidPath)?),
        };
        let decoded = readings.as_ref().map_or(path.as_bytes(), |readings| &readings.by_segment);
        let found = self.find_decoded(decoded);
        if readings.is_some() {
            let address = |found: Found<'_>| std::ptr::from_ref(found.routes());
            let is_same = |other: Vec<u8>| {
                let others = self.candidates(&other).map(address);
                others.eq(self.candidates(decoded).map(address))
            };
            let others = all_readings(path).ok_or(Unrouted::AmbiguousPath)?;
            // To other servers, `$` also matches before a line feed at the end.
            let without_line_feed = decoded.strip_suffix(b"\n").map(<[u8]>::to_vec);
            if !others.chain(without_line_feed).all(is_same) {
                return Err(Unrouted::AmbiguousPath);
            }
        }
        let found = found.ok_or(Unrouted::NotFound)?;
        let (found, route) = match found.routes().conditional.is_empty() {
            true => (found, found.routes().find(request.head())?),
            false => self.choose(decoded, request)?,
        };
        let mount = match found {
            Found::Prefix(prefix, _) => mount(prefix, path),
            _ if route.takes_path => path.len(),
            _ => 0,
        };
        let captures = match found {
            Found::Pattern(pattern, _) => pattern.captures(path, decoded).map(Box::new),
            _ => None,
        };
        Ok(Match { captures, ..Match::new(route, mount) })
    }

    /// Returns the route of a request for a decoded path that may have routes with conditions: the
    /// first whose conditions the request meets, then the route without conditions. If there is
    /// none, the next path applies.
    #[cold]
    fn choose(&self, decoded: &[u8], request: &Request) -> Result<(Found<'_>, &Route), Unrouted> {
        let values = RequestValues::new(request);
        for found in self.candidates(decoded) {
            let routes = found.routes();
            let conditional = routes.find_conditional(&values, request.method());
            if let Some(route) = conditional.map_err(|Undecided| Unrouted::TooManyValues)? {
                return Ok((found, route));
            }
            if !routes.others.is_empty() {
                return Ok((found, routes.find(request.head())?));
            }
        }
        Err(Unrouted::NotFound)
    }

    /// Returns the routes for a decoded path, followed by routes for shorter paths as long as all
    /// have conditions.
    fn candidates<'t>(&'t self, decoded: &[u8]) -> impl Iterator<Item = Found<'t>> {
        let exact = self.exact.binary_search_by(|(path, _)| (**path).cmp(decoded));
        let exact = exact.ok().map(|at| Found::Exact(&self.exact[at].1));
        let patterns = match self.of_patterns.is_empty() {
            true => None,
            false => Some(self.patterns.matches(decoded)),
        };
        let patterns = patterns.into_iter().flatten().map(|number| {
            let (pattern, routes) = &self.of_patterns[number];
            Found::Pattern(pattern, routes)
        });
        let prefixes = self.prefixes.all_matches(decoded);
        let prefixes = prefixes.map(|prefix| Found::Prefix(&prefix.bytes, &prefix.value));
        let mut is_complete = false;
        exact.into_iter().chain(patterns).chain(prefixes).take_while(move |found| {
            let was_complete = is_complete;
            is_complete = !found.routes().others.is_empty();
            !was_complete
        })
    }

    /// Returns the routes for a decoded path: the exact path comes first, then the first pattern,
    /// then the longest prefix.
    fn find_decoded(&self, decoded: &[u8]) -> Option<Found<'_>> {
        if let Ok(at) = self.exact.binary_search_by(|(path, _)| (**path).cmp(decoded)) {
            return Some(Found::Exact(&self.exact[at].1));
        }
        if !self.of_patterns.is_empty()
            && let Some(number) = self.patterns.first_match(decoded)
        {
            let (pattern, routes) = &self.of_patterns[number];
            return Some(Found::Pattern(pattern, routes));
        }
        let prefix = self.prefixes.longest_match(decoded)?;
        Some(Found::Prefix(&prefix.bytes, &prefix.value))
    }
}

impl PathRoutes {
    fn add(&mut self, methods: Option<Methods>, route: Route) {
        match route.conditions.clone() {
            Some(conditions) => {
                self.conditional.push(ConditionalRoute { methods, conditions, route });
            }
            None => self.others.push((methods, route)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Route> {
        let conditional = self.conditional.iter().map(|conditional| &conditional.route);
        conditional.chain(self.others.iter().map(|(_, route)| route))
    }

    /// Returns the first route whose methods and conditions a request meets.
    fn find_conditional(
        &self,
        values: &RequestValues<'_>,
        method: &Method,
    ) -> Result<Option<&Route>, Undecided> {
        for ConditionalRoute { methods, conditions, route } in &self.conditional {
            if methods.as_ref().is_none_or(|methods| methods.contains(method))
                && conditions.match_request(values)?
            {
                return Ok(Some(route));
            }
        }
        Ok(None)
    }

    /// Returns the route without conditions for the method of a request.
    fn find(&self, head: &RequestHead) -> Result<&Route, Unrouted> {
        let found = self.find_method(head.method()).or_else(|| self.find_preflight(head));
        found.ok_or_else(|| Unrouted::MethodNotAllowed(self.allow()))
    }

    /// Returns the route with a method, or the one without methods.
    fn find_method(&self, method: &Method) -> Option<&Route> {
        let with_method = |(methods, _): &&(Option<Methods>, Route)| {
            methods.as_ref().is_some_and(|methods| methods.contains(method))
        };
        let without = || self.others.iter().find(|(methods, _)| methods.is_none());
        self.others.iter().find(with_method).or_else(without).map(|(_, route)| route)
    }

    /// Returns the route with `cors` for the method that a preflight request asks about.
    fn find_preflight(&self, head: &RequestHead) -> Option<&Route> {
        let asked = head.headers().get("access-control-request-method");
        let asked = asked.filter(|_| *head.method() == Method::OPTIONS)?;
        let route = self.find_method(&Method::from_bytes(asked.as_bytes()).ok()?);
        route.filter(|route| route.has_cors)
    }

    /// Returns the methods of all routes for `Allow` (RFC 9110 §10.2.1).
    #[cold]
    fn allow(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for method in
            self.others.iter().filter_map(|(methods, _)| methods.as_ref()).flat_map(Methods::iter)
        {
            if !names.contains(&method.as_str()) {
                names.push(method.as_str());
            }
        }
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_longest_prefix() {
        const PREFIXES: [&str; 14] = [
            "", "/a", "/a/b", "/a/b/c", "/a-b", "/a-b/c", "/a/c", "/ab", "/b/a", "/b/a/a",
            "/b/a/b", "/c", "/d/e/f", "/\u{ed}",
        ];
        for skipped in 0..=PREFIXES.len() {
            let kept = PREFIXES.iter().enumerate().filter(|(at, _)| *at != skipped);
            let kept = kept.map(|(_, prefix)| ((*prefix).to_owned(), ())).collect();
            let map = PrefixMap::new(kept);
            for path in
                ["", "*", "/", "/x", "/a-", "/b/a/a0", "/b/b", "/d/e/f/g", "/d/e", "/\u{ee}"]
                    .into_iter()
                    .chain(PREFIXES)
                    .flat_map(|path| {
                        ["", "/", "/a", "-", "0", "/c/d"].map(|end| format!("{path}{end}"))
                    })
            {
                let matching = map.list.iter().filter(|it| it.matches(path.as_bytes()));
                let bytes = |it: Option<&Prefix<()>>| it.map(|it| it.bytes.clone());
                let longest = bytes(matching.max_by_key(|it| it.bytes.len()));
                let found = [map.search(path.as_bytes()), map.scan(path.as_bytes())].map(bytes);
                assert_eq!(found, [longest.clone(), longest], "{path} without {skipped}");
            }
        }
    }
}
