//! Deferred accepting: the kernel passes a connection on when its first bytes have arrived
//! (`TCP_DEFER_ACCEPT`), so that the request can be read at once.

use weft::server::ServerHandle;

use crate::base::sys::set_defer_accept;

/// Longest time in seconds for which the kernel waits for the first bytes. A client that sends
/// nothing is accepted then, and the timeout for a request head begins. One second is the shortest
/// time: the interval before the kernel repeats its SYN-ACK.
const MAX_WAIT_SECONDS: i32 = 1;

/// Enables or disables deferred accepting on all TCP sockets of a server. The status endpoint,
/// whose connections are few, does without it.
///
/// # Errors
/// The operation that failed, with the address.
pub(crate) fn set(server: &ServerHandle, is_enabled: bool) -> Result<(), String> {
    let seconds = if is_enabled { MAX_WAIT_SECONDS } else { 0 };
    let sockets = server.sockets().map_err(|error| error.to_string())?;
    for (address, socket) in sockets.iter().filter(|(address, _)| address.address().is_some()) {
        set_defer_accept(socket, seconds).map_err(|error| {
            format!("cannot set TCP_DEFER_ACCEPT on the socket of {address}: {error}")
        })?;
    }
    Ok(())
}
