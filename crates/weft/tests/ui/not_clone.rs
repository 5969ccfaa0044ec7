//~ the trait bound `Site: Clone` is not satisfied

use weft::{Application, Request, Response, serve};

struct Site;

impl Application for Site {
    async fn call(&self, _: Request) -> Response {
        Response::text("Hello\n")
    }
}

fn main() {
    let _ = serve("127.0.0.1:0", Site);
}
