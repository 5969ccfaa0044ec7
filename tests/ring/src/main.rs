//! Without a default of the process, rustls selects the only provider that is compiled. If a dependency enabled
//! another one, this would panic.

use weft::testing;
use weft::{Request, Response};

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _config = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    testing::get(hello, "/").assert_text("Hello\n");
    println!("rustls has one provider");
}
