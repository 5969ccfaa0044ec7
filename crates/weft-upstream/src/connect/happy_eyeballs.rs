//! Connections to a host with several addresses (RFC 8305): an address that does not respond delays
//! the next one for a moment only.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time after which the next address is tried, too (RFC 8305 §5, "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Maximum number of addresses that are tried at the same time: each has a socket.
const MAX_ATTEMPTS: usize = 8;

/// Connects to the first address that accepts a connection. Each is tried when the one before it
/// has failed, or has not responded for a moment. Other attempts end with the first success.
pub(crate) async fn connect(addresses: &[SocketAddr]) -> io::Result<(TcpStream, SocketAddr)> {
    let mut rest = interleave(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if attempts.len() < MAX_ATTEMPTS
            && let Some(address) = rest.next()
        {
            attempts.push(async move { (TcpStream::connect(address).await, address) });
        }
        let may_start = attempts.len() < MAX_ATTEMPTS && rest.len() > 0;
        let delay = if may_start { ATTEMPT_DELAY } else { Duration::MAX };
        match timeout(delay, attempts.next()).await {
            Ok(Some((Ok(stream), address))) => return Ok((stream, address)),
            Ok(Some((Err(error), _))) => failure = error,
            Ok(None) if rest.len() == 0 => return Err(failure),
            Ok(None) | Err(_) => {}
        }
    }
}

/// Alternates between the families, beginning with the first address (RFC 8305 §4): a family that
/// is broken delays the other one by one attempt.
fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let begins_with_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let is_first = |address: &&SocketAddr| address.is_ipv4() == begins_with_ipv4;
    let mut first = addresses.iter().filter(is_first);
    let mut second = addresses.iter().filter(|address| !is_first(address));
    let mut order = Vec::with_capacity(addresses.len());
    while order.len() < addresses.len() {
        order.extend(first.next());
        order.extend(second.next());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        for (addresses, expected) in [
            ("", ""),
            (
                "[::1]:1 [::2]:1 1.1.1.1:1 [::3]:1 1.1.1.2:1",
                "[::1]:1 1.1.1.1:1 [::2]:1 1.1.1.2:1 [::3]:1",
            ),
            ("1.1.1.1:1 1.1.1.2:1 [::1]:1", "1.1.1.1:1 [::1]:1 1.1.1.2:1"),
        ] {
            let addresses: Vec<SocketAddr> =
                addresses.split_whitespace().map(|text| text.parse().unwrap()).collect();
            let found: Vec<String> =
                interleave(&addresses).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), expected);
        }
    }
}
