//! Changes of a route to the fields of requests and responses.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::header::{self, HeaderName, HeaderValue};
use weft::{Error, ErrorKind, Request, Response};
use weft_upstream::RequestFields;

use super::changes::{Field, FieldChanges, FieldOperation};
use super::response_match::ResponseMatch;
use crate::base::engine_fields::is_host;
use crate::base::request_notes::RequestNotes;
use crate::options::layer::{WorkerLayer, WrappedApp};
use crate::template::{ExpansionError, Template, field_value};

/// Changes the fields that upstreams and scripts get.
pub(in crate::options) struct RequestFieldChanges {
    changes: Arc<Changes>,
    /// The changes, if they are the same for all requests.
    fixed: Option<RequestFields>,
}

/// Changes the fields of responses.
pub(in crate::options) struct ResponseFieldChanges(Arc<Changes>);

struct Changes {
    removed: Vec<HeaderName>,
    changes: Vec<Change>,
}

struct Change {
    name: HeaderName,
    operation: FieldOperation,
    /// Responses that are changed.
    on: ResponseMatch,
    value: Value,
}

enum Value {
    Fixed(HeaderValue),
    Expanded(Template),
}

impl Changes {
    fn new(changes: &FieldChanges) -> Option<Arc<Changes>> {
        let removed = changes.remove.clone();
        let changes: Vec<_> = changes.set.iter().map(Change::new).collect();
        let has_any = !removed.is_empty() || !changes.is_empty();
        has_any.then(|| Arc::new(Changes { removed, changes }))
    }

    /// Copies names and values, so that the workers share no reference counts of them.
    fn copy(&self) -> Changes {
        let name = |name: &HeaderName| HeaderName::from_bytes(name.as_ref()).expect("a name");
        let value = |value: &Value| match value {
            Value::Fixed(fixed) => {
                Value::Fixed(HeaderValue::from_bytes(fixed.as_bytes()).expect("a value"))
            }
            Value::Expanded(template) => Value::Expanded(template.clone()),
        };
        let change = |change: &Change| Change {
            name: name(&change.name),
            operation: change.operation,
            on: change.on.clone(),
            value: value(&change.value),
        };
        let removed = self.removed.iter().map(name).collect();
        Changes { removed, changes: self.changes.iter().map(change).collect() }
    }

    /// Returns the changes to requests, if they are the same for all of them.
    fn fixed(&self) -> Option<RequestFields> {
        let mut fields = RequestFields::default();
        self.removed.iter().for_each(|name| fields.remove_field(name.clone()));
        for Change { name, operation, value, .. } in &self.changes {
            match value {
                Value::Fixed(value) if *operation == FieldOperation::Set => {
                    match value.is_empty() {
                        true => fields.remove_field(name.clone()),
                        false => fields.set_field(name.clone(), value.clone()),
                    }
                }
                _ => return None,
            }
        }
        Some(fields)
    }

    /// Expands the values that depend on the request.
    fn expanded(&self, request: &Request) -> Result<Vec<Expanded>, ExpansionError> {
        let templates = self.changes.iter().filter_map(|change| match &change.value {
            Value::Fixed(_) => None,
            Value::Expanded(template) => Some(template),
        });
        let expand = |template: &Template| match template.has_upstream() {
            true => template.expand_around_upstream(request).map(Expanded::AroundUpstream),
            false => template.expand_field(request).map(Expanded::Whole),
        };
        templates.map(expand).collect()
    }

    fn have_upstream(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| matches!(&change.value, Value::Expanded(it) if it.has_upstream()))
    }
}

/// A value that was expanded with the request.
enum Expanded {
    Whole(HeaderValue),
    /// The texts around the address of the upstream.
    AroundUpstream(Vec<String>),
}

impl Expanded {
    /// Returns the value with the address of the upstream, which is empty without an upstream.
    fn complete(self, notes: Option<&RequestNotes>) -> Option<HeaderValue> {
        match self {
            Expanded::Whole(value) => Some(value),
            Expanded::AroundUpstream(texts) => {
                let address = notes.and_then(RequestNotes::upstream_address).unwrap_or_default();
                field_value(&texts.join(&address)).ok()
            }
        }
    }
}

impl Change {
    fn new(field: &Field) -> Change {
        let Field { name, operation, on, value } = field.clone();
        let fixed = value.as_literal().and_then(|text| HeaderValue::from_str(text).ok());
        let value = fixed.map_or(Value::Expanded(value), Value::Fixed);
        Change { name, operation, on, value }
    }

    fn applies_to(&self, response: &Response) -> bool {
        self.on.contains(response)
            && (self.operation != FieldOperation::IfAbsent
                || response.header(self.name.as_str()).is_none())
    }
}

impl Value {
    fn of(&self, request: &Request) -> Result<HeaderValue, ExpansionError> {
        match self {
            Value::Fixed(value) => Ok(value.clone()),
            Value::Expanded(template) => template.expand_field(request),
        }
    }
}

/// Returns the values of a field that the client has sent, and another one behind them (RFC 9110
/// §5.3).
fn with_received(request: &Request, name: &HeaderName, added: &HeaderValue) -> HeaderValue {
    let received = request.headers().get_all(name.as_str());
    let all: Vec<&[u8]> = received.chain([added.as_bytes()]).collect();
    HeaderValue::from_bytes(&all.join(&b","[..])).unwrap_or_else(|_| added.clone())
}

impl RequestFieldChanges {
    /// Creates the middleware; `None` without changes.
    pub(in crate::options) fn new(changes: &FieldChanges) -> Option<RequestFieldChanges> {
        Changes::new(changes).map(|changes| RequestFieldChanges { changes, fixed: None })
    }

    /// Returns the middleware of a worker.
    pub(in crate::options) fn for_worker(&self) -> RequestFieldChanges {
        let changes = Arc::new(self.changes.copy());
        RequestFieldChanges { fixed: changes.fixed(), changes }
    }
}

impl WorkerLayer for RequestFieldChanges {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        if let Some(fixed) = &self.fixed {
            fixed.apply(&mut request);
            return next.respond(request);
        }
        for name in &self.changes.removed {
            RequestFields::remove(&mut request, name.clone());
        }
        for change in &self.changes.changes {
            let name = &change.name;
            let is_present = request.headers().get_bytes(name.as_str()).is_some();
            if change.operation == FieldOperation::IfAbsent && is_present {
                continue;
            }
            match change.value.of(&request) {
                Ok(host) if *name == header::HOST && !is_host(host.as_bytes()) => {
                    return ready(invalid_host()).boxed_local();
                }
                Ok(value) if change.operation == FieldOperation::Add => {
                    if !value.is_empty() {
                        let value = with_received(&request, name, &value);
                        RequestFields::set(&mut request, name.clone(), value);
                    }
                }
                Ok(value) if value.is_empty() => RequestFields::remove(&mut request, name.clone()),
                Ok(value) => RequestFields::set(&mut request, name.clone(), value),
                Err(error) => return ready(error.into()).boxed_local(),
            }
        }
        next.respond(request)
    }
}

/// Refuses a request from which an upstream would get an invalid `Host`.
fn invalid_host() -> Response {
    let reason = "the request has no valid value for the host that its upstream gets";
    let error = Error::new(ErrorKind::Malformed, reason);
    Response::from(&error).with_error(error)
}

impl ResponseFieldChanges {
    /// Creates the middleware; `None` without changes.
    pub(in crate::options) fn new(changes: &FieldChanges) -> Option<ResponseFieldChanges> {
        Changes::new(changes).map(ResponseFieldChanges)
    }

    /// Returns the middleware of a worker.
    pub(in crate::options) fn for_worker(&self) -> ResponseFieldChanges {
        ResponseFieldChanges(Arc::new(self.0.copy()))
    }
}

impl WorkerLayer for ResponseFieldChanges {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        let notes = self.0.have_upstream().then(|| RequestNotes::attached(&mut request));
        // Expanded before the request is passed on, and so before an error could have an effect.
        let expanded = match self.0.expanded(&request) {
            Ok(values) => values,
            Err(error) => return ready(error.into()).boxed_local(),
        };
        let (this, response) = (self.clone(), next.respond(request));
        async move { this.apply(response.await, expanded, notes.as_deref()) }.boxed_local()
    }
}

impl ResponseFieldChanges {
    /// Changes the fields of a response.
    fn apply(
        &self,
        mut response: Response,
        expanded: Vec<Expanded>,
        notes: Option<&RequestNotes>,
    ) -> Response {
        let mut expanded = expanded.into_iter();
        for name in &self.0.removed {
            response.remove_header(name);
        }
        for change in &self.0.changes {
            let value = match &change.value {
                Value::Fixed(value) => Some(value.clone()),
                Value::Expanded(_) => expanded.next().and_then(|value| value.complete(notes)),
            };
            let Some(value) = value.filter(|_| change.applies_to(&response)) else { continue };
            let name = change.name.clone();
            match (change.operation, value.is_empty()) {
                (FieldOperation::Set, true) => response.remove_header(name),
                (FieldOperation::Set, false) => response.set_header(name, value),
                (_, true) => {}
                (_, false) => response.append_header(name, value),
            }
        }
        response
    }
}
