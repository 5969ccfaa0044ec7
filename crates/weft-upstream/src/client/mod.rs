//! A client for requests of the program itself.

pub(crate) mod own_request;
pub(crate) mod remote_server;
