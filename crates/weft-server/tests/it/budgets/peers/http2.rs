//! Hostile HTTP/2 upstreams. The request is on stream 1.

use super::check;
use super::peer::{HostilePeer, Role};
use crate::budgets::wire::{
    CONTINUATION, DATA, END_HEADERS, FIRST_DYNAMIC, GOAWAY, HEADER_TABLE_SIZE, HEADERS,
    INITIAL_WINDOW_SIZE, MAX_WINDOW, PADDED, PING, PRIORITY, PUSH_PROMISE, frame, literal, reset,
    settings, window_update,
};

fn row(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Http2, name).requests(400.0)
}

fn head(flags: u8, status: &str) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, 1, &literal(0, ":status", status))
}

#[test]
fn http2_peers_stay_within_budget() {
    check("HTTP/2 upstreams", [floods(), heads(), streams()].concat());
}

fn floods() -> Vec<HostilePeer> {
    vec![
        row("PING frames").endlessly(|_| frame(PING, 0, 0, &[7; 8])),
        row("PING frames without reading").endlessly(|_| frame(PING, 0, 0, &[7; 8])).deaf(),
        row("SETTINGS frames").endlessly(|_| settings(&[])),
        row("SETTINGS frames without reading").endlessly(|_| settings(&[])).deaf(),
        row("SETTINGS with other windows").endlessly(|n| {
            settings(&[(INITIAL_WINDOW_SIZE, if n % 2 == 0 { 0 } else { MAX_WINDOW })])
        }),
        row("SETTINGS with other tables of HPACK")
            .endlessly(|n| settings(&[(HEADER_TABLE_SIZE, if n % 2 == 0 { 0 } else { 4096 })])),
        row("WINDOW_UPDATE frames").endlessly(|_| window_update(0, 1)),
        row("PRIORITY frames").endlessly(|_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1])),
        row("frames of unknown types").endlessly(|_| frame(0xfe, 0, 1, &[1; 100])),
        row("GOAWAY frames")
            .endlessly(|_| frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]))
            .outcome("502|504"),
    ]
}

fn heads() -> Vec<HostilePeer> {
    vec![
        row("endless interim responses").endlessly(|_| head(0, "103")),
        row("an endless head in CONTINUATION frames")
            .once(frame(HEADERS, 0, 1, &literal(0, ":status", "200")))
            .endlessly(|_| frame(CONTINUATION, 0, 1, &literal(0, "name", "value").repeat(100))),
        row("empty CONTINUATION frames")
            .once(frame(HEADERS, 0, 1, &literal(0, ":status", "200")))
            .endlessly(|_| frame(CONTINUATION, 0, 1, b"")),
        // The indexed field is 4,000 bytes long.
        row("a bomb of HPACK")
            .once(frame(
                HEADERS,
                END_HEADERS,
                1,
                &[
                    literal(0, ":status", "200"),
                    literal(0x40, "a", &"a".repeat(4_000)),
                    vec![FIRST_DYNAMIC; 10_000],
                ]
                .concat(),
            ))
            .held(),
        row("endless sections of trailers")
            .once(head(0, "200"))
            .endlessly(|_| frame(HEADERS, END_HEADERS, 1, &literal(0, "x", "y")))
            .outcome("200 cut|502"),
        row("promises").endlessly(|n| {
            let promised = (2 * n as u32 + 2).to_be_bytes();
            frame(PUSH_PROMISE, END_HEADERS, 1, &[&promised[..], &[0x82]].concat())
        }),
    ]
}

fn streams() -> Vec<HostilePeer> {
    vec![
        row("nothing after the preface").held().outcome("504"),
        row("the end of the connection"),
        row("a reset of each stream").once(reset(1)).held(),
        row("GOAWAY on each connection").once(frame(GOAWAY, 0, 0, &[0; 8])).outcome("502|503"),
        row("a window that overflows").once(window_update(0, MAX_WINDOW).repeat(2)).held(),
        row("a frame of 16 MiB")
            .once(b"\xff\xff\xff\0\0\0\0\0\x01")
            .endlessly(|_| vec![0; 16 << 10]),
        row("DATA before HEADERS").endlessly(|_| frame(DATA, 0, 1, b"a")),
        row("empty DATA frames")
            .once(head(0, "200"))
            .endlessly(|_| frame(DATA, 0, 1, b""))
            .outcome("200 cut"),
        row("DATA frames of padding")
            .once(head(0, "200"))
            .endlessly(|_| frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat()))
            .outcome("200 cut"),
        row("more DATA than the window")
            .once(head(0, "200"))
            .endlessly(|_| frame(DATA, 0, 1, &[b'a'; 16_384]))
            .unread_for_ms(1_500)
            .memory_kib(1_024.0)
            .disk_kib(2_048.0),
    ]
}
