//! Caching by a shared cache (RFC 9111): decisions, without a store, a clock or I/O.
//!
//! A cache asks four questions, in the order of a request's life:
//!
//! 1. [`RequestControl::of`]: which stored responses does the client accept?
//! 2. [`Policy::of`]: may this response be stored, and how long is it fresh?
//! 3. [`Policy::reuse`]: may a stored response be sent for this request?
//! 4. [`vary::Selector`]: does it belong to this request at all?
//!
//! Times are in seconds since 1970, as the caller's clock has them.
//!
//! ```
//! use http::{HeaderMap, Method, StatusCode, header};
//! use weft_proto::Headers;
//! use weft_proto::semantics::caching::{Defaults, Exchange, Policy, RequestControl, Reuse};
//!
//! let request = Headers::parse("Host: example.org\r\n\r\n")?;
//! let mut response = HeaderMap::new();
//! response.insert(header::CACHE_CONTROL, "max-age=60".parse().unwrap());
//! let exchange = Exchange {
//!     method: &Method::GET, request: &request, status: StatusCode::OK, response: &response,
//!     requested: 1_000, received: 1_000,
//! };
//! let policy = Policy::of(&exchange, &Defaults::default()).expect("may be stored");
//! let control = RequestControl::of(&request);
//! assert_eq!(policy.reuse(&control, 1_010), Reuse::Fresh { age: 10 });
//! assert_eq!(policy.reuse(&control, 1_060), Reuse::Validate { age: 60, may_replace_error: false });
//! # Ok::<(), weft_proto::Error>(())
//! ```

mod control; // directives of Cache-Control and of targeted fields
mod exchange; // a request and its response, and settings
mod fields; // field values of messages, whatever holds them
mod freshness; // lifetime and age
mod policy; // Policy: what is known about a stored response
mod request_control; // RequestControl: directives of a request
pub mod status_field; // members of Cache-Status
pub mod stored_fields; // fields that are stored, and that a 304 changes
pub mod stored_form; // bytes that represent a policy and a selector
pub mod vary; // selecting fields of requests

#[cfg(test)]
mod tests;

pub use control::{MAX_SECONDS, TARGETED_FIELDS};
pub use exchange::{Defaults, Exchange};
pub use fields::FieldValues;
pub use policy::{Policy, Refusal, Reuse};
pub use request_control::RequestControl;
