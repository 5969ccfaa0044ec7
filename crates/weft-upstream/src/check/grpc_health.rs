//! The health checking protocol of gRPC, `grpc.health.v1`.

use weft::{Method, StatusCode};

use crate::client::own_request::{OwnRequest, ResponseLimits, Trailers};
use crate::connect::upstream::Upstream;

/// Method of the protocol.
const CHECK_METHOD: &str = "/grpc.health.v1.Health/Check";

/// The message `HealthCheckResponse { status: SERVING }` behind its prefix: no compression, length
/// 2.
const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";

/// Checks that a service, or the server if `service` is empty, is serving.
///
/// # Errors
/// The reason of the failure.
pub(super) async fn check(
    upstream: &Upstream,
    service: &str,
    host: Option<&str>,
    limits: &ResponseLimits,
) -> Result<(), String> {
    let message = request_message(service).ok_or("the name of the service is too long")?;
    let fields = [("content-type", &b"application/grpc"[..]), ("te", b"trailers")];
    let (method, target) = (&Method::POST, CHECK_METHOD);
    let request = OwnRequest { method, target, host, fields: &fields, body: &message };
    // Further bytes are another message.
    let is_enough = |_, body: &[u8]| body.len() > SERVING.len();
    let response = request.send(upstream, limits, is_enough).await?;
    let trailers = response.extensions().get::<Trailers>();
    let status = trailers.map_or(response.headers(), |trailers| &trailers.0).get("grpc-status");
    if response.status() != StatusCode::OK {
        return Err(format!("the status is {}", response.status()));
    }
    match status {
        Some(status) if status == "0" && response.body() == SERVING => Ok(()),
        Some(status) if status == "0" => Err("the service is not serving".to_owned()),
        Some(status) => Err(format!("the gRPC status is {}", status.as_bytes().escape_ascii())),
        None => Err("there is no gRPC status".to_owned()),
    }
}

/// Composes the message `HealthCheckRequest { service }`, with its prefix. Returns `None` if the
/// name is too long for lengths of one byte.
fn request_message(service: &str) -> Option<Vec<u8>> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 0x7e)?;
    let message = match length {
        0 => Vec::new(),
        _ => [&[0x0a, length], service.as_bytes()].concat(),
    };
    let prefix = [0, 0, 0, 0, u8::try_from(message.len()).ok()?];
    Some([&prefix[..], &message].concat())
}
