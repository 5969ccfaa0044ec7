//! Requests and responses in the form that applications use, independent of the HTTP version.

pub(crate) mod body;
pub(crate) mod fields;
pub(crate) mod payload;
pub(crate) mod representation;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod upgrade;
