//~ `Log` is not middleware
//~ expected middleware here
//~ middleware is an async function or closure from `(weft::Request, weft::Next<'_>)` to `weft::Response`

use weft::{Application, Request, Response};

struct Log;

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _ = hello.wrap(Log);
}
