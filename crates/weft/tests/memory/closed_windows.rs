//! Memory that a client can occupy by requests whose responses it does not receive: it keeps the
//! flow-control windows closed, or does not read (CVE-2019-9517, CVE-2019-9511).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::task::Poll;

use crate::common::frames::*;
use crate::common::{TEST_TIMEOUT, address, stop};
use crate::{PeakMemory, has_run_alone};
use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use weft::message::Upgraded;
use weft::{Body, Error, File, Request, Response, Server};

/// Number of requests: the maximum number of concurrent streams.
const STREAMS: u32 = 128;

/// Maximum memory use of a connection for content and buffers, of each stream for the state of its
/// exchange in a build without optimization, and of a connection for large request heads.
const MAX_CONNECTION_BYTES: usize = 256 << 10;
const MAX_STREAM_BYTES: usize = 3_400;
const MAX_LARGE_HEAD_BYTES: usize = 300 << 10;

/// Maximum memory use of a connection for the output of its tunnels, and of each tunnel.
const MAX_TUNNELS_BYTES: usize = 96 << 10;
const MAX_TUNNEL_BYTES: usize = MAX_STREAM_BYTES + (2 << 10);

/// Sizes of the pieces of a streamed body, and of small content.
const PIECE_BYTES: usize = 64 << 10;
const SMALL_BYTES: usize = 4_000;

const MAX_WINDOW: u32 = i32::MAX as u32;

/// Opens the windows of all streams by one byte.
fn one_byte_each() -> Vec<u8> {
    (0..STREAMS).flat_map(|number| window_update(2 * number + 1, 1)).collect()
}

/// A GET request whose large fields are references to the dynamic table, except in the first one.
fn get_with_large_head(number: u32, path: &str) -> Vec<u8> {
    let mut block = field_block(&pseudo_header("GET", path));
    if number == 0 {
        // A literal with incremental indexing (RFC 7541 §6.2.1).
        block.push(0x40);
        for text in [&b"x"[..], &[b'x'; 3_900]] {
            push_integer(&mut block, 7, 0, text.len());
            block.extend(text);
        }
    }
    block.extend([0x80 | 62; 4]);
    frame(HEADERS, END_ALL, 2 * number + 1, &block)
}

/// Reads and discards frames until `count` acknowledgments of a PING.
fn read_until_ping_acks(socket: &mut TcpStream, count: usize) {
    let (mut header, mut payload) = ([0; 9], [0; 16_384]);
    let mut acks = 0;
    while acks < count {
        socket.read_exact(&mut header).expect("the server sends a PING acknowledgment");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        socket.read_exact(&mut payload[..length]).unwrap();
        acks += usize::from(header[3] == PING && header[4] & ACK != 0);
    }
}

#[test]
fn unsent_responses_use_bounded_memory() {
    if has_run_alone() {
        return;
    }
    let mut memory = PeakMemory::begin();
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let file = Arc::new(file);
    let cached = Bytes::from(vec![b'x'; PIECE_BYTES]);
    let app = move |request: Request| {
        let (file, cached) = (file.clone(), cached.clone());
        async move {
            match request.path() {
                "/file" => Response::from_file(File::open(file).unwrap()),
                "/cached" => Response::from_body(cached),
                "/small" => Response::from_body(vec![b'x'; SMALL_BYTES]),
                "/empty" => Response::from_body(Body::stream(futures_util::stream::empty::<
                    Result<Bytes, Error>,
                >())),
                _ => Response::from_body(Body::stream(futures_util::stream::poll_fn(move |_| {
                    Poll::Ready(Some(Ok::<_, Error>(vec![b'x'; PIECE_BYTES])))
                }))),
            }
        }
    };
    let closed = settings(&[(INITIAL_WINDOW_SIZE, 0)]);
    let wide = settings(&[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]);
    let open_all = || window_update(0, MAX_WINDOW - 65_535);
    let bytewise = || one_byte_each().repeat(8);
    let mut failures = Vec::new();
    for (name, opening, path, later) in [
        ("stream windows of 0, files", &closed, "/file", vec![]),
        ("stream windows of 0, streams", &closed, "/stream", vec![]),
        ("stream windows of 0, small content", &closed, "/small", vec![]),
        ("stream windows of 0, cached content", &closed, "/cached", vec![]),
        ("stream windows of 0, empty streams", &closed, "/empty", vec![]),
        ("stream windows of a few bytes, files", &closed, "/file", bytewise()),
        ("stream windows of a few bytes, streams", &closed, "/stream", bytewise()),
        ("stream windows of a few bytes, small content", &closed, "/small", bytewise()),
        ("a connection window of 0, files", &wide, "/file", vec![]),
        ("a connection window of 0, streams", &wide, "/stream", vec![]),
        (
            "a connection window of a few bytes, files",
            &wide,
            "/file",
            window_update(0, 1).repeat(300),
        ),
        (
            "a connection window of a few bytes, streams",
            &wide,
            "/stream",
            window_update(0, 1).repeat(300),
        ),
        ("unread files", &wide, "/file", open_all()),
        ("unread streams", &wide, "/stream", open_all()),
    ] {
        for (heads, make) in [
            ("", (|number, path| get(2 * number + 1, path)) as fn(u32, &str) -> Vec<u8>),
            (", large heads", get_with_large_head),
        ] {
            // A server for each row: the memory of the previous connection is freed.
            let server = Server::new(app.clone()).workers(1).listen("127.0.0.1:0").unwrap();
            let server = server.start().unwrap();
            let reads = !name.starts_with("unread");
            let opening = [PREFACE, opening].concat();
            let requests: Vec<u8> = (0..STREAMS).flat_map(|number| make(number, path)).collect();
            let ping = frame(PING, 0, 0, b"in sync?");
            let mut socket = TcpStream::connect(address(&server)).unwrap();
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            memory.reset();
            socket.write_all(&[&opening[..], &requests, &ping].concat()).unwrap();
            if reads {
                read_until_ping_acks(&mut socket, 1);
            }
            socket.write_all(&later).unwrap();
            if reads {
                socket.write_all(&ping).unwrap();
                read_until_ping_acks(&mut socket, 1);
            } else {
                // The server sends no acknowledgment that could be awaited.
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
            let peak = memory.peak();
            let mut max = MAX_CONNECTION_BYTES + STREAMS as usize * MAX_STREAM_BYTES;
            if !heads.is_empty() {
                max += MAX_LARGE_HEAD_BYTES;
            }
            if path == "/small" {
                // The content belongs to the application.
                max += STREAMS as usize * SMALL_BYTES;
            }
            println!("{name}{heads}: {} KiB", peak >> 10);
            if peak > max {
                failures.push(format!("{name}{heads}: {} of {} KiB", peak >> 10, max >> 10));
            }
            drop(socket);
            stop(server);
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The handlers write without end, and the last tunnel makes progress although its output is the
/// only one that the client receives.
#[test]
fn unsent_output_of_tunnels_uses_bounded_memory() {
    if has_run_alone() {
        return;
    }
    let mut memory = PeakMemory::begin();
    let app = async |_: Request| {
        Response::tunnel(
            async |mut client: Upgraded| {
                while client.write_all(&[b'x'; 4_096]).await.is_ok() {}
            },
        )
    };
    let server = Server::new(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut socket = TcpStream::connect(address(&server)).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let block = field_block(&[(":method", "CONNECT"), (":authority", "a:1")]);
    let tunnels = (0..STREAMS).flat_map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &block));
    let closed = settings(&[(INITIAL_WINDOW_SIZE, 0)]);
    let opening = [PREFACE, &closed, &tunnels.collect::<Vec<_>>()].concat();
    let ping = frame(PING, 0, 0, b"in sync?");
    memory.reset();
    socket.write_all(&[opening, ping.repeat(2)].concat()).unwrap();
    read_until_ping_acks(&mut socket, 2);
    // The handlers write in the same task, after the frames of the client.
    socket.write_all(&ping).unwrap();
    read_until_ping_acks(&mut socket, 1);
    let (peak, max) = (memory.peak(), MAX_TUNNELS_BYTES + STREAMS as usize * MAX_TUNNEL_BYTES);
    println!("stream windows of 0, tunnels: {} KiB", peak >> 10);
    assert!(peak <= max, "{} of {} KiB", peak >> 10, max >> 10);
    let last = 2 * STREAMS - 1;
    let credit = [window_update(0, 1 << 20), window_update(last, 1 << 20)].concat();
    socket.write_all(&credit).unwrap();
    let (mut header, mut payload, mut received) = ([0; 9], [0; 16_384], 0);
    while received < 1 << 20 {
        socket.read_exact(&mut header).expect("the tunnel makes progress");
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        socket.read_exact(&mut payload[..length]).unwrap();
        if header[3] == DATA {
            assert_eq!(u32::from_be_bytes([header[5], header[6], header[7], header[8]]), last);
            received += length;
        }
    }
    drop(socket);
    stop(server);
}
