//! Certificates that are ordered from a certificate authority by ACME (RFC 8555), and renewed.
//!
//! ```no_run
//! use weft::{Request, Response, Server};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello, world!\n") }
//!
//! fn main() -> weft::Result<()> { Server::new(hello).domain("example.org").run() }
//! ```
//!
//! [`Server::domain`](crate::Server::domain) has the details, and [`HttpsServer`] more settings. [`Acme`]
//! is for servers that open their listeners themselves.
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
mod attempt; // one attempt to renew a certificate
mod authority; // requests to the authority
mod certificate_store; // the trait of stores
mod challenges; // responses to the authority's validations
mod demand; // one certificate on demand
mod dns; // TXT records for validations
mod failures; // log lines about failures
mod file_store; // a store of files
mod http_client; // the trait of HTTP clients
mod https_server; // Server::domain
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

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

pub use self::certificate_store::{CertificateStore, Lease, Version};
pub use self::dns::{DnsFuture, DnsProvider, DnsSettings, TxtRecord};
pub use self::file_store::FileStore;
pub use self::http_client::{HttpClient, ResponseFuture};
pub use self::https_server::HttpsServer;
pub use self::name::{Name, NamePattern};
pub use self::on_demand::{OnDemandSettings, OrderPermission, OrderRate, PermissionFuture};
pub use self::registry::CertificateInfo;
pub use self::settings::{
    AcmeSettings, ChallengeKind, ExternalAccount, LETS_ENCRYPT, LETS_ENCRYPT_STAGING,
};
pub use self::tls_client::TlsClient;

use self::challenges::Challenges;
use self::failures::FailureLog;
use self::on_demand::{DemandRequest, OnDemand};
use self::registry::Registry;
use self::sign_in::FailedSignIns;
use self::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::message::request::Request;
use crate::message::response::Response;
use crate::net::tls::{AlpnChallenges, NamedIdentities};

/// Automatic certificates: the orders, the certificates in memory, and pending validations.
///
/// [`Server::domain`](crate::Server::domain) is sufficient for most servers. With this type, a server
/// opens its listeners itself, calls [`respond`](Acme::respond) for requests without TLS, and may change
/// the settings while it runs:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use weft::acme::{Acme, AcmeSettings};
/// use weft::tls::{Tls, TlsSettings};
/// use weft::{Request, Response, Server, StatusCode};
///
/// # fn main() -> weft::Result<()> {
/// let settings = AcmeSettings { names: vec!["example.org".parse()?], ..AcmeSettings::default() };
/// let acme = Arc::new(Acme::new(&settings));
/// let tls = Tls::new(TlsSettings {
///     named_identities: Some(acme.identities()),
///     alpn_challenges: Some(acme.alpn_challenges()),
///     ..TlsSettings::default()
/// })?;
/// let validations = acme.clone();
/// let app = move |request: Request| {
///     let response = validations.respond(&request);
///     async move { response.unwrap_or_else(|| StatusCode::NOT_FOUND.into()) }
/// };
/// let handle = Server::new(app).listen(":80")?.listen_tls(":443", &tls)?.start()?;
/// acme.order(Some(settings))?;
/// handle.wait();
/// # Ok(())
/// # }
/// ```
///
/// The orders end when this value is dropped.
pub struct Acme {
    shared: Arc<Shared>,
    settings: watch::Sender<Option<Arc<AcmeSettings>>>,
    /// The manager takes it.
    requests: Mutex<Option<UnboundedReceiver<DemandRequest>>>,
}

/// State that the manager shares with handshakes and applications.
struct Shared {
    challenges: Challenges,
    registry: Registry,
    on_demand: OnDemand,
    failed_sign_ins: FailedSignIns,
    failures: FailureLog,
}

impl Acme {
    /// Creates the state without certificates. Nothing is ordered yet, but handshakes wait for
    /// certificates on demand, if `settings` have them.
    pub fn new(settings: &AcmeSettings) -> Acme {
        let (on_demand, requests) = OnDemand::new(settings.on_demand.clone().map(Arc::new));
        let shared = Shared {
            challenges: Challenges::default(),
            registry: Registry::new(NamedIdentities::with_source(on_demand.clone())),
            on_demand,
            failed_sign_ins: FailedSignIns::default(),
            failures: FailureLog::default(),
        };
        let requests = Mutex::new(Some(requests));
        Acme { shared: Arc::new(shared), settings: watch::Sender::new(None), requests }
    }

    /// Reads the stored certificates of the names that are not known yet, for handshakes before
    /// [`order`](Acme::order).
    pub fn load(&self, settings: &AcmeSettings) {
        self.shared.registry.add(&Store(settings.store.clone()), &settings.names);
    }

    /// Orders and renews certificates by these settings from now on, in place of former ones, in a thread
    /// of its own, which the first call starts. The certificates of other names are removed from memory,
    /// and stay in the store. `None`: no certificates are ordered any more, and those in memory stay.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the settings have no directory or no challenge,
    /// or `dns-01` without a provider; [`Io`](ErrorKind::Io) if the thread cannot be started.
    pub fn order(&self, settings: Option<AcmeSettings>) -> Result<()> {
        let settings = settings.map(AcmeSettings::validated).transpose()?;
        self.settings.send_replace(settings.map(Arc::new));
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(requests) = requests else { return Ok(()) };
        let (shared, receiver) = (self.shared.clone(), self.settings.subscribe());
        let run = move || manager::run(shared, receiver, requests);
        let started = std::thread::Builder::new().name("acme".to_owned()).spawn(run);
        started.map(|_| ()).map_err(|error| {
            let reason = "cannot start the thread that orders certificates";
            Error::new(ErrorKind::Io, reason).with_source(error)
        })
    }

    /// Returns the certificates for the TLS configuration of listeners.
    pub fn identities(&self) -> NamedIdentities {
        self.shared.registry.identities.clone()
    }

    /// Returns the validations by `tls-alpn-01` for the TLS configuration of listeners.
    pub fn alpn_challenges(&self) -> AlpnChallenges {
        self.shared.challenges.alpn.clone()
    }

    /// Responds to a validation by `http-01` (RFC 8555 §8.3); `None` for all other requests, also for
    /// tokens of another client.
    pub fn respond(&self, request: &Request) -> Option<Response> {
        self.shared.challenges.respond(request)
    }

    /// Returns the names, in order, with the state of their certificates.
    pub fn certificates(&self) -> Vec<(Name, CertificateInfo)> {
        self.shared.registry.all()
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme").field("settings", &*self.settings.borrow()).finish_non_exhaustive()
    }
}
