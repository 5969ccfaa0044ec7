//! Requests and responses in the form that applications use, independent of the HTTP version.

pub(crate) mod bandwidth;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod error_page;
#[cfg_attr(not(feature = "files"), allow(dead_code, reason = "listings use the rest"))]
pub(crate) mod escape;
#[cfg_attr(not(feature = "files"), allow(dead_code, reason = "cached files use the rest"))]
pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod into_response;
pub(crate) mod limited_body;
pub(crate) mod payload;
pub(crate) mod record_data;
pub(crate) mod representation;
pub(crate) mod request;
pub(crate) mod request_head;
pub(crate) mod response;
pub(crate) mod shutdown;
pub(crate) mod upgrade;

pub use self::bandwidth::Bandwidth;
pub use self::body::Body;
pub use self::connection::HalfClose;
pub use self::request::Request;
pub use self::request_head::RequestHead;
pub use self::response::{Response, ResponseHeaderView};
pub use self::upgrade::Upgraded;
#[doc(no_inline)]
pub use http::Version;
