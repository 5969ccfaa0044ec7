//! A connection that goes over to another protocol: bytes, both ways, until both have ended.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};
use weft::Upgraded;

use super::pool::Lease;

/// How much is copied at a time.
const BUFFER_BYTES: usize = 16 << 10;

/// Copies until both ends have said all, one breaks off, or nobody says anything for too long.
/// When the server stops, the engine ends it after the period of grace.
///
/// The connection to the upstream counts until here.
pub(super) async fn run(client: Upgraded, mut upstream: Lease, patience: Duration) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_upstream, mut to_upstream) = split(&mut *upstream.wire);
    let last = Cell::new(Instant::now());
    let up = copy(&mut from_client, &mut to_upstream, &last);
    let down = copy(&mut from_upstream, &mut to_client, &last);
    tokio::select! {
        // What has gone wrong is told to both by the end of their connections.
        _ = async { tokio::try_join!(up, down) } => {}
        () = silence(&last, patience) => {}
    }
}

/// One direction. Its end is passed on and leaves the other direction as it is.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    last: &Cell<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        last.set(Instant::now());
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
        last.set(Instant::now());
    }
}

/// Ends when nothing has moved for so long.
async fn silence(last: &Cell<Instant>, patience: Duration) {
    loop {
        let Some(end) = last.get().checked_add(patience) else {
            return std::future::pending().await;
        };
        if end <= Instant::now() {
            return;
        }
        sleep_until(end).await;
    }
}
