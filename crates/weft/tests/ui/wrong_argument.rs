//~ type mismatch in function arguments
//~ to implement `weft::Application`

use weft::{Response, serve};

async fn hello(name: String) -> Response {
    Response::text(name)
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
