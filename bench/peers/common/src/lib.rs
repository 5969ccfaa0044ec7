//! Common parts of the peers: their arguments, their response, and an event loop per worker. Each
//! peer is started as `peer-NAME ADDRESS WORKERS`.

use std::future::Future;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// The response body for all paths.
pub const PAGE: &str = include_str!("../../../site/index.html");

/// The delay of the response for `/slow`.
pub const SLOW: Duration = Duration::from_millis(10);

/// The content type of [`json`].
pub const JSON_TYPE: &str = "application/json";

/// A list of twenty records, serialized for each request.
pub fn json() -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Record {
        id: u32,
        name: &'static str,
        is_active: bool,
        score: f64,
    }
    let record = |id| Record { id, name: "a name", is_active: true, score: 0.5 };
    let records: [Record; 20] = std::array::from_fn(|id| record(id as u32));
    serde_json::to_vec(&records).expect("records can be serialized")
}

/// A constant response. The responses of the other peers have the same fields.
pub const CANNED: &str = concat!(
    "HTTP/1.1 200 OK\r\n",
    "content-type: text/html\r\n",
    "content-length: 151\r\n",
    "server: floor\r\n",
    "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
    "\r\n",
    include_str!("../../../site/index.html"),
);

/// Returns the listening address and the number of workers.
pub fn arguments() -> (SocketAddr, usize) {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: peer ADDRESS WORKERS");
    let address = next().parse().expect("an address");
    (address, next().parse().expect("a number of workers"))
}

/// Creates the listening socket of one worker.
pub fn listener(address: SocketAddr) -> std::net::TcpListener {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("SO_REUSEADDR");
    socket.set_reuse_port(true).expect("SO_REUSEPORT");
    socket.set_nonblocking(true).expect("O_NONBLOCK");
    socket.bind(&address.into()).expect("cannot bind the address");
    socket.listen(4096).expect("cannot listen");
    socket.into()
}

/// Runs a server on one thread per worker, each with its own event loop and listening socket: the
/// fastest setup of tokio.
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
