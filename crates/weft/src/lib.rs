//! An HTTP engine: bytes in, an application in the middle, bytes out.
//!
//! ```no_run
//! use weft::{Request, Response};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
//!
//! fn main() -> weft::Result<()> { weft::serve("127.0.0.1:8080", hello) }
//! ```
//!
//! An [`Application`] is a function from [`Request`] to [`Response`]. A [`Server`] runs it on
//! one event loop per core, within the limits of its [`Settings`]. ARCHITECTURE.md in the
//! repository has the map.

// What users see.
mod app; // Application and Middleware, and how plain functions become them
mod request; // Request, Head, Connection, Peer, Shutdown
mod headers; // the header list: slices of one buffer
pub mod path; // percent-decoding, and a path as its segments
mod body; // Body: nothing, bytes, or a stream that is pulled
mod response; // Response and its payloads
mod fields; // the field list of a response
mod upgrade; // a connection that is handed over
#[cfg(feature = "websocket")]
pub mod websocket; // WebSockets over that
pub mod sse; // server-sent events
#[cfg(feature = "tls")]
pub mod tls; // TLS: certificates, handshakes, records
#[cfg(not(feature = "tls"))]
#[path = "tls/absent.rs"]
mod tls; // what stands in its place
#[cfg(feature = "form")]
pub mod form; // forms and uploads, read within limits
#[cfg(feature = "form")]
mod query; // a target's query, decoded
#[cfg(feature = "cookie")]
pub mod cookie; // cookies: a request's, and those that a response sets
mod directory; // Directory: the application that serves a folder's files
mod settings; // every limit and timeout
mod error; // Error { kind }; whose fault it is
mod hooks; // what a server tells of its life
mod log_format; // LogFormat: what a line of the access log looks like
pub mod middleware; // what stands before an application, one file each
pub mod tower; // run tower services and axum routers; use tower layers
pub mod testing; // call an application without a socket

// The flow, in order.
mod server; // Server: bind, start, run, shut down
mod acceptors; // who accepts from which socket
mod listen; // sockets that listen, and what is accepted
mod worker; // one core: clock, buffers, connections
mod conn; // one connection: transport, input, deadline
mod socket; // the kernel's sockets: tried first, waited for then
mod proxy_protocol; // who the client of a proxy is
mod h1; // the HTTP/1 loop: start reading here
mod h2; // HTTP/2, onto the same application
mod send; // payload → socket

// What the flow leans on.
mod buffers; // per-worker buffer pool
pub mod date; // the Date field, formatted once a second
mod log_line; // a line of the access log, and how it is escaped
mod date_parse; // the three forms of a date → an instant
mod deadline; // one sweeper per worker for all timeouts
mod panic; // a panic of the application is an error
mod disk; // reads of files that do not hold up the event loop
mod accept; // what a request accepts: codings, languages
mod coding; // content codings: brotli, zstd, gzip
mod mime; // file name → media type
mod representation; // what a request for a file gets of it
mod payload; // what follows a head, as one body
mod conditional; // preconditions: 304 and 412
mod range; // the parts of a file that are asked for
#[doc(hidden)]
pub mod bare; // the pure parts, for benchmarks and fuzz targets

pub use app::{Application, BoxApplication, Innermost, Middleware, Next, Put, With};
pub use body::Body;
pub use conn::Stream;
pub use directory::{Directory, DirectorySettings, HeaderRule, Links};
pub use error::{Error, ErrorKind, Fault, Result};
pub use h1::client;
pub use headers::Headers;
pub use hooks::{Hooks, Record};
pub use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
pub use listen::{Address, Bound, Listener};
pub use log_format::LogFormat;
pub use proxy_protocol::Network;
pub use request::{Head, Peer, Request, Shutdown};
pub use response::{File, Response};
pub use server::{Hurry, Running, Server, serve};
pub use settings::{Disconnect, Settings};
pub use upgrade::Upgraded;
