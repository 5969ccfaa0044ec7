//! Graceful shutdown: `cargo run --release -p weft-http --example graceful -- [ADDRESS]`.
//! Ctrl-C or SIGTERM starts it: requests in progress, such as `/slow`, are completed, and handlers
//! such as `/wait`, which waits for the shutdown, are notified.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use weft::{Request, Response, Server};

/// Maximum time that the shutdown waits for responses in progress.
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
    // The signal handlers are installed before the server starts, so that no signal is lost.
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
