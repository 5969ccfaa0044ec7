//~ `AppService<
//~ is not an application
//~ a tower service, such as a router of axum, becomes an application by `weft::tower::app(service)`

use weft::{Request, Response, serve, tower};

async fn hello(_: Request) -> Response {
    Response::text("hello")
}

fn main() {
    let _ = serve("127.0.0.1:0", tower::service(hello));
}
