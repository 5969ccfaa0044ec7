//! Notes about a request for its line in the access log, from the router, the authentication and
//! the proxy. Only requests of routes whose log has such values have notes.

mod upstream; // attempts to get a response from an upstream

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft::header::{HeaderName, HeaderValue};
use weft::hooks::{Record, RecordData};
use weft::log::{LogValue, LogValues};
use weft::middleware::{RequestId, User};
use weft::{Request, Response, StatusCode};
use weft_upstream::RetryReason;
use weft_upstream::attempt_hooks::{self, AttemptHooks};

use self::upstream::Attempt;
use crate::base::trace_context::TraceContext;

/// Returns true if a value with this name is a part of the path or host that the route determines:
/// a group of a pattern (`re.GROUP` of the path, `host.GROUP` of the host), or `rest` behind a
/// prefix; or if it is the value of a map, `map.NAME`.
pub(crate) fn is_group(name: &str) -> bool {
    let group = ["re.", "host.", "map."].into_iter().find_map(|it| name.strip_prefix(it));
    name == "rest" || group.is_some_and(|group| !group.is_empty())
}

/// Names of the values that notes have, besides the values of the library.
pub(crate) const NAMES: [&str; 11] = [
    "route",
    "trace_id",
    "span_id",
    "upstream.address",
    "upstream.status",
    "upstream.attempts",
    "upstream.retry_reason",
    "upstream.queue_time",
    "upstream.connect_time",
    "upstream.header_time",
    "upstream.response_time",
];

/// Notes about a request. They are shared by the request and by the record of its exchange.
#[derive(Debug)]
pub(crate) struct RequestNotes {
    route: Arc<NotedRoute>,
    values: Mutex<NotedValues>,
}

/// The part of the notes that all requests of a route have in common. Each worker has its own, so
/// that reference counts are not shared.
pub(crate) struct NotedRoute {
    /// Key of the route, as in the configuration.
    pub(crate) name: Box<str>,
    /// Fields of the response that are noted.
    pub(crate) response_fields: Box<[HeaderName]>,
    /// Groups of patterns, and the path behind the prefix, are noted.
    pub(crate) has_groups: bool,
    /// Names of the maps whose values are noted.
    pub(crate) maps: Box<[Box<str>]>,
    /// The logs of the route. `None`: the log of all routes.
    pub(crate) logs: Option<Box<dyn AccessLogs>>,
}

/// Groups of the patterns that matched a request, and the path behind the prefix of its route.
pub(crate) trait MatchedGroups: fmt::Debug + Send {
    /// Returns a group by its name in a log, such as `re.1` or `rest`.
    fn group(&self, name: &str) -> Option<&str>;
}

/// Access logs of a route.
pub(crate) trait AccessLogs: Send + Sync {
    /// Writes the lines of a request.
    fn write(&self, record: &Record<'_>, notes: &RequestNotes);
}

impl fmt::Debug for NotedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

#[derive(Debug, Default)]
struct NotedValues {
    user: Option<User>,
    request_id: Option<RequestId>,
    response_fields: Vec<(HeaderName, HeaderValue)>,
    /// The last attempt to get a response from an upstream.
    attempt: Option<Attempt>,
    attempts: u64,
    /// Reason of the last retry.
    retry_reason: Option<RetryReason>,
    trace: Option<TraceContext>,
    groups: Option<Box<dyn MatchedGroups>>,
}

/// Extension of a request with notes.
#[derive(Clone)]
struct Attached(Arc<RequestNotes>);

impl RequestNotes {
    /// Attaches notes to a request and to its record.
    pub(crate) fn attach(
        request: &mut Request,
        route: &Arc<NotedRoute>,
        groups: Option<Box<dyn MatchedGroups>>,
    ) {
        let values = NotedValues { groups, ..NotedValues::default() };
        let notes = Arc::new(RequestNotes { route: route.clone(), values: Mutex::new(values) });
        request.set_record_data(notes.clone());
        RequestNotes::insert(notes, request);
    }

    /// Returns the notes of a request, which gets some if its log needs none.
    pub(crate) fn attached(request: &mut Request) -> Arc<RequestNotes> {
        if let Some(notes) = RequestNotes::of(request) {
            return notes.clone();
        }
        let (name, response_fields) = ("".into(), [].into());
        let maps = [].into();
        let route = NotedRoute { name, response_fields, has_groups: false, maps, logs: None };
        let notes = RequestNotes { route: Arc::new(route), values: Mutex::default() };
        let notes = Arc::new(notes);
        RequestNotes::insert(notes.clone(), request);
        notes
    }

    fn insert(notes: Arc<RequestNotes>, request: &mut Request) {
        attempt_hooks::attach(request, notes.clone());
        request.extensions_mut().insert(Attached(notes));
    }

    /// Address of the upstream that got the request last.
    pub(crate) fn upstream_address(&self) -> Option<String> {
        let values = self.values();
        match values.attempt.as_ref()?.value("address")? {
            LogValue::Text(address) => Some(String::from_utf8_lossy(&address).into_owned()),
            _ => None,
        }
    }

    /// Returns the notes of a request, if it has any.
    pub(crate) fn of(request: &Request) -> Option<&Arc<RequestNotes>> {
        request.extensions().get::<Attached>().map(|Attached(notes)| notes)
    }

    /// Notes the authenticated user.
    pub(crate) fn set_user(&self, user: &User) {
        self.values().user = Some(user.clone());
    }

    /// Notes the identity of the request in a trace.
    pub(crate) fn set_trace(&self, trace: TraceContext) {
        self.values().trace = Some(trace);
    }

    /// The identity of the request in a trace.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.values().trace
    }

    /// The logs of the route; `None` for the log of all routes.
    pub(crate) fn logs(&self) -> Option<&dyn AccessLogs> {
        self.route.logs.as_deref()
    }

    /// Calls `read` with the values for a line of the log.
    pub(crate) fn with_values<T>(&self, read: impl FnOnce(&dyn LogValues) -> T) -> T {
        read(&LineValues { route: &self.route.name, noted: &self.values() })
    }

    fn with_attempt(&self, update: impl FnOnce(&mut Attempt, Instant)) {
        if let Some(attempt) = &mut self.values().attempt {
            update(attempt, Instant::now());
        }
    }

    fn values(&self) -> MutexGuard<'_, NotedValues> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AttemptHooks for RequestNotes {
    fn begin_attempt(&self, upstream: &Arc<str>) {
        let mut values = self.values();
        values.attempts += 1;
        values.attempt = Some(Attempt::begin(upstream.clone(), Instant::now()));
    }

    fn on_queue_time(&self, time: Duration) {
        self.with_attempt(|attempt, _| attempt.set_queue_time(time));
    }

    fn on_connection(&self, address: Option<SocketAddr>) {
        self.with_attempt(|attempt, now| attempt.set_connection(address, now));
    }

    fn on_status(&self, status: StatusCode) {
        self.with_attempt(|attempt, now| attempt.set_status(status, now));
    }

    fn end_attempt(&self) {
        self.with_attempt(Attempt::end);
    }

    fn on_retry(&self, reason: RetryReason) {
        self.values().retry_reason = Some(reason);
    }
}

impl RecordData for RequestNotes {
    fn on_response(&self, response: &Response) {
        let mut values = self.values();
        let id = response.extensions().get::<RequestId>();
        values.request_id = id.cloned();
        let names = self.route.response_fields.iter();
        let fields = names.filter_map(|name| {
            response.header(name.as_str()).map(|value| (name.clone(), value.clone()))
        });
        values.response_fields = fields.collect();
    }
}

/// Values of a request while its line is composed.
struct LineValues<'a> {
    route: &'a str,
    noted: &'a NotedValues,
}

impl LogValues for LineValues<'_> {
    fn value(&self, name: &str) -> Option<LogValue<'_>> {
        let text = match name {
            "route" => self.route,
            "user" => self.noted.user.as_ref()?.as_str(),
            "request_id" => self.noted.request_id.as_ref()?.as_str(),
            "trace_id" => {
                let id = format!("{:032x}", self.noted.trace.as_ref()?.trace_id);
                return Some(LogValue::Text(id.into_bytes().into()));
            }
            "span_id" => {
                let id = format!("{:016x}", self.noted.trace.as_ref()?.span_id);
                return Some(LogValue::Text(id.into_bytes().into()));
            }
            _ if is_group(name) => self.noted.groups.as_ref()?.group(name)?,
            _ => {
                let (attempt, name) =
                    (self.noted.attempt.as_ref()?, name.strip_prefix("upstream.")?);
                return match name {
                    "attempts" => Some(LogValue::Number(self.noted.attempts)),
                    "retry_reason" => self
                        .noted
                        .retry_reason
                        .map(|reason| LogValue::Text(reason.name().as_bytes().into())),
                    _ => attempt.value(name),
                };
            }
        };
        Some(LogValue::Text(text.as_bytes().into()))
    }

    fn response_field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.noted.response_fields.iter();
        let found = fields.find(|(known, _)| known.as_str().eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_bytes())
    }
}
