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

// The program has no library target. These modules of it are included, so that the tests of the
// proxy can use settings for which the program has no option.
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../../src/apps/proxy/mod.rs"]
mod proxy_app;
// Imported by `proxy_app`.
#[path = "../../src/counter.rs"]
mod counter;
#[path = "../../src/exhaustion.rs"]
mod exhaustion;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/gateway.rs"]
mod gateway;
#[path = "../../src/apps/timer.rs"]
mod timer;
