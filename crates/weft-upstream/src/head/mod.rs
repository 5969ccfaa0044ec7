//! Heads of forwarded requests and responses. Pure.

pub(crate) mod body_hints;
pub(crate) mod client_certificate;
pub(crate) mod client_fields;
mod doubled_slashes;
pub(crate) mod field_filter;
pub(crate) mod field_names;
pub(crate) mod forwarded_request;
pub(crate) mod forwarded_response;
pub(crate) mod grpc;
pub(crate) mod hops;
pub(crate) mod request_fields;
pub(crate) mod rewritten_fields;
