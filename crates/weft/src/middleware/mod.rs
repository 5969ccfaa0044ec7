//! The [`Middleware`](crate::Middleware) included with the engine, one file each, in a folder for
//! each purpose.
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
//! let app = weft::stack(hello)
//!     .with(RequestIds::new())
//!     .with(RealAddress::x_forwarded_for(["10.0.0.0/8".parse()?]))
//!     .with(Log::new(|line| eprintln!("{line}")))
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

pub(crate) mod logs; // access log
mod access; // addresses, passwords and tokens, origins
mod catch_panic; // error page for panics of the application
mod content; // content coding, entity-tags, error pages, substitution of texts
mod fields; // request IDs, client address, response fields
mod from_fn; // functions with a state
mod grpc; // deadlines and status of gRPC calls
mod grpc_web; // gRPC-Web as gRPC
mod health; // health check endpoint
mod limits; // rate, concurrency, time, and size and rate of request bodies
mod optional; // middleware that is selected at run time
pub(crate) mod routing; // hosts, paths and methods

#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use crate::compression::Coding;
pub use access::{
    AddressFilter, BasicAuth, BearerAuth, Cors, User, basic_credentials, bearer_token,
    fixed_tokens, fixed_users,
};
pub use catch_panic::CatchPanic;
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use content::Compress;
pub use content::{ETag, ErrorPages, Replacement, Substitute};
pub use fields::{RealAddress, RequestId, RequestIds, ResponseHeaders, SecurityHeaders};
pub use from_fn::{FromFn, from_fn};
pub use grpc::Grpc;
pub use grpc_web::GrpcWeb;
pub use health::Health;
pub use limits::{
    BodyLimit, BodyRate, ConcurrencyLimit, RateLimit, SharedRate, TakenRequests, Timeout,
};
pub use logs::Log;
pub use optional::Optional;
pub use routing::{
    Canonical, CleanPath, HeadAsGet, MethodOverride, Mount, Rewrite, StripPrefix, TrailingSlash,
    VirtualHosts,
};
