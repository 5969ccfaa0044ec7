//! A tunnel after a 101 (Switching Protocols).

use std::time::Duration;

use weft::Upgraded;

use crate::copy::copy_bidirectional;
use crate::pool::connection_pool::Lease;

/// Copies until both directions have ended, one fails, or no data moves for `idle_timeout`. When
/// the server shuts down, the engine ends the tunnel after the grace period.
///
/// The connection to the upstream counts as in use until the tunnel ends.
pub(crate) async fn run(client: Upgraded, mut upstream: Lease, idle_timeout: Duration) {
    copy_bidirectional(client, &mut *upstream.connection, idle_timeout, &()).await;
}
