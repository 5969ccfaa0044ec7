//! Upstreams whose addresses the DNS has: changes of records, services, and failures of servers.

pub mod server;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tempfile::TempDir;

use self::server::{DnsServer, FAILURE, NO_NAME};
use crate::common::{
    Client, PATIENCE, Program, Weft, has_tool, raw_upstream, read_head, run, until, weft,
};

/// An upstream at 127.0.0.`last`, which responds with that number.
struct Upstream {
    connections: Arc<AtomicUsize>,
    /// Connections that the server has not closed.
    open: Arc<AtomicUsize>,
    /// Requests for `/held` wait until this is false.
    holds: Arc<AtomicBool>,
}

/// Starts upstreams with these addresses, which have a port in common.
fn upstreams<const N: usize>(lasts: [u8; N]) -> (u16, [Upstream; N]) {
    let listen = |port| {
        let bind = |last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).ok();
        lasts.iter().map(|last| bind(*last)).collect::<Option<Vec<_>>>()
    };
    let mut ports = std::iter::repeat_with(|| TcpListener::bind("127.0.0.9:0").unwrap());
    let found = ports.find_map(|free| {
        let port = free.local_addr().unwrap().port();
        drop(free);
        listen(port).map(|listeners| (port, listeners))
    });
    let (port, listeners) = found.unwrap();
    let mut all = listeners.into_iter().zip(lasts).map(|(listener, last)| serve(listener, last));
    (port, [(); N].map(|()| all.next().unwrap()))
}

fn serve(listener: TcpListener, last: u8) -> Upstream {
    let (connections, open, holds) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<_>)>::default();
    let upstream = Upstream {
        connections: connections.clone(),
        open: open.clone(),
        holds: Arc::clone(&holds),
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, open, holds) = (stream.unwrap(), open.clone(), holds.clone());
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            connections.fetch_add(1, SeqCst);
            open.fetch_add(1, SeqCst);
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let body = format!("{last}");
                    let length = body.len();
                    let head_of_response =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                    stream.write_all(head_of_response.as_bytes()).unwrap();
                    if head.starts_with("GET /held ") {
                        until("the response is released", || !holds.load(SeqCst));
                    }
                    stream.write_all(body.as_bytes()).unwrap();
                }
                open.fetch_sub(1, SeqCst);
            });
        }
    });
    upstream
}

/// Starts the program with one worker and this route.
fn start(route: &str) -> (TempDir, Weft) {
    start_with(&format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n\
         status = {{ listen = \"127.0.0.1:0\", hosts = [\"a\"] }}\n\
         [hosts.\"*\"]\n\"/\" = {{ {route} }}\n"
    ))
}

fn start_with(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

fn get(server: &Weft) -> String {
    let response = server.client().get("/");
    assert_eq!(response.status, 200);
    String::from_utf8(response.body).unwrap()
}

#[test]
fn addresses_follow_their_records() {
    let dns = DnsServer::start();
    let (port, [two, three]) = upstreams([2, 3]);
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2]]);
    let resolver = dns.address;
    let (_folder, server) = start(&format!(
        "proxy = \"http://app.example:{port}/\", resolver = \"{resolver}\", buffer_responses = false"
    ));
    assert_eq!(get(&server), "2");
    // A response in progress, whose connection is not in the pool.
    two.holds.store(true, SeqCst);
    let mut held = server.client();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    held.head();
    // Another address: the address that stays keeps its connections.
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2], [127, 0, 0, 3]]);
    let seen = dns.queries();
    until("the name is resolved again", || get(&server) == "2" && dns.queries() > seen + 2);
    let connections = two.connections.load(SeqCst);
    assert_eq!(get(&server), "2");
    assert_eq!(two.connections.load(SeqCst), connections, "the connection is kept");
    // The address is gone: requests go to the other one, the one in progress continues.
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 3]]);
    until("requests go to the other address", || get(&server) == "3");
    assert_eq!(get(&server), "3");
    until("the idle connection is closed", || two.open.load(SeqCst) <= 1);
    two.holds.store(false, SeqCst);
    assert_eq!(held.body(1), b"2");
    until("its connection is closed, too", || two.open.load(SeqCst) == 0);
    assert_eq!(three.connections.load(SeqCst), 1);
}

#[test]
fn records_are_used_for_their_time_to_live() {
    let dns = DnsServer::start();
    let (port, _upstreams) = upstreams([2, 3]);
    dns.set_addresses("app.example", 3_000, &[[127, 0, 0, 2]]);
    let resolver = dns.address;
    let keys = |bounds: &str| {
        format!("proxy = \"http://app.example:{port}/\", resolver = \"{resolver}\", {bounds}")
    };
    let (_long_folder, long) = start(&keys("max_idle_connections = 0"));
    let (_short_folder, short) = start(&keys("max_idle_connections = 0, dns_max_ttl = \"1s\""));
    assert_eq!([get(&long), get(&short)], ["2", "2"]);
    dns.set_addresses("app.example", 3_000, &[[127, 0, 0, 3]]);
    until("the short time has passed", || get(&short) == "3");
    assert_eq!(get(&long), "2");
}

#[test]
fn failures_keep_the_last_addresses_and_are_logged_once() {
    let dns = DnsServer::start();
    let (port, [two]) = upstreams([2]);
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2]]);
    let resolver = dns.address;
    let (_folder, server) = start(&format!(
        "proxy = \"http://app.example:{port}/\", resolver = \"{resolver}\", max_idle_connections = 0"
    ));
    assert_eq!(get(&server), "2");
    let count = |text: &str| server.stderr().matches(text).count();
    // Each lookup has two queries, and two more if the server fails.
    for (failed, (failure, queries)) in [(FAILURE, 8), (NO_NAME, 4)].into_iter().enumerate() {
        dns.fail(Some(failure));
        let before = dns.queries();
        until("two lookups have failed", || {
            get(&server) == "2" && dns.queries() >= before + queries
        });
        until("the failure is logged", || {
            count("cannot resolve app.example, its last addresses stay in use") == failed + 1
        });
        dns.fail(None);
        until("the name is resolved again", || {
            get(&server) == "2" && count("the name app.example is resolved again") == failed + 1
        });
    }
    assert_eq!(count("cannot resolve app.example"), 2);
    assert!(two.connections.load(SeqCst) > 4);
}

#[test]
fn a_name_without_addresses_is_an_error_until_it_has_some() {
    let dns = DnsServer::start();
    let (port, _upstreams) = upstreams([2]);
    let resolver = dns.address;
    let (_folder, server) =
        start(&format!("proxy = \"http://app.example:{port}/\", resolver = \"{resolver}\""));
    assert_eq!(server.client().get("/").status, 502);
    // The log arrives by another way than the response.
    until("the reason is logged", || server.stderr().contains("the DNS has no such name"));
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2]]);
    // The failure is the answer for 1 s.
    until("the name is looked up again", || server.client().get("/").status == 200);
    assert_eq!(get(&server), "2");
}

/// Counts the responses of each upstream.
fn distribution(server: &Weft, count: usize) -> Vec<(String, usize)> {
    let mut found = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..count {
        *found.entry(get(server)).or_default() += 1;
    }
    found.into_iter().collect()
}

fn expected(of: &[(&str, usize)]) -> Vec<(String, usize)> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn servers_of_a_service_are_upstreams() {
    let dns = DnsServer::start();
    let (port, [two, three, four]) = upstreams([2, 3, 4]);
    for last in [2, 3, 4] {
        dns.set_addresses(&format!("n{last}.example"), 60, &[[127, 0, 0, last]]);
    }
    const SERVICE: &str = "_http._tcp.app.example";
    dns.set_services(
        SERVICE,
        0,
        &[(10, 3, port, "n2.example"), (10, 1, port, "n3.example"), (20, 9, port, "n4.example")],
    );
    let resolver = dns.address;
    let (_folder, server) =
        start(&format!("proxy = \"srv+http://{SERVICE}/\", resolver = \"{resolver}\""));
    assert_eq!(distribution(&server, 40), expected(&[("2", 30), ("3", 10)]));
    assert_eq!(two.connections.load(SeqCst), 1);
    // Another weight: connections are kept.
    dns.set_services(
        SERVICE,
        0,
        &[(10, 1, port, "n2.example"), (10, 1, port, "n3.example"), (20, 9, port, "n4.example")],
    );
    until("the weights are in effect", || {
        distribution(&server, 8) == expected(&[("2", 4), ("3", 4)])
    });
    assert_eq!((two.connections.load(SeqCst), three.connections.load(SeqCst)), (1, 1));
    // One address is gone: its connection closes, and the connection to the other address stays.
    dns.set_services(SERVICE, 0, &[(10, 1, port, "n3.example"), (20, 9, port, "n4.example")]);
    until("it is gone", || distribution(&server, 4) == expected(&[("3", 4)]));
    until("its connection is closed", || two.open.load(SeqCst) == 0);
    assert_eq!((three.connections.load(SeqCst), three.open.load(SeqCst)), (1, 1));
    // The status has the servers of now.
    let status = String::from_utf8(status_client(&server).get("/status.json").body).unwrap();
    assert!(status.contains("http://n3.example:") && !status.contains("n2.example"), "{status}");
    // Only a backup, which becomes the first.
    dns.set_services(SERVICE, 0, &[(20, 9, port, "n4.example")]);
    until("the backup serves", || distribution(&server, 2) == expected(&[("4", 2)]));
    // A failure keeps the last servers.
    dns.fail(Some(FAILURE));
    let before = dns.queries();
    until("lookups have failed", || get(&server) == "4" && dns.queries() > before + 2);
    assert_eq!(four.connections.load(SeqCst), 1);
}

fn status_client(server: &Weft) -> Client {
    Client::tcp(server.status_address())
}

#[test]
fn health_checks_begin_with_servers_that_are_found_later() {
    let dns = DnsServer::start();
    let (port, [_two]) = upstreams([2]);
    dns.set_addresses("n2.example", 60, &[[127, 0, 0, 2]]);
    dns.set_addresses("gone.example", 60, &[[127, 0, 0, 8]]);
    dns.set_services("_http._tcp.a.example", 0, &[(1, 1, port, "n2.example")]);
    let resolver = dns.address;
    let (_folder, server) = start(&format!(
        "proxy = \"srv+http://_http._tcp.a.example/\", resolver = \"{resolver}\", check = \"/\", \
         check_interval = \"50ms\", max_failures = 1000"
    ));
    assert_eq!(get(&server), "2");
    dns.set_services(
        "_http._tcp.a.example",
        0,
        &[(1, 1, port, "n2.example"), (1, 1, port, "gone.example")],
    );
    until("the server is checked", || {
        get(&server);
        server.stderr().contains(&format!("http://gone.example:{port}/: health checks fail"))
    });
}

#[test]
fn thousands_of_servers_of_a_service_are_bounded() {
    let dns = DnsServer::start();
    let (port, [_two]) = upstreams([2]);
    dns.set_addresses("n2.example", 60, &[[127, 0, 0, 2]]);
    let names: Vec<String> = (0..500).map(|number| format!("x{number}.example")).collect();
    let mut services: Vec<_> = names.iter().map(|name| (20, 1, port, &**name)).collect();
    services.insert(0, (10, 1, port, "n2.example"));
    dns.set_services("_http._tcp.a.example", 60, &services);
    let resolver = dns.address;
    let (_folder, server) =
        start(&format!("proxy = \"srv+http://_http._tcp.a.example/\", resolver = \"{resolver}\""));
    assert_eq!(get(&server), "2");
    // The response may precede the line.
    let line = || {
        let log = server.stderr();
        log.lines().find(|line| line.contains("the upstreams are now")).map(str::to_owned)
    };
    until("the upstreams are logged", || line().is_some());
    let line = line().unwrap();
    assert_eq!(line.matches("http://").count(), 64, "{line}");
}

/// Connections of HTTP/2, which requests share.
#[test]
fn streams_leave_addresses_that_are_gone() {
    let dns = DnsServer::start();
    let sites: Vec<TempDir> = ["2", "3"]
        .map(|text| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("index.html"), text).unwrap();
            folder
        })
        .into();
    let (port, _reserved) = upstreams([9]);
    let site = |index: usize, last: u8| {
        let address = format!("127.0.0.{last}:{port}");
        let folder = sites[index].path().to_str().unwrap();
        Weft::start(&mut weft([folder, "--listen", address.as_str(), "--no-log"]))
    };
    let _sites = [site(0, 2), site(1, 3)];
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2]]);
    let resolver = dns.address;
    let (_folder, server) =
        start(&format!("proxy = \"h2c://app.example:{port}/\", resolver = \"{resolver}\""));
    assert_eq!(get(&server), "2");
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 3]]);
    until("streams are opened at the other address", || get(&server) == "3");
}

#[test]
fn connections_of_streams_follow_the_records() {
    let dns = DnsServer::start();
    let (port, [two, _three]) = upstreams([2, 3]);
    dns.set_addresses("db.example", 0, &[[127, 0, 0, 2]]);
    let (_folder, server) = start_with(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"db.example:{port}\"\nresolver = \"{}\"\n",
        dns.address
    ));
    let address = stream_address(&server);
    let request = |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        read_head(stream).unwrap();
        let mut body = [0];
        stream.read_exact(&mut body).unwrap();
        body[0]
    };
    let mut kept = TcpStream::connect(address).unwrap();
    assert_eq!(request(&mut kept), b'2');
    dns.set_addresses("db.example", 0, &[[127, 0, 0, 3]]);
    until("connections lead to the other address", || {
        request(&mut TcpStream::connect(address).unwrap()) == b'3'
    });
    // A connection that is open continues.
    assert_eq!(request(&mut kept), b'2');
    assert!(two.open.load(SeqCst) >= 1);
}

/// Returns the address of the only stream.
fn stream_address(server: &Weft) -> SocketAddr {
    let addresses = server.addresses();
    addresses.iter().find_map(|it| it.strip_prefix("tcp://")).unwrap().parse().unwrap()
}

#[test]
fn connections_of_streams_reach_the_servers_of_a_service() {
    let dns = DnsServer::start();
    let (port, [two, three]) = upstreams([2, 3]);
    for last in [2, 3] {
        dns.set_addresses(&format!("n{last}.example"), 60, &[[127, 0, 0, last]]);
    }
    const SERVICE: &str = "_db._tcp.app.example";
    dns.set_services(SERVICE, 0, &[(10, 3, port, "n2.example"), (10, 1, port, "n3.example")]);
    let (_folder, server) = start_with(&format!(
        "status = {{ listen = \"127.0.0.1:0\", hosts = [\"a\"] }}\n\
         [streams.\"127.0.0.1:0\"]\nto = \"srv+tcp://{SERVICE}\"\nresolver = \"{}\"\n\
         connect_timeout = \"10s\"\n",
        dns.address
    ));
    let address = stream_address(&server);
    let ask = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut body = [0];
        if read_head(&mut stream).is_some() {
            stream.read_exact(&mut body).unwrap();
        }
        (stream, body[0])
    };
    let mut kept: Vec<_> = (0..8).map(|_| ask()).collect();
    kept.sort_by_key(|(_, last)| *last);
    let lasts: Vec<u8> = kept.iter().map(|(_, last)| *last).collect();
    assert_eq!(lasts, *b"22222233", "as the weights are");
    assert_eq!((two.connections.load(SeqCst), three.connections.load(SeqCst)), (6, 2));
    // One is gone: new connections lead to the other, an open one continues.
    dns.set_services(SERVICE, 0, &[(10, 1, port, "n3.example")]);
    until("it is gone", || (0..4).all(|_| ask().1 == b'3'));
    let mut status = status_client(&server);
    let status = String::from_utf8(status.get("/status.json").body).unwrap();
    assert!(status.contains("n3.example:") && !status.contains("n2.example"), "{status}");
    let (open, _) = &mut kept[0];
    open.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut body = [0];
    read_head(open).unwrap();
    open.read_exact(&mut body).unwrap();
    assert_eq!(body, *b"2");
    // No server, and no answer yet: the connection is closed.
    dns.set_services("_none._tcp.app.example", 0, &[]);
    let (_folder, none) = start_with(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"srv+tcp://_none._tcp.app.example\"\nresolver = \"{}\"\n",
        dns.address
    ));
    let mut stream = TcpStream::connect(stream_address(&none)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

/// Starts an upstream of UDP that responds to each datagram with a number.
fn serve_datagrams(socket: UdpSocket, last: u8) {
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, client)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&[last], client);
        }
    });
}

#[test]
fn datagrams_reach_the_servers_of_a_service() {
    let dns = DnsServer::start();
    let bind = |last, port| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), port));
    let mut pairs = std::iter::repeat_with(|| {
        let two = bind(2, 0).unwrap();
        let port = two.local_addr().unwrap().port();
        bind(3, port).ok().map(|three| (port, two, three))
    });
    let (port, two, three) = pairs.find_map(|pair| pair).unwrap();
    serve_datagrams(two, 2);
    serve_datagrams(three, 3);
    for last in [2, 3] {
        dns.set_addresses(&format!("n{last}.example"), 60, &[[127, 0, 0, last]]);
    }
    const SERVICE: &str = "_dns._udp.app.example";
    for scheme in ["srv+udp", "srv+tcp"] {
        dns.set_services(SERVICE, 0, &[(10, 1, port, "n2.example"), (20, 1, port, "n3.example")]);
        let (_folder, server) = start_with(&format!(
            "[streams.\"udp://127.0.0.1:0\"]\nto = \"{scheme}://{SERVICE}\"\nresolver = \"{}\"\n\
             connect_timeout = \"10s\"\nudp_idle_timeout = \"60s\"\n",
            dns.address
        ));
        let addresses = server.addresses();
        let address = addresses.iter().find_map(|it| it.strip_prefix("udp://")).unwrap();
        let session = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(address).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let ask = |socket: &UdpSocket| {
            socket.send(b"?").unwrap();
            let mut found = [0];
            socket.recv(&mut found).unwrap();
            found[0]
        };
        let open = session();
        assert_eq!((ask(&open), ask(&session())), (2, 2), "{scheme}: the lowest priority");
        dns.set_services(SERVICE, 0, &[(10, 1, port, "n3.example")]);
        until("it is gone", || ask(&session()) == 3);
        assert_eq!(ask(&open), 2, "{scheme}: a session continues");
    }
}

/// The first address does not respond: its backlog is full, so that the kernel drops further
/// connections.
#[test]
fn an_address_that_does_not_respond_delays_the_next_one_for_a_moment() {
    use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
    let dns = DnsServer::start();
    let (port, [_three]) = upstreams([3]);
    let silent = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 2], port));
    bind(&silent, &address).unwrap();
    listen(&silent, 0).unwrap();
    let _waiting = TcpStream::connect(address).unwrap();
    dns.set_addresses("app.example", 60, &[[127, 0, 0, 2], [127, 0, 0, 3]]);
    let (_folder, server) = start(&format!(
        "proxy = \"http://app.example:{port}/\", resolver = \"{}\", connect_timeout = \"1h\"",
        dns.address
    ));
    assert_eq!(get(&server), "3");
}

#[test]
fn sessions_stay_at_their_server_of_a_service() {
    let dns = DnsServer::start();
    let (port, _upstreams) = upstreams([2, 3]);
    for last in [2, 3] {
        dns.set_addresses(&format!("n{last}.example"), 60, &[[127, 0, 0, last]]);
    }
    const SERVICE: &str = "_http._tcp.app.example";
    dns.set_services(SERVICE, 0, &[(10, 1, port, "n2.example"), (10, 1, port, "n3.example")]);
    let (_folder, server) = start(&format!(
        "proxy = \"srv+http://{SERVICE}/\", resolver = \"{}\", sticky_cookie = \"s\"",
        dns.address
    ));
    let ask = |cookie: &str| {
        let mut client = server.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
        let response = client.response();
        let set = response.header("set-cookie").map(|it| it.split(';').next().unwrap().to_owned());
        (String::from_utf8(response.body.clone()).unwrap(), set)
    };
    let (first, cookie) = ask("");
    let cookie = cookie.unwrap();
    for _ in 0..6 {
        assert_eq!(ask(&cookie), (first.clone(), None));
    }
    // Another order and another server: the session stays.
    let own = format!("n{first}.example");
    dns.set_addresses("a.example", 60, &[[127, 0, 0, if first == "2" { 3 } else { 2 }]]);
    dns.set_services(SERVICE, 0, &[(10, 1, port, "a.example"), (10, 1, port, &own)]);
    let seen = dns.queries();
    until("the service is looked up", || ask("").1.is_some() && dns.queries() > seen + 2);
    for _ in 0..6 {
        assert_eq!(ask(&cookie), (first.clone(), None));
    }
    // Its server is gone: another one gets the session.
    dns.set_services(SERVICE, 0, &[(10, 1, port, "a.example")]);
    let mut moved = None;
    until("the session moves", || {
        let (last, set) = ask(&cookie);
        moved = set;
        last != first
    });
    assert_ne!(moved.unwrap(), cookie);
}

#[test]
fn servers_of_a_service_prove_their_name() {
    let dns = DnsServer::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let certified = rcgen::generate_simple_self_signed(vec!["app.internal".to_owned()]).unwrap();
    fs::write(path("app.pem"), certified.cert.pem()).unwrap();
    fs::write(path("app.key"), certified.signing_key.serialize_pem()).unwrap();
    let (_upstream_folder, upstream) = start_with(&format!(
        "listen = \"127.0.0.1:0\"\n[tls]\nlisten = \"127.0.0.1:0\"\n\
         certificates = [{{ cert = \"{}\", key = \"{}\" }}]\n\
         [hosts.\"*\"]\n\"/\" = {{ respond = \"served\" }}\n",
        path("app.pem"),
        path("app.key")
    ));
    let port = upstream.tls_address().port();
    dns.set_addresses("n.example", 60, &[[127, 0, 0, 1]]);
    dns.set_services("_https._tcp.app.example", 60, &[(10, 1, port, "n.example")]);
    for (name, status) in [("app.internal", 200), ("n.example", 502)] {
        let (_folder, server) = start(&format!(
            "proxy = \"srv+https://_https._tcp.app.example/\", resolver = \"{}\", ca = \"{}\", \
             tls_name = \"{name}\"",
            dns.address,
            path("app.pem")
        ));
        let response = server.client().get("/");
        assert_eq!(response.status, status, "{name}: {}", server.stderr());
        assert_eq!(response.body == b"served", status == 200, "{name}");
    }
}

#[test]
fn applications_of_a_service_get_requests() {
    const END: &[u8] = b"\x01\x03\0\x01\0\x08\0\0\0\0\0\0\0\0\0\0";
    let dns = DnsServer::start();
    // A request ends with an empty record of its body.
    let address = raw_upstream(|_, mut stream| {
        let mut received = Vec::new();
        while !received.ends_with(b"\x01\x05\0\x01\0\0\0\0") {
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(count @ 1..) => received.extend_from_slice(&bytes[..count]),
                _ => return,
            }
        }
        let output = b"Content-Type: text/plain\n\nfrom an application";
        let header = [1, 6, 0, 1, 0, output.len() as u8, 0, 0];
        stream.write_all(&[&header[..], output, END].concat()).unwrap();
    });
    dns.set_addresses("n.example", 60, &[[127, 0, 0, 1]]);
    dns.set_services("_fcgi._tcp.app.example", 60, &[(10, 1, address.port(), "n.example")]);
    let resolver = dns.address;
    let (_folder, server) = start(&format!(
        "fastcgi = \"srv+fastcgi://_fcgi._tcp.app.example\", resolver = \"{resolver}\""
    ));
    assert_eq!(get(&server), "from an application");
}

/// The records of BIND, with an alias and references within its messages.
#[test]
fn resolves_names_and_services_of_bind() {
    if !has_tool("named") {
        return;
    }
    let (port, [_two, _three]) = upstreams([2, 3]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    write(
        "zone.db",
        format!(
            "$TTL 60\n@ IN SOA ns admin 1 60 60 60 1\n@ IN NS ns\nns IN A 127.0.0.1\n\
             app IN CNAME n3\nn2 IN A 127.0.0.2\nn3 IN A 127.0.0.3\n\
             _http._tcp IN SRV 10 1 {port} n2\n_http._tcp IN SRV 20 1 {port} n3\n"
        ),
    );
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let dns_port = address.port();
    write(
        "named.conf",
        format!(
            "options {{ directory \"{path}\"; pid-file none; session-keyfile none;\n\
             listen-on port {dns_port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
             recursion no; dnssec-validation no; }};\ncontrols {{ }};\n\
             zone \"weft.example\" {{ type primary; file \"{path}/zone.db\"; }};\n"
        ),
    );
    let mut command = Command::new("named");
    command.args(["-g", "-n", "1", "-c"]).arg(folder.path().join("named.conf"));
    let named = Program::start(&mut command);
    until("BIND runs", || named.stderr().contains("running"));
    for (url, expected) in [
        (format!("http://app.weft.example:{port}/"), "3"),
        ("srv+http://_http._tcp.weft.example/".to_owned(), "2"),
    ] {
        let (_folder, server) = start(&format!("proxy = \"{url}\", resolver = \"{address}\""));
        assert_eq!(get(&server), expected, "{url}: {}", named.stderr());
    }
}

/// Returns a port that is free for TCP and UDP.
fn free_port() -> u16 {
    loop {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Records that are valid for longer than a time can be.
#[test]
fn names_may_be_resolved_once() {
    let dns = DnsServer::start();
    let (port, _upstreams) = upstreams([2]);
    dns.set_addresses("app.example", 0, &[[127, 0, 0, 2]]);
    let (_folder, server) = start(&format!(
        "proxy = \"http://app.example:{port}/\", resolver = \"{}\", dns_min_ttl = \"never\", \
         dns_max_ttl = \"never\", max_idle_connections = 0",
        dns.address
    ));
    for _ in 0..3 {
        assert_eq!(get(&server), "2");
    }
    assert_eq!(dns.queries(), 2, "{}", server.stderr());
}

#[test]
fn invalid_settings_of_names_are_reported() {
    for (route, expected) in [
        (
            "proxy = \"http://a/\", resolver = \"dns.example\"",
            "expected the address of a server such as",
        ),
        (
            "proxy = \"http://a/\", resolver = [\"::1\", \"::1\", \"::1\", \"::1\"]",
            "at most 3 servers",
        ),
        ("proxy = \"http://127.0.0.1/\", resolver = \"::1\"", "`resolver` has no effect without"),
        (
            "proxy = \"http://a/\", dns_min_ttl = \"61m\"",
            "`dns_min_ttl` must not be longer than `dns_max_ttl`",
        ),
        ("proxy = \"srv+http://a:80/\"", "the records of a service have its ports"),
        ("proxy = \"srv+http://a/ weight=2\"", "the records of a service have its weights"),
        ("proxy = \"srv+https://a/\"", "srv+https://a/ needs `tls_name`"),
        ("fastcgi = \"srv+http://a/\"", "expected srv+fastcgi://SERVICE"),
        ("scgi = \"srv+scgi://a weight=2\"", "the records of a service have its weights"),
        ("uwsgi = \"srv+uwsgi://a:1\"", "the records of a service have its ports"),
        ("proxy = \"http://a/\", mirror = \"srv+http://b/\"", "expected http://"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weft.toml");
        fs::write(&file, format!("[hosts.\"*\"]\n\"/\" = {{ {route} }}\n")).unwrap();
        let output = run([Path::new("check"), &file]);
        assert!(output.stderr.contains(expected), "{route}: {}", output.stderr);
    }
}

#[test]
fn answers_that_change_during_a_wait_for_another_service_are_used() {
    let dns = DnsServer::start();
    let (port, _upstreams) = upstreams([2, 3, 4]);
    for last in [2, 3, 4] {
        dns.set_addresses(&format!("n{last}.example"), 60, &[[127, 0, 0, last]]);
    }
    let [first, second] = ["_http._tcp.first.example", "_http._tcp.second.example"];
    dns.set_services(first, 0, &[(10, 1, port, "n2.example")]);
    dns.set_services(second, 60, &[(20, 1, port, "n4.example"), (10, 1, 9, "gone.example")]);
    let start = || {
        start(&format!(
            "proxy = \"srv+http://{first}/ srv+http://{second}/ backup\", resolver = \"{}\", \
             dns_min_ttl = \"1ms\"",
            dns.address
        ))
    };
    let send = |server: &Weft| {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    // The services are looked up at the same time.
    let (_folder, server) = start();
    dns.hold(Some(first));
    let mut client = send(&server);
    until("both services are looked up", || dns.queries() == 2);
    dns.hold(None);
    assert_eq!(client.response().body, b"2");

    let (_folder, server) = start();
    dns.hold(Some(second));
    let before = dns.queries();
    let mut waiting = send(&server);
    until("both services are looked up again", || dns.queries() == before + 2);
    dns.set_services(first, 0, &[(10, 1, port, "n3.example")]);
    // The records of the first service have expired: each of these requests looks it up once.
    let mut others = Vec::new();
    until("the first service is looked up twice more", || {
        others.push(send(&server));
        dns.queries() >= before + 4
    });
    dns.hold(None);
    assert_eq!(waiting.response().body, b"3");
}
