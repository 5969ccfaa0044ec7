//! What the peers have in common: their arguments, their answer, and one event loop for each
//! worker. Each is started as `peer-NAME ADDRESS WORKERS`.

use std::future::Future;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// What is answered at all paths but `/slow`.
pub const PAGE: &str = include_str!("../../../site/index.html");

/// And after which time at `/slow`.
pub const SLOW: Duration = Duration::from_millis(10);

/// All that a canned answer says; what the other peers send has the same fields.
pub const CANNED: &str = concat!(
    "HTTP/1.1 200 OK\r\n",
    "content-type: text/html\r\n",
    "content-length: 151\r\n",
    "server: floor\r\n",
    "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    "\r\n",
    include_str!("../../../site/index.html"),
);

/// Where to listen, and with how many workers.
pub fn arguments() -> (SocketAddr, usize) {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: peer ADDRESS WORKERS");
    let address = next().parse().expect("an address");
    (address, next().parse().expect("a number of workers"))
}

/// A listening socket of one worker.
pub fn listener(address: SocketAddr) -> std::net::TcpListener {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.set_reuse_port(true).expect("SO_REUSEPORT");
    socket.set_nonblocking(true).expect("O_NONBLOCK");
    socket.bind(&address.into()).expect("the address is free");
    socket.listen(4096).expect("it listens");
    socket.into()
}

/// Runs a server on as many threads as there are workers, each with an event loop and a
/// listening socket of its own: what tokio is fastest with.
pub fn on_each_worker<F: Future<Output = ()>>(serve: impl Fn(TcpListener) -> F + Copy + Send) {
    let (address, workers) = arguments();
    thread::scope(|scope| {
        for _ in 0..workers {
            let listener = listener(address);
            scope.spawn(move || {
                let runtime =
                    Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    serve(TcpListener::from_std(listener).expect("a listener")).await;
                });
            });
        }
    });
}
