//~ `Response: From<i32>` is not satisfied
//~ to implement `weft::Application`

use weft::{Request, serve};

async fn hello(_: Request) -> i32 {
    42
}

fn main() {
    let _ = serve("127.0.0.1:0", hello);
}
