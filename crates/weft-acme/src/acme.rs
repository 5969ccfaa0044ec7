//! The orders and the certificates of a server.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, watch};
use weft::tls::{AlpnChallenges, NamedIdentities};
use weft::{Error, ErrorKind, Request, Response, Result};

use crate::authority::sign_in::FailedSignIns;
use crate::name::Name;
use crate::on_demand::demand_requests::{DemandRequest, DemandRequests};
use crate::orders::failure_log::FailureLog;
use crate::orders::manager;
use crate::orders::order_context::AcmeState;
use crate::orders::registry::Registry;
use crate::settings::AcmeSettings;
use crate::store::store_entries::StoreEntries;
use crate::store::stored_certificate::CertificateInfo;
use crate::validation::challenges::Challenges;

/// Automatic certificates: the orders, the certificates in memory, and pending validations.
///
/// [`ServerExt::domain`](crate::ServerExt::domain) is sufficient for most servers. With this type,
/// a server opens its listeners itself, calls [`respond`](Acme::respond) for requests without TLS,
/// and may change the settings while it runs:
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
    state: Arc<AcmeState>,
    settings: watch::Sender<Option<Arc<AcmeSettings>>>,
    /// Taken by the thread of the orders.
    requests: Mutex<Option<Receiver<DemandRequest>>>,
}

impl Acme {
    /// Creates the state without certificates. Nothing is ordered yet. If `settings` permit
    /// certificates on demand, handshakes wait for them.
    pub fn new(settings: &AcmeSettings) -> Acme {
        let on_demand = settings.on_demand.clone().map(Arc::new);
        let (demand_requests, requests) = DemandRequests::new(on_demand);
        let state = AcmeState {
            challenges: Challenges::default(),
            registry: Registry::new(NamedIdentities::with_source(demand_requests.clone())),
            demand_requests,
            failed_sign_ins: FailedSignIns::default(),
            failures: FailureLog::default(),
            changed: Notify::new(),
        };
        state.challenges.remote.set(settings);
        let requests = Mutex::new(Some(requests));
        Acme { state: Arc::new(state), settings: watch::Sender::new(None), requests }
    }

    /// Reads the stored certificates of new names, for handshakes before [`order`](Acme::order).
    pub fn load(&self, settings: &AcmeSettings) {
        self.state.registry.add(&StoreEntries(settings.store.clone()), &settings.names);
    }

    /// Orders and renews certificates by these settings from now on, in place of the former
    /// settings. The first call starts the thread of the orders. The certificates of other names
    /// are removed from memory, and stay in the store. With `None`, no certificates are ordered any
    /// more, and the certificates in memory stay.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if the settings have no directory or no
    /// challenge, or `dns-01` without a provider; [`Io`](ErrorKind::Io) if the thread cannot be
    /// started.
    pub fn order(&self, settings: Option<AcmeSettings>) -> Result<()> {
        let settings = settings.map(AcmeSettings::validated).transpose()?;
        if let Some(settings) = &settings {
            self.state.challenges.remote.set(settings);
        }
        self.settings.send_replace(settings.map(Arc::new));
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(requests) = requests else { return Ok(()) };
        let (state, receiver) = (self.state.clone(), self.settings.subscribe());
        let run = move || manager::run(state, receiver, requests);
        let started = std::thread::Builder::new().name("acme".to_owned()).spawn(run);
        started.map(|_| ()).map_err(|error| {
            let reason = "cannot start the thread that orders certificates";
            Error::new(ErrorKind::Io, reason).with_source(error)
        })
    }

    /// Returns the certificates for the TLS configuration of listeners.
    pub fn identities(&self) -> NamedIdentities {
        self.state.registry.identities.clone()
    }

    /// Returns the validations by `tls-alpn-01` for the TLS configuration of listeners.
    pub fn alpn_challenges(&self) -> AlpnChallenges {
        self.state.challenges.alpn.clone()
    }

    /// Responds to a validation by `http-01` (RFC 8555 §8.3). Returns `None` for all other
    /// requests, also for tokens of another ACME client.
    pub fn respond(&self, request: &Request) -> Option<Response> {
        self.state.challenges.respond(request)
    }

    /// Looks up the validation that a request may belong to among the
    /// [validations of other servers](AcmeSettings::validations). After the end of the future,
    /// [`respond`](Acme::respond) knows it. Returns `None` if the request is no validation, or is
    /// known already. The future ends within 3 s.
    pub fn look_up(&self, request: &Request) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.state.challenges.look_up(request)
    }

    /// Reports that another process has changed the store, which is found within 10 s otherwise.
    pub fn store_changed(&self) {
        self.state.changed.notify_one();
    }

    /// Returns the names, in order, with the state of their certificates.
    pub fn certificates(&self) -> Vec<(Name, CertificateInfo)> {
        self.state.registry.all()
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme").field("settings", &*self.settings.borrow()).finish_non_exhaustive()
    }
}
