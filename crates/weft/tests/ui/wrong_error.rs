//~ `std::fmt::Error` is not a response
//~ a handler cannot return this
//~ for an error of another library, return `weft::Result` and write `.map_err(weft::Error::other)?`

use weft::{Request, Response, serve};

async fn hello(_: Request) -> Result<Response, std::fmt::Error> {
    Err(std::fmt::Error)
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
