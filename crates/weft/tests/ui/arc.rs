//~ `Arc<Site>` is not an application
//~ `weft::with_state(Arc::new(state), handler)`

use std::sync::Arc;

use weft::{Application, Request, Response, serve};

struct Site;

impl Application for Site {
    async fn call(&self, _: Request) -> Response {
        Response::text("Hello\n")
    }
}

fn main() {
    let _ = serve("127.0.0.1:0", Arc::new(Site));
}
