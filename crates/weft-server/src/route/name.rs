//! Names of routes.

use serde::Serialize;

/// Name of a route in the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct RouteName {
    /// Names of its hosts, separated by spaces.
    pub(crate) host: String,
    /// Key in the section of the host: a prefix with its trailing slash, or another one.
    pub(crate) prefix: String,
}
