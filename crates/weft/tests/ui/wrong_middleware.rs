//~ expected to take 2 arguments, but it takes 1 argument
//~ to implement `Middleware`

use weft::{Application, Request, Response};

async fn log(request: Request) -> Response {
    Response::text(request.path().to_owned())
}

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _ = hello.wrap(log);
}
