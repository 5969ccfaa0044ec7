//~ `Router` is not an application
//~ a tower service, such as a router of axum, becomes an application by `weft::tower::app(service)`

use weft::Server;

/// As axum's: a tower service, which the compiler does not have to know here.
#[derive(Clone)]
struct Router;

fn main() {
    let _ = Server::new(Router);
}
