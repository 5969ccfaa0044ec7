//! HTTP/2 (RFC 9113).
//!
//! # The life of a connection
//!
//! 1. [`serve`] takes over a connection that has negotiated HTTP/2, by its preface or by ALPN.
//! 2. `Driver::poll` processes the received frames (`connection`, which does no I/O). Each
//!    request is a future of its own (`sink`), beside the others in the connection's task
//!    (`multiplex/exchanges`). Most complete when they are first polled.
//! 3. Exchanges never access the socket: they queue their output in the connection, which frames
//!    the data of its streams in turn (`connection/send.rs`). Buffered output is sent in one write.
//! 4. Without requests the connection is idle, with a deadline. When that expires, or the server
//!    shuts down, GOAWAY is sent, and open streams are completed.
//!
//! A body or a tunnel, which the application may move to another thread, is the other end of a
//! pipe (`multiplex/pipe`).

mod connection;
mod demand;
mod driver;
mod outbound;
mod sink;
mod streams;
mod turns;

pub(crate) use self::driver::serve;
