//! The [`Middleware`](crate::Middleware) included with the engine, one file each.
//!
//! A request passes through middleware in the order in which it is added. A recommended order:
//!
//! ```
//! use std::time::Duration;
//! use weft::middleware::*;
//! use weft::{Application, Request, Response, testing};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello\n") }
//!
//! let app = hello
//!     .with(RequestIds::new())
//!     .with(RealAddress::x_forwarded_for(["10.0.0.0/8".parse()?]))
//!     .with(Log::new(|line| eprint!("{line}")))
//!     .with(RateLimit::new(50, Duration::from_secs(1)))
//!     .with(BasicAuth::new("hello", fixed_users(&[("alice", "s3cret")])))
//!     .with(BodyLimit::new(1 << 20))
//!     .with(Compress::new())
//!     .with(ConcurrencyLimit::new(1_000))
//!     .with(Timeout::new(Duration::from_secs(10)))
//!     .with(CatchPanic::new());
//! assert_eq!(testing::get(app, "/").status, 401);
//! # Ok::<(), weft::Error>(())
//! ```
//!
//! Such chains produce deeply nested types. If the compiler reports a query overflow, which can
//! happen with more than fifteen middleware, add `#![recursion_limit = "256"]` to the program.

// Identification, limits and failures of requests.
mod request_id; // request IDs
mod real_address; // client address from `Forwarded` or `X-Forwarded-For`
pub(crate) mod log_format; // formats of the access log
pub(crate) mod log_value; // values of a request by name
mod log_line; // one line of the access log
mod log; // access log
mod address_filter; // access by the address of the client
mod rate_limit; // request rate limit per client
mod auth; // authentication with passwords and bearer tokens
mod body_limit; // limit on the size of request bodies
mod body_rate; // minimum rate of request bodies
mod concurrency; // limit on concurrent requests
mod timeout; // limit on the response time of the application
mod optional; // middleware that is selected at run time
mod catch_panic; // error page for panics of the application
mod grpc; // deadlines and status of gRPC calls

// Routing, and changes to the request that the application gets.
mod virtual_hosts; // one application per host
mod mount; // another application for the paths under a prefix
mod strip_prefix; // removal of a path prefix
mod retry_after; // Retry-After of responses
mod rewrite; // path rewriting
mod clean_path; // normalization of paths
mod canonical; // redirects to the canonical host and to HTTPS
mod grpc_web; // gRPC-Web as gRPC
mod method_override; // `X-HTTP-Method-Override`
mod head; // HEAD requests handled as GET

// Changes to the response.
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod compress; // content coding of responses
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod encoded; // body compressed while it is polled
mod error_pages; // pages for errors
mod etag; // entity-tags and 304 responses
mod cors; // cross-origin resource sharing
mod substitute; // substitution of texts in bodies
mod headers; // response fields; security headers
mod health; // health check endpoint

#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use crate::compression::Coding;
pub use address_filter::AddressFilter;
pub use auth::{
    BasicAuth, BearerAuth, User, basic_credentials, bearer_token, fixed_tokens, fixed_users,
};
pub use body_limit::BodyLimit;
pub use body_rate::BodyRate;
pub use canonical::Canonical;
pub use catch_panic::CatchPanic;
pub use clean_path::{CleanPath, TrailingSlash};
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use compress::Compress;
pub use concurrency::ConcurrencyLimit;
pub use cors::Cors;
pub use error_pages::ErrorPages;
pub use etag::ETag;
pub use grpc::Grpc;
pub use grpc_web::GrpcWeb;
pub use head::HeadAsGet;
pub use headers::{ResponseHeaders, SecurityHeaders};
pub use health::Health;
pub use log::Log;
pub use method_override::MethodOverride;
pub use mount::Mount;
pub use optional::Optional;
pub use rate_limit::RateLimit;
pub use real_address::RealAddress;
pub use request_id::{RequestId, RequestIds};
pub use rewrite::Rewrite;
pub use strip_prefix::StripPrefix;
pub use substitute::{Replacement, Substitute};
pub use timeout::Timeout;
pub use virtual_hosts::VirtualHosts;
