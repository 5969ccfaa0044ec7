//! Active health checks over HTTP/2, each with a connection of its own.

use std::time::Duration;

use ::h2::RecvStream;
use ::h2::client;
use bytes::Bytes;
use http::{Request, Response};
use weft::StatusCode;

use crate::check::health_check::Search;
use crate::connect::upstream::Upstream;
use crate::settings::health_check_settings::HealthCheck;

/// Method of the health checking protocol of gRPC.
const CHECK_METHOD: &str = "/grpc.health.v1.Health/Check";

/// The message `HealthCheckResponse { status: SERVING }` behind its prefix: no compression, length 2.
const SERVING: &[u8] = b"\0\0\0\0\x02\x08\x01";

/// Sends a request for `path`; `None` if there is no complete response.
pub(crate) async fn passes(upstream: &Upstream, path: &str, check: &HealthCheck) -> Option<bool> {
    let uri = uri(upstream, &format!("{}{path}", upstream.url.path));
    let request = Request::get(uri).header("user-agent", "weft").body(()).ok()?;
    exchange(upstream, request, Bytes::new(), check.timeout, async |response| {
        let (head, mut body) = response.into_parts();
        let Some(mut search) = Search::new(check).filter(|_| check.permits(head.status)) else {
            return Some(check.permits(head.status));
        };
        while let Some(piece) = body.data().await {
            let piece = piece.ok()?;
            // An error means that the stream has ended.
            let _ = body.flow_control().release_capacity(piece.len());
            if let Some(is_found) = search.push(&piece) {
                return Some(is_found);
            }
        }
        Some(false)
    })
    .await
}

/// Asks for the health of a service by `grpc.health.v1`; of the server if its name is empty.
pub(crate) async fn is_serving(
    upstream: &Upstream,
    service: &str,
    connect_timeout: Duration,
) -> Option<bool> {
    let request = Request::post(uri(upstream, CHECK_METHOD)).header("user-agent", "weft");
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let message = health_check_request(service)?;
    exchange(upstream, request.body(()).ok()?, message, connect_timeout, async |response| {
        let (head, mut body) = response.into_parts();
        let mut data = Vec::new();
        while let Some(piece) = body.data().await {
            data.extend_from_slice(&piece.ok()?);
            // Further bytes are another message.
            if data.len() > SERVING.len() {
                return Some(false);
            }
        }
        let trailers = body.trailers().await.ok()?;
        let status = trailers.as_ref().unwrap_or(&head.headers).get("grpc-status")?;
        Some(head.status == StatusCode::OK && status == "0" && data == SERVING)
    })
    .await
}

/// Composes the message `HealthCheckRequest { service }`, with its prefix. `None` if the name is too
/// long for lengths of one byte.
fn health_check_request(service: &str) -> Option<Bytes> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 0x7e)?;
    let message = match length {
        0 => Vec::new(),
        _ => [&[0x0a, length], service.as_bytes()].concat(),
    };
    let prefix = [0, 0, 0, 0, u8::try_from(message.len()).ok()?];
    Some([&prefix[..], &message].concat().into())
}

fn uri(upstream: &Upstream, path: &str) -> String {
    let scheme = if upstream.url.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}{path}", upstream.url.authority)
}

/// Sends one request, with `body` unless it is empty, and reads its response.
async fn exchange<T>(
    upstream: &Upstream,
    request: Request<()>,
    body: Bytes,
    connect_timeout: Duration,
    read: impl AsyncFnOnce(Response<RecvStream>) -> Option<T>,
) -> Option<T> {
    let (stream, _) = upstream.connect(connect_timeout).await.ok()?.into_stream();
    let (mut send_request, frames) = client::handshake(stream).await.ok()?;
    let exchange = async {
        let (response, mut stream) = send_request.send_request(request, body.is_empty()).ok()?;
        if !body.is_empty() {
            stream.send_data(body, true).ok()?;
        }
        read(response.await.ok()?).await
    };
    tokio::select! {
        result = exchange => result,
        _ = frames => None,
    }
}
