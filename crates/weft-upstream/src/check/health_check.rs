//! Active health checks: periodic requests to the upstreams.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::time::{MissedTickBehavior, interval, timeout};
use weft::Method;
use weft_proto::http1::client::{BodyPiece, BodyReader, HeadReader};

use super::http2_check;
use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::{INPUT_BYTES, UpstreamConnection};
use crate::head::field_filter::push_field;
use crate::settings::health_check_settings::HealthCheck;
use crate::settings::health_check_settings::HealthCheckTarget;
use crate::url::http_version::HttpVersion;

/// Maximum size of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Maximum size of the part of a body in which the expected text is searched, in bytes.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Checks one upstream periodically, until its last strong reference is dropped.
pub async fn run(upstream: Weak<Upstream>, check: Arc<HealthCheck>, is_lenient: bool) {
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

/// Sends one check; returns whether the response is the expected one.
async fn probe(upstream: &Upstream, check: &HealthCheck, is_lenient: bool) -> bool {
    let passes = match &check.target {
        HealthCheckTarget::Connection => upstream.connect(check.timeout).await.ok().map(|_| true),
        HealthCheckTarget::Grpc(service) => {
            http2_check::is_serving(upstream, service, check.timeout).await
        }
        HealthCheckTarget::Path(path) if upstream.http_version == HttpVersion::Http2 => {
            http2_check::passes(upstream, path, check).await
        }
        HealthCheckTarget::Path(path) => passes(upstream, path, check, is_lenient).await,
    };
    passes.unwrap_or(false)
}

/// Sends a request over HTTP/1.1; `None` if there is no complete response.
async fn passes(
    upstream: &Upstream,
    path: &str,
    check: &HealthCheck,
    is_lenient: bool,
) -> Option<bool> {
    let url = &upstream.url;
    let mut head = format!("GET {}{path} HTTP/1.1\r\n", url.path).into_bytes();
    push_field(&mut head, "host", url.authority.as_bytes());
    push_field(&mut head, "user-agent", b"weft");
    head.extend_from_slice(b"connection: close\r\n\r\n");
    let mut connection = upstream.connect(check.timeout).await.ok()?;
    connection.write_all(&head).await.ok()?;
    connection.flush().await.ok()?;
    let mut head_reader = HeadReader::new(MAX_HEAD_BYTES).lenient(is_lenient);
    let head = loop {
        match head_reader.read(&mut connection.input, &Method::GET).ok()? {
            Some(response) if response.status.is_informational() => {}
            Some(response) => break response,
            None => receive(&mut connection).await.filter(|bytes| *bytes > 0).map(drop)?,
        }
    };
    let Some(mut search) = Search::new(check).filter(|_| check.permits(head.status)) else {
        return Some(check.permits(head.status));
    };
    let mut body_reader = BodyReader::new(head.length);
    loop {
        match body_reader.read(&mut connection.input).ok()? {
            BodyPiece::Data(piece) => {
                if let Some(is_found) = search.push(&piece) {
                    return Some(is_found);
                }
            }
            BodyPiece::Trailers(_) => {}
            BodyPiece::End => return Some(false),
            BodyPiece::Wait if receive(&mut connection).await? == 0 => return Some(false),
            BodyPiece::Wait => {}
        }
    }
}

/// Reads once; 0 at the end.
async fn receive(connection: &mut UpstreamConnection) -> Option<usize> {
    poll_fn(|cx| connection.poll_fill(cx, INPUT_BYTES, INPUT_BYTES)).await.ok()
}

/// Search for the expected text in a response.
pub(crate) struct Search<'a> {
    text: &'a [u8],
    received: Vec<u8>,
}

impl Search<'_> {
    /// Creates a search; `None` if any response is expected.
    pub(crate) fn new(check: &HealthCheck) -> Option<Search<'_>> {
        let text = check.body.as_bytes();
        (!text.is_empty()).then(|| Search { text, received: Vec::new() })
    }

    /// Adds a piece. Returns the result once it is known.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<bool> {
        let room = MAX_BODY_BYTES - self.received.len();
        // The text may begin in an earlier piece.
        let from = self.received.len().saturating_sub(self.text.len());
        self.received.extend_from_slice(&piece[..piece.len().min(room)]);
        let is_found = self.received[from..].windows(self.text.len()).any(|part| part == self.text);
        (is_found || self.received.len() == MAX_BODY_BYTES).then_some(is_found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_in_all_pieces_up_to_the_limit() {
        let check = HealthCheck { body: "needle".to_owned(), ..HealthCheck::default() };
        assert!(Search::new(&HealthCheck::default()).is_none());
        for (pieces, expected) in [
            (&["needle"][..], Some(true)),
            (&["a", "nee", "", "d", "le"], Some(true)),
            (&["need", "needle!"], Some(true)),
            (&["need", "lo"], None),
        ] {
            let mut search = Search::new(&check).unwrap();
            let found = pieces.iter().find_map(|piece| search.push(piece.as_bytes()));
            assert_eq!(found, expected, "{pieces:?}");
        }
        let mut search = Search::new(&check).unwrap();
        assert_eq!(search.push(&vec![b'a'; MAX_BODY_BYTES - 6]), None);
        assert_eq!(search.push(b"!needle"), Some(false));
        let mut search = Search::new(&check).unwrap();
        assert_eq!(search.push(&vec![b'a'; MAX_BODY_BYTES - 6]), None);
        assert_eq!(search.push(b"needle!"), Some(true));
    }
}
