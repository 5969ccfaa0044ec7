//! Active health checks: periodic requests to the upstreams.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::time::{MissedTickBehavior, interval, timeout};
use weft::{Method, StatusCode};
use weft_proto::http1::client::HeadReader;

use super::connection::INPUT_BYTES;
use super::fields::push_field;
use super::http2;
use super::settings::{Check, CheckTarget, HttpVersion};
use super::upstream::Upstream;

/// Maximum size of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Checks one upstream periodically, until its last strong reference is dropped.
pub(crate) async fn run(upstream: Weak<Upstream>, check: Arc<Check>, is_lenient: bool) {
    let mut tick = interval(check.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Number of consecutive checks with the same result.
    let (mut was_healthy, mut streak) = (true, 0u32);
    loop {
        tick.tick().await;
        let Some(upstream) = upstream.upgrade() else { return };
        let probe = probe(&upstream, &check, is_lenient);
        let is_healthy = timeout(check.timeout, probe).await.unwrap_or(false);
        streak = if is_healthy == was_healthy { streak.saturating_add(1) } else { 1 };
        was_healthy = is_healthy;
        let threshold = if is_healthy { check.rise } else { check.fall };
        if streak >= threshold && upstream.health.set_unhealthy(!is_healthy, Instant::now()) {
            match is_healthy {
                true => log::info!(
                    "the upstream {upstream}: health checks pass; it gets requests again"
                ),
                false => {
                    log::warn!("the upstream {upstream}: health checks fail; it gets no requests")
                }
            }
        }
    }
}

/// Sends one check; returns whether the response has the expected status.
async fn probe(upstream: &Upstream, check: &Check, is_lenient: bool) -> bool {
    let status = fetch_status(upstream, check, is_lenient).await.map(|status| status.as_u16());
    status.is_some_and(|status| {
        check.status.map_or((200..400).contains(&status), |expected| status == expected)
    })
}

async fn fetch_status(upstream: &Upstream, check: &Check, is_lenient: bool) -> Option<StatusCode> {
    let path = match &check.target {
        CheckTarget::Connection => {
            return upstream.connect(check.timeout).await.ok().map(|_| StatusCode::OK);
        }
        CheckTarget::Grpc(service) => {
            let is_serving = http2::is_serving(upstream, service, check.timeout).await?;
            let status = if is_serving { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            return Some(status);
        }
        CheckTarget::Path(path) if upstream.http_version == HttpVersion::Http2 => {
            return http2::fetch_status(upstream, path, check.timeout).await;
        }
        CheckTarget::Path(path) => path,
    };
    let url = &upstream.url;
    let mut head = format!("GET {}{path} HTTP/1.1\r\n", url.path).into_bytes();
    push_field(&mut head, "host", url.authority.as_bytes());
    push_field(&mut head, "user-agent", b"weft");
    head.extend_from_slice(b"connection: close\r\n\r\n");
    let mut connection = upstream.connect(check.timeout).await.ok()?;
    connection.write_all(&head).await.ok()?;
    connection.flush().await.ok()?;
    let mut head_reader = HeadReader::new(MAX_HEAD_BYTES).lenient(is_lenient);
    loop {
        match head_reader.read(&mut connection.input, &Method::GET).ok()? {
            Some(response) if response.status.is_informational() => {}
            Some(response) => return Some(response.status),
            None => match poll_fn(|cx| connection.poll_fill(cx, INPUT_BYTES, INPUT_BYTES)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            },
        }
    }
}
