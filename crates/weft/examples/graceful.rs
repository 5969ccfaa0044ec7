//! A server that says goodbye: `cargo run --release -p weft-http --example graceful -- [ADDRESS]`.
//! Ctrl-C or SIGTERM stops it: who is being answered, such as by `/slow`, gets the answer, and
//! who waits for nothing in particular, as at `/wait`, is told.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use weft::{Request, Response, Server};

/// How long a stop waits for responses under way.
const GRACE: Duration = Duration::from_secs(10);

async fn app(request: Request) -> Response {
    match request.path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Response::text("Done.\n")
        }
        "/wait" => {
            request.shutdown().requested().await;
            Response::text("The server stops.\n")
        }
        _ => Response::text("Hello, world!\n"),
    }
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    // Before the first thread of the server, so that no signal is lost.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let server = Server::new(app).listen(address)?.start()?;
    runtime.block_on(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    server.shutdown(GRACE);
    Ok(())
}
