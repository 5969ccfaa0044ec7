//! Active health checks over HTTP/2, each with a connection of its own.

use std::time::Duration;

use ::h2::client;
use weft::StatusCode;

use super::super::upstream::Upstream;

/// Sends a request for `path` and returns the status of its response.
pub(in super::super) async fn fetch_status(
    upstream: &Upstream,
    path: &str,
    connect_timeout: Duration,
) -> Option<StatusCode> {
    let url = &upstream.url;
    let scheme = if url.is_tls() { "https" } else { "http" };
    let uri = format!("{scheme}://{}{}{path}", url.authority, url.path);
    let request = http::Request::get(uri).header("user-agent", "weft").body(()).ok()?;
    let (stream, _) = upstream.connect(connect_timeout).await.ok()?.into_stream();
    let (mut send_request, frames) = client::handshake(stream).await.ok()?;
    let exchange = async {
        let (response, _) = send_request.send_request(request, true).ok()?;
        response.await.ok().map(|response| response.status())
    };
    tokio::select! {
        status = exchange => status,
        _ = frames => None,
    }
}
