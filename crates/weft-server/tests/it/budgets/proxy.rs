//! Attacks on the proxy: by its clients, by its upstreams, and by the header of the PROXY protocol.

use super::attack::{Attack, Reads};
use super::check;
use super::wire::{
    CHUNKED, CLOSE, get, h2_get, list_field, post, preface, websocket, websocket_frame,
};

/// Row with requests to the upstream.
fn row(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class).ordinary("/up/small").descriptors(2.0).memory_kib(128.0)
}

/// Row with the header of the PROXY protocol, which the server expects from this address.
fn proxied(name: &'static str) -> Attack {
    Attack::new(name, "PROXY protocol").source([127, 0, 0, 9]).answer("nothing")
}

#[test]
fn proxy_attacks_stay_within_budget() {
    check("Proxy", [clients(), tunnels(), upstreams(), proxy_headers()].concat());
}

fn clients() -> Vec<Attack> {
    vec![
        row("slow read of a large response", "slow read")
            .once(get("/up/large", ""))
            .reads(Reads::Slowly)
            .given_up(0.8..=12.0)
            .memory_kib(256.0)
            // The response is received at once, into a temporary file.
            .descriptors(3.1)
            .disk_kib(66_000.0)
            .cpu(800.0)
            .requests(1200.0),
        row("slow body", "slow body (R.U.D.Y.)")
            .once(post("/up/sink", "Content-Length: 60000\r\n"))
            .trickle(50, |_| b"a".to_vec())
            .given_up(0.8..=8.0)
            .answer("408|nothing|504|502|400")
            .cpu(15.0),
        row("body that the upstream does not read", "slow body")
            .once(post("/up/unread", "Content-Length: 1000000000\r\n"))
            // Received into a temporary file, until the client stops.
            .flood(500, |_| vec![b'a'; 16 << 10])
            .given_up(0.8..=12.0)
            .answer("408|nothing|504|502|400")
            .descriptors(3.1)
            .disk_kib(8_200.0)
            .memory_kib(256.0)
            .requests(1000.0),
        row("chunks of one byte", "tiny chunks")
            .once(post("/up/sink", CHUNKED))
            .flood(20_000, |_| b"1\r\na\r\n".to_vec())
            .given_up(0.1..=8.0)
            .answer("408|nothing|504|502|400")
            .memory_kib(256.0)
            .cpu(4.0)
            .requests(400.0),
        row("pipelined requests", "pipelining flood")
            .connections(8)
            .flood(200, |_| get("/up/small", ""))
            .last(get("/up/small", CLOSE))
            .requests(600.0),
        row("long Connection", "hop-by-hop fields")
            .connections(8)
            .flood(20, |_| get("/up/small", &list_field("Connection", "x-a", 15_000)))
            .last(get("/up/small", CLOSE))
            .requests(500.0),
        row("long X-Forwarded-For", "forwarding chain")
            .connections(8)
            .flood(20, |_| get("/up/small", &list_field("X-Forwarded-For", "192.0.2.1", 15_000)))
            .last(get("/up/small", CLOSE))
            .requests(300.0),
        row("requests whose client leaves", "client churn")
            .connections(64)
            .once(get("/up/silent", ""))
            .held_ms(50)
            .answer("nothing")
            .memory_kib(96.0)
            .cpu(4.0),
        // The requests continue without their clients, a few of them in connections.
        row("requests to an application whose client leaves", "client churn")
            .connections(64)
            .once(get("/app/", ""))
            .held_ms(50)
            .answer("nothing")
            .memory_kib(96.0)
            .cpu(4.0),
        row("silent upstream", "held upstream connections")
            .connections(64)
            .once(get("/up/silent", ""))
            .given_up(0.8..=8.0)
            .answer("504")
            .memory_kib(96.0)
            .requests(10.0)
            .cpu(5.0),
        row("all streams to a silent upstream", "held upstream connections")
            .connections(2)
            .once(preface(&[]))
            .flood(100, |n| h2_get(n, "/up/silent", &[]))
            .given_up(0.8..=8.0)
            .answer("504|GOAWAY NO_ERROR")
            .memory_kib(320.0)
            .descriptors(101.0)
            .cpu(6.0)
            .requests(900.0),
    ]
}

fn tunnels() -> Vec<Attack> {
    vec![
        row("PING frames in a WebSocket", "WebSocket PING flood")
            .once(websocket("/up/websocket"))
            .flood(50_000, |_| websocket_frame(0x89, b"12345678"))
            .answer("101")
            .held_ms(300),
        row("fragments of one byte in a WebSocket", "WebSocket fragments")
            .once(websocket("/up/websocket"))
            .flood(50_000, |n| websocket_frame(u8::from(n == 0), b"a"))
            .answer("101")
            .held_ms(300),
        row("WebSocket without a frame", "idle flood")
            .connections(32)
            .once(websocket("/up/websocket"))
            .given_up(0.8..=8.0)
            .answer("101")
            .memory_kib(64.0),
    ]
}

fn upstreams() -> Vec<Attack> {
    let upstream = |name, class| row(name, class).connections(8).memory_kib(256.0).cpu(100.0);
    vec![
        upstream("upstream with an endless head", "huge response head")
            .once(get("/up/endless-head", CLOSE))
            .answer("502"),
        upstream("upstream with endless interim responses", "interim response flood")
            .once(get("/up/interim", CLOSE))
            .answer("103|502")
            .requests(300.0),
        upstream("upstream with an endless chunk extension", "chunk extensions")
            .once(get("/up/extensions", CLOSE))
            .answer("502|200"),
        upstream("upstream with endless trailers", "huge trailers")
            .once(get("/up/trailers", CLOSE))
            .answer("200"),
        upstream("upstream with chunks of one byte", "tiny chunks")
            .once(get("/up/tiny-chunks", CLOSE))
            .memory_kib(512.0)
            .cpu(2000.0)
            .requests(2000.0),
    ]
}

fn proxy_headers() -> Vec<Attack> {
    vec![
        proxied("no header").connections(64).given_up(0.8..=8.0).memory_kib(8.0).cpu(4.0),
        proxied("random bytes")
            .flood(1_000, |n| (0..1024).map(|index| (index * 7 + n * 13) as u8 | 0x80).collect())
            .given_up(0.0..=8.0),
        proxied("version 1 without an end")
            .once(b"PROXY TCP4 ")
            .flood(10_000, |_| vec![b'1'; 1024])
            .given_up(0.0..=8.0),
        proxied("version 1 byte by byte")
            .connections(64)
            .once(b"PROXY TCP4 ")
            .trickle(20, |_| b"1".to_vec())
            .given_up(0.8..=8.0)
            .memory_kib(24.0)
            .cpu(30.0),
        proxied("version 2 with 64 KiB of fields")
            .once(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff")
            .flood(10_000, |_| vec![0; 1024])
            .given_up(0.0..=8.0)
            .answer("nothing|400"),
    ]
}
