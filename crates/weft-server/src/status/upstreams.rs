//! `GET /upstreams`: the upstreams with their states. `PATCH /upstreams`: takes upstreams out, puts
//! them back, and changes their weights. `POST` adds an upstream to a route, and `DELETE` removes
//! one.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use weft::{Method, Request, Response, StatusCode, header};
use weft_upstream::{ControlChange, MAX_WEIGHT, UpstreamMode, UpstreamUrl};

use super::config::{has_type, refusal};
use super::permission;
use super::snapshot;
use crate::config_change::{ChangeRequest, ChangeSender, UpstreamChange, UpstreamChangeKind};
use crate::open::active_plan::PlanReceiver;

/// Maximum size of a change, in bytes.
const MAX_CHANGE_BYTES: usize = 8 << 10;

const DISABLED: &str = "changes of upstreams are disabled; see `upstream_changes` in [status]";

/// The content of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// The upstream as it is written in the configuration.
    upstream: String,
    /// Host and prefix of a route, as in the metrics; without them, all routes.
    host: Option<String>,
    prefix: Option<String>,
    state: Option<UpstreamMode>,
    weight: Option<u32>,
}

/// Returns true for the path of this module.
pub(super) fn is_change(request: &Request) -> bool {
    request.path() == "/upstreams"
}

/// Responds with all upstreams, or makes a change, if it is permitted. The response has the
/// upstreams that were changed.
pub(super) async fn respond(
    request: Request,
    plans: &PlanReceiver,
    changes: &ChangeSender,
) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => {
            return list(&snapshot::upstreams(&plans.borrow().opened.routing));
        }
        Method::PATCH | Method::POST | Method::DELETE => {}
        _ => {
            let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
            return response.with_header(header::ALLOW, "GET, HEAD, PATCH, POST, DELETE");
        }
    }
    let permitted = plans.borrow().plan.status.upstream_changes;
    if let Err(reason) = permission::check(&request, permitted, DISABLED) {
        return refusal(StatusCode::FORBIDDEN, reason);
    }
    let change = match read_change(request).await {
        Ok(change) => change,
        Err(response) => return response,
    };
    let is_added = matches!(change.kind, UpstreamChangeKind::Add);
    // An added upstream may have options behind its URL.
    let url = change.upstream.split(' ').next().unwrap_or_default().to_owned();
    let (reply, result) = oneshot::channel();
    let sent = changes.send(ChangeRequest::Upstream { change, reply }).await;
    let result = match sent {
        Ok(()) => result.await.ok(),
        Err(_) => None,
    };
    let changed = match result {
        Some(Ok(changed)) => changed,
        Some(Err(reason)) => return refusal(StatusCode::UNPROCESSABLE_ENTITY, &reason),
        None => return refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops"),
    };
    let mut upstreams = snapshot::upstreams(&plans.borrow().opened.routing);
    if changed == 0 && is_added {
        return refusal(StatusCode::NOT_FOUND, "there is no route to upstreams with this name");
    }
    if changed == 0 {
        let known: Vec<_> = upstreams.iter().map(|it| &*it.report.url).collect();
        let reason = format!("no such upstream {url}; known are {}", known.join(", "));
        return refusal(StatusCode::NOT_FOUND, &reason);
    }
    upstreams.retain(|it| is_same(&it.report.url, &url));
    list(&upstreams)
}

fn list(upstreams: &[impl Serialize]) -> Response {
    let json = serde_json::json!({ "upstreams": upstreams });
    Response::from_body(format!("{json}\n")).with_header(header::CONTENT_TYPE, "application/json")
}

/// Returns true if two URLs lead to the same upstream, such as with and without a slash at the end.
fn is_same(url: &str, other: &str) -> bool {
    let parse = |url: &str| url.parse::<UpstreamUrl>().ok();
    url == other || parse(url).zip(parse(other)).is_some_and(|(a, b)| a.is_same_upstream(&b))
}

async fn read_change(mut request: Request) -> Result<UpstreamChange, Response> {
    let invalid = |reason: &str| Err(refusal(StatusCode::UNPROCESSABLE_ENTITY, reason));
    if !has_type(&request, "application/json") {
        let reason = "expected a change with `Content-Type: application/json`";
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let body = std::mem::take(request.body());
    let bytes = body.collect(MAX_CHANGE_BYTES).await.map_err(|error| Response::from(&error))?;
    let change: Change = match serde_json::from_slice(&bytes) {
        Ok(change) => change,
        Err(error) => return invalid(&format!("the change is not valid: {error}")),
    };
    let (has_values, method) =
        (change.state.is_some() || change.weight.is_some(), request.method());
    let kind = match *method {
        Method::POST if has_values => {
            return invalid(
                "the options of an added upstream follow its URL: \"http://10.0.0.1 weight=2\"",
            );
        }
        Method::POST if change.host.is_none() || change.prefix.is_none() => {
            return invalid("an upstream is added to one route, with its `host` and `prefix`");
        }
        Method::POST => Some(UpstreamChangeKind::Add),
        Method::DELETE if has_values => {
            return invalid("an upstream that is removed has no `state` and no `weight`");
        }
        Method::DELETE => Some(UpstreamChangeKind::Remove),
        _ => None,
    };
    if kind.is_none() && !has_values {
        return invalid("a change has a `state`, a `weight` or both");
    }
    if change.weight.is_some_and(|weight| !(1..=MAX_WEIGHT).contains(&weight)) {
        return invalid(&format!("expected a weight from 1 to {MAX_WEIGHT}"));
    }
    let Change { upstream, host, prefix, state, weight } = change;
    let control = UpstreamChangeKind::Control(ControlChange { mode: state, weight });
    Ok(UpstreamChange { upstream, host, prefix, kind: kind.unwrap_or(control) })
}
