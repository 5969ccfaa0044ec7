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
//! [`ServerExt::domain`] has the details, and [`HttpsServer`] more settings. [`Acme`] is for servers that
//! open their listeners themselves.
//!
//! Each name has a certificate of its own, so that a name that cannot be validated does not keep the
//! others from theirs. It is renewed in the time that the authority suggests (RFC 9773), or else after
//! two thirds of its validity; connections stay open. At most 8 orders are in progress. After a failure
//! the present certificate stays in use, and the next attempt follows after a delay, which grows.
//! Failures, delays and results are logged by the crate `log`; the error of a name is also in
//! [`Acme::certificates`].
//!
//! Accounts and certificates are entries of a [`CertificateStore`], and in memory. Processes with the
//! same store share its certificates, and one of them orders a name.

// One task in a thread of its own, the `manager`, decides when a certificate is due (`renewal`), and
// runs the orders (`attempt`, `order`). A handshake with a name without certificate may wait for one on demand
// (`on_demand`, `demand`). The authority's validations are answered from `challenges` by the application
// and by TLS.
mod accounts; // revocation, and new keys of accounts
mod acme; // orders and certificates of a server
mod attempt; // one attempt to renew a certificate
mod authority; // requests to the authority
mod certificate_store; // the trait of stores
mod challenges; // responses to the authority's validations
mod demand; // one certificate on demand
mod dns; // TXT records for validations
mod failures; // log lines about failures
mod file_store; // a store of files
mod http_client; // the trait of HTTP clients
mod https_server; // ServerExt::domain
mod invalid_setting; // the error of an invalid setting
mod manager; // orders certificates when they are due
mod name; // names and patterns
mod on_demand; // requests of handshakes, and the permission of orders
mod order; // one order
mod registry; // the certificates of all names in memory
mod renewal; // times of renewals and of retries
mod self_signed; // certificates until the first order has ended
mod settings; // what to order, from which authority
mod sign_in; // accounts with authorities
mod store; // accounts and certificates in a store
mod stored; // a stored certificate, and when it is due
mod tls_client; // an HTTP client

pub use acme::Acme;
pub use certificate_store::{CertificateStore, Lease, Version};
pub use dns::{DnsFuture, DnsProvider, DnsSettings, TxtRecord};
pub use file_store::FileStore;
pub use http_client::{HttpClient, ResponseFuture};
pub use https_server::{HttpsServer, ServerExt};
pub use name::{Name, NamePattern};
pub use on_demand::{OnDemandSettings, OrderPermission, OrderRate, PermissionFuture};
pub use registry::CertificateInfo;
pub use self_signed::self_signed;
pub use settings::{
    AcmeSettings, ChallengeKind, ExternalAccount, LETS_ENCRYPT, LETS_ENCRYPT_STAGING,
};
pub use tls_client::TlsClient;
