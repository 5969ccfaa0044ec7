//! The shutdown of a server.

use super::*;

#[test]
fn shutdown_finishes_active_requests_and_closes_idle_connections() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = release.clone();
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let server = start(move |request: Request| {
        let (released, count) = (released.clone(), count.clone());
        async move {
            if request.path() == "/slow" {
                count.fetch_add(1, SeqCst);
                released.notified().await;
            }
            Response::text("done")
        }
    });
    let address = common::address(&server);
    let (mut idle, mut busy) = (Client::connect(&server), Client::connect(&server));
    idle.assert_open("/");
    busy.assert_open("/");
    busy.get("/slow");
    // Otherwise the connection may still be idle.
    until("the request has started", || started.load(SeqCst) == 1);
    let stopping = std::thread::spawn(move || server.shutdown(common::TEST_TIMEOUT));
    idle.assert_closed();
    until("connections are refused", || std::net::TcpStream::connect(address).is_err());
    release.notify_one();
    let response = busy.response();
    assert_eq!((response.text(), response.header("connection")), ("done", Some("close")));
    busy.assert_closed();
    stopping.join().unwrap();
}

#[test]
fn shutdown_serves_connections_in_the_listen_queue() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let server = start(move |request: Request| {
        count.fetch_add(1, SeqCst);
        if request.path() == "/block" {
            // The worker thread is blocked and does not accept connections.
            let _ = released.lock().unwrap().recv();
        }
        async { Response::text("ok") }
    });
    let mut first = Client::connect(&server);
    first.get("/block");
    until("the worker is blocked", || started.load(SeqCst) == 1);
    let mut others: Vec<Client> = (0..20).map(|_| Client::connect(&server)).collect();
    others.iter_mut().for_each(|client| client.get("/"));
    let stopping = std::thread::spawn(move || server.shutdown(common::TEST_TIMEOUT));
    release.send(()).unwrap();
    for client in std::iter::once(&mut first).chain(&mut others) {
        assert_eq!(client.response().status, 200);
        client.assert_closed();
    }
    stopping.join().unwrap();
}

#[test]
fn shutdown_aborts_requests_after_the_grace_period() {
    let alive = CloneCounter::new();
    let server = start(waiting_app(&alive));
    let idle = alive.count();
    let mut client = Client::connect(&server);
    client.get("/wait");
    until("the call starts", || alive.count() > idle);
    server.shutdown(Duration::from_millis(50));
    client.assert_closed();
}

#[test]
fn shutdown_handle_shortens_a_running_shutdown() {
    let server = start(async |request: Request| match request.path() {
        "/wait" => pending().await,
        _ if request.shutdown().is_requested() => Response::text("shutting down"),
        _ => Response::text("running"),
    });
    let (shutdown_handle, address) = (server.shutdown_handle(), common::address(&server));
    let (mut idle, mut busy) = (Client::connect(&server), Client::connect(&server));
    busy.get("/wait");
    shutdown_handle.set_deadline(Duration::ZERO);
    idle.get("/");
    assert_eq!(idle.response().text(), "running", "a deadline alone does not start a shutdown");
    let stopping =
        std::thread::spawn(move || server.drain_after_handover(Duration::MAX, Duration::MAX));
    until("connections are refused", || std::net::TcpStream::connect(address).is_err());
    shutdown_handle.set_deadline(Duration::from_millis(50));
    idle.assert_closed();
    busy.assert_closed();
    stopping.join().unwrap();
}

#[test]
fn shutdown_uses_the_shorter_of_both_deadlines() {
    const SOON: Duration = Duration::from_millis(50);
    for (grace, deadline) in [(Duration::MAX, SOON), (SOON, Duration::MAX)] {
        let alive = CloneCounter::new();
        let server = start(waiting_app(&alive));
        let idle = alive.count();
        let mut client = Client::connect(&server);
        client.get("/wait");
        until("the call starts", || alive.count() > idle);
        // Set before the shutdown starts.
        server.shutdown_handle().set_deadline(deadline);
        let stopping = std::thread::spawn(move || server.shutdown(grace));
        client.assert_closed();
        stopping.join().unwrap();
    }
}

#[test]
fn workers_listen_on_their_own_sockets_with_reuse_port() {
    let settings = Settings { reuse_port: true, ..Settings::default() };
    let server = boxed_server(echo).settings(settings).workers(3);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    for _ in 0..50 {
        Client::connect(&server).assert_open("/");
    }
    let mut idle = Client::connect(&server);
    idle.assert_open("/");
    stop(server);
    idle.assert_closed();
}

#[test]
fn connections_are_distributed_evenly_among_workers() {
    let server = boxed_server(async |_: Request| {
        Response::text(std::thread::current().name().unwrap_or("?").to_owned())
    });
    let server = server.workers(3).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut clients: Vec<Client> = (0..9).map(|_| Client::connect(&server)).collect();
    let mut names: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            client.get("/");
            client.response().text().to_owned()
        })
        .collect();
    names.sort();
    let three = |name: &str| vec![name.to_owned(); 3];
    assert_eq!(names, [three("weft-0"), three("weft-1"), three("weft-2")].concat());
    stop(server);
}

#[test]
fn shutdown_notifies_response_streams() {
    let server = start(async |request: Request| {
        let mut shutdown = request.shutdown();
        assert!(!shutdown.is_requested());
        let mut parts = vec![Bytes::from_static(b"goodbye"), Bytes::from_static(b"hello ")];
        let mut wait = Box::pin(async move { shutdown.requested().await });
        Response::from_body(Body::stream(Chunks(move |cx: &mut Context<'_>| {
            if parts.len() == 1 && wait.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(parts.pop())
        })))
    });
    let mut client = Client::connect(&server);
    client.get("/");
    until("the stream starts", || client.read() > 0 && client.received().ends_with(b"hello \r\n"));
    server.shutdown(common::TEST_TIMEOUT);
    assert_eq!(client.response().text(), "hello goodbye");
}
