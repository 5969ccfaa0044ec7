//! Hello, world: `cargo run --release -p weft-http --example hello -- [ADDRESS]`.

use weft::{Request, Response};

async fn hello(_: Request) -> Response {
    Response::text("Hello, world!\n")
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    weft::serve(address, hello)
}
