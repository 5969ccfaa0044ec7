//! Parts of routes: their keys, conditions, readings and changes of paths, and shares of requests.

mod conditions; // conditions under which requests get a route
mod foreign_pattern; // patterns of other servers
mod key; // keys of routes in the configuration
mod methods; // methods of a key
mod name; // names of routes
mod reading; // readings of a path that decide about prefixes
mod rewrite; // changes of the path
mod rewrite_keys; // keys that change the path
mod split; // shares of the requests that other routes get
mod unrouted; // responses to requests that no route may get
mod variants; // all readings of a path

pub(crate) use self::conditions::{
    CONDITIONS, Conditions, MAX_PATTERNS_OF_PATH, MAX_ROUTES_OF_PATH, RequestValues, Undecided,
    WHEN, WhenConfig, read_conditions, show_conditions,
};
pub(crate) use self::key::{PathKey, RouteKey};
pub(crate) use self::methods::Methods;
pub(crate) use self::name::RouteName;
pub(crate) use self::reading::{Readings, has_one_reading};
pub(crate) use self::rewrite::{Candidate, Otherwise, PathTemplate, Rewrite, TryFiles};
pub(crate) use self::rewrite_keys::{REWRITE, RewriteConfig};
pub(crate) use self::split::{SPLIT, Split, SplitConfig};
pub(crate) use self::unrouted::Unrouted;
pub(crate) use self::variants::all_readings;
