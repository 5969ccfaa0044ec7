//! The plan of the logs of a route.

use weft::header::HeaderName;

use crate::options::AccessLogSettings;

/// The logs of a route, before they are opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RouteLogPlan {
    /// Key of the route, as in the configuration.
    pub(crate) name: Box<str>,
    /// Fields of the response that the lines have.
    pub(crate) response_fields: Box<[HeaderName]>,
    /// The lines have groups of patterns.
    pub(crate) has_groups: bool,
    /// Names of the maps whose values the lines have.
    pub(crate) maps: Box<[Box<str>]>,
    /// Logs in place of the access log of `[log]`.
    pub(crate) own: Option<Box<[AccessLogSettings]>>,
}
