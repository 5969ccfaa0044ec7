//! Attacks over HTTP/2 with prior knowledge, on files.

use super::attack::{Attack, Reads};
use super::check;
use super::wire::*;

/// Row whose connections begin with a preface without settings.
fn row(name: &'static str, class: &'static str) -> Attack {
    bare(name, class).once(preface(&[]))
}

/// Row that sends its own preface.
fn bare(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class).memory_kib(256.0)
}

/// Row whose connections are closed because of too many frames without use.
fn flood(name: &'static str, class: &'static str) -> Attack {
    row(name, class).given_up(0.0..=8.0).answer(CALM).requests(450.0)
}

const CALM: &str = "GOAWAY ENHANCE_YOUR_CALM";

#[test]
fn floods_of_frames_stay_within_budget() {
    check("HTTP/2: floods of frames", floods());
}

#[test]
fn streams_stay_within_budget() {
    check("HTTP/2: streams", streams());
}

#[test]
fn shut_windows_stay_within_budget() {
    check("HTTP/2: flow control", windows());
}

#[test]
fn field_blocks_stay_within_budget() {
    check("HTTP/2: field blocks", field_blocks());
}

#[test]
fn slow_clients_stay_within_budget() {
    check("HTTP/2: slow clients", slow());
}

/// Requests of one repetition, fewer than the server's limit on streams. On a busy machine several
/// repetitions may be open at a time.
const BATCH: usize = 50;

/// Returns the requests of repetition `number`.
fn batch(number: usize, request: fn(usize) -> Vec<u8>) -> Vec<u8> {
    (number * BATCH..(number + 1) * BATCH).flat_map(request).collect()
}

/// Frames that cost work and carry no data.
fn floods() -> Vec<Attack> {
    vec![
        flood("PING", "CVE-2019-9512").flood(100_000, |_| frame(PING, 0, 0, b"12345678")),
        flood("PING acknowledgments", "CVE-2019-9512")
            .flood(100_000, |_| frame(PING, ACK, 0, b"12345678")),
        flood("PING whose acknowledgments are not read", "CVE-2019-9512, CVE-2019-9517")
            .flood(100_000, |_| frame(PING, 0, 0, b"12345678"))
            .reads(Reads::Nothing)
            .answer("nothing"),
        flood("SETTINGS", "CVE-2019-9515")
            .flood(100_000, |n| settings(&[(INITIAL_WINDOW_SIZE, 70_000 + n as u32)])),
        flood("empty SETTINGS", "CVE-2019-9515").flood(100_000, |_| settings(&[])),
        flood("SETTINGS of many parameters", "CVE-2020-11080")
            .flood(1_000, |_| settings(&[(HEADER_TABLE_SIZE, 4096); 2_700]))
            .answer("GOAWAY ENHANCE_YOUR_CALM|200|SETTINGS")
            .cpu(10.0)
            .requests(500.0),
        flood("PRIORITY", "CVE-2019-9513")
            .flood(100_000, |n| frame(PRIORITY, 0, stream(n), b"\0\0\0\0x")),
        flood("empty DATA", "CVE-2019-9518")
            .once(h2_post(0, "/small.txt", &[]))
            .flood(100_000, |_| frame(DATA, 0, 1, b""))
            .answer("GOAWAY ENHANCE_YOUR_CALM|GOAWAY STREAM_CLOSED"),
        flood("DATA of padding", "padding flood")
            .once(h2_post(0, "/up/sink", &[]))
            .flood(100_000, |_| frame(DATA, PADDED, 1, &[9; 10]))
            .descriptors(2.0),
        flood("WINDOW_UPDATE", "window-update flood").flood(200_000, |_| window_update(0, 1)),
        flood("frames of an unknown type", "unknown frames")
            .flood(100_000, |_| frame(99, 0, 0, b"")),
        flood("large frames of an unknown type", "unknown frames")
            .flood(200, |_| frame(99, 0, 0, &[0; MAX_PAYLOAD]))
            .given_up(0.8..=12.0)
            .answer("SETTINGS|GOAWAY NO_ERROR|GOAWAY ENHANCE_YOUR_CALM")
            .cpu(3.0),
        flood("GOAWAY", "GOAWAY flood").flood(100_000, |_| frame(GOAWAY, 0, 0, &[0; 8])),
        flood("empty CONTINUATION", "CVE-2019-9518")
            .once(frame(HEADERS, END_STREAM, 1, b""))
            .flood(100_000, |_| frame(CONTINUATION, 0, 1, b"")),
        flood("PUSH_PROMISE", "wrong direction")
            .flood(1_000, |_| frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]))
            .answer("GOAWAY PROTOCOL_ERROR"),
        flood("frame larger than allowed", "frame size")
            .flood(100, |_| frame(DATA, 0, 1, &[0; MAX_PAYLOAD + 1]))
            .answer("GOAWAY FRAME_SIZE_ERROR"),
    ]
}

/// Streams that are opened and reset.
fn streams() -> Vec<Attack> {
    vec![
        flood("rapid reset", "CVE-2023-44487")
            .flood(50_000, |n| [h2_get(n, "/large.bin", &[]), reset(stream(n))].concat())
            .descriptors(2.0),
        flood("rapid reset of proxied requests", "CVE-2023-44487")
            .flood(50_000, |n| [h2_get(n, "/up/silent", &[]), reset(stream(n))].concat())
            .descriptors(130.0)
            .ordinary("/up/small")
            .cpu(4.0),
        flood("reset by a window overflow", "CVE-2025-8671 (MadeYouReset)")
            .flood(50_000, |n| {
                [h2_get(n, "/up/silent", &[]), window_update(stream(n), MAX_WINDOW)].concat()
            })
            .descriptors(130.0)
            .ordinary("/up/small")
            .cpu(4.0),
        flood("reset by a content length", "CVE-2025-8671 (MadeYouReset)")
            .flood(50_000, |n| {
                let head = h2_post(n, "/up/silent", &[("content-length", "0")]);
                [head, frame(DATA, 0, stream(n), b"x")].concat()
            })
            .descriptors(130.0)
            .ordinary("/up/small")
            .cpu(4.0),
        flood("malformed requests", "CVE-2019-9514")
            .flood(50_000, |n| h2_post(n, "/", &[("connection", "close")])),
        flood("malformed requests whose resets are not read", "CVE-2019-9514, CVE-2019-9517")
            .flood(50_000, |n| h2_post(n, "/", &[("connection", "close")]))
            .reads(Reads::Nothing)
            .answer("nothing"),
        flood("requests over the stream limit", "stream limit")
            .flood(50_000, |n| h2_get(n, "/up/silent", &[]))
            .descriptors(130.0)
            .ordinary("/up/small")
            .memory_kib(1024.0)
            .cpu(4.0),
        row("many small requests", "request flood")
            .once(window_update(0, MAX_WINDOW - 65_535))
            .paced(10, 100, |n| batch(n, |n| h2_get(n, "/small.txt", &[])))
            .held_ms(1_000)
            .answer("200|RST_STREAM REFUSED_STREAM")
            .requests(600.0),
        bare("many small responses that are not read", "CVE-2019-9517")
            .once(open_windows())
            .flood(50_000, |n| h2_get(n, "/small.txt", &[]))
            .reads(Reads::Nothing)
            .given_up(0.1..=12.0)
            .answer("nothing")
            .requests(400.0),
    ]
}

/// Flow-control windows.
fn windows() -> Vec<Attack> {
    // 12 KiB for the connection, and 1.4 KiB for each stream; a fifth more for other states of the
    // allocator.
    const STREAMS_KIB: f64 = 224.0;
    // As above, and the output buffer.
    const SENDING_KIB: f64 = STREAMS_KIB + 32.0;
    vec![
        bare("no stream windows", "CVE-2019-9517")
            .connections(8)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .flood(128, |n| h2_get(n, "/large.bin", &[]))
            .given_up(0.8..=12.0)
            .answer("RST_STREAM CANCEL|GOAWAY ENHANCE_YOUR_CALM|200|GOAWAY NO_ERROR")
            .descriptors(2.0)
            .memory_kib(STREAMS_KIB)
            .requests(450.0),
        bare("no connection window", "CVE-2019-9517")
            .connections(8)
            .once(preface(&[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]))
            .flood(128, |n| h2_get(n, "/large.bin", &[]))
            .given_up(0.8..=12.0)
            .answer("RST_STREAM CANCEL|GOAWAY ENHANCE_YOUR_CALM|200|GOAWAY NO_ERROR")
            .descriptors(2.0)
            .cpu(8.0)
            .memory_kib(SENDING_KIB)
            .requests(700.0),
        bare("no stream windows, compressed text", "CVE-2019-9517")
            .connections(4)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .flood(128, |n| h2_get(n, "/text.txt", &[("accept-encoding", "gzip")]))
            .given_up(0.8..=20.0)
            .answer("RST_STREAM CANCEL|GOAWAY ENHANCE_YOUR_CALM|200|GOAWAY NO_ERROR")
            .cpu(100.0)
            .memory_kib(STREAMS_KIB)
            // The state of the encoder, its output, and a step of the file.
            .shared_kib(896.0)
            .descriptors(20.0)
            .requests(15000.0),
        bare("no stream windows, proxied responses", "CVE-2019-9517")
            .connections(2)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .flood(128, |n| h2_get(n, "/up/large", &[]))
            .given_up(0.8..=12.0)
            .answer("RST_STREAM CANCEL|GOAWAY ENHANCE_YOUR_CALM|200|GOAWAY NO_ERROR")
            .ordinary("/up/small")
            .descriptors(130.0)
            // As above, and the upstream connection and the task of half of the requests; the
            // others wait for theirs. The content is within the share of the client.
            .memory_kib(672.0)
            .shared_kib(256.0)
            // The bytes that one client may leave unread on both of its connections, and lines of
            // the log.
            .disk_kib(17_408.0)
            .cpu(80.0)
            .requests(20_000.0),
        bare("windows opened byte by byte", "CVE-2019-9511 (data dribble)")
            .connections(8)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .once((0..100).flat_map(|n| h2_get(n, "/large.bin", &[])).collect::<Vec<_>>())
            .flood(100_000, |n| window_update(stream(n % 100), 1))
            .given_up(0.0..=12.0)
            .answer("GOAWAY ENHANCE_YOUR_CALM")
            .descriptors(2.0)
            .cpu(5.0)
            .memory_kib(STREAMS_KIB)
            .requests(1500.0),
        bare("initial window changed with many streams", "window churn")
            .connections(8)
            .once(preface(&[(INITIAL_WINDOW_SIZE, 0)]))
            .once((0..100).flat_map(|n| h2_get(n, "/large.bin", &[])).collect::<Vec<_>>())
            .flood(100_000, |n| settings(&[(INITIAL_WINDOW_SIZE, n as u32 & 1)]))
            .given_up(0.0..=12.0)
            .answer("GOAWAY ENHANCE_YOUR_CALM")
            .descriptors(2.0)
            .cpu(5.0)
            .memory_kib(STREAMS_KIB)
            .requests(1500.0),
        row("overflow of the connection window", "window overflow")
            .flood(10, |_| window_update(0, MAX_WINDOW))
            .given_up(0.0..=8.0)
            .answer("GOAWAY FLOW_CONTROL_ERROR"),
        bare("large responses that are not read", "slow read")
            .connections(8)
            .once(open_windows())
            .flood(100, |n| h2_get(n, "/large.bin", &[]))
            .reads(Reads::Nothing)
            .given_up(0.8..=12.0)
            .answer("nothing")
            .descriptors(2.0)
            .cpu(8.0)
            .memory_kib(SENDING_KIB)
            .requests(1500.0),
    ]
}

/// Requests of a few bytes for a path that depends on all differences between servers, on a host
/// with patterns. The path and the host are in the dynamic table.
fn paths_by_reference(name: &'static str, length: usize) -> Attack {
    const GET: u8 = 0x80 | 2;
    const HTTP: u8 = 0x80 | 6;
    let path = literal(0x40, ":path", &["/", &"%2F%5C;a\\".repeat(length)].concat());
    let first = [vec![GET, HTTP], path, literal(0x40, ":authority", "patterns")].concat();
    row(name, "header amplification")
        .once(frame(HEADERS, END_ALL, 1, &first))
        .once(window_update(0, MAX_WINDOW - 65_535))
        .paced(5, 100, |n| {
            batch(n, |n| {
                let block = [GET, HTTP, FIRST_DYNAMIC, FIRST_DYNAMIC + 1];
                frame(HEADERS, END_ALL, stream(n + 1), &block)
            })
        })
        .held_ms(1_000)
        .cpu(10.0)
        .requests(1200.0)
}

/// HPACK.
fn field_blocks() -> Vec<Attack> {
    /// A value of 4,000 bytes for the dynamic table.
    fn indexed(name: &str, member: &str) -> Vec<u8> {
        let value = member.repeat(4_000 / member.len());
        let block = [short_block(), literal(0x40, name, &value)].concat();
        frame(HEADERS, END_ALL, 1, &block)
    }
    fn reference(number: usize, times: usize) -> Vec<u8> {
        let block = [short_block(), vec![FIRST_DYNAMIC; times]].concat();
        frame(HEADERS, END_ALL, stream(number + 1), &block)
    }
    vec![
        flood("endless CONTINUATION", "CVE-2024-27316")
            .once(frame(HEADERS, END_STREAM, 1, &short_block()))
            .flood(100_000, |_| frame(CONTINUATION, 0, 1, &literal(0, "x", &"x".repeat(1_000)))),
        flood("field block of references", "CVE-2016-6581 (HPACK bomb)")
            .once(indexed("x", "x"))
            .flood(1_000, |n| reference(n, 16_000))
            .answer("GOAWAY ENHANCE_YOUR_CALM|RST_STREAM ENHANCE_YOUR_CALM"),
        row("fields within the limit by references", "header amplification")
            .once(indexed("x", "x"))
            .once(window_update(0, MAX_WINDOW - 65_535))
            .paced(5, 100, |n| batch(n, |n| reference(n, 3)))
            .answer("200|RST_STREAM REFUSED_STREAM")
            .held_ms(1_000)
            .cpu(4.0)
            .requests(1000.0),
        row("Accept-Encoding by reference", "header amplification")
            .once(indexed("accept-encoding", "a;q=0.5,"))
            .once(window_update(0, MAX_WINDOW - 65_535))
            .paced(5, 100, |n| batch(n, |n| reference(n, 1)))
            .answer("200|RST_STREAM REFUSED_STREAM")
            .held_ms(1_000)
            .cpu(6.0)
            .requests(1000.0),
        row("Accept-Encoding by three references", "header amplification")
            .once(indexed("accept-encoding", "a;q=0.5,"))
            .once(window_update(0, MAX_WINDOW - 65_535))
            .paced(5, 100, |n| batch(n, |n| reference(n, 3)))
            .answer("200|RST_STREAM REFUSED_STREAM")
            .held_ms(1_000)
            .cpu(6.0)
            .requests(1000.0),
        paths_by_reference("ambiguous path by reference", 11)
            .answer("404|RST_STREAM REFUSED_STREAM"),
        paths_by_reference("too ambiguous path by reference", 60)
            .answer("400|RST_STREAM REFUSED_STREAM"),
        row("fields with empty names", "CVE-2019-9516")
            .flood(1_000, |n| {
                let block = [short_block(), [0x40, 0, 0].repeat(400)].concat();
                frame(HEADERS, END_ALL, stream(n), &block)
            })
            .answer("RST_STREAM PROTOCOL_ERROR")
            // Without optimization, the decoder takes eight times as long, and other requests
            // twice.
            .requests(if cfg!(debug_assertions) { 6_000.0 } else { 4_000.0 }),
        row("dynamic table resized thousands of times", "CVE-2016-1544 class")
            .paced(10, 20, |n| {
                let resize = [0x20, 0x3f, 0xe1, 0x1f].repeat(4_000);
                frame(HEADERS, END_ALL, stream(n), &[resize, short_block()].concat())
            })
            .held_ms(1_000)
            .requests(300.0),
        row("new entry of the dynamic table in each request", "table churn")
            .once(window_update(0, MAX_WINDOW - 65_535))
            .paced(5, 100, |n| {
                batch(n, |n| {
                    let block = [short_block(), literal(0x40, &format!("x{n}"), "y")].concat();
                    frame(HEADERS, END_ALL, stream(n), &block)
                })
            })
            .answer("200|RST_STREAM REFUSED_STREAM")
            .held_ms(1_000)
            .requests(600.0),
        row("field block of cookie crumbs", "many fields")
            .paced(20, 20, |n| {
                let block = [short_block(), literal(0, "cookie", "").repeat(1_000)].concat();
                frame(HEADERS, END_ALL, stream(n), &block)
            })
            .answer("431")
            .held_ms(500)
            .requests(600.0),
        flood("integer without an end", "HPACK integer")
            .flood(100, |n| {
                let block = [vec![0xff; 10_000]].concat();
                frame(HEADERS, END_ALL, stream(n), &block)
            })
            .answer("GOAWAY COMPRESSION_ERROR"),
    ]
}

/// Connections and streams that make little progress.
fn slow() -> Vec<Attack> {
    vec![
        bare("slow preface", "slow head")
            .connections(64)
            .trickle(50, |n| PREFACE.get(n..=n).unwrap_or_default().to_vec())
            .given_up(0.5..=8.0)
            .answer("nothing|408|SETTINGS|GOAWAY NO_ERROR|GOAWAY PROTOCOL_ERROR")
            .memory_kib(32.0)
            .cpu(30.0),
        row("idle connections", "idle flood")
            .connections(64)
            .given_up(0.8..=8.0)
            .answer("GOAWAY NO_ERROR|SETTINGS")
            .memory_kib(32.0),
        row("field block without its end", "slow head")
            .connections(64)
            .once(frame(HEADERS, END_STREAM, 1, &short_block()))
            .given_up(0.8..=8.0)
            .answer("GOAWAY NO_ERROR|SETTINGS|GOAWAY PROTOCOL_ERROR")
            .memory_kib(32.0),
        row("field block byte by byte", "slow head")
            .connections(64)
            .once([&[0, 16, 0, HEADERS, END_ALL, 0, 0, 0, 1], &short_block()[..]].concat())
            .trickle(20, |_| vec![0])
            .given_up(0.8..=8.0)
            .answer("GOAWAY NO_ERROR|SETTINGS|GOAWAY PROTOCOL_ERROR")
            .memory_kib(48.0)
            .cpu(30.0),
        row("slow bodies on all streams", "slow body")
            .connections(8)
            .once((0..100).flat_map(|n| h2_post(n, "/up/sink", &[])).collect::<Vec<_>>())
            .trickle(20, |n| frame(DATA, 0, stream(n % 100), b"x"))
            .given_up(0.8..=12.0)
            .answer(
                "RST_STREAM CANCEL|GOAWAY NO_ERROR|GOAWAY ENHANCE_YOUR_CALM|RST_STREAM NO_ERROR",
            )
            .ordinary("/up/small")
            .memory_kib(320.0)
            .descriptors(101.0)
            .cpu(30.0)
            .requests(500.0),
        row("slow read", "slow read")
            .once(h2_get(0, "/large.bin", &[]))
            .reads(Reads::Slowly)
            .given_up(0.8..=12.0)
            .answer("200|GOAWAY NO_ERROR|RST_STREAM CANCEL")
            .descriptors(2.0)
            .cpu(10.0),
    ]
}
