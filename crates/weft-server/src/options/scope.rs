//! The routes to which options apply, for warnings about options without effect.

use super::RouteOptions;

/// A condition, and the warning if it is true.
pub(super) type Finding = (bool, &'static str);

/// The routes to which options apply: all routes that inherit them, or the route that sets them.
pub(crate) struct Scope<'a> {
    /// All options of these routes, with the inherited ones.
    routes: Vec<RouteOptions>,
    facts: Option<&'a RouteFacts>,
}

/// Properties of a route, besides its options, on which the effect of options depends.
pub(crate) struct RouteFacts {
    pub(crate) is_redirect: bool,
    /// The route has upstreams or scripts.
    pub(crate) has_application: bool,
    /// Clients may present certificates.
    pub(crate) has_client_ca: bool,
    /// `[log]` has a destination for requests.
    pub(crate) has_access_log: bool,
}

impl<'a> Scope<'a> {
    /// The routes that inherit options from a host, or from all hosts.
    pub(crate) fn of_routes(routes: Vec<RouteOptions>) -> Scope<'a> {
        Scope { routes, facts: None }
    }

    /// A route that has the options itself.
    pub(crate) fn of_route(all: RouteOptions, facts: &'a RouteFacts) -> Scope<'a> {
        Scope { routes: vec![all], facts: Some(facts) }
    }

    /// Returns true if the options of a route satisfy `condition`, or if there is no route.
    pub(super) fn any(&self, condition: impl Fn(&RouteOptions) -> bool) -> bool {
        self.routes.is_empty() || self.routes.iter().any(condition)
    }

    /// Returns the properties of the route that has the options itself.
    pub(super) fn route(&self) -> Option<&RouteFacts> {
        self.facts
    }
}
