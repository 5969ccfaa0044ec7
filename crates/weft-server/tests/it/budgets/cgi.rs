//! Attacks on scripts. The memory and the CPU time of the server are measured, without its scripts.

use super::attack::Attack;
use super::check;
use super::wire::{CHUNKED, CLOSE, get, post};

/// Row with requests to a script.
fn row(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class)
        .connections(8)
        .ordinary("/cgi/small")
        .descriptors(7.0)
        .memory_kib(256.0)
}

#[test]
fn cgi_attacks_stay_within_budget() {
    check(
        "CGI",
        vec![
            row("slow body", "slow body (R.U.D.Y.)")
                .once(post("/cgi/sink", "Content-Length: 60000\r\n"))
                .trickle(50, |_| b"a".to_vec())
                .given_up(0.8..=8.0)
                .answer("408|nothing|504|502|400")
                .cpu(15.0),
            row("slow body of unknown length", "slow body (R.U.D.Y.)")
                .once(post("/cgi/sink", CHUNKED))
                .trickle(50, |_| b"1\r\na\r\n".to_vec())
                .given_up(0.8..=8.0)
                .answer("408|nothing|504|502|400")
                .cpu(15.0),
            row("chunks of one byte", "tiny chunks")
                .once(post("/cgi/sink", &[CHUNKED, CLOSE].concat()))
                .flood(5_000, |_| b"1\r\na\r\n".to_vec())
                .last(b"0\r\n\r\n")
                .memory_kib(512.0)
                .cpu(4.0)
                .requests(500.0),
            row("multipart form of empty parts", "multipart bomb")
                .once(post(
                    "/cgi/sink",
                    &[CHUNKED, CLOSE, "Content-Type: multipart/form-data; boundary=b\r\n"].concat(),
                ))
                .flood(2_000, |_| b"f\r\n--b\r\na: b\r\n\r\n\r\n\r\n".to_vec())
                .last(b"0\r\n\r\n")
                .cpu(4.0)
                .requests(350.0),
            row("compressed body", "compression bomb")
                .once(post("/cgi/sink", &[CHUNKED, CLOSE, "Content-Encoding: gzip\r\n"].concat()))
                .flood(500, |_| [&b"400\r\n"[..], &[0; 1024], b"\r\n"].concat())
                .last(b"0\r\n\r\n")
                // As much as is sent.
                .disk_kib(560.0)
                .cpu(4.0)
                .requests(150.0),
            row("body of unknown length over the limit", "huge body")
                .once(post("/cgi/sink", CHUNKED))
                .flood(2_000, |_| [&b"4000\r\n"[..], &[0; 16 << 10], b"\r\n"].concat())
                .given_up(0.0..=12.0)
                // As much as `max_spooled_bytes`.
                .disk_kib(1088.0)
                .answer("413|nothing"),
            row("script with an endless head", "huge response head")
                .once(get("/cgi/endless-head", CLOSE))
                .answer("502")
                .cpu(4.0),
            row("more requests than scripts", "process flood")
                .connections(64)
                .once(get("/cgi/small", CLOSE))
                .answer("200|503")
                .memory_kib(96.0)
                .descriptors(3.0)
                .cpu(4.0),
        ],
    );
}
