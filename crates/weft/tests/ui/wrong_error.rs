//~ `Response: From<std::fmt::Error>` is not satisfied
//~ to implement `weft::Application`

use weft::{Request, Response, serve};

async fn hello(_: Request) -> Result<Response, std::fmt::Error> {
    Err(std::fmt::Error)
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
