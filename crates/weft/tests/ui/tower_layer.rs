//~ `CorsLayer` is not middleware
//~ a layer of tower by `weft::tower::layer(layer)`

use weft::{Request, Response};

/// As a layer of tower-http, which the compiler does not have to know here.
struct CorsLayer;

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _ = weft::stack(hello).with(CorsLayer);
}
