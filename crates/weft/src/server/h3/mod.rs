//! HTTP/3 (RFC 9114).
//!
//! # The life of a connection
//!
//! 1. [`serve_endpoint`] receives the datagrams of a worker's socket, and accepts connections.
//!    Each runs in a task of its own (`driver`).
//! 2. The driver processes what the endpoint has queued for its connection. The transport reports
//!    the streams that have changed, and `connection` reads them: requests, content, the control
//!    stream. Each request is a future of its own (`sink`), beside the others in the task.
//! 3. Exchanges write to the streams of the transport, which bounds the data that the client has not
//!    acknowledged. After each turn, the driver sends the output of all streams in few system calls.
//! 4. Without requests the connection is idle, with a deadline. When that expires, or the server
//!    shuts down, GOAWAY is sent, and open requests are completed.

mod connection; // streams and their requests
mod driver; // the task of a connection
mod endpoints; // all addresses, for acceptors and other processes
mod listener; // connection attempts of a socket
mod outgoing; // content that the transport has not accepted
mod pending_reset; // resets that wait for the delivery of earlier output
mod sink; // the sending side of an exchange
mod stream; // a request and its response

pub(crate) use self::driver::serve;
pub(crate) use self::endpoints::Http3Endpoints;
pub(crate) use self::listener::{QuicListener, QuicWorker, serve_endpoint};
