//! Routes: their keys, configuration and plan, readings and changes of paths, and shares of requests.

mod config; // routes in the configuration
mod key; // keys of routes in the configuration
mod methods; // methods of a key
mod name; // names of routes
mod plan; // plans of routes
mod reading; // readings of a path that decide about prefixes
mod rewrite; // changes of the path
pub(crate) mod schema; // the JSON schema of a route
mod split; // shares of the requests that other routes get
mod unrouted; // responses to requests that no route may get
mod variants; // all readings of a path

pub(crate) use self::config::{RouteConfig, parse_route, read_route};
pub(crate) use self::key::{PathKey, RouteKey};
pub(crate) use self::methods::Methods;
pub(crate) use self::name::RouteName;
pub(crate) use self::plan::{Inherited, RoutePlan, plan_routes, route_of_others};
pub(crate) use self::reading::{Readings, has_one_reading};
pub(crate) use self::rewrite::{Candidate, Otherwise, PathTemplate, Rewrite, TryFiles};
#[cfg(test)]
pub(crate) use self::split::SPLIT;
pub(crate) use self::split::Split;
pub(crate) use self::unrouted::Unrouted;
pub(crate) use self::variants::all_readings;
