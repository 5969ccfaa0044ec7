//! Listeners added and removed at run time, limits changed at run time, and sockets handed over to
//! another server.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::common::frames::RawClient;
use crate::common::{Client, address, boxed_server, until};
use tokio::sync::Semaphore;
use weft::net::{Listener, LocalAddress};
use weft::server::ServerHandle;
use weft::{ErrorKind, Request, Response, Server, Settings};

const GRACE: Duration = Duration::from_secs(30);

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server that responds with its name.
fn named(name: &'static str, settings: Settings) -> Server<impl weft::Application + 'static> {
    boxed_server(async move |_: Request| Response::text(name)).settings(settings).workers(2)
}

fn local(settings: &Settings) -> Listener {
    let mut listeners = Listener::bind(&"127.0.0.1:0".parse().unwrap(), settings).unwrap();
    assert_eq!(listeners.len(), 1);
    listeners.remove(0)
}

fn shared_ports() -> Settings {
    Settings { reuse_port: true, ..Settings::default() }
}

/// Sends a request on a new connection and returns the response text.
fn ask(address: SocketAddr) -> String {
    let mut client = Client::connect_to(address);
    client.send(REQUEST);
    text(&mut client)
}

fn text(client: &mut Client) -> String {
    String::from_utf8(client.response().body).unwrap()
}

/// Number of sockets that are bound to `address`.
fn count_sockets(handle: &ServerHandle, address: SocketAddr) -> usize {
    let matches = |(bound, _): &(LocalAddress, OwnedFd)| bound.address() == Some(address);
    handle.sockets().unwrap().into_iter().filter(matches).count()
}

#[test]
fn adds_and_removes_listeners_at_run_time() {
    for settings in [Settings::default(), shared_ports()] {
        let server = named("a", settings.clone()).listen("127.0.0.1:0").unwrap();
        let mut handle = server.start().unwrap();
        let first = address(&handle);
        let mut kept = Client::connect_to(first);
        kept.send(REQUEST);
        assert_eq!(text(&mut kept), "a");
        let more = local(&settings);
        let second = more.local_address().address().unwrap();
        handle.listen(more).unwrap();
        assert_eq!(handle.addresses(), [LocalAddress::Tcp(first), LocalAddress::Tcp(second)]);
        let each = if settings.reuse_port { 2 } else { 1 };
        assert_eq!([first, second].map(|address| count_sockets(&handle, address)), [each; 2]);
        assert_eq!(ask(second), "a");
        assert!(handle.stop_listening(&LocalAddress::Tcp(first)));
        assert!(
            !handle.stop_listening(&LocalAddress::Tcp(first)),
            "the listener was removed before"
        );
        assert_eq!(handle.addresses(), [LocalAddress::Tcp(second)]);
        until("the address refuses connections", || TcpStream::connect(first).is_err());
        // Established connections stay open.
        kept.send(REQUEST);
        assert_eq!(text(&mut kept), "a");
        assert_eq!(ask(second), "a");
        handle.shutdown(GRACE);
        TcpStream::connect(second).unwrap_err();
    }
}

#[test]
fn serves_connections_in_the_backlog_of_a_removed_listener() {
    for number in 0..20 {
        let listener = local(&Settings::default());
        let first = listener.local_address().address().unwrap();
        let mut waiting: Vec<Client> = (0..20).map(|_| Client::connect_to(first)).collect();
        waiting.iter_mut().for_each(|client| client.send(REQUEST));
        let server = named("a", Settings::default()).listen("127.0.0.1:0").unwrap();
        let mut handle = server.start().unwrap();
        handle.listen(listener).unwrap();
        // The listener is removed alone, or closed with the server.
        if number % 2 == 0 {
            assert!(handle.stop_listening(&LocalAddress::Tcp(first)));
        }
        let stopped = std::thread::spawn(move || handle.shutdown(GRACE));
        for mut client in waiting {
            assert_eq!(text(&mut client), "a");
        }
        stopped.join().unwrap();
    }
}

#[test]
fn new_limits_apply_to_new_connections() {
    let server = named("a", Settings::default()).listen("127.0.0.1:0").unwrap();
    let handle = server.start().unwrap();
    let mut former = Client::connect(&handle);
    former.send(REQUEST);
    assert_eq!(text(&mut former), "a");
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100));
    handle.update_settings(Settings { max_request_line_bytes: 50, ..Settings::default() });
    until("the limit applies", || {
        let mut client = Client::connect(&handle);
        client.send(&long);
        client.response().status == 414
    });
    former.send(&long);
    assert_eq!(text(&mut former), "a");
    handle.update_settings(Settings { max_connections_per_peer: 1, ..Settings::default() });
    let mut refused = Client::connect(&handle);
    assert_eq!(refused.response().status, 503);
    drop(former);
    until("a connection is accepted", || {
        let mut client = Client::connect(&handle);
        client.send(&long);
        client.response().status == 200
    });
    handle.shutdown(GRACE);
}

#[test]
fn raising_the_limit_admits_waiting_connections() {
    let (handle, permits) = holding_server(1, 2, false);
    let mut busy = Client::connect(&handle);
    busy.get("/hold");
    until("the request has arrived", || permits.is_waited_for());
    let mut second = Client::connect(&handle);
    second.send(REQUEST);
    handle.update_settings(limit_of(2));
    assert_eq!(text(&mut second), "a");
    permits.release(1);
    assert_eq!(text(&mut busy), "held");
    handle.shutdown(GRACE);
}

// -- the limit of connections

/// Timeouts that never expire in a test.
fn limit_of(max_connections: usize) -> Settings {
    let hour = Duration::from_secs(3_600);
    Settings { max_connections, head_timeout: hour, idle_timeout: hour, ..Settings::default() }
}

/// Permits for which requests for `/hold` wait.
#[derive(Clone)]
struct Permits {
    semaphore: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Permits {
    fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    fn release(&self, count: usize) {
        self.semaphore.add_permits(count);
    }
}

/// A server that answers `/hold` with a permit, and everything else at once.
fn holding_server(
    max_connections: usize,
    workers: usize,
    reuse_port: bool,
) -> (ServerHandle, Permits) {
    let permits = Permits { semaphore: Arc::new(Semaphore::new(0)), waiting: Arc::default() };
    let held = permits.clone();
    let app = async move |request: Request| {
        if request.path() == "/hold" {
            held.waiting.fetch_add(1, Relaxed);
            held.semaphore.acquire().await.unwrap().forget();
            held.waiting.fetch_sub(1, Relaxed);
            return Response::text("held");
        }
        Response::text("a")
    };
    let settings = Settings { reuse_port, ..limit_of(max_connections) };
    let server = boxed_server(app).settings(settings).workers(workers);
    (server.listen("127.0.0.1:0").unwrap().start().unwrap(), permits)
}

/// Number of clients whose connections the server has not closed.
fn count_open(clients: &[Client]) -> usize {
    let is_open = |client: &&Client| {
        client.socket().set_nonblocking(true).unwrap();
        let peeked = client.socket().peek(&mut [0]);
        client.socket().set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    clients.iter().filter(is_open).count()
}

#[test]
fn closes_longest_idle_connection_at_the_limit() {
    for (workers, reuse_port) in [(1, false), (2, false), (2, true)] {
        let (handle, _) = holding_server(3, workers, reuse_port);
        let connect = || {
            let mut client = Client::connect(&handle);
            client.send(REQUEST);
            assert_eq!(text(&mut client), "a");
            client
        };
        let mut clients: Vec<Client> = (0..3).map(|_| connect()).collect();
        // At the limit nothing is closed while no client waits.
        assert_eq!(count_open(&clients), 3);
        for _ in 1..=10 {
            let client = connect();
            if workers == 1 {
                clients.remove(0).assert_closed();
            } else {
                until("a connection is closed", || count_open(&clients) < 3);
            }
            // On a busy machine a connection may close so late that another one is closed, too.
            clients.retain(|client| count_open(std::slice::from_ref(client)) == 1);
            clients.push(client);
            while clients.len() < 3 {
                clients.push(connect());
            }
        }
        for client in &mut clients {
            client.assert_open("/");
        }
        handle.shutdown(GRACE);
    }
}

#[test]
fn never_closes_a_busy_connection_at_the_limit() {
    let (handle, permits) = holding_server(2, 2, false);
    let mut busy: Vec<Client> = (0..2).map(|_| Client::connect(&handle)).collect();
    busy.iter_mut().for_each(|client| client.get("/hold"));
    until("the requests have arrived", || permits.waiting.load(Relaxed) == 2);
    let mut waiting = Client::connect(&handle);
    waiting.send(REQUEST);
    waiting.socket().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(waiting.socket().peek(&mut [0]).is_err(), "a connection was served beyond the limit");
    waiting.socket().set_read_timeout(Some(GRACE)).unwrap();
    // A busy connection becomes idle and makes room.
    permits.release(1);
    assert_eq!(text(&mut waiting), "a");
    permits.release(1);
    busy.iter_mut().for_each(|client| assert_eq!(text(client), "held"));
    handle.shutdown(GRACE);
}

#[test]
fn closes_connections_without_a_complete_head_at_the_limit() {
    for (start, answer) in [("", None), ("GET / HTTP/1.1\r\nHost:", Some(408))] {
        let (handle, _) = holding_server(2, 1, false);
        let mut slow: Vec<Client> =
            (0..2).map(|_| Client::connect_and_send(&handle, start)).collect();
        let mut client = Client::connect(&handle);
        client.send(REQUEST);
        assert_eq!(text(&mut client), "a", "{start:?}");
        if let Some(status) = answer {
            assert_eq!(slow[0].response().status, status);
        }
        slow[0].assert_closed();
        handle.shutdown(GRACE);
    }
}

#[test]
fn closes_idle_http2_connection_at_the_limit() {
    let (handle, permits) = holding_server(2, 1, false);
    let (mut idle, mut busy) = (RawClient::connect(&handle), RawClient::connect(&handle));
    for client in [&mut idle, &mut busy] {
        let stream = client.get("/");
        assert_eq!(client.response(stream).text(), "a");
    }
    let held = busy.get("/hold");
    until("the request has arrived", || permits.is_waited_for());
    let mut client = Client::connect(&handle);
    client.send(REQUEST);
    assert_eq!(idle.read_goaways(), ["NO_ERROR", "NO_ERROR"]);
    assert_eq!(text(&mut client), "a");
    permits.release(1);
    assert_eq!(busy.response(held).text(), "held");
    handle.shutdown(GRACE);
}

#[test]
fn shutdown_waits_for_connections_with_earlier_limits() {
    let barrier = Arc::new(Barrier::new(2));
    let app_barrier = barrier.clone();
    let app = async move |request: Request| {
        if request.path() == "/slow" {
            let barrier = app_barrier.clone();
            tokio::task::spawn_blocking(move || (barrier.wait(), barrier.wait())).await.unwrap();
        }
        Response::text("a")
    };
    let handle = boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut slow = Client::connect(&handle);
    slow.get("/slow");
    barrier.wait();
    let mut idle = Vec::new();
    for seconds in 1..5 {
        let idle_timeout = Duration::from_secs(60 * seconds);
        handle.update_settings(Settings { idle_timeout, ..Settings::default() });
        let mut client = Client::connect(&handle);
        client.send(REQUEST);
        assert_eq!(text(&mut client), "a");
        idle.push(client);
    }
    let stopped = std::thread::spawn(move || handle.shutdown(GRACE));
    idle.iter_mut().for_each(Client::assert_closed);
    assert!(!stopped.is_finished(), "a request is in flight");
    barrier.wait();
    let last = slow.response();
    assert_eq!((&*last.body, last.header("connection")), (&b"a"[..], Some("close")));
    stopped.join().unwrap();
}

/// Responds with the name of the worker thread.
async fn worker_name(_: Request) -> Response {
    Response::text(std::thread::current().name().unwrap_or_default().to_owned())
}

/// Connections in sequence: each ends before the next one begins.
#[test]
fn workers_take_turns_at_short_connections() {
    const CONNECTIONS: usize = 40;
    let server = boxed_server(worker_name).workers(2).listen("127.0.0.1:0").unwrap();
    let handle = server.start().unwrap();
    let exchange = || {
        let mut client = Client::connect_to(address(&handle));
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let name = text(&mut client);
        client.assert_closed();
        name
    };
    let of_first = (0..CONNECTIONS).filter(|_| exchange() == "weft-0").count();
    // The end of a connection may count a moment later.
    assert!((CONNECTIONS / 4..=CONNECTIONS * 3 / 4).contains(&of_first), "{of_first}");
    handle.shutdown(GRACE);
}

#[test]
fn distributes_inherited_sockets_to_the_workers() {
    let settings = shared_ports();
    let former = named("old", settings.clone()).listen("127.0.0.1:0").unwrap().start().unwrap();
    let address = address(&former);
    let mut server = boxed_server(worker_name).settings(settings).workers(2);
    for (_, socket) in former.sockets().unwrap() {
        server = server.listener(Listener::inherited(socket).unwrap());
    }
    let handle = server.start().unwrap();
    assert_eq!(count_sockets(&handle, address), 2);
    former.drain_after_handover(GRACE, Duration::ZERO);
    for worker in ["weft-0", "weft-1"] {
        until("each worker accepts connections", || ask(address) == worker);
    }
    handle.shutdown(GRACE);
}

#[test]
fn hands_sockets_over_to_another_server() {
    for settings in [Settings::default(), shared_ports()] {
        let former = named("old", settings.clone()).listen("127.0.0.1:0").unwrap().start().unwrap();
        let address = address(&former);
        let mut idle = Client::connect_to(address);
        idle.send(REQUEST);
        assert_eq!(text(&mut idle), "old");
        let mut server = named("new", settings);
        for (bound, socket) in former.sockets().unwrap() {
            let listener = Listener::inherited(socket).unwrap();
            assert_eq!(*listener.local_address(), bound);
            server = server.listener(listener);
        }
        let handle = server.start().unwrap();
        let drained = std::thread::spawn(move || former.drain_after_handover(GRACE, GRACE));
        until("only the new server responds", || (0..8).all(|_| ask(address) == "new"));
        // The new server may get all connections before the former one has begun to drain.
        until("the former server announces the end of the connection", || {
            idle.send(REQUEST);
            let last = idle.response();
            assert_eq!(&*last.body, b"old");
            last.header("connection") == Some("close")
        });
        idle.assert_closed();
        drained.join().unwrap();
        assert_eq!(ask(address), "new");
        handle.shutdown(GRACE);
    }
}

#[test]
fn keeps_a_socket_file_claimed_by_another_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = format!("unix:{}", path.display());
    let start = || named("a", Settings::default()).listen(&text).unwrap().start().unwrap();
    start().shutdown(GRACE);
    assert!(!path.exists());
    let former = start();
    let (_, socket) = former.sockets().unwrap().remove(0);
    let inherited = || Listener::inherited(socket.try_clone().unwrap()).unwrap();
    assert_eq!(*inherited().local_address(), LocalAddress::Unix(path.clone()));
    assert!(!inherited().has_socket_file());
    // A server that fails before or after its start leaves the file to the former server.
    let start_inherited = || {
        let listener = inherited().with_socket_file().unwrap();
        named("b", Settings::default()).listener(listener).start().unwrap()
    };
    drop(inherited().with_socket_file().unwrap());
    start_inherited().shutdown(GRACE);
    UnixStream::connect(&path).unwrap();
    let server = start_inherited();
    server.claim_socket_files();
    former.drain_after_handover(GRACE, Duration::ZERO);
    UnixStream::connect(&path).unwrap();
    server.shutdown(GRACE);
    assert!(!path.exists());
}

#[test]
fn rejects_descriptors_that_are_not_listening_sockets() {
    let connected = UnixStream::pair().unwrap().0;
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = tempfile::tempfile().unwrap();
    let descriptors: [OwnedFd; 3] = [connected.into(), datagrams.into(), file.into()];
    for descriptor in descriptors {
        let error = Listener::inherited(descriptor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Listen);
        let expected = "the inherited descriptor is not a listening stream socket on an Internet \
                        address or a path";
        assert_eq!(error.to_string(), expected);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let socket = UnixListener::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = Listener::inherited(socket).unwrap().with_socket_file().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    Listener::inherited(TcpListener::bind("[::1]:0").unwrap()).unwrap();
}
