//~ type mismatch in function arguments
//~ to implement `weft::Application`

use weft::{Request, Response, serve};

async fn hello(request: &Request) -> Response {
    Response::text(request.path().to_owned())
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
