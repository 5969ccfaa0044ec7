//! Hostile applications: FastCGI, SCGI, uwsgi, and CGI scripts.

use super::check;
use super::peer::{HostilePeer, Role};

// Types of FastCGI records (FastCGI specification, §8).
const END_REQUEST: u8 = 3;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const HEAD: &[u8] = b"Content-Type: text/plain\n\n";

fn fastcgi(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::FastCgi, name)
}

fn cgi(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Cgi, name).requests(400.0)
}

/// Returns a FastCGI record with this number of bytes of padding.
fn record(kind: u8, padding: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, padding, 0], content, &vec![0; padding.into()]].concat()
}

fn end() -> Vec<u8> {
    [record(STDOUT, 0, b""), record(END_REQUEST, 0, &[0; 8])].concat()
}

#[test]
fn script_peers_stay_within_budget() {
    check("Applications", [fastcgi_rows(), other_rows(), cgi_rows()].concat());
}

fn fastcgi_rows() -> Vec<HostilePeer> {
    vec![
        // Quadratic if each record causes a look at all bytes before it.
        fastcgi("a head in records of one byte")
            .once(record(STDOUT, 0, b"Content-Type: a/b\nX-Field: "))
            .flood(30_000, |_| record(STDOUT, 0, b"a"))
            .last(record(STDOUT, 0, b"\n\n"))
            .last(end())
            .outcome("200")
            .requests(600.0),
        fastcgi("an endless head")
            .endlessly(|_| record(STDOUT, 0, &b"X-Field: 0123456789\n".repeat(10))),
        fastcgi("endless errors")
            .endlessly(|_| record(STDERR, 0, &b"an error\n".repeat(100)))
            .outcome("502|504")
            .requests(3_000.0),
        fastcgi("an endless line of errors")
            .endlessly(|_| record(STDERR, 0, &[b'a'; 8_192]))
            .outcome("502|504")
            .requests(3_000.0),
        fastcgi("records of padding")
            .flood(5_000, |_| record(STDERR, 255, b""))
            .last(record(STDOUT, 0, HEAD))
            .last(end())
            .outcome("200|502"),
        fastcgi("a body in records of one byte")
            .once(record(STDOUT, 0, HEAD))
            .flood(50_000, |_| record(STDOUT, 0, b"a"))
            .last(end())
            .outcome("200")
            .requests(1_500.0),
        fastcgi("records of other requests").endlessly(|_| [1, STDOUT, 0, 2, 0, 0, 0, 0].to_vec()),
        fastcgi("records of unknown types").endlessly(|_| record(99, 0, &[0; 100])),
        fastcgi("nothing").held().outcome("504"),
    ]
}

fn other_rows() -> Vec<HostilePeer> {
    let [scgi, uwsgi] =
        [Role::Scgi, Role::Uwsgi].map(|role| move |name| HostilePeer::new(role, name));
    vec![
        scgi("an endless head").endlessly(|_| b"X-Field: 0123456789\n".to_vec()),
        scgi("a head byte by byte")
            .once("Content-Type: a/b\nX-Field: ")
            .flood(20_000, |_| b"a".to_vec())
            .separately()
            .last(b"\n\n")
            .outcome("200")
            .requests(800.0),
        scgi("nothing").held().outcome("504"),
        uwsgi("an endless field line").once("X-Field: ").endlessly(|_| vec![b'a'; 4_096]),
        uwsgi("a head byte by byte, slowly")
            .once("X-Field: ")
            .trickle(20, |_| b"a".to_vec())
            .outcome("504"),
        uwsgi("a body shorter than its length")
            .once("Status: 200\nContent-Length: 9\n\na")
            .outcome("200 cut|502"),
    ]
}

fn cgi_rows() -> Vec<HostilePeer> {
    vec![
        cgi("an endless head").once("while :; do echo 'X-Field: 0123456789'; done\n"),
        cgi("endless errors")
            .once("while :; do echo 'an error' >&2; done\n")
            .outcome("504|502")
            .requests(3_000.0),
        cgi("a head byte by byte")
            .once(
                "printf 'Content-Type: a/b\\nX-Field: '; i=0; while [ $i -lt 10000 ]; do printf a; i=$((i+1)); done\n\
                 printf '\\n\\n'\n",
            )
            .outcome("200"),
        cgi("output of a process in the background")
            .once("(sleep 5; echo late) & printf 'Content-Type: a/b\\n\\n'\n")
            .outcome("200|200 cut"),
    ]
}
