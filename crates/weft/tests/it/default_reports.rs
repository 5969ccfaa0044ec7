//! Servers without hooks, in debug builds: errors that nobody would see are on standard error.

use std::process::Command;
use std::time::Duration;

use weft::hooks::Record;
use weft::{Error, Hooks, Request, Response, Server};

use crate::common::Client;

/// Hooks that count responses, and have the default of all other methods.
struct OnlyResponses;

impl Hooks for OnlyResponses {
    fn on_response(&self, _: &Record<'_>) {}

    fn slow_handler_threshold(&self) -> Duration {
        Duration::from_millis(20)
    }
}

async fn handler(request: Request) -> weft::Result<Response> {
    match request.path() {
        "/error" => Err(Error::other("the database is away")),
        "/field" => Ok(Response::text("").with_header("x-own", "a\nb")),
        "/slow" => {
            std::thread::sleep(Duration::from_millis(40));
            Ok(Response::text("late"))
        }
        "/large" => Ok(Response::text(weft::Body::from("abc").collect(2).await?)),
        // A fault of the client.
        _ => Err(Error::status(http::StatusCode::NOT_FOUND, "no such page")),
    }
}

/// Serves one request in a process of its own, if the other test has started it.
#[test]
fn serve_one_request() {
    let Ok(path) = std::env::var("WEFT_REPORTED_PATH") else { return };
    let server = Server::new(handler).workers(1);
    let server = match std::env::var("WEFT_REPORTED_HOOKS").is_ok() {
        true => server.hooks(|| OnlyResponses),
        false => server,
    };
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let mut client = Client::connect_to(server.addresses()[0].address().unwrap());
    client.get(&path);
    client.response();
    server.shutdown(Duration::from_secs(10));
}

#[test]
fn errors_and_slow_handlers_are_written_to_standard_error() {
    for (path, has_hooks, expected) in [
        ("/error", false, "the database is away"),
        ("/error", true, "the database is away"),
        ("/field", false, "invalid value of the field `x-own`"),
        ("/slow", true, "has blocked its worker"),
        ("/large", false, "larger than 2 bytes: the limit is `Body::collect(limit)`"),
        ("/nothing", false, ""),
    ] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "default_reports::serve_one_request", "--nocapture"]);
        command.env("WEFT_REPORTED_PATH", path);
        if has_hooks {
            command.env("WEFT_REPORTED_HOOKS", "");
        }
        let stderr = String::from_utf8(command.output().unwrap().stderr).unwrap();
        let reports: Vec<&str> = stderr.lines().filter(|line| line.starts_with("weft: ")).collect();
        // Reports of release builds go to hooks and subscribers only.
        let count = usize::from(!expected.is_empty() && cfg!(debug_assertions));
        assert_eq!(reports.len(), count, "{path}: {stderr}");
        assert!(reports.iter().all(|line| line.contains(expected)), "{path}: {stderr}");
    }
}
