//~ `Rc<String>` cannot be sent between threads safely

use std::rc::Rc;

use weft::{Request, Response, serve};

fn main() {
    let greeting = Rc::new(String::from("Hello\n"));
    let _ = serve("127.0.0.1:0", async move |_: Request| Response::text(greeting.to_string()));
}
