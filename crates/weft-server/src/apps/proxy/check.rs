//! Active checks: upstreams are asked from time to time how they are.

use std::sync::{Arc, Weak};

use hyper::client::conn::http1::Builder;
use hyper::header::{HOST, USER_AGENT};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::settings::Check;
use super::upload::RequestBody;
use super::upstream::Upstream;

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
    let target = format!("{}{}", upstream.url.path, check.path);
    let request = Request::builder()
        .method(Method::GET)
        .uri(target)
        .header(HOST, &upstream.url.authority)
        .header(USER_AGENT, "weft")
        .body(RequestBody::Empty);
    let Ok(request) = request else { return false };
    let Ok(stream) = upstream.connect(check.timeout).await else { return false };
    let Ok((mut sender, driver)) = Builder::new().handshake(TokioIo::new(stream)).await else {
        return false;
    };
    let answer = async {
        let status = sender.send_request(request).await.ok()?.status().as_u16();
        Some(check.status.map_or((200..400).contains(&status), |wanted| status == wanted))
    };
    tokio::select! {
        answer = answer => answer.unwrap_or(false),
        // The answer may have come with the connection's end, and is looked at then.
        () = async { drop(driver.await); std::future::pending().await } => false,
    }
}
