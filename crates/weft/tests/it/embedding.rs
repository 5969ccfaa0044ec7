//! A server inside of another program: listeners of other libraries, streams that the program
//! passes, and waiting without a blocked thread.

use std::future::pending;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, address, boxed_server, stop};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use weft::net::{Listener, Peer};
use weft::server::ServerHandle;
use weft::{ErrorKind, Request, Response, Settings};

async fn addresses(request: Request) -> Response {
    let peer = request.peer();
    let is_client = peer.address().is_some_and(|address| address.port() != 0);
    Response::text(format!("{is_client} {:?}", peer.local_address()))
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn serves_listeners_of_std_and_tokio() {
    let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tokio = run(async {
        Listener::try_from(tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap()).unwrap()
    });
    for listener in [Listener::try_from(std).unwrap(), tokio] {
        let server = boxed_server(addresses).workers(1).listener(listener).start().unwrap();
        let mut client = Client::connect(&server);
        client.get("/");
        assert_eq!(client.response().text(), format!("true Some({})", address(&server)));
        stop(server);
    }
    let folder = tempfile::tempdir().unwrap();
    let unix = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
    let server = boxed_server(addresses).workers(1).listener(unix.try_into().unwrap());
    let server = server.start().unwrap();
    let mut socket = std::os::unix::net::UnixStream::connect(folder.path().join("s")).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut socket, request).unwrap();
    let response = std::io::read_to_string(socket).unwrap();
    assert!(response.ends_with("false None"), "{response}");
    stop(server);
}

/// A listener on all addresses has no address of its own that a client could use.
#[test]
fn local_address_is_that_of_the_connection() {
    let listener = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0));
    let Ok(listener) = listener else { return println!("SKIPPED: no IPv6") };
    let port = listener.local_addr().unwrap().port();
    let server = boxed_server(addresses).workers(1).listener(listener.try_into().unwrap());
    let server = server.start().unwrap();
    for local in ["127.0.0.1", "127.0.0.2"] {
        let local = SocketAddr::new(local.parse().unwrap(), port);
        let mut client = Client::connect_to(local);
        client.get("/");
        assert_eq!(client.response().text(), format!("true Some({local})"));
    }
    stop(server);
}

// -- streams

/// Serves a stream in a task that another thread may run.
fn serve(
    server: &ServerHandle,
    peer: Peer,
) -> (DuplexStream, tokio::task::JoinHandle<weft::Result<()>>) {
    let (client, stream) = duplex(4096);
    (client, tokio::spawn(server.serve_connection(stream, peer)))
}

async fn fetch(client: &mut DuplexStream) -> String {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut bytes = [0; 1024];
    let length = client.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn serves_streams_until_their_end() {
    // Only the shutdown can close an idle connection within the time of a test.
    let hour = Duration::from_secs(3_600);
    let settings = Settings { idle_timeout: hour, head_timeout: hour, ..Settings::default() };
    let server = boxed_server(addresses).settings(settings).workers(2).start_workers().unwrap();
    run(async {
        let peer = Peer::from(SocketAddr::from(([192, 0, 2, 1], 80)));
        let (mut client, served) = serve(&server, peer);
        assert!(fetch(&mut client).await.ends_with("\r\n\r\ntrue None"));
        assert!(fetch(&mut client).await.ends_with("\r\n\r\ntrue None"));
        drop(client);
        served.await.unwrap().unwrap();
        // Dropping the future closes the connection.
        let (mut client, served) = serve(&server, Peer::default());
        assert!(fetch(&mut client).await.ends_with("\r\n\r\nfalse None"));
        served.abort();
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        // So does the end of the server.
        let (mut client, served) = serve(&server, Peer::default());
        assert!(fetch(&mut client).await.ends_with("false None"));
        server.shutdown_async(Duration::from_secs(3_600)).await;
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        served.await.unwrap().unwrap();
    });
}

#[test]
fn streams_count_as_connections() {
    let settings =
        Settings { max_connections: 2, max_connections_per_peer: 1, ..Settings::default() };
    let server = boxed_server(addresses).settings(settings).workers(1).start_workers().unwrap();
    run(async {
        let peer = Peer::from(SocketAddr::from(([192, 0, 2, 1], 80)));
        let (mut first, served) = serve(&server, peer.clone());
        fetch(&mut first).await;
        let refused = serve(&server, peer.clone()).1.await.unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Accept);
        let (mut other, _served) = serve(&server, Peer::default());
        fetch(&mut other).await;
        let refused = serve(&server, Peer::default()).1.await.unwrap();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Accept);
        drop(first);
        served.await.unwrap().unwrap();
        let (mut again, _served) = serve(&server, peer);
        fetch(&mut again).await;
    });
    stop(server);
}

#[test]
fn start_requires_a_listener() {
    let error = boxed_server(addresses).start().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Listen);
}

// -- waiting

/// The only thread of the runtime runs the task that the request waits for.
#[test]
fn async_shutdown_waits_for_requests_without_blocking() {
    run(async {
        let (began, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let notify = (began.clone(), finish.clone());
        let app = move |_: Request| {
            let (began, finish) = notify.clone();
            async move {
                began.notify_one();
                finish.notified().await;
                Response::text("finished")
            }
        };
        let mut server =
            boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap();
        let mut client = tokio::net::TcpStream::connect(address(&server)).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        began.notified().await;
        tokio::select! {
            biased;
            () = server.ended() => panic!("the server runs"),
            () = async {} => {}
        }
        let task = tokio::spawn(server.shutdown_async(Duration::from_secs(3_600)));
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
        finish.notify_one();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with("finished"), "{response}");
        task.await.unwrap();
    });
}

#[test]
fn dropped_shutdown_continues() {
    let app = async |_: Request| pending::<Response>().await;
    let server = boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut client = Client::connect(&server);
    client.get("/");
    drop(server.shutdown_async(Duration::from_millis(10)));
    client.assert_closed();
}
