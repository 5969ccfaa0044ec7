//! Small applications on frameworks, served by Weft and driven by clients, over HTTP/1.1 and 2. Each file shows
//! the lines that differ from those for the server of the framework; docs/frameworks.md has them.

mod client;
mod graphql;
mod layered;
mod mcp;
mod poem;
mod salvo;
mod sessions;
mod socketio;
mod warp;

use std::net::SocketAddr;

use weft::server::ServerHandle;
use weft::{Application, Server};

/// Serves an application with one worker.
fn serve(app: impl Application + Clone + Send + 'static) -> ServerHandle {
    Server::new(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap()
}

fn address(server: &ServerHandle) -> SocketAddr {
    server.addresses()[0].address().expect("an address of TCP")
}
