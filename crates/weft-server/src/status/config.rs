//! `PUT /config` and `POST /config/undo`: changes of the configuration.

use serde::Serialize;
use tokio::sync::oneshot;
use weft::{Method, Request, Response, StatusCode, header};
use weft_config::{ConfigLocation, Problem};

use super::permission;
use crate::config_change::{ChangeError, ChangeRequest, ChangeSender, ConfigChange};
use crate::sections::status::{MAX_CONFIG_BYTES, PermittedChanges};

const DISABLED: &str =
    "changes of the configuration are disabled; see `config_changes` in [status]";

/// Returns true for the paths of this module.
pub(super) fn is_change(request: &Request) -> bool {
    matches!(request.path(), "/config" | "/config/undo")
}

/// Makes a change, if it is permitted.
pub(super) async fn respond(
    mut request: Request,
    permitted: PermittedChanges,
    changes: &ChangeSender,
) -> Response {
    let (method, is_undo) = match request.path() {
        "/config" => (Method::PUT, false),
        _ => (Method::POST, true),
    };
    if *request.method() != method {
        let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
        return response.with_header(header::ALLOW, method.as_str());
    }
    if let Err(reason) = permission::check(&request, permitted, DISABLED) {
        return refusal(StatusCode::FORBIDDEN, reason);
    }
    let is_json = prefers_json(&request);
    let stops = || refusal(StatusCode::SERVICE_UNAVAILABLE, "the server stops");
    // A slow body delays no other change: the change is sent once it is complete.
    let change = match is_undo {
        true => ConfigChange::Undo,
        false => match read_text(&mut request).await {
            Ok(text) => ConfigChange::Replace(text),
            Err(response) => return response,
        },
    };
    let (reply, result) = oneshot::channel();
    if changes.send(ChangeRequest::Config { change, reply }).await.is_err() {
        return stops();
    }
    match result.await {
        Ok(Ok(warnings)) => report(StatusCode::OK, &warnings, is_json),
        Ok(Err(ChangeError::Invalid(problems))) => {
            report(StatusCode::UNPROCESSABLE_ENTITY, &problems, is_json)
        }
        Ok(Err(ChangeError::Conflict(reason))) => refusal(StatusCode::CONFLICT, reason),
        Err(_) => stops(),
    }
}

fn prefers_json(request: &Request) -> bool {
    let accepted = request.headers().get("accept").unwrap_or_default();
    accepted.contains("application/json")
}

async fn read_text(request: &mut Request) -> Result<String, Response> {
    if !has_type(request, "application/toml") {
        let reason = "expected a configuration with `Content-Type: application/toml`";
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    let body = std::mem::take(request.body());
    let bytes = body.collect(MAX_CONFIG_BYTES).await.map_err(|error| Response::from(&error))?;
    String::from_utf8(bytes.to_vec())
        .map_err(|_| refusal(StatusCode::BAD_REQUEST, "the configuration is not valid UTF-8"))
}

/// Returns true if the content of a request has this media type.
pub(super) fn has_type(request: &Request, expected: &str) -> bool {
    let kind = request.headers().get("content-type").unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected)
}

pub(super) fn refusal(status: StatusCode, reason: &str) -> Response {
    Response::text(format!("{reason}\n")).with_status(status)
}

/// A problem as JSON.
#[derive(Serialize)]
struct Report<'a> {
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
}

impl Report<'_> {
    fn new(problem: &Problem) -> Report<'_> {
        let message = &problem.message;
        match &problem.location {
            ConfigLocation::File { name, line, column } => {
                Report { file: Some(name), line: Some(*line), column: Some(*column), message }
            }
            _ => Report { file: None, line: None, column: None, message },
        }
    }
}

/// Responds with errors or warnings, one in a line.
fn report(status: StatusCode, problems: &[Problem], is_json: bool) -> Response {
    if is_json {
        let problems: Vec<_> = problems.iter().map(Report::new).collect();
        let name = if status == StatusCode::OK { "warnings" } else { "problems" };
        let json = serde_json::json!({ name: problems });
        return Response::from_body(format!("{json}\n"))
            .with_header(header::CONTENT_TYPE, "application/json")
            .with_status(status);
    }
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    Response::text(lines).with_status(status)
}
