//~ Response` is not a future
//~ to implement `weft::Application`

use weft::{Request, Response, serve};

fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
