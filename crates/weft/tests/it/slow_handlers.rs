//! Handlers that block their worker are reported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft::hooks::SlowHandler;
use weft::testing::{TestRequest, TestServer};
use weft::{Hooks, Request, Response, Server};

use crate::common::Client;

/// Collects the text and the duration of each report.
#[derive(Clone)]
struct Reports {
    threshold: Duration,
    list: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Hooks for Reports {
    fn on_slow_handler(&self, slow: &SlowHandler<'_>) {
        self.list.lock().unwrap().push((slow.to_string(), slow.duration));
    }

    fn slow_handler_threshold(&self) -> Duration {
        self.threshold
    }
}

/// Takes 60 ms, with or without blocking its worker.
async fn handler(request: Request) -> Response {
    let time = Duration::from_millis(60);
    match request.path() {
        "/blocks" => std::thread::sleep(time),
        _ => tokio::time::sleep(time).await,
    }
    Response::text("ok")
}

fn reports(threshold: Duration, paths: &[&str]) -> Vec<(String, Duration)> {
    let reports = Reports { threshold, list: Arc::default() };
    let hooks = reports.clone();
    let server = Server::new(handler).hooks(move || hooks.clone());
    let server = TestServer::from_server(server);
    let mut client = Client::connect_to(server.address());
    for path in paths {
        client.get(path);
        assert_eq!(client.response().text(), "ok");
    }
    drop(client);
    server.stop();
    std::mem::take(&mut reports.list.lock().unwrap())
}

#[test]
fn handler_that_blocks_is_reported_once_per_second() {
    let threshold = Duration::from_millis(50);
    let reports_of = |paths| reports(threshold, paths);
    let found = reports_of(&["/blocks", "/blocks", "/blocks"]);
    // The third request may end a second after the first one, on a busy machine.
    assert!((1..3).contains(&found.len()), "{found:?}");
    let (text, duration) = &found[0];
    assert!(*duration >= threshold);
    for part in ["GET /blocks", "spawn_blocking", &format!("{duration:?}")] {
        assert!(text.contains(part), "{text}");
    }
    // A busy machine may delay a poll.
    assert!((0..10).any(|_| reports_of(&["/waits", "/waits"]).is_empty()));
    assert!(reports(Duration::MAX, &["/blocks"]).is_empty());
}

#[test]
fn block_in_place_on_a_worker_names_the_remedy() {
    async fn blocks(_: Request) -> Response {
        tokio::task::block_in_place(|| Response::text("ok"))
    }
    let call = std::panic::catch_unwind(|| TestRequest::get("/").call(blocks));
    let message = *call.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("spawn_blocking"), "{message}");
}
