//! Active checks: upstreams are asked from time to time how they are.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use tokio::io::AsyncWriteExt;
use tokio::time::{MissedTickBehavior, interval, timeout};
use weft::client::HeadReader;
use weft::{Method, StatusCode};

use super::fields::push_field;
use super::settings::Check;
use super::upstream::Upstream;
use super::wire::INPUT_BYTES;

/// The largest head of an answer, in bytes.
const MOST_HEAD_BYTES: usize = 32 << 10;

/// Asks one upstream, again and again, as long as anybody has it.
pub(super) async fn watch(upstream: Weak<Upstream>, check: Arc<Check>) {
    let mut tick = interval(check.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // How often in a row it was the same.
    let (mut was_well, mut row) = (true, 0u32);
    loop {
        tick.tick().await;
        let Some(upstream) = upstream.upgrade() else { return };
        let is_well = timeout(check.timeout, ask(&upstream, &check)).await.unwrap_or(false);
        row = if is_well == was_well { row.saturating_add(1) } else { 1 };
        was_well = is_well;
        let enough = if is_well { check.rise } else { check.fall };
        if row >= enough && upstream.health.set_sick(!is_well) {
            match is_well {
                true => log::info!("the upstream {upstream} is well again"),
                false => log::warn!("the upstream {upstream} is not well"),
            }
        }
    }
}

/// Whether it answers as it should.
async fn ask(upstream: &Upstream, check: &Check) -> bool {
    let status = status(upstream, check).await.map(|status| status.as_u16());
    status.is_some_and(|status| {
        check.status.map_or((200..400).contains(&status), |wanted| status == wanted)
    })
}

async fn status(upstream: &Upstream, check: &Check) -> Option<StatusCode> {
    let url = &upstream.url;
    let mut text = format!("GET {}{} HTTP/1.1\r\n", url.path, check.path).into_bytes();
    push_field(&mut text, b"host", url.authority.as_bytes());
    push_field(&mut text, b"user-agent", b"weft");
    text.extend_from_slice(b"connection: close\r\n\r\n");
    let mut wire = upstream.connect(check.timeout).await.ok()?;
    wire.write_all(&text).await.ok()?;
    wire.flush().await.ok()?;
    let mut heads = HeadReader::new(MOST_HEAD_BYTES);
    loop {
        match heads.read(&mut wire.input, &Method::GET).ok()? {
            Some(head) if head.status.is_informational() => {}
            Some(head) => return Some(head.status),
            None => match poll_fn(|cx| wire.poll_fill(cx, INPUT_BYTES)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            },
        }
    }
}
