//! Attacks over HTTP/3, and over UDP without a connection.

pub mod client;
mod wire;

use self::wire::*;
use super::attack::{Attack, Http3Streams, Reads, Transport};
use super::check;

/// Row whose connections have a control stream with empty SETTINGS, and repetitions on `streams`.
fn row(name: &'static str, class: &'static str, streams: Http3Streams) -> Attack {
    let control = [varint(CONTROL), frame(SETTINGS, b"")].concat();
    Attack::new(name, class).over(Transport::Http3(streams)).once(control).memory_kib(256.0)
}

/// Row whose connections are closed because of too much input without use.
fn flood(name: &'static str, class: &'static str, streams: Http3Streams) -> Attack {
    row(name, class, streams).given_up(0.0..=8.0).answer("H3_EXCESSIVE_LOAD").requests(450.0)
}

#[test]
fn floods_over_http3_stay_within_budget() {
    check("floods", floods());
}

#[test]
fn http3_clients_stay_within_budget() {
    check("requests and connections", [requests(), slow()].concat());
}

#[test]
fn datagrams_stay_within_budget() {
    check("datagrams without a connection", datagrams());
}

/// Frames and streams that cost work and carry no data.
fn floods() -> Vec<Attack> {
    use Http3Streams::*;
    vec![
        flood("unknown frames on the control stream", "unknown frames", First)
            .flood(100_000, |_| frame(UNKNOWN, b"")),
        flood("MAX_PUSH_ID", "CVE-2019-9515", First)
            .flood(100_000, |n| frame(MAX_PUSH_ID, &varint(n as u64))),
        flood("PRIORITY_UPDATE", "CVE-2019-9513", First).flood(100_000, |n| {
            frame(PRIORITY_UPDATE, &[&varint(4 * (n as u64 % 100))[..], b"u=1"].concat())
        }),
        flood("unknown frames in a request", "unknown frames", OneRequest)
            .flood(100_000, |n| if n == 0 { get("/small.txt") } else { frame(UNKNOWN, b"") }),
        flood("empty DATA", "CVE-2019-9518", OneRequest)
            .flood(100_000, |n| match n {
                0 => request("POST", "/up/sink", &[]),
                _ => frame(DATA, b""),
            })
            .descriptors(2.0),
        flood("streams of unknown types", "stream flood", Unidirectional)
            .flood(20_000, |_| varint(UNKNOWN))
            .requests(900.0)
            .cpu(10.0),
        flood("rapid reset", "CVE-2023-44487", Resets)
            .flood(20_000, |_| get("/large.bin"))
            .descriptors(2.0),
        flood("rapid reset of proxied requests", "CVE-2023-44487", Resets)
            .flood(20_000, |_| get("/up/silent"))
            .descriptors(130.0)
            .ordinary("/up/small")
            .cpu(4.0),
        flood("QPACK capacities", "table size flood", OneUnidirectional).flood(
            100_000,
            |n| match n {
                0 => varint(ENCODER),
                _ => integer(0x20, 5, 4_096 * (n % 2)),
            },
        ),
        flood("QPACK duplicates", "copies within the table", OneUnidirectional).flood(
            100_000,
            |n| match n {
                0 => [&varint(ENCODER)[..], &integer(0x20, 5, 4_096)].concat(),
                1 => [&integer(0xc0, 6, 0)[..], &integer(0, 7, 2_000), &[b'a'; 2_000]].concat(),
                _ => vec![0],
            },
        ),
    ]
}

/// Requests and connections.
fn requests() -> Vec<Attack> {
    use Http3Streams::*;
    vec![
        row("whole handshakes", "handshake flood", Requests)
            .connections(32)
            .flood(1, |_| get("/small.txt"))
            .held_ms(1)
            .requests(60.0)
            .cpu(6.0),
        row("large field section", "huge head", Requests)
            .connections(4)
            .flood(5, |_| request("GET", "/small.txt", &[("a", &"b".repeat(100_000))]))
            .held_ms(1)
            .requests(200.0)
            .answer("431|H3_EXCESSIVE_LOAD"),
        row("many fields", "huge head", Requests)
            .connections(4)
            .flood(5, |_| request("GET", "/small.txt", &[("a", ""); 5_000]))
            .held_ms(1)
            .requests(200.0)
            .answer("431|H3_EXCESSIVE_LOAD"),
        row("responses that are not read", "CVE-2019-9517", Requests)
            .flood(100, |_| get("/large.bin"))
            .reads(Reads::Nothing)
            .given_up(0.8..=20.0)
            .answer("nothing")
            .memory_kib(2_048.0)
            .descriptors(100.0)
            .requests(1_500.0)
            .cpu(10.0),
    ]
}

/// Clients that are slow.
fn slow() -> Vec<Attack> {
    use Http3Streams::*;
    vec![
        row("idle connections", "idle flood", First)
            .connections(64)
            .given_up(0.8..=8.0)
            .answer("nothing")
            .memory_kib(64.0)
            .requests(100.0)
            .cpu(6.0),
        row("slow head, byte by byte", "CVE-2007-6750 (Slowloris)", OneRequest)
            .trickle(20, |n| get("/small.txt").get(n..=n).unwrap_or_default().to_vec())
            .given_up(0.8..=12.0)
            .answer("408|H3_REQUEST_INCOMPLETE")
            .requests(200.0)
            .cpu(10.0),
        row("slow body, byte by byte", "slow POST", OneRequest)
            .trickle(20, |n| match n {
                0 => request("POST", "/up/sink", &[]),
                _ => frame(DATA, b"a"),
            })
            .given_up(0.8..=20.0)
            .answer("408")
            .requests(200.0)
            .cpu(10.0)
            .descriptors(2.0)
            .ordinary("/up/small"),
    ]
}

/// Datagrams that no connection expects.
fn datagrams() -> Vec<Attack> {
    let row = |name, class| {
        Attack::new(name, class)
            .over(Transport::Datagrams)
            .connections(4)
            .answer("nothing")
            .shared_kib(2_048.0)
            .requests(2_000.0)
    };
    vec![
        row("random datagrams", "wrong protocol")
            .flood(2_000, |n| (0..1_200).map(|index| (index * 7 + n * 13) as u8).collect()),
        row("packets of no connection", "stateless reset flood").flood(2_000, |n| {
            let id = (n as u64).to_be_bytes();
            [&[0x40][..], &id, &[0; 100]].concat()
        }),
        row("packets of an unknown version", "version negotiation flood")
            .flood(2_000, |n| [&[0xc0, 1, 2, 3, 4, 8][..], &[n as u8; 1_194]].concat()),
        row("Initial packets that cannot be decrypted", "handshake flood")
            .flood(2_000, |n| [&[0xc0, 0, 0, 0, 1, 8][..], &[n as u8; 1_194]].concat()),
    ]
}
