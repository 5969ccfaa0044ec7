//~ `u16` is not an address to listen on
//~ an address is a text such as `127.0.0.1:8080`

use weft::{Request, serve};

fn main() {
    let _ = serve(8080_u16, async |_: Request| "Hello\n");
}
