//! Requests and responses as applications see them, independent of the HTTP version.

pub(crate) mod body;
pub(crate) mod fields;
pub(crate) mod payload;
pub(crate) mod representation;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod upgrade;
