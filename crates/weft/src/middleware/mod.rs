//! What stands before an application: [`Middleware`](crate::Middleware) that comes with the
//! engine, one file each.
//!
//! A request meets middleware in the order in which it is written. An order that makes sense:
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
//!     .with(Concurrency::new(1_000))
//!     .with(Timeout::new(Duration::from_secs(10)))
//!     .with(CatchPanic::new());
//! assert_eq!(testing::get(app, "/").status, 401);
//! # Ok::<(), weft::Error>(())
//! ```
//!
//! The types of such chains are deep. If the compiler says that its queries overflow, which may
//! happen with more than fifteen, `#![recursion_limit = "256"]` in the program helps.

// Who asks, how often, and for what.
mod request_id; // a name for each request
mod real_address; // who the client is that a trusted proxy asks for
pub(crate) mod log_format;
mod log_line;
mod log; // the access log: when a request is over, and who is given its line
mod rate_limit; // how often a client may ask
mod auth; // who may ask: passwords and tokens
mod body_limit; // request bodies that are too large
mod concurrency; // no more requests at a time than the application can bear
mod timeout; // an application that takes too long
mod catch_panic; // a page in place of an application's panic

// Which application, and what it sees of the request.
mod virtual_hosts; // an application for each host
mod mount; // another application for the paths under a prefix
mod strip_prefix; // a prefix of the path that the application does not see
mod rewrite; // other paths in place of those that were asked for
mod clean_path; // one path where several would mean the same
mod canonical; // one host and one scheme, to which others are redirected
mod method_override; // the method that a client meant and could not send
mod head; // HEAD, answered as GET

// What becomes of the response.
mod compress; // which responses are compressed, and what that does to their fields
mod encoded; // a body that is compressed as it is pulled
mod etag; // answers that the client has already are not sent again
mod cors; // what pages of other sites may read
mod headers; // fields that are set, added and removed; security headers
mod health; // whether the server is well, and means to stay

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::message::response::Response;

pub use crate::compression::Coding;
pub use auth::{BasicAuth, BearerAuth, User, fixed_tokens, fixed_users};
pub use body_limit::BodyLimit;
pub use canonical::Canonical;
pub use catch_panic::CatchPanic;
pub use clean_path::{CleanPath, FinalSlash};
pub use compress::Compress;
pub use concurrency::Concurrency;
pub use cors::Cors;
pub use etag::ETag;
pub use head::HeadAsGet;
pub use headers::{ResponseHeaders, SecurityHeaders};
pub use health::Health;
pub use log::Log;
pub use method_override::MethodOverride;
pub use mount::Mount;
pub use rate_limit::RateLimit;
pub use real_address::RealAddress;
pub use request_id::{RequestId, RequestIds};
pub use rewrite::Rewrite;
pub use strip_prefix::StripPrefix;
pub use timeout::Timeout;
pub use virtual_hosts::VirtualHosts;

/// A response that says its status, and when to ask again: in whole seconds, at least one
/// (RFC 9110 §10.2.3).
fn retry_after(status: StatusCode, after: Duration) -> Response {
    let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
    Response::from(status).with_header(RETRY_AFTER, seconds.max(1).to_string())
}
