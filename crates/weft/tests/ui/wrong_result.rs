//~ `i32` is not a response
//~ a handler cannot return this
//~ handlers and middleware return `weft::Response`, text, bytes, `StatusCode`,

use weft::{Request, serve};

async fn hello(_: Request) -> i32 {
    42
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
