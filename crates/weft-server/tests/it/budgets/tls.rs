//! Attacks on TLS, and over it.

use super::attack::{Attack, Reads, Transport};
use super::check;
use super::wire::*;

/// Row that sends TLS records of its own.
fn records(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class).over(Transport::Records).memory_kib(96.0)
}

/// Row with HTTP/1 in TLS.
fn row(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class).over(Transport::Tls("http/1.1")).memory_kib(128.0)
}

#[test]
fn tls_attacks_stay_within_budget() {
    check("TLS", [handshakes(), connections()].concat());
}

/// Handshakes that do not complete.
fn handshakes() -> Vec<Attack> {
    vec![
        records("connections without a handshake", "idle flood")
            .connections(64)
            .given_up(0.8..=8.0)
            .answer("nothing")
            .memory_kib(16.0),
        records("ClientHello, then nothing", "handshake flood")
            .connections(32)
            .once(client_hello())
            .given_up(0.8..=8.0)
            .answer("TLS handshake"),
        records("ClientHello byte by byte", "slow handshake")
            .connections(32)
            .trickle(20, |n| client_hello().get(n..=n).unwrap_or_default().to_vec())
            .given_up(0.8..=8.0)
            .answer("nothing")
            .requests(100.0)
            .cpu(8.0),
        records("ClientHello in records of one byte", "tiny records")
            .once(
                client_hello()[5..]
                    .iter()
                    .flat_map(|byte| record(HANDSHAKE, &[*byte]))
                    .collect::<Vec<_>>(),
            )
            .given_up(0.0..=8.0)
            .answer("TLS handshake|TLS alert"),
        records("ClientHello without an end", "huge handshake")
            .once(record(HANDSHAKE, &[1, 0xff, 0xff, 0xff]))
            .flood(1_000, |_| record(HANDSHAKE, &[0; 16_000]))
            .given_up(0.0..=8.0)
            .answer("TLS alert|nothing")
            .requests(300.0),
        records("random bytes", "wrong protocol")
            .flood(1_000, |n| (0..1024).map(|index| (index * 7 + n * 13) as u8 | 0x80).collect())
            .given_up(0.0..=8.0)
            .answer("TLS alert|nothing"),
        records("HTTP in plaintext", "wrong protocol")
            .flood(1_000, |_| get("/small.txt", ""))
            .given_up(0.0..=8.0)
            .answer("TLS alert|nothing|400"),
        records("warning alerts", "CVE-2016-8610 (SSL death alert)")
            .once(client_hello())
            .flood(10_000, |_| record(ALERT, &[1, 90]))
            .given_up(0.0..=8.0)
            .answer("TLS handshake|TLS alert|nothing"),
        records("ChangeCipherSpec records", "CVE-2020-25648")
            .once(client_hello())
            .flood(10_000, |_| record(CHANGE_CIPHER_SPEC, &[1]))
            .given_up(0.0..=8.0)
            .answer("TLS handshake|TLS alert|nothing"),
        row("whole handshakes", "handshake flood")
            .connections(32)
            .once(get("/small.txt", CLOSE))
            .requests(30.0)
            .cpu(3.0),
        row("handshakes without a request", "handshake flood")
            .connections(32)
            .given_up(0.8..=8.0)
            .answer("nothing|408")
            .requests(30.0)
            .cpu(4.0),
    ]
}

/// Connections with a handshake.
fn connections() -> Vec<Attack> {
    vec![
        row("request in records of one byte", "tiny records")
            .once(b"GET /")
            .flood(1_000, |_| b"a".to_vec())
            .separately()
            .last(b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .answer("404")
            .requests(200.0)
            .cpu(6.0),
        row("slow head", "CVE-2007-6750 (Slowloris)")
            .once(b"GET /")
            .trickle(20, |_| b"a".to_vec())
            .given_up(0.8..=8.0)
            .answer("408")
            .cpu(10.0),
        row("slow read of a large file", "slow read")
            .once(get("/large.bin", ""))
            .reads(Reads::Slowly)
            .given_up(0.8..=12.0)
            .descriptors(2.0)
            .requests(450.0)
            .cpu(20.0),
        row("pipelined requests whose responses are not read", "pipelining flood")
            .flood(100_000, |_| get("/small.txt", ""))
            .disk_kib(1024.0)
            .reads(Reads::Nothing)
            // A busy machine takes long until the buffers of the sockets are full.
            .given_up(0.8..=60.0)
            .answer("nothing")
            .memory_kib(256.0)
            .requests(2500.0),
        Attack::new("key updates", "CVE-2019-1543 class (KeyUpdate flood)")
            .over(Transport::KeyUpdates)
            .flood(2_000, |_| Vec::new())
            .given_up(0.0..=8.0)
            .answer("nothing")
            .memory_kib(128.0)
            .cpu(5.0),
        Attack::new("ClientHello after the handshake", "CVE-2011-1473 (renegotiation)")
            .over(Transport::AfterHandshake)
            .flood(1_000, |_| client_hello())
            .given_up(0.0..=8.0)
            .memory_kib(128.0)
            .answer("TLS data"),
        row("rapid reset over TLS", "CVE-2023-44487")
            .over(Transport::Tls("h2"))
            .once(preface(&[]))
            .flood(50_000, |n| [h2_get(n, "/large.bin", &[]), reset(stream(n))].concat())
            .given_up(0.0..=8.0)
            .answer("GOAWAY ENHANCE_YOUR_CALM")
            .descriptors(2.0)
            .memory_kib(256.0)
            .requests(300.0),
        row("no stream windows over TLS", "CVE-2019-9517")
            .over(Transport::Tls("h2"))
            .connections(8)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .flood(128, |n| h2_get(n, "/large.bin", &[]))
            .given_up(0.8..=12.0)
            .answer("RST_STREAM CANCEL|GOAWAY ENHANCE_YOUR_CALM|200|GOAWAY NO_ERROR")
            .descriptors(2.0)
            .memory_kib(232.0)
            .requests(450.0),
        row("PING over TLS", "CVE-2019-9512")
            .over(Transport::Tls("h2"))
            .once(preface(&[]))
            .flood(100_000, |_| frame(PING, 0, 0, b"12345678"))
            .given_up(0.0..=8.0)
            .answer("GOAWAY ENHANCE_YOUR_CALM")
            .memory_kib(256.0)
            .requests(300.0),
    ]
}
