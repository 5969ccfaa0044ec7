use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::*;

/// A server that answers each query with what `respond` returns for the name and the type.
struct Server {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
}

/// Returns the name, the type and the length of the question of a query.
fn question(query: &[u8]) -> (String, u16, usize) {
    let (mut name, mut at) = (Vec::new(), 12);
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push(str::from_utf8(&query[at + 1..end]).unwrap());
        at = end;
    }
    (name.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]), at + 5)
}

/// Returns a response with these flags and addresses.
fn response(query: &[u8], flags: [u8; 2], ttl: u32, addresses: &[[u8; 4]]) -> Vec<u8> {
    let (_, _, end) = question(query);
    let mut out = query[..end].to_vec();
    out[2..4].copy_from_slice(&flags);
    out[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    out[10..12].fill(0);
    for address in addresses {
        out.extend([0xc0, 12, 0, 1, 0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend([0, 4]);
        out.extend(address);
    }
    out
}

/// Returns a response with the address 2001:db8::1, which is valid for a minute.
fn response_of_ipv6(query: &[u8]) -> Vec<u8> {
    let mut out = response(query, OK, 60, &[]);
    out[7] = 1;
    out.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
    out.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out
}

const OK: [u8; 2] = [0x81, 0x80];
const NO_NAME: [u8; 2] = [0x81, 0x83];
const TRUNCATED: [u8; 2] = [0x83, 0x80];

impl Server {
    /// Starts a server. `respond` gets the query, the name, the type and true for TCP, and returns
    /// the messages to send.
    async fn start(
        respond: impl Fn(&[u8], &str, u16, bool) -> Vec<Vec<u8>> + Clone + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        let queries = Arc::<AtomicUsize>::default();
        let (seen, by_tcp) = (queries.clone(), respond.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                seen.fetch_add(1, SeqCst);
                let query = &buffer[..length];
                let (name, kind, _) = question(query);
                for message in respond(query, &name, kind, false) {
                    socket.send_to(&message, client).await.unwrap();
                }
            }
        });
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let length = client.read_u16().await.unwrap();
                let mut query = vec![0; length.into()];
                client.read_exact(&mut query).await.unwrap();
                let (name, kind, _) = question(&query);
                for message in by_tcp(&query, &name, kind, true) {
                    client.write_u16(message.len() as u16).await.unwrap();
                    client.write_all(&message).await.unwrap();
                }
            }
        });
        Server { address, queries }
    }

    fn resolver(&self) -> Resolver {
        Resolver::new(&[self.address])
    }
}

fn texts(found: io::Result<Resolved<IpAddr>>) -> String {
    match found {
        Ok(found) => {
            let items: Vec<_> = found.items.iter().map(ToString::to_string).collect();
            format!("{} {:?}", items.join(" "), found.ttl)
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn forged_and_late_answers_are_ignored() {
    let server = Server::start(|query, _, kind, _| match kind {
        1 => {
            let mut other_id = response(query, OK, 60, &[[192, 0, 2, 66]]);
            other_id[0] ^= 1;
            let mut other_name = response(query, OK, 60, &[[192, 0, 2, 67]]);
            other_name[13] ^= 1;
            let valid = response(query, OK, 60, &[[192, 0, 2, 1]]);
            vec![other_id, other_name, vec![], vec![0; 11], valid]
        }
        _ => vec![response(query, OK, 0, &[])],
    })
    .await;
    let found = server.resolver().addresses("a.example").await;
    assert_eq!(texts(found), "192.0.2.1 Some(60s)");
}

#[tokio::test]
async fn truncated_answers_are_requested_by_tcp() {
    let many: Vec<[u8; 4]> = (0..2_000u16).map(|it| [10, 0, (it >> 8) as u8, it as u8]).collect();
    let server = Server::start(move |query, _, kind, is_tcp| {
        vec![match (kind, is_tcp) {
            (1, true) => response(query, OK, 9, &many),
            (1, false) => response(query, TRUNCATED, 0, &[]),
            _ => response(query, OK, 0, &[]),
        }]
    })
    .await;
    let found = server.resolver().addresses("a.example").await.unwrap();
    assert_eq!((found.items.len(), found.ttl), (MAX_RECORDS, Some(Duration::from_secs(9))));
}

#[tokio::test]
async fn answers_of_tcp_that_are_invalid_are_failures() {
    // A part of a message, one for another query, and again a truncated one.
    for (case, expected) in [(0, "unexpected end of file"), (1, "another query"), (2, "truncated")]
    {
        let server = Server::start(move |query, _, _, is_tcp| {
            let truncated = response(query, TRUNCATED, 0, &[]);
            let mut other = response(query, OK, 60, &[[192, 0, 2, 1]]);
            other[0] ^= 1;
            match (is_tcp, case) {
                (true, 0) => vec![],
                (true, 1) => vec![other],
                _ => vec![truncated],
            }
        })
        .await;
        let found = texts(server.resolver().addresses("a.example").await);
        let is_expected = found.contains(expected) || (case == 0 && found.contains("early eof"));
        assert!(is_expected, "{case}: {found}");
    }
}

#[tokio::test]
async fn servers_replace_each_other_and_old_ones_get_plain_queries() {
    let old = Server::start(|query, _, kind, _| {
        // FORMERR for EDNS.
        let is_plain = query[10..12] == [0, 0];
        vec![match (is_plain, kind) {
            (true, 1) => response(query, OK, 60, &[[192, 0, 2, 1]]),
            (true, _) => response(query, OK, 0, &[]),
            (false, _) => response(query, [0x81, 0x81], 0, &[]),
        }]
    })
    .await;
    let failing = Server::start(|query, _, _, _| vec![response(query, [0x81, 0x82], 0, &[])]).await;
    let both = Resolver::new(&[failing.address, old.address]);
    assert_eq!(texts(both.addresses("a.example").await), "192.0.2.1 Some(60s)");
    assert_eq!((failing.queries.load(SeqCst), old.queries.load(SeqCst)), (2, 4));
    let found = texts(failing.resolver().addresses("a.example").await);
    assert!(found.contains("SERVFAIL") && found.contains(&failing.address.to_string()), "{found}");
    // Each of two queries was sent twice to it.
    assert_eq!(failing.queries.load(SeqCst), 2 + 4);
}

#[tokio::test]
async fn servers_that_cannot_read_a_query_need_not_repeat_it() {
    for status in [1, 4] {
        let old = Server::start(move |query, _, kind, _| {
            let is_plain = query[10..12] == [0, 0];
            vec![match (is_plain, kind) {
                (true, 1) => response(query, OK, 60, &[[192, 0, 2, 1]]),
                (true, _) => response(query, OK, 0, &[]),
                (false, _) => [&query[..2], &[0x80, status], &[0; 8]].concat(),
            }]
        })
        .await;
        assert_eq!(texts(old.resolver().addresses("a.example").await), "192.0.2.1 Some(60s)");
        assert_eq!(old.queries.load(SeqCst), 4);
    }
}

#[tokio::test]
async fn files_of_the_system_are_honored() {
    let server = Server::start(|query, name, kind, _| {
        vec![match (name, kind) {
            ("db.x.example", 1) => response(query, OK, 60, &[[192, 0, 2, 1]]),
            ("db.x.example", _) => response(query, OK, 0, &[]),
            _ => response(query, NO_NAME, 0, &[]),
        }]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("hosts"), "192.0.2.9 cache\n2001:db8::9 cache\n").unwrap();
    std::fs::write(path("resolv.conf"), "nameserver 127.0.0.1\nsearch y.example x.example\n")
        .unwrap();
    let files =
        SystemFiles { hosts: path("hosts").into(), resolv_conf: path("resolv.conf").into() };
    let resolver = Resolver::new(&[]).with_files(files);
    let found = resolver.addresses("Cache.").await.unwrap();
    assert_eq!((found.items.len(), found.ttl), (2, Some(FILE_TTL)));
    // The server in the test has another port than the file states.
    let mut servers = resolver.files.servers().unwrap();
    assert_eq!(servers.addresses, ["127.0.0.1:53".parse().unwrap()]);
    servers.addresses = vec![server.address];
    assert_eq!(texts(servers.addresses("db").await), "192.0.2.1 Some(60s)");
    let error = texts(servers.addresses("absent").await);
    assert!(error.contains("no such name"), "{error}");
    for host in ["localhost", "LOCALHOST.", "a.localhost"] {
        let found = resolver.addresses(host).await.unwrap();
        assert!(found.items.iter().all(|address| address.is_loopback()), "{host}");
    }
}

#[tokio::test]
async fn queries_without_an_answer_delay_records_of_another_type_only_briefly() {
    for ignored in [1, 28] {
        let server = Server::start(move |query, _, kind, _| match kind {
            kind if kind == ignored => vec![],
            1 => vec![response(query, OK, 60, &[[192, 0, 2, 1]])],
            _ => vec![response_of_ipv6(query)],
        })
        .await;
        let found = texts(server.resolver().addresses("a.example").await);
        let expected = if ignored == 1 { "2001:db8::1 Some(60s)" } else { "192.0.2.1 Some(60s)" };
        assert_eq!(found, expected);
        // The ignored query was not sent again, which is done after the whole time.
        assert_eq!(server.queries.load(SeqCst), 2);
    }
}

#[tokio::test]
async fn a_failure_for_one_search_domain_does_not_end_the_search() {
    let server = Server::start(|query, name, kind, _| match (name, kind) {
        ("db.x.example", 1) => vec![response(query, OK, 60, &[[192, 0, 2, 1]])],
        ("silent.y.example", _) => vec![],
        (name, _) if name.ends_with(".y.example") => vec![response(query, [0x81, 0x82], 0, &[])],
        _ => vec![response(query, NO_NAME, 0, &[])],
    })
    .await;
    let mut servers = Servers::new(vec![server.address]);
    servers.search = vec!["y.example".to_owned(), "x.example".to_owned()];
    assert_eq!(texts(servers.addresses("db").await), "192.0.2.1 Some(60s)");
    let error = texts(servers.addresses("absent").await);
    assert!(error.contains("SERVFAIL"), "{error}");
    // Without any answer, other domains are not asked: each would take the whole time.
    servers.timeout = Duration::from_millis(50);
    let before = server.queries.load(SeqCst);
    let error = texts(servers.addresses("silent").await);
    assert!(error.contains("timed out"), "{error}");
    assert_eq!(server.queries.load(SeqCst) - before, 4);
}
