//! Integration tests of the program. They are one binary, because linking one binary takes much
//! less time than linking one for each file. To run the tests of one module:
//! `cargo test -p weft-server --test it cgi::`.

mod common;

mod cgi;
mod config;
mod deploy;
mod http2;
mod lifecycle;
mod limits;
mod log;
mod program;
mod proxy;
mod proxy_wire;
mod service;
mod status;
mod tls;
mod tools;

// Modules of the program that the tests of the proxy include with it, see `proxy`.
#[path = "../../src/counter.rs"]
mod counter;
#[path = "../../src/exhaustion.rs"]
mod exhaustion;
