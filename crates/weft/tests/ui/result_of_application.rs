//~ is not an application
//~ a `Result` with an application is for `weft::Server::try_per_worker`

use weft::{Error, Request, Server};

fn main() {
    let _ = Server::per_worker(|| async { Ok::<_, Error>(async |_: Request| "Hello") });
}
