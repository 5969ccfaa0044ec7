//! Hostile servers that Weft asks on its own: the DNS, authentication, keys, health checks, and
//! mirrors.

use super::check;
use super::peer::{HostilePeer, Role};
use crate::dns::server::{question, wire};

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const ENDLESS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n";

// -- the DNS

const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;

/// Flags of a response, and of a response that is truncated (RFC 1035 §4.1.1).
const RESPONSE: [u8; 2] = [0x81, 0x80];
const TRUNCATED: [u8; 2] = [0x83, 0x80];

/// Returns the response to a query with these records.
fn response(query: &[u8], flags: [u8; 2], count: usize, records: &[u8]) -> Vec<u8> {
    let mut message = query[..question(query).1].to_vec();
    message[2..4].copy_from_slice(&flags);
    message[6..8].copy_from_slice(&(count as u16).to_be_bytes());
    message[10..12].fill(0);
    [message, records.to_vec()].concat()
}

/// Returns a record whose encoded name is `name`.
fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let fields = [&kind.to_be_bytes()[..], &[0, 1, 0, 0, 0, 0]].concat();
    [name, &fields, &(data.len() as u16).to_be_bytes(), data].concat()
}

/// A reference to the name of the question.
const QUESTION: [u8; 2] = [0xc0, 12];

/// Returns a response whose records have names of as many references as fit.
fn chains(query: &[u8]) -> Vec<u8> {
    let start = question(query).1;
    let mut records = record(&QUESTION, TYPE_A, &[127, 0, 0, 1]);
    // The data of one record is a chain of references, each to the reference before it.
    let links = 4_000;
    let data_start = start + records.len() + 12;
    let mut data = Vec::new();
    for link in 0..links {
        let target = if link == 0 { 12 } else { data_start + 2 * (link - 1) };
        data.extend((0xc000 | target as u16).to_be_bytes());
    }
    records.extend(record(&QUESTION, 99, &data));
    let last = (0xc000 | (data_start + 2 * (links - 1)) as u16).to_be_bytes();
    let others = 2_000;
    records.extend(record(&last, TYPE_A, &[127, 0, 0, 1]).repeat(others));
    response(query, RESPONSE, 2 + others, &records)
}

fn dns(name: &'static str) -> HostilePeer {
    HostilePeer::new(Role::Dns, name).outcome("502|504")
}

#[test]
fn dns_peers_stay_within_budget() {
    check(
        "Servers of the DNS",
        vec![
            dns("no response").outcome("504"),
            dns("responses to other queries")
                .datagrams(|query| {
                    let mut other = response(query, RESPONSE, 0, b"");
                    other[0] ^= 0xff;
                    vec![other; 2_000]
                })
                .requests(400.0),
            dns("datagrams that are no responses").datagrams(|_| vec![vec![0; 5]; 2_000]),
            dns("an alias of itself").datagrams(|query| {
                vec![response(query, RESPONSE, 1, &record(&QUESTION, TYPE_CNAME, &QUESTION))]
            }),
            dns("an endless chain of aliases").datagrams(|query| {
                let longer = format!("a{}", question(query).0.0);
                let alias = record(&QUESTION, TYPE_CNAME, &wire(&longer));
                vec![response(query, RESPONSE, 1, &alias)]
            }),
            dns("two aliases of each other").datagrams(|query| {
                let other = wire("b.example");
                let records =
                    [record(&QUESTION, TYPE_CNAME, &other), record(&other, TYPE_CNAME, &QUESTION)];
                vec![response(query, RESPONSE, 2, &records.concat())]
            }),
            dns("names that are chains of references").datagrams(|query| vec![chains(query)]),
            dns("a name that refers to itself").datagrams(|query| {
                let name = (0xc000 | question(query).1 as u16).to_be_bytes();
                vec![response(query, RESPONSE, 1, &record(&name, TYPE_A, &[127, 0, 0, 1]))]
            }),
            dns("3,000 addresses").datagrams(|query| {
                let records = record(&QUESTION, TYPE_A, &[127, 0, 0, 1]).repeat(3_000);
                vec![response(query, RESPONSE, 3_000, &records)]
            }),
            dns("a number of records that are missing")
                .datagrams(|query| vec![response(query, RESPONSE, 65_535, b"")]),
            dns("truncation, and nothing over TCP")
                .datagrams(|query| vec![response(query, TRUNCATED, 0, b"")])
                .held()
                .outcome("504"),
            dns("truncation, and zeros over TCP")
                .datagrams(|query| vec![response(query, TRUNCATED, 0, b"")])
                .once([0xff, 0xff])
                .endlessly(|_| vec![0; 16 << 10]),
            dns("truncation, and bytes one by one over TCP")
                .datagrams(|query| vec![response(query, TRUNCATED, 0, b"")])
                .once([0xff, 0xff])
                .trickle(20, |_| vec![0])
                .outcome("504")
                .requests(400.0),
        ],
    );
}

// -- requests of the program itself

#[test]
fn asked_peers_stay_within_budget() {
    check(
        "Authentication, keys, health checks, mirrors",
        [authentication(), keys(), checks(), mirrors()].concat(),
    );
}

fn authentication() -> Vec<HostilePeer> {
    let row = |name| HostilePeer::new(Role::Authentication, name);
    vec![
        row("nothing").held().outcome("504"),
        row("an endless head")
            .once("HTTP/1.1 200 OK\r\n")
            .endlessly(|_| b"X-Field: 012345678901234\r\n".to_vec()),
        row("a head byte by byte, slowly")
            .once("HTTP/1.1 200 OK\r\nX-Field: ")
            .trickle(20, |_| b"a".to_vec())
            .outcome("504"),
        row("endless interim responses")
            .endlessly(|_| b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()),
        row("an endless body that permits")
            .once(ENDLESS)
            .endlessly(|_| vec![b'a'; 16 << 10])
            .outcome("200"),
        row("an endless body that refuses, not read")
            .once(ENDLESS.replace("200 OK", "403 Forbidden"))
            .endlessly(|_| vec![b'a'; 16 << 10])
            .unread_for_ms(1_500)
            .disk_kib(4_096.0),
    ]
}

fn keys() -> Vec<HostilePeer> {
    let row = |name| HostilePeer::new(Role::Keys, name).outcome("401|502|503|504");
    vec![
        row("nothing").held(),
        row("an endless body").once(CHUNKED).endlessly(|_| b"5\r\n     \r\n".to_vec()),
        row("a huge length").once(ENDLESS).held(),
        row("nested arrays").once("HTTP/1.1 200 OK\r\n\r\n").flood(100_000, |_| b"[".to_vec()),
        row("many keys")
            .once("HTTP/1.1 200 OK\r\n\r\n{\"keys\":[")
            .flood(2_000, |_| b"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"\",\"y\":\"\"},".to_vec())
            .last("{}]}"),
    ]
}

fn checks() -> Vec<HostilePeer> {
    let row = |name| HostilePeer::new(Role::HealthCheck, name).outcome("200|503");
    vec![
        row("nothing").held().outcome("503"),
        row("an endless head")
            .once("HTTP/1.1 200 OK\r\n")
            .endlessly(|_| b"X-Field: 012345678901234\r\n".to_vec())
            .outcome("503"),
        row("an endless body").once(CHUNKED).endlessly(|_| b"1\r\na\r\n".to_vec()),
        row("a body byte by byte, slowly").once(ENDLESS).trickle(20, |_| b"a".to_vec()),
    ]
}

fn mirrors() -> Vec<HostilePeer> {
    let row = |name| HostilePeer::new(Role::Mirror, name).outcome("200");
    vec![
        row("nothing").held(),
        row("the end of the connection"),
        row("an endless head")
            .once("HTTP/1.1 200 OK\r\n")
            .endlessly(|_| b"X-Field: 012345678901234\r\n".to_vec()),
        row("endless interim responses")
            .endlessly(|_| b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()),
        row("an endless body").once(ENDLESS).endlessly(|_| vec![b'a'; 16 << 10]).requests(1_500.0),
        row("a body byte by byte, slowly").once(ENDLESS).trickle(20, |_| b"a".to_vec()),
    ]
}
