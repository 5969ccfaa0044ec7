//! Hostile upstreams of streams: over TCP and over UDP.

use super::check;
use super::peer::{HostilePeer, Role};

fn stream(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Stream, name)
}

fn udp(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Udp, name).outcome("bytes")
}

#[test]
fn stream_peers_stay_within_budget() {
    check(
        "Upstreams of streams",
        vec![
            stream("nothing").held().outcome("nothing"),
            stream("the end of the connection").outcome("nothing"),
            stream("bytes one by one")
                .flood(10_000, |_| b"a".to_vec())
                .separately()
                .outcome("bytes")
                .requests(1_500.0),
            stream("endless bytes that are not read")
                .endlessly(|_| vec![b'a'; 16 << 10])
                .unread_for_ms(1_500)
                .requests(300.0),
        ],
    );
}

#[test]
fn udp_peers_stay_within_budget() {
    check(
        "Upstreams of streams over UDP",
        vec![
            udp("no response").outcome("nothing"),
            udp("many datagrams for one")
                .datagrams(|_| vec![vec![b'a'; 1_000]; 5_000])
                .requests(600.0),
            udp("many empty datagrams")
                .datagrams(|_| vec![Vec::new(); 5_000])
                .outcome("nothing")
                .requests(600.0),
            udp("large datagrams").datagrams(|_| vec![vec![b'a'; 60_000]; 200]).requests(600.0),
        ],
    );
}
