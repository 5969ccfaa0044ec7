//! Weft, the library, with all its limits and clocks as they are by default.

use weft::{Request, Response, Server};

async fn answer(request: Request) -> Response {
    if request.path() == "/slow" {
        tokio::time::sleep(peer::SLOW).await;
    }
    Response::html(peer::PAGE)
}

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    Server::new(answer).workers(workers).listen(address)?.run()
}
