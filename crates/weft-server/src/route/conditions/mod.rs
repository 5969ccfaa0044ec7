//! Conditions under which requests get a route: by method, header field, cookie, query parameter,
//! client address, and text with placeholders. Pure.
//!
//! All conditions of a set must match, and one of the sets. The time for a request is bounded: its
//! cookies and parameters are read once for all conditions of a path, a condition about a name with
//! more than [`MAX_REPETITIONS`] values is [`Undecided`], and a path has at most
//! [`MAX_PATTERNS_OF_PATH`] patterns.

mod coverage; // requests that an earlier route gets
mod key; // the key `when`
mod request_values; // values of a request by name
mod value_tests; // tests of the values of a request

use weft::header::HeaderName;
use weft::net::IpNetwork;
use weft::{Method, Request};

pub(crate) use self::key::{CONDITIONS, WHEN, WhenConfig, read_conditions, show_conditions};
pub(crate) use self::request_values::RequestValues;
use self::value_tests::ValueTests;
use super::methods::Methods;
use crate::template::Template;

/// Maximum number of conditions of a route, in all of its sets.
const MAX_CONDITIONS: usize = 64;

/// Maximum number of routes with conditions for one path.
pub(crate) const MAX_ROUTES_OF_PATH: usize = 256;

/// Maximum number of patterns in the conditions of the routes for one path. Each pattern takes time
/// in proportion to the head of a request.
pub(crate) const MAX_PATTERNS_OF_PATH: usize = 64;

/// Maximum number of values of a name in a request. A condition is undecided if there are more.
const MAX_REPETITIONS: usize = 16;

/// The result of conditions about more values, or about a longer text, than are compared. A request
/// must then get neither the route nor another one: the conditions may be there to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecided;

/// Conditions of a route: at least one of the sets must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conditions(Vec<ConditionSet>);

/// Conditions that must match together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ConditionSet {
    methods: Choice<Methods>,
    clients: Choice<Vec<IpNetwork>>,
    tests: Vec<Condition>,
}

/// Accepted and refused values: a request must have an accepted value, and no refused value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice<T> {
    /// `None`: all values that are not refused.
    accepted: Option<T>,
    refused: Option<T>,
}

/// A condition about a named value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    subject: Subject,
    tests: ValueTests,
}

/// A named value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Header(HeaderName),
    Cookie(Box<str>),
    Query(Box<str>),
    Text(Template),
}

impl Conditions {
    /// Returns true if a request meets the conditions.
    ///
    /// # Errors
    /// With more values than are compared.
    pub(crate) fn match_request(&self, request: &RequestValues<'_>) -> Result<bool, Undecided> {
        for set in &self.0 {
            if set.matches(request)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if a text of the conditions has a value of a map.
    pub(crate) fn use_maps(&self) -> bool {
        let mut tests = self.0.iter().flat_map(|set| &set.tests);
        tests.any(|condition| match &condition.subject {
            Subject::Text(template) => template.maps().next().is_some(),
            _ => false,
        })
    }

    /// Returns the number of patterns.
    pub(crate) fn count_patterns(&self) -> usize {
        let tests = self.0.iter().flat_map(|set| &set.tests);
        tests.map(|condition| condition.tests.count_patterns()).sum()
    }
}

impl ConditionSet {
    // The cheapest conditions come first.
    fn matches(&self, values: &RequestValues<'_>) -> Result<bool, Undecided> {
        let request = values.request();
        if !self.matches_method(request.method()) || !self.matches_client(request) {
            return Ok(false);
        }
        for condition in &self.tests {
            if !condition.matches(values)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches_method(&self, method: &Method) -> bool {
        self.methods.includes(|methods| methods.contains(method))
    }

    /// A client on a Unix socket is in no network.
    fn matches_client(&self, request: &Request) -> bool {
        let address = request.peer().address().map(|address| address.ip());
        self.clients.includes(|networks| {
            address.is_some_and(|it| networks.iter().any(|network| network.contains(it)))
        })
    }

    fn count(&self) -> usize {
        usize::from(!self.methods.is_any()) + usize::from(!self.clients.is_any()) + self.tests.len()
    }
}

impl<T> Default for Choice<T> {
    fn default() -> Self {
        Choice { accepted: None, refused: None }
    }
}

impl<T> Choice<T> {
    fn is_any(&self) -> bool {
        self.accepted.is_none() && self.refused.is_none()
    }

    fn includes(&self, has_value: impl Fn(&T) -> bool) -> bool {
        self.accepted.as_ref().is_none_or(&has_value)
            && !self.refused.as_ref().is_some_and(has_value)
    }
}

impl Condition {
    fn matches(&self, values: &RequestValues<'_>) -> Result<bool, Undecided> {
        match &self.subject {
            Subject::Header(name) => {
                self.tests.match_values(values.request().headers().get_all(name.as_str()))
            }
            Subject::Cookie(name) => self.tests.match_values(values.cookies(name)),
            Subject::Query(name) => self.tests.match_values(values.parameters(name)),
            Subject::Text(template) => match template.expand(values.request()) {
                Ok(text) => self.tests.match_text(text.as_bytes()),
                Err(_) => Err(Undecided),
            },
        }
    }
}

#[cfg(test)]
mod tests;
