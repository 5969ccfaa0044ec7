//! Integration tests of the library. They are one binary, because linking one binary takes much
//! less time than linking one for each file. To run the tests of one module:
//! `cargo test -p weft-http --test it wire::`.
//!
//! All tests share a process. A test that measures the memory of the process belongs to
//! `tests/memory`.

mod common;

mod axum;
#[cfg(feature = "axum")]
mod axum_twins;
mod bandwidth;
#[cfg(all(feature = "cache", feature = "form"))]
mod cache;
mod compress;
mod directory;
mod default_reports;
#[cfg(all(unix, feature = "cache", feature = "form"))]
mod disk_cache;
mod embedding;
mod entity_tag;
mod file_cache;
#[cfg(feature = "form")]
mod forms;
#[cfg(all(feature = "tls", feature = "tower"))]
mod grpc;
mod h2;
#[cfg(feature = "http3")]
mod h3;
mod handlers;
mod http1;
#[cfg(all(feature = "tls", feature = "websocket"))]
mod hyper_upgrade;
#[cfg(all(feature = "tls", feature = "websocket"))]
mod interop;
mod layers;
mod lifecycle;
mod listeners;
mod listing;
mod middleware_limits;
mod middleware_routes;
mod properties;
mod records;
mod root_link;
mod root_names;
#[cfg(feature = "axum")]
mod serve_axum;
mod site;
mod slow_handlers;
mod sse;
#[cfg(feature = "tls")]
mod streams;
#[cfg(feature = "tls")]
mod tls;
mod testing;
mod tower;
#[cfg(feature = "tracing")]
mod tracing_events;
#[cfg(feature = "tls")]
mod transports;
mod ui;
mod upgrade;
#[cfg(feature = "websocket")]
mod websocket;
mod wire;
