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
//!
//! # Modules
//! This page has the names of a first application; the modules have the others: [`net`] addresses,
//! listeners and the client, [`server`] the handles of a server, [`hooks`] what a server reports,
//! [`message`] the parts of requests and responses, [`header`] the names of fields.
//!
//! # Features
//! The features with a star are enabled by default; `full` enables all but `anyhow`, `axum`, `log`,
//! `secret-cookies` and `tls-ring`. With `default-features = false` the engine remains: the server
//! for HTTP/1 and HTTP/2 and the middleware, in 24 crates.
//!
//! | feature | adds |
//! | --- | --- |
//! | `anyhow` | `anyhow::Error` as the error of handlers |
//! | `axum` | `axum`: a replacement for `axum::serve`; brings axum |
//! | `brotli`, `gzip`*, `zstd` | the content coding, for `middleware::Compress` and `Directory` |
//! | `cache` | `cache`: a response cache in front of any application |
//! | `cookie` | `cookie`: request cookies and `Set-Cookie` |
//! | `files`* | `files`: `Directory`, an application that serves files |
//! | `form`* | `form`: forms, uploads and queries |
//! | `http3` | HTTP/3 beside each TLS listener; brings `tls` |
//! | `json` | `Request::json`, `Response::json`, and JSON in tests and events |
//! | `secret-cookies` | signed and encrypted cookie jars |
//! | `signal`* | `Server::graceful`: an orderly end at Ctrl-C and SIGTERM |
//! | `sse`* | `sse`: server-sent events |
//! | `tls` | `tls`, `Server::listen_tls`, with the provider aws-lc-rs of rustls |
//! | `tls-ring` | the same with ring, for programs whose rustls has this provider |
//! | `tower`* | `tower`: tower services, axum routers, tower layers |
//! | `tracing`, `log` | [events of the engine](crate#events) for these crates |
//! | `websocket` | `websocket`: WebSockets (`accept_http` also needs `tower`) |
//!
//! # Events
//! [`Hooks`] get the errors of the engine and of handlers. With the feature `tracing`, they are
//! also events with the target `weft`, so that one line of a program shows them:
//! `tracing_subscriber::fmt::init()`. Failures of the application are `ERROR`, failures of the
//! system and handlers that block their worker `WARN`, failed handshakes and bodies over a limit
//! `INFO`, and other errors of clients `DEBUG`. With the feature `log`, loggers of that crate get
//! them.
//!
//! The crate `weft-acme` orders and renews certificates.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(not(unix), feature = "files"))]
compile_error!(
    "the feature `files` needs a Unix system; on Windows, disable the default features of Weft and \
     enable only the other features that the application needs"
);

// The foundation: no knowledge of HTTP messages.
mod clock; // deadlines and dates
#[cfg(any(feature = "brotli", feature = "files", feature = "gzip", feature = "zstd"))]
#[cfg_attr(
    not(all(feature = "files", feature = "gzip")),
    allow(dead_code, reason = "files and middleware use different parts")
)]
mod compression; // content codings: brotli, zstd, gzip
mod disk; // open files, read without blocking the event loop
pub mod error; // Error { kind }, and the party at fault
mod exclusive; // values that are Sync without locks for their owner
mod panic; // panics of the application as errors
mod peer; // Peer, TlsSession
mod random; // boundaries and keys
#[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "only services make such calls"))]
mod runtime; // the runtime of a worker, and calls outside of it
mod settings; // all limits and timeouts
mod stream; // Io: any bidirectional byte stream
mod sync; // locks of cells that threads share
#[cfg_attr(
    not(all(feature = "files", feature = "_tls")),
    allow(dead_code, unused_imports, reason = "TLS and files use different calls")
)]
mod sys; // calls of the system, one file per system
mod trace; // events for the crate `tracing`

// The interface.
mod app; // Application, Middleware, and their implementations for functions
mod stack; // middleware around an application
pub mod hooks; // Hooks: notifications from a server
pub mod message; // Request, Response, Body, Upgraded

// The engine.
pub mod net; // listeners, sockets, TLS
pub mod server; // Server, workers, HTTP/1 and HTTP/2 connections

// Applications and middleware.
#[cfg(feature = "axum")]
pub mod axum; // axum routers: a replacement for axum::serve
#[cfg(feature = "cache")]
pub mod cache; // a response cache in front of applications
#[cfg(feature = "cookie")]
pub mod cookie; // request cookies and Set-Cookie
#[cfg(feature = "files")]
pub mod files; // Directory: an application that serves files
#[cfg(feature = "form")]
pub mod form; // forms, uploads and queries
#[cfg(feature = "json")]
mod json; // Request::json, Response::json
pub mod client_limit; // limits on concurrent uses, with a share per client
pub mod middleware; // one file per middleware
#[cfg(feature = "sse")]
pub mod sse; // server-sent events
#[cfg(feature = "_tls")]
pub mod tls; // TLS of a server
pub mod testing; // calls an application without a socket
#[cfg(feature = "tower")]
pub mod tower; // tower services, axum routers, tower layers
#[cfg(feature = "websocket")]
pub mod websocket; // WebSockets

// The names that a first application needs, at most 25 (the test `root_names`). Others are in the
// public modules, so that this page remains a page.
pub use app::{Application, BoxApplication, Middleware, Next, with_state};
pub use disk::File;
#[doc(inline)]
pub use error::{Error, ErrorKind, Result};
#[doc(inline)]
pub use hooks::Hooks;
pub use http;
#[doc(no_inline)]
pub use http::{Method, StatusCode};
pub use message::body::Body;
pub use message::into_response::IntoResponse;
pub use message::request::Request;
pub use message::response::Response;
#[doc(inline)]
pub use server::{Server, serve};
pub use settings::Settings;
pub use stack::stack;

/// Dates as text: the formats of RFC 9110 §5.6.7 and RFC 3339.
pub mod date {
    pub use weft_proto::semantics::date::{http_date, rfc3339, rfc3339_millis};
}

/// The status of gRPC calls, for the middleware [`Grpc`](middleware::Grpc).
pub mod grpc {
    pub use crate::message::grpc::status_response;
    pub use weft_proto::semantics::grpc::{Code, Status};
}

/// Attributes of files beneath a directory, for the program.
#[cfg(all(unix, feature = "files"))]
#[doc(hidden)]
pub mod beneath {
    pub use crate::sys::{EntryKind, FileStat, Links, open_directory as open_root, stat_beneath};
}

/// Names and values of fields: constants such as [`CONTENT_TYPE`](header::CONTENT_TYPE) and the
/// types of the crate `http`, and [`Headers`](header::Headers), the fields of a received message.
pub mod header {
    #[doc(no_inline)]
    pub use http::header::*;
    pub use weft_proto::Headers;
}

/// Lines of an access log: the format that writes the [`Record`](hooks::Record) of a request, and
/// its values.
pub mod log {
    pub use crate::middleware::logs::{LogFormat, LogPrivacy, LogValue, LogValues, client_network};
}

/// Percent-decoding, normalization, and the segments of a path.
pub mod path {
    pub use crate::middleware::routing::clean_path::clean;
    pub use weft_proto::semantics::path::{Segments, decode};
}

/// Compiles the recipes of the cookbook and the programs of the tutorial as documentation tests.
#[cfg(all(doctest, feature = "anyhow", feature = "axum", feature = "cache", feature = "json"))]
mod book {
    macro_rules! pages {
        ($($name:ident: $page:literal,)*) => {
            $(#[doc = include_str!(concat!("../../../docs/", $page))] mod $name {})*
        };
    }
    pages! {
        cookbook: "cookbook.md",
        hello: "programmers/1-hello.md",
        routes: "programmers/2-routes.md",
        json: "programmers/3-json.md",
        middleware: "programmers/4-middleware.md",
        files: "programmers/5-files.md",
        websocket: "programmers/6-websocket.md",
        tests: "programmers/7-tests.md",
        axum: "programmers/8-axum.md",
        production: "programmers/10-production.md",
        hyper: "hyper.md",
    }
}
