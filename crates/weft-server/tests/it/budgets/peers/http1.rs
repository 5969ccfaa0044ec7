//! Hostile HTTP/1 upstreams.

use super::check;
use super::peer::{HostilePeer, Role};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn row(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Http1, name)
}

#[test]
fn http1_peers_stay_within_budget() {
    check("HTTP/1 upstreams", [heads(), bodies()].concat());
}

fn heads() -> Vec<HostilePeer> {
    vec![
        row("nothing after the connection is accepted").held().outcome("504").requests(40.0),
        row("the end of the connection"),
        row("an endless status line").once("HTTP/1.1 200 ").endlessly(|_| vec![b'a'; 4096]),
        row("an endless head")
            .once("HTTP/1.1 200 OK\r\n")
            .endlessly(|_| b"X-Field: 012345678901234\r\n".to_vec()),
        row("a head byte by byte, slowly")
            .once("HTTP/1.1 200 OK\r\nX-Field: ")
            .trickle(20, |_| b"a".to_vec())
            .outcome("504"),
        // Quadratic if each byte causes a look at all bytes before it.
        row("a head byte by byte, fast")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Field: ")
            .flood(20_000, |_| b"a".to_vec())
            .separately()
            .last("\r\n\r\n")
            .outcome("200")
            .requests(600.0),
        row("endless interim responses")
            .endlessly(|_| b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()),
        row("interim responses, slowly")
            // Each of them starts the timeout of the response again.
            .trickle(50, |_| b"HTTP/1.1 102 Processing\r\n\r\n".to_vec())
            .outcome("502|504"),
        row("a response before the request").once(OK).early().outcome("200|502"),
        row("a length over 64 bits")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        row("status 101 without an upgrade")
            .once("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
            .held(),
        // Quadratic if each member is looked up among all fields.
        row("a long Connection and many fields")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close")
            .flood(4_000, |_| b",ab".to_vec())
            .last(["\r\n", &"A:\r\n".repeat(1_000), "\r\n"].concat())
            .outcome("200|502"),
    ]
}

fn bodies() -> Vec<HostilePeer> {
    vec![
        row("a huge length and the end")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\nab")
            .outcome("200 cut|502"),
        row("a huge chunk size and the end")
            .once([CHUNKED, "7fffffffffffffff\r\nab"].concat())
            .outcome("200 cut|502"),
        row("a chunk size over 64 bits")
            .once([CHUNKED, "fffffffffffffffff\r\nab"].concat())
            .held()
            .outcome("200 cut|502"),
        row("an endless chunk extension")
            .once([CHUNKED, "1"].concat())
            .endlessly(|_| b";name=value".to_vec())
            .outcome("200 cut|502"),
        row("an extension in each chunk")
            .once(CHUNKED)
            .flood(10_000, |_| [&b"1;"[..], &[b'a'; 200], b"\r\nx\r\n"].concat())
            .outcome("200 cut|502")
            .requests(600.0),
        row("endless trailers")
            .once([CHUNKED, "1\r\nx\r\n0\r\n"].concat())
            .endlessly(|_| b"X-Field: 012345678901234\r\n".to_vec())
            .outcome("200|200 cut"),
        row("chunks of one byte")
            .once(CHUNKED)
            .flood(100_000, |_| b"1\r\nx\r\n".to_vec())
            .last("0\r\n\r\n")
            .outcome("200")
            .requests(2_000.0),
        row("chunks byte by byte")
            .once(CHUNKED)
            .flood(10_000, |n| vec![b"1\r\nx\r\n"[n % 6]])
            .separately()
            .outcome("200 cut")
            .requests(1_000.0),
        row("a body that stops")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na")
            .held()
            .outcome("200 cut"),
        row("an endless body that is not read")
            .once("HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n")
            .endlessly(|_| vec![b'a'; 16 << 10])
            .unread_for_ms(2_000)
            .requests(600.0)
            .disk_kib(2_048.0),
        row("endless bytes after the response")
            .once(OK)
            .endlessly(|_| vec![b'a'; 4096])
            .outcome("200"),
        row("a second response").once(OK).once(OK).held().outcome("200"),
    ]
}
