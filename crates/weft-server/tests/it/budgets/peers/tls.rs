//! Hostile servers that Weft speaks TLS with: upstreams and certificate authorities. They send
//! bytes in place of their handshake.

use super::check;
use super::peer::{HostilePeer, Role};

/// Types of records and of a message (RFC 8446 §5.1, §4).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;

/// Returns a record.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(data.len() as u16).to_be_bytes(), data].concat()
}

/// Returns rows for a peer. `failed` and `slow` are the outcomes for its clients.
fn rows(role: Role, failed: &'static str, slow: &'static str) -> Vec<HostilePeer> {
    let row = |name| HostilePeer::new(role, name).outcome(failed).requests(400.0);
    vec![
        row("nothing").held().outcome(slow),
        row("the end of the connection"),
        row("a response without TLS").once("HTTP/1.1 400 Bad Request\r\n\r\n"),
        row("a message of 16 MiB in records of one byte")
            .once(record(HANDSHAKE, &[SERVER_HELLO, 0xff, 0xff, 0xff]))
            .endlessly(|_| record(HANDSHAKE, &[0])),
        row("a message of 16 MiB in large records")
            .once(record(HANDSHAKE, &[SERVER_HELLO, 0xff, 0xff, 0xff]))
            .endlessly(|_| record(HANDSHAKE, &[0; 16_384])),
        row("endless empty records").endlessly(|_| record(HANDSHAKE, b"")),
        row("endless changes of the cipher").endlessly(|_| record(CHANGE_CIPHER_SPEC, &[1])),
        row("endless warnings").endlessly(|_| record(ALERT, &[1, 90])),
        row("a message byte by byte, slowly")
            .once([HANDSHAKE, 3, 3, 0x40, 0, SERVER_HELLO, 0, 0x3f, 0xfc])
            .trickle(20, |_| vec![0])
            .outcome(slow),
    ]
}

#[test]
fn tls_peers_stay_within_budget() {
    check("Upstreams over TLS", rows(Role::Tls, "502", "504"));
}

/// The server serves in the meantime.
#[test]
fn authorities_stay_within_budget() {
    check("Certificate authorities", rows(Role::Authority, "200", "200"));
}
