//! A client for requests of the program itself.

pub(crate) mod remote_server;
