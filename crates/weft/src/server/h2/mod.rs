//! HTTP/2 (RFC 9113), onto the same application.
//!
//! # The life of a connection
//!
//! 1. [`serve`] takes over a connection that has chosen HTTP/2, by its preface or by ALPN.
//! 2. `Session::poll` takes in the frames that have come (`connection`, which knows of no socket).
//!    Each request is a future of its own (`exchange`), beside the others in the connection's
//!    task. Most are done at once.
//! 3. None of them touches the socket: they leave what they have with the connection (`sending`),
//!    whose streams take turns, and are woken when it has something for them. What was gathered
//!    leaves in one write.
//! 4. With no request at hand the connection rests, under a deadline. When that is over, or
//!    the server is to stop, the client is told (GOAWAY), and what it has begun is finished.
//!
//! Whatever an application may take to another thread, the body of a request or a tunnel, is the
//! other end of a `pipe`.

mod connection;
mod ending;
mod exchange;
mod incoming;
mod pipe;
mod receiving;
mod request;
mod response;
mod sending;
mod session;
mod streams;
mod tunnel;

pub(crate) use self::session::serve;
