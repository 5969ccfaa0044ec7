//! Streams the body of a POST or PUT back: `cargo run --release -p weft-http --example echo --
//! [ADDRESS]`.

use weft::{Method, Request, Response, Server, Settings};

async fn echo(request: Request) -> Response {
    match *request.method() {
        // The response body is read from the request body: neither is ever in memory as a whole.
        Method::POST | Method::PUT => Response::from_body(request.into_body()),
        _ => Response::text("POST or PUT something, and it comes back.\n"),
    }
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    // Nothing is stored, so a body of any size is allowed.
    let settings = Settings { max_body_bytes: u64::MAX, ..Settings::default() };
    Server::new(echo).settings(settings).listen(address)?.run()
}
