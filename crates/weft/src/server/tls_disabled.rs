//! The handshake of a build without TLS, which nothing can begin.

use crate::net::reader::ReadHalf;
use crate::net::tls::Tls;
use crate::net::writer::WriteHalf;
use crate::server::connection::Connection;
use crate::server::worker::Worker;

#[derive(Default)]
pub(super) struct HandshakeSemaphore {}

pub(super) async fn handshake<A>(tls: &Tls, conn: &mut Connection, worker: &Worker<A>) -> bool {
    // Only a handshake uses these.
    let _ = (&worker.handshake_semaphore, |session| conn.shared.with_tls(session));
    let _ = (ReadHalf::Tls, ReadHalf::Detached, WriteHalf::Tls);
    match *tls {}
}
