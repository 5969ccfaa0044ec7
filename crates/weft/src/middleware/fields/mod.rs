//! Fields of requests and responses.

mod headers; // response fields; security headers
mod real_address; // client address from `Forwarded` or `X-Forwarded-For`
pub(super) mod request_id; // request IDs

pub use headers::{ResponseHeaders, SecurityHeaders};
pub use real_address::RealAddress;
pub use request_id::{RequestId, RequestIds};
