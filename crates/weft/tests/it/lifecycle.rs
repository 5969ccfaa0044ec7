//! The construction of a server's applications, and its end at a future or a signal.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use weft::net::{Address, Listener};
use weft::{ErrorKind, Request, Response, Server, Settings};

use crate::common::Client;

const SOON: Duration = Duration::from_secs(10);

/// Responds as soon as the server shuts down; never to `/endless`. An interim response shows that a
/// request is in progress.
async fn last_words(request: Request) -> Response {
    if request.path() != "/" {
        request.early_hints(["</a>"]);
    }
    match request.path() {
        "/" => Response::text("hello"),
        "/wait" => {
            request.shutdown().requested().await;
            Response::text("bye")
        }
        _ => std::future::pending().await,
    }
}

fn listener() -> (Listener, SocketAddr) {
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&address, &Settings::default()).unwrap().remove(0);
    let address = listener.local_address().address().unwrap();
    (listener, address)
}

/// Runs a server on a thread. The receiver gets the result of its end.
fn run(
    run: impl FnOnce(Server<weft::BoxApplication>) -> weft::Result<()> + Send + 'static,
) -> (SocketAddr, mpsc::Receiver<weft::Result<()>>) {
    let (listener, address) = listener();
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let server = Server::new(weft::BoxApplication::new(last_words));
        ended.send(run(server.workers(1).listener(listener)))
    });
    (address, end)
}

/// Sends a request, and waits until it is in progress.
fn request_in_progress(address: SocketAddr, path: &str) -> Client {
    let mut client = Client::connect_to(address);
    client.get("/");
    assert_eq!(client.response().text(), "hello");
    client.get(path);
    assert_eq!(client.response().status, 103);
    client
}

#[test]
fn run_until_answers_requests_in_progress() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (address, end) = run(move |server| server.run_until(async { drop(stopped.await) }));
    let mut client = request_in_progress(address, "/wait");
    assert!(end.try_recv().is_err());
    stop.send(()).unwrap();
    assert_eq!(client.response().text(), "bye");
    assert!(end.recv_timeout(SOON).unwrap().is_ok());
}

#[test]
fn run_until_closes_connections_after_the_grace_period() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (address, end) = run(move |server| {
        let server = server.grace_period(Duration::from_millis(50));
        server.run_until(async { drop(stopped.await) })
    });
    let mut client = request_in_progress(address, "/endless");
    stop.send(()).unwrap();
    assert!(end.recv_timeout(SOON).unwrap().is_ok());
    client.assert_closed();
}

/// One test, because all servers of the process get the signals.
#[cfg(feature = "signal")]
#[test]
fn graceful_servers_end_at_signals() {
    use rustix::process::{Signal, getpid, kill_process};

    for signal in [Signal::TERM, Signal::INT] {
        let (address, end) = run(|server| server.graceful().run());
        let mut client = request_in_progress(address, "/wait");
        kill_process(getpid(), signal).unwrap();
        assert_eq!(client.response().text(), "bye");
        assert!(end.recv_timeout(SOON).unwrap().is_ok());
    }
    // The second signal does not wait for the grace period.
    let (address, end) = run(|server| server.grace_period(Duration::MAX).graceful().run());
    let mut waiting = request_in_progress(address, "/wait");
    let mut endless = request_in_progress(address, "/endless");
    kill_process(getpid(), Signal::TERM).unwrap();
    assert_eq!(waiting.response().text(), "bye");
    assert!(end.try_recv().is_err());
    kill_process(getpid(), Signal::TERM).unwrap();
    assert!(end.recv_timeout(SOON).unwrap().is_ok());
    endless.assert_closed();
}

#[test]
fn application_is_constructed_with_any_error() {
    #[derive(Debug)]
    struct NoDatabase;

    impl std::fmt::Display for NoDatabase {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the database does not answer")
        }
    }
    impl std::error::Error for NoDatabase {}

    let start = |is_up: bool| {
        let server = Server::try_per_worker(move || async move {
            if is_up { Ok(last_words) } else { Err(NoDatabase) }
        });
        server.workers(1).listen("127.0.0.1:0").unwrap().start()
    };
    start(true).unwrap().shutdown(Duration::ZERO);
    let error = start(false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ServiceFailed);
    assert!(error.source().unwrap().is::<NoDatabase>());
    assert!(error.to_string().contains("the database does not answer"), "{error}");
    let own = Server::try_per_worker(|| async {
        let error = weft::Error::new(ErrorKind::InvalidSetting, "no name");
        Err::<weft::BoxApplication, _>(error)
    });
    let own = own.listen("127.0.0.1:0").unwrap().start().unwrap_err();
    assert_eq!(own.kind(), ErrorKind::InvalidSetting);
}
