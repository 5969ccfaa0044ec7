//! The orders and the certificates of a server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use weft::tls::{AlpnChallenges, NamedIdentities};
use weft::{Error, ErrorKind, Request, Response, Result};

use crate::challenges::Challenges;
use crate::failures::FailureLog;
use crate::manager;
use crate::name::Name;
use crate::on_demand::{DemandRequest, OnDemand};
use crate::registry::{CertificateInfo, Registry};
use crate::settings::AcmeSettings;
use crate::sign_in::FailedSignIns;
use crate::store::Store;

/// Automatic certificates: the orders, the certificates in memory, and pending validations.
///
/// [`ServerExt::domain`](crate::ServerExt::domain) is sufficient for most servers. With this type, a server
/// opens its listeners itself, calls [`respond`](Acme::respond) for requests without TLS, and may change
/// the settings while it runs:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use weft_acme::{Acme, AcmeSettings};
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
pub(crate) struct Shared {
    pub(crate) challenges: Challenges,
    pub(crate) registry: Registry,
    pub(crate) on_demand: OnDemand,
    pub(crate) failed_sign_ins: FailedSignIns,
    pub(crate) failures: FailureLog,
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
