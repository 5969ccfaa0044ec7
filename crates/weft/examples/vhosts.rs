//! Two virtual hosts on one address: `cargo run --release -p weft-http --example vhosts --
//! [ADDRESS]`, then open http://shop.localhost:8080/ and http://anna.blog.localhost:8080/.

use weft::middleware::{Mount, VirtualHosts};
use weft::{Application, Request, Response};

async fn shop(request: Request) -> Response {
    Response::text(format!("The shop, at {}\n", request.path()))
}

async fn blog(request: Request) -> Response {
    let host = request.host().unwrap_or_default();
    let name = host.split('.').next().unwrap_or_default();
    Response::text(format!("The blog of {name}\n"))
}

async fn status(_: Request) -> Response {
    Response::text("All is well.\n")
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let hosts = VirtualHosts::new()
        .host("shop.localhost", shop)
        .host("*.blog.localhost", blog)
        .fallback(async |_: Request| Response::text("Ask for shop.localhost.\n"));
    // The path is mounted on every host.
    weft::serve(address, hosts.wrap(Mount::new("/status", status)))
}
