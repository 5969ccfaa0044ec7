//! Many clients with kept connections, and few connections to their upstream.
//!
//! `WEFT_KEPT_CLIENTS` sets the number of clients, `WEFT_KEPT_REQUESTS` the number of requests of
//! each.

use std::fs;
use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::common::random::environment_number;
use crate::common::{Client, LONG_PATIENCE, MANY_DESCRIPTORS, Weft, raw_upstream, read_head, weft};

const UPSTREAM_CONNECTIONS: usize = 8;

/// Clients have this number of addresses: one of them may use a part of the connections only.
const ADDRESSES: usize = 16;

struct Site {
    server: Weft,
    status: SocketAddr,
    upstream: Arc<Upstream>,
    _folder: TempDir,
}

/// Connections to the upstream.
#[derive(Default)]
struct Upstream {
    open: AtomicUsize,
    max_open: AtomicUsize,
}

impl Upstream {
    /// Starts an upstream that responds with the path.
    fn start() -> (SocketAddr, Arc<Upstream>) {
        let upstream = Arc::<Upstream>::default();
        let connections = upstream.clone();
        let address = raw_upstream(move |_, stream| {
            let open = connections.open.fetch_add(1, SeqCst) + 1;
            connections.max_open.fetch_max(open, SeqCst);
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut writer = stream;
            while let Some(head) = read_head(&mut reader) {
                let path = head.split(' ').nth(1).unwrap();
                let length = path.len();
                let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}");
                writer.write_all(response.as_bytes()).unwrap();
            }
            connections.open.fetch_sub(1, SeqCst);
        });
        (address, upstream)
    }
}

/// Numbers of whole responses, and of responses 503.
#[derive(Debug, Default)]
struct Outcomes {
    whole: AtomicUsize,
    unavailable: AtomicUsize,
}

impl Site {
    /// Starts the program with one worker, and an upstream that responds with the path.
    fn start(max_queued: usize) -> Site {
        let (address, upstream) = Upstream::start();
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n\
             status = {{ listen = \"127.0.0.1:0\", hosts = [\"a\"] }}\n\
             limits = {{ max_connections = 11000, max_connections_per_peer = 11000 }}\n\
             [hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{address}/\", max_connections = {UPSTREAM_CONNECTIONS}, \
             max_connections_per_client = {UPSTREAM_CONNECTIONS}, max_queued = {max_queued}, \
             queue_timeout = \"5m\" }}\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft([Path::new("--config"), &folder.path().join("weft.toml")]);
        let server = Weft::start(&mut command);
        let status = server.status_address();
        Site { server, status, upstream, _folder: folder }
    }

    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Opens connections from several addresses.
    async fn connect(&self, count: usize) -> Vec<TcpStream> {
        let mut all = Vec::with_capacity(count);
        for number in 0..count {
            let socket = TcpSocket::new_v4().unwrap();
            let from = Ipv4Addr::new(127, 0, 1, (number % ADDRESSES) as u8 + 1);
            socket.bind(SocketAddr::from((from, 0))).unwrap();
            all.push(socket.connect(self.server.address()).await.unwrap());
        }
        all
    }
}

/// Returns the connections in use, and the requests in the queue.
fn sample(status: SocketAddr) -> (u64, u64) {
    let body = Client::tcp(status).get("/status.json").body;
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let number = |name: &str| json["upstreams"][0][name].as_u64().unwrap();
    (number("connections_in_use"), number("queued"))
}

/// Sends requests over a kept connection, each after the response to the one before.
async fn send_requests(
    client: &mut TcpStream,
    number: usize,
    count: usize,
    outcomes: &Outcomes,
) -> Result<(), String> {
    let (mut received, mut buffer) = (Vec::new(), [0; 1_024]);
    for request in 0..count {
        let target = format!("/{number}/{request}");
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
        received.clear();
        let (status, body) = loop {
            if let Some(response) = parse(&received)? {
                break response;
            }
            match client.read(&mut buffer).await {
                Ok(length @ 1..) => received.extend_from_slice(&buffer[..length]),
                ended => return Err(format!("{target}: {ended:?}, {received:?}")),
            }
        };
        match status {
            200 if body == target => outcomes.whole.fetch_add(1, SeqCst),
            503 => outcomes.unavailable.fetch_add(1, SeqCst),
            _ => return Err(format!("{target}: {status}, {body:?}")),
        };
    }
    Ok(())
}

/// Returns status and body of a response that was received completely.
fn parse(received: &[u8]) -> Result<Option<(u16, String)>, String> {
    let text = String::from_utf8_lossy(received);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
    });
    let (Some(status), Some(length)) = (status, length) else { return Err(head.to_owned()) };
    if status == 503 && !head.to_ascii_lowercase().contains("\r\nretry-after: ") {
        return Err(format!("a 503 without Retry-After: {head}"));
    }
    Ok((body.len() >= length).then(|| (status, body.to_owned())))
}

/// Sends all requests of all clients at once, and samples the queue meanwhile. Returns its greatest
/// length.
fn run(
    site: &Site,
    clients: &mut [TcpStream],
    (requests, max_queued): (usize, usize),
    (runtime, outcomes): (&Runtime, &Outcomes),
) -> u64 {
    let (is_done, status) = (AtomicBool::new(false), site.status);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut longest = 0;
            while !is_done.load(SeqCst) {
                let (in_use, queued) = sample(status);
                assert!(in_use <= UPSTREAM_CONNECTIONS as u64, "{in_use} connections");
                assert!(queued <= max_queued as u64, "{queued} in the queue");
                longest = longest.max(queued);
                std::thread::sleep(Duration::from_millis(2));
            }
            longest
        });
        let all = clients.iter_mut().enumerate();
        let all = all.map(|(number, client)| send_requests(client, number, requests, outcomes));
        let results = runtime.block_on(async { timeout(LONG_PATIENCE, join_all(all)).await });
        is_done.store(true, SeqCst);
        let results = results.expect("all responses are received in time");
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).take(5).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        sampler.join().unwrap()
    })
}

/// Growth of the memory after the warm-up that is permitted: a queue that does not end, or a
/// request that is kept, would take many times more. The allocator takes some rounds to reuse what
/// thousands of clients have left.
fn max_growth_kib(warm: u64) -> u64 {
    (4 << 10).max(warm / 4)
}

/// Runs the clients twice: to warm up, and with samples of the memory. Returns the numbers of whole
/// responses and of 503, and the greatest length of the queue.
fn outcomes_with(max_queued: usize, clients: usize, requests: usize) -> (usize, usize, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let site = Site::start(max_queued);
    let mut all = runtime.block_on(site.connect(clients));
    let outcomes = Outcomes::default();
    let mut longest = run(&site, &mut all, (requests, max_queued), (&runtime, &outcomes));
    let warm = site.resident_kib();
    let mut samples = vec![warm];
    for _ in 0..3 {
        let queued = run(&site, &mut all, (requests, max_queued), (&runtime, &outcomes));
        longest = longest.max(queued);
        samples.push(site.resident_kib());
    }
    let grown = samples[3].saturating_sub(warm);
    assert!(grown <= max_growth_kib(warm), "resident memory in KiB: {samples:?}");
    assert_eq!(sample(site.status), (0, 0), "each place is returned");
    assert!(site.upstream.max_open.load(SeqCst) <= UPSTREAM_CONNECTIONS);
    let (whole, unavailable) = (outcomes.whole.load(SeqCst), outcomes.unavailable.load(SeqCst));
    assert_eq!(whole + unavailable, 4 * clients * requests);
    println!(
        "{clients} clients, {requests} requests each, four times, max_queued = {max_queued}: {whole} \
         whole, {unavailable} unavailable, queue of up to {longest}, resident KiB {samples:?}"
    );
    (whole, unavailable, longest)
}

fn numbers() -> (usize, usize) {
    let number = |name: &str, default| environment_number(name).map_or(default, |it| it as usize);
    (number("WEFT_KEPT_CLIENTS", 600), number("WEFT_KEPT_REQUESTS", 5))
}

#[test]
fn a_queue_for_all_clients_loses_no_request() {
    let _exclusive = MANY_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let (clients, requests) = numbers();
    let (_, unavailable, longest) = outcomes_with(clients, clients, requests);
    assert_eq!(unavailable, 0);
    assert!(longest > UPSTREAM_CONNECTIONS as u64, "requests are queued");
}

#[test]
fn requests_beyond_the_queue_get_503_and_nothing_else() {
    let _exclusive = MANY_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let (clients, requests) = numbers();
    let (whole, unavailable, _) = outcomes_with(clients / 20, clients, requests);
    assert!(whole > 0 && unavailable > 0, "{whole}, {unavailable}");
}
