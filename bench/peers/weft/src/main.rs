//! Weft, the library, with default limits and timeouts.

use weft::{Request, Response, Server};

async fn respond(request: Request) -> Response {
    if request.path() == "/slow" {
        tokio::time::sleep(peer::SLOW).await;
    }
    Response::html(peer::PAGE)
}

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    Server::new(respond).workers(workers).listen(address)?.run()
}
