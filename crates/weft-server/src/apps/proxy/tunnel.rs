//! A tunnel after a 101 (Switching Protocols): bytes in both directions, until both have ended.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};
use weft::Upgraded;

use super::pool::Lease;

/// Size of the copy buffer of one direction, in bytes. It doubles while the receiving side takes whole
/// buffers, and is small again after a pause, so that an idle or stalled tunnel occupies little.
const MIN_BUFFER_BYTES: usize = 1 << 10;
const MAX_BUFFER_BYTES: usize = 16 << 10;

/// Copies until both directions have ended, one fails, or no data moves for `idle_timeout`. When
/// the server shuts down, the engine ends the tunnel after the grace period.
///
/// The connection to the upstream counts as in use until the tunnel ends.
pub(super) async fn run(client: Upgraded, mut upstream: Lease, idle_timeout: Duration) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_upstream, mut to_upstream) = split(&mut *upstream.connection);
    let last_activity = Cell::new(Instant::now());
    let up = copy(&mut from_client, &mut to_upstream, &last_activity);
    let down = copy(&mut from_upstream, &mut to_client, &last_activity);
    tokio::select! {
        // After an error both connections are closed, so that both peers notice.
        _ = async { tokio::try_join!(up, down) } => {}
        () = wait_until_idle(&last_activity, idle_timeout) => {}
    }
}

/// Copies one direction. Its end is forwarded; the other direction stays open.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    last_activity: &Cell<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; MIN_BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        last_activity.set(Instant::now());
        if length == 0 {
            return to.shutdown().await;
        }
        let taken = to.write(&buffer[..length]).await?;
        to.write_all(&buffer[taken..length]).await?;
        to.flush().await?;
        last_activity.set(Instant::now());
        if taken == buffer.len() && taken < MAX_BUFFER_BYTES {
            buffer = vec![0; 2 * taken];
        } else if length <= MIN_BUFFER_BYTES && buffer.len() > MIN_BUFFER_BYTES {
            buffer = vec![0; MIN_BUFFER_BYTES];
        }
    }
}

/// Completes when no data has moved for `idle_timeout`.
async fn wait_until_idle(last_activity: &Cell<Instant>, idle_timeout: Duration) {
    loop {
        let Some(deadline) = last_activity.get().checked_add(idle_timeout) else {
            return std::future::pending().await;
        };
        if deadline <= Instant::now() {
            return;
        }
        sleep_until(deadline).await;
    }
}
