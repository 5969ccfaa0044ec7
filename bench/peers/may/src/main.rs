//! may_minihttp: coroutines, and a minimal HTTP implementation.

use std::io;

use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Page;

impl HttpService for Page {
    fn call(&mut self, request: Request, response: &mut Response) -> io::Result<()> {
        if request.path() == "/slow" {
            may::coroutine::sleep(peer::SLOW);
        }
        response.header("Content-Type: text/html").body(peer::PAGE);
        Ok(())
    }
}

fn main() {
    let (address, workers) = peer::arguments();
    may::config().set_workers(workers);
    HttpServer(Page).start(address).expect("cannot listen").join().expect("the server panicked");
}
