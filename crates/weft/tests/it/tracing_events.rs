//! Events of the engine for the crate `tracing`.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};
use weft::testing::TestServer;
use weft::{Request, Response};

use crate::common::{Client, until};

/// All events of the process with the target `weft`, one a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "weft"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);

        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                write!(self.0, " {}={value:?}", field.name()).unwrap();
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        writeln!(self.0.lock().unwrap(), "{}", text.0).unwrap();
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Returns the lines of the events, which workers of all tests emit.
fn lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let lines = Lines::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        lines
    })
}

#[test]
fn failures_of_handlers_and_of_clients_are_events() {
    async fn handler(request: Request) -> weft::Result<Response> {
        match request.path() {
            "/traced-blocks" => std::thread::sleep(Duration::from_millis(150)),
            "/traced-fails" => {
                let cause = std::io::Error::other("the disk has failed");
                return Err(cause.into());
            }
            _ => {}
        }
        Ok(Response::text("ok"))
    }
    let lines = lines();
    let server = TestServer::start(handler);
    for request in [
        "GET /traced HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /traced-fails HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /traced-blocks HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /traced-malformed HTTP/1.1\r\nHost : a\r\n\r\n",
    ] {
        let mut client = Client::connect_to(server.address());
        client.send(request);
        client.response();
    }
    for parts in [
        &[
            "WARN",
            "the disk has failed",
            "method=\"GET\"",
            "path=\"/traced-fails\"",
            "peer=127.0.0.1:",
        ][..],
        &["WARN", "GET /traced-blocks has blocked its worker", "spawn_blocking"],
        &["DEBUG", "kind=Malformed", "a space before the colon"],
    ] {
        until("the event is emitted", || {
            let lines = lines.0.lock().unwrap();
            lines.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        });
    }
    let is_traced = |line: &&str| line.contains("/traced\"");
    assert_eq!(lines.0.lock().unwrap().lines().find(is_traced), None);
    server.stop();
}
