//~ `f64` is not a response
//~ for a type of your own, implement `weft::IntoResponse`

use weft::{Next, Request, Response};

async fn time(request: Request, next: Next<'_>) -> f64 {
    next.call(request).await;
    0.1
}

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _ = weft::stack(hello).with(time);
}
