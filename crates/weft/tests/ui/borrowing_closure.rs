//~ `greeting` does not live long enough
//~ argument requires that `greeting` is borrowed for `'static`

use weft::{Request, Response, serve};

fn main() {
    let greeting = String::from("Hello\n");
    let _ = serve("127.0.0.1:0", async |_: Request| Response::text(greeting.clone()));
}
