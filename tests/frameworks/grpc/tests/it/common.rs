//! Servers, channels and programs.

use std::env;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use example_grpc::chat::Message;
use example_grpc::{app, routes};
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};
use weft::server::ServerHandle;
use weft::{Application, Server, Settings};

/// Longest time for anything that is expected to happen.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn message(text: &str) -> Message {
    Message { text: text.to_owned() }
}

pub fn serve(app: impl Application + Clone + Send + 'static, settings: Settings) -> ServerHandle {
    let server = Server::new(app).workers(1).settings(settings);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Serves the example.
pub async fn example(settings: Settings) -> ServerHandle {
    serve(app(routes().await, "https://app.example"), settings)
}

pub fn address(server: &ServerHandle) -> SocketAddr {
    server.addresses()[0].address().expect("an address of TCP")
}

pub async fn channel(server: &ServerHandle) -> Channel {
    let uri = format!("http://{}", address(server));
    Endpoint::try_from(uri).unwrap().connect().await.unwrap()
}

pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Returns `true` if the program is installed. Without it, the test is skipped, or fails with
/// `WEFT_REQUIRE_TOOLS=1`.
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_installed = env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_installed {
        let is_required = env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!is_required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
        eprintln!("skipped: {name} is not installed");
    }
    is_installed
}

/// Runs a program to its end.
pub async fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    in_time(command.output()).await.unwrap()
}
