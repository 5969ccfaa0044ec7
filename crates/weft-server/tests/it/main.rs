//! Integration tests of the program. They are one binary, because linking one binary takes much
//! less time than linking one for each file. To run the tests of one module:
//! `cargo test -p weft-server --test it cgi::`.

mod common;

mod accel;
mod access;
mod acme;
mod balance;
mod budgets;
mod buffering;
mod cgi;
mod config;
mod config_changes;
mod defer_accept;
mod deploy;
mod differential;
mod dns;
mod early_responses;
mod editing;
mod error_pages;
mod failing_upstreams;
mod fairness;
mod fastcgi;
mod faults;
mod fields;
mod http2;
mod http2_upstream;
mod idioms;
mod import;
mod jwt;
mod kept_clients;
mod layers;
mod include;
mod lifecycle;
mod limits;
mod log;
mod log_daemons;
mod log_routes;
mod log_values;
mod matching;
mod client_address;
mod mirror;
mod options;
mod paths;
mod program;
mod proxy;
mod proxy_wire;
mod request_id;
mod rewriting;
mod route_limits;
mod scgi_uwsgi;
mod security;
mod service;
mod split;
mod status;
mod streams;
mod substitution;
mod templates;
mod tls;
mod tools;
mod toxics;
mod tracing;
mod try_files;
mod upstream_changes;
mod upstream_tls;
mod warnings;

// The program has no library target. These modules of it are included, so that the tests of the
// proxy can use settings for which the program has no option.
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../../src/apps/proxy/mod.rs"]
mod proxy_app;
// Imported by `proxy_app`.
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../../src/base/mod.rs"]
mod base;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/client_certificate.rs"]
mod client_certificate;
#[path = "../../src/apps/decimal.rs"]
mod decimal;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/client_limit.rs"]
mod client_limit;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/request_fields.rs"]
mod request_fields;
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../../src/apps/script/mod.rs"]
mod script;
#[allow(unused_imports, dead_code, reason = "the program uses more of it")]
#[path = "../../src/apps/spool/mod.rs"]
mod spool;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/stderr.rs"]
mod stderr;
#[allow(dead_code, reason = "CGI uses more of it")]
#[path = "../../src/apps/task.rs"]
mod task;
#[path = "../../src/apps/timer.rs"]
mod timer;
