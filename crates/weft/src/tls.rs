//! TLS: certificates, client authentication and session tickets of a server.
//!
//! ```no_run
//! use weft::tls::{Identity, TlsSettings, Tls};
//! use weft::{Request, Response, Server};
//!
//! # fn main() -> weft::Result<()> {
//! let tls = Tls::new(TlsSettings {
//!     identities: vec![Identity::files("site.crt", "site.key")],
//!     ..Default::default()
//! })?;
//! let server = Server::new(async |_: Request| Response::text("Hello\n"));
//! server.listen_tls(":8443", &tls)?.run()
//! # }
//! ```
//!
//! TLS 1.3 and 1.2 are supported, with authenticated encryption and forward secrecy only. The
//! protocol implementation is rustls, with the cryptography of aws-lc-rs, or of ring if `tls-ring`
//! is enabled without `tls`. AES-128 precedes AES-256, and ChaCha20 precedes both for a client that
//! prefers it. Clients resume sessions by tickets. Early data (0-RTT) is never accepted, because it
//! can be replayed. With the feature `brotli` or
//! `gzip`, certificates are compressed (RFC 8879).

pub use crate::net::tls::*;
