//! Certificates that are ordered from a certificate authority by ACME (RFC 8555), and renewed.
//!
//! ```no_run
//! use weft::{Request, Response, Server};
//! use weft_acme::ServerExt;
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
//!
//! fn main() -> weft::Result<()> { Server::new(hello).domain("example.org").run() }
//! ```
//!
//! [`ServerExt::domain`] has the details, and [`HttpsServer`] more settings. [`Acme`] is for
//! servers that open their listeners themselves.
//!
//! Each name has a certificate of its own, so that a name that cannot be validated does not keep
//! the others from theirs. It is renewed in the time that the authority suggests (RFC 9773), or
//! else after two thirds of its validity; connections stay open. At most 8 orders are in progress.
//! After a failure the present certificate stays in use, and the next attempt follows after a
//! delay, which grows. Failures, delays and results are logged by the crate `log`; the error of a
//! name is also in [`Acme::certificates`].
//!
//! Accounts and certificates are entries of a [`CertificateStore`], and in memory. Processes with
//! the same store share its certificates, and one of them orders a name. If it is killed, another
//! one continues its order. With [`SharedValidations`] the authority may reach any of them.
//!
//! The feature `tls`, which is enabled by default, has the cryptography of aws-lc-rs. Programs
//! whose rustls has the provider ring enable `tls-ring` without default features.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(feature = "tls", feature = "tls-ring")))]
compile_error!("weft-acme needs the feature `tls` or `tls-ring`, with the cryptography of its TLS");

// One task in a thread of its own (`orders`) decides when a certificate is due, and runs the
// orders. A handshake with a name without certificate may wait for an order (`on_demand`). The
// authority's validations are answered by the application and by TLS, from `validation`.
mod acme; // orders and certificates of a server
mod authority; // the client side of ACME
mod client; // requests to authorities
mod https_server; // ServerExt::domain
mod name; // names and patterns
mod on_demand; // handshakes that wait for a certificate, and the permission of orders
mod orders; // orders and renewals
mod self_signed; // certificates until the first order has ended
mod settings; // names, authorities, stores
mod store; // accounts and certificates in a store
mod sys; // calls of the system
mod validation; // validations of names

pub use acme::Acme;
pub use client::http_client::{HttpClient, ResponseFuture};
pub use client::tls_client::TlsClient;
pub use https_server::{HttpsServer, ServerExt};
pub use name::{Name, NamePattern};
pub use on_demand::on_demand_settings::{
    OnDemandSettings, OrderPermission, OrderRate, PermissionFuture,
};
pub use self_signed::self_signed;
pub use settings::{AcmeSettings, ExternalAccount, LETS_ENCRYPT, LETS_ENCRYPT_STAGING};
pub use store::certificate_store::{CertificateStore, Lease, Version};
pub use store::file_store::FileStore;
pub use store::stored_certificate::CertificateInfo;
pub use validation::challenge_kind::ChallengeKind;
pub use validation::dns_provider::{DnsFuture, DnsProvider, DnsSettings, TxtRecord};
pub use validation::shared_validations::{SharedValidations, ValidationFuture};
