//! Attacks over HTTP/1, on files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::attack::{Attack, Reads};
use super::check;
use super::wire::{CHUNKED, CLOSE, get, head, list_field, post};

fn row(name: &'static str, class: &'static str) -> Attack {
    Attack::new(name, class)
}

#[test]
fn heads_stay_within_budget() {
    check("HTTP/1: heads", heads());
}

#[test]
fn bodies_stay_within_budget() {
    check("HTTP/1: bodies", bodies());
}

#[test]
fn leaving_clients_stay_within_budget() {
    check("HTTP/1: clients that leave", leaving_clients());
}

#[test]
fn responses_stay_within_budget() {
    check("HTTP/1: responses", responses());
}

#[test]
fn field_values_stay_within_budget() {
    check("HTTP/1: field values", fields());
}

/// Heads that are slow, long or malformed.
fn heads() -> Vec<Attack> {
    vec![
        row("idle connections", "idle flood")
            .connections(64)
            .given_up(0.8..=8.0)
            .answer("nothing|408")
            .memory_kib(8.0)
            .requests(5.0),
        row("slow head, field by field", "CVE-2007-6750 (Slowloris)")
            .connections(64)
            .once(b"GET / HTTP/1.1\r\nHost: a\r\n")
            .trickle(50, |_| b"X-a: b\r\n".to_vec())
            .given_up(0.8..=8.0)
            .answer("408")
            .memory_kib(16.0)
            .cpu(8.0)
            .requests(40.0),
        row("slow head, byte by byte", "CVE-2007-6750 (Slowloris)")
            .connections(64)
            .once(b"GET /")
            .trickle(20, |_| b"a".to_vec())
            .given_up(0.8..=8.0)
            .answer("408")
            .memory_kib(16.0)
            .cpu(30.0)
            .requests(50.0),
        row("endless empty lines", "CRLF flood")
            .flood(10_000, |_| b"\r\n".repeat(8))
            .given_up(0.0..=8.0)
            .answer("400|nothing"),
        row("endless request line", "huge head")
            .once(b"GET /")
            .flood(10_000, |_| vec![b'a'; 1024])
            .given_up(0.0..=8.0)
            .answer("414")
            .requests(300.0),
        row("endless field line", "huge head")
            .once(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            .flood(10_000, |_| vec![b'a'; 1024])
            .given_up(0.0..=8.0)
            .answer("431")
            .requests(300.0),
        row("endless field lines", "many fields")
            .once(b"GET / HTTP/1.1\r\nHost: a\r\n")
            .flood(100_000, |_| b"a:\r\n".to_vec())
            .given_up(0.0..=8.0)
            .answer("431"),
        row("random bytes", "wrong protocol")
            .flood(1_000, |number| {
                (0..1024).map(|index| (index * 7 + number * 13) as u8 | 0x80).collect()
            })
            .given_up(0.0..=8.0)
            .answer("400"),
        row("request line of many dot segments", "quadratic path")
            .flood(20, |_| get(&["/a".repeat(1_000), "/..".repeat(1_000)].concat(), ""))
            .last(get("/", CLOSE))
            .answer("404")
            .requests(700.0),
        row("request line of percent signs", "quadratic path")
            .flood(20, |_| get(&"/%61%2e".repeat(1_100), ""))
            .last(get("/", CLOSE))
            .answer("404")
            .requests(1800.0),
        row("long URLs in the access log", "log flood")
            .flood(100, |_| get(&["/", &"%22%1b".repeat(1_000)].concat(), ""))
            .last(get("/", CLOSE))
            .answer("404")
            // As much as is sent.
            .disk_kib(640.0)
            .memory_kib(160.0)
            .requests(3000.0),
    ]
}

/// Request bodies that no responder reads.
fn bodies() -> Vec<Attack> {
    vec![
        row("slow body", "slow body (R.U.D.Y.)")
            .connections(64)
            .once(post("/small.txt", "Content-Length: 60000\r\n"))
            .trickle(50, |_| b"a".to_vec())
            .given_up(0.8..=8.0)
            .answer("405")
            .memory_kib(16.0)
            .cpu(30.0),
        row("body larger than the limit", "huge body")
            .once(post("/small.txt", "Content-Length: 1000000000000\r\n"))
            .flood(1_000, |_| vec![b'a'; 16 << 10])
            .given_up(0.0..=8.0)
            .answer("413|405")
            .requests(150.0),
        row("expectation without a body", "Expect flood")
            .flood(1, |_| post("/small.txt", "Content-Length: 9\r\nExpect: 100-continue\r\n"))
            .given_up(0.0..=8.0)
            .answer("405|100"),
        row("chunks of one byte", "tiny chunks")
            .once(post("/small.txt", CHUNKED))
            .flood(10_000, |_| b"1\r\na\r\n".to_vec())
            .last(b"0\r\n\r\n")
            .last(get("/", CLOSE))
            .answer("405"),
        row("endless chunk extension", "CVE-2023-39326 (chunk extensions)")
            .once(post("/small.txt", CHUNKED))
            .once(b"1;")
            .flood(10_000, |_| vec![b'a'; 1024])
            .given_up(0.0..=8.0)
            .answer("405|400")
            .requests(200.0),
        row("extension in each chunk", "CVE-2023-39326 (chunk extensions)")
            .once(post("/small.txt", CHUNKED))
            .flood(10_000, |_| b"1;name=0123456789012345678901234567890\r\na\r\n".to_vec())
            .given_up(0.0..=8.0)
            .answer("405|400")
            .requests(200.0),
        row("endless trailers", "huge trailers")
            .once(post("/small.txt", CHUNKED))
            .once(b"0\r\n")
            .flood(10_000, |_| [&b"X: "[..], &[b'a'; 1024], b"\r\n"].concat())
            .given_up(0.0..=8.0)
            .answer("405|400")
            .requests(300.0),
    ]
}

/// Logins whose clients close the connection after the request, without a wait for the response.
fn leaving_clients() -> Vec<Attack> {
    let leaves = |name| row(name, "client churn").held_ms(0).answer("nothing|401|503");
    vec![
        leaves("logins whose client leaves").connections(64).once(log_in(0)).cpu(40.0),
        // A response to a client that has left resets the connection.
        leaves("pipelined logins whose client leaves").flood(40, log_in).requests(150.0).cpu(40.0),
    ]
}

fn log_in(number: usize) -> Vec<u8> {
    let credentials = STANDARD.encode(format!("alice:{number}"));
    get("/password/small.txt", &format!("Authorization: Basic {credentials}\r\n"))
}

/// Responses that are large, many, or not read.
fn responses() -> Vec<Attack> {
    vec![
        row("slow read of a large file", "slow read (CVE-2011-0419 class)")
            .once(get("/large.bin", ""))
            .reads(Reads::Slowly)
            .given_up(0.8..=12.0)
            .descriptors(2.0)
            // The kernel copies as much of the file as its socket buffer holds.
            .cpu(60.0)
            .requests(300.0),
        row("large file that is not read", "slow read")
            .once(get("/large.bin", ""))
            .reads(Reads::Nothing)
            .given_up(0.8..=12.0)
            .descriptors(2.0)
            .answer("nothing")
            // The kernel copies as much of the file as its socket buffer holds.
            .cpu(60.0)
            .requests(300.0),
        row("pipelined requests", "pipelining flood")
            .flood(2_000, |_| get("/small.txt", ""))
            .last(get("/", CLOSE))
            .requests(1200.0)
            .memory_kib(128.0),
        row("pipelined requests whose responses are not read", "pipelining flood")
            .flood(100_000, |_| get("/small.txt", ""))
            .disk_kib(1024.0)
            .reads(Reads::Nothing)
            // A busy machine takes long until the buffers of the sockets are full.
            .given_up(0.8..=60.0)
            .answer("nothing")
            .memory_kib(128.0)
            .requests(6000.0),
        row("pipelined requests for a large file, not read", "pipelining flood")
            .flood(100_000, |_| get("/large.bin", ""))
            .reads(Reads::Nothing)
            .given_up(0.8..=12.0)
            .answer("nothing")
            .descriptors(2.0)
            .memory_kib(128.0)
            .cpu(15.0)
            .requests(250.0),
        row("HEAD of a large text", "compression by HEAD")
            .connections(2)
            .once(head("HEAD /text.txt", "Accept-Encoding: br\r\nConnection: close\r\n"))
            .memory_kib(256.0)
            .cpu(20.0)
            .requests(20.0),
        row("GET of a large text, then leave", "compression without a reader")
            .connections(2)
            .once(get("/text.txt", "Accept-Encoding: br\r\n"))
            .held_ms(50)
            .answer("nothing|200")
            .memory_kib(4096.0)
            .cpu(200.0)
            .requests(2000.0),
    ]
}

/// Fields that are expensive to evaluate.
fn fields() -> Vec<Attack> {
    vec![
        row("many ranges", "CVE-2011-3192 (range bomb)")
            .flood(20, |_| {
                let ranges: Vec<_> = (0..1_500).map(|n| format!("{}-{}", 4 * n, 4 * n)).collect();
                get("/large.bin", &format!("Range: bytes={}\r\n", ranges.join(",")))
            })
            .last(get("/", CLOSE))
            .descriptors(2.0)
            .answer("200|206|416")
            .cpu(100.0)
            .requests(1600.0),
        row("overlapping ranges", "CVE-2011-3192 (range bomb)")
            .flood(1, |_| {
                get(
                    "/large.bin",
                    &[&list_field("Range", "0-", 15_000).replace(": 0", ": bytes=0"), CLOSE]
                        .concat(),
                )
            })
            .reads(Reads::Slowly)
            .held_ms(500)
            .descriptors(2.0)
            .answer("200|206|416")
            .cpu(20.0),
        row("long If-None-Match", "If-None-Match bomb")
            .flood(20, |_| get("/small.txt", &list_field("If-None-Match", "\"a\"", 15_000)))
            .last(get("/", CLOSE))
            .requests(1300.0),
        row("long If-Match", "If-Match bomb")
            .flood(20, |_| get("/small.txt", &list_field("If-Match", "W/\"a\"", 15_000)))
            .last(get("/", CLOSE))
            .answer("412")
            .requests(1000.0),
        row("long Accept-Encoding", "Accept-Encoding bomb")
            .flood(20, |_| get("/words.txt", &list_field("Accept-Encoding", "a;q=0.5", 15_000)))
            .last(get("/", CLOSE))
            .requests(400.0),
        row("long Accept-Encoding of empty members", "Accept-Encoding bomb")
            .flood(20, |_| get("/words.txt", &list_field("Accept-Encoding", "", 15_000)))
            .last(get("/", CLOSE))
            .requests(600.0),
        row("long Accept-Language", "Accept-Language bomb")
            .flood(20, |_| get("/page.html", &list_field("Accept-Language", "fr;q=0.5", 15_000)))
            .last(get("/", CLOSE))
            .requests(400.0),
        row("long Connection", "Connection bomb")
            .flood(20, |_| get("/small.txt", &list_field("Connection", "a", 15_000)))
            .last(get("/", CLOSE))
            .requests(1000.0),
        row("long Cookie", "long field")
            .flood(20, |_| get("/small.txt", &list_field("Cookie", "a=b;", 15_000)))
            .last(get("/", CLOSE))
            .requests(500.0),
        row("cookies and parameters of 64 conditions", "patterns of conditions")
            .flood(20, |_| {
                let pairs = |join: &str| {
                    let pairs = (0..64).map(|n| format!("n{n}={}", "a".repeat(100)));
                    pairs.collect::<Vec<_>>().join(join)
                };
                let head =
                    format!("GET /small.txt?{} HTTP/1.1\r\nHost: conditions\r\n", pairs("&"));
                format!("{head}Cookie: {}\r\n\r\n", pairs(";")).into_bytes()
            })
            .last(get("/", CLOSE))
            .memory_kib(128.0)
            .requests(1500.0),
        row("many cookies and parameters of one name", "patterns of conditions")
            .flood(20, |_| {
                let head = format!(
                    "GET /small.txt?{} HTTP/1.1\r\nHost: conditions\r\n",
                    "n1=a&".repeat(1_400)
                );
                format!("{head}Cookie: {}\r\n\r\n", "n0=a;".repeat(1_400)).into_bytes()
            })
            .last(get("/", CLOSE))
            // The first condition about one of these names is undecided.
            .answer("400")
            .memory_kib(128.0)
            .requests(1500.0),
    ]
}
