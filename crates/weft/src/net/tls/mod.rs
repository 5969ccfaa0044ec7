//! TLS by rustls: certificates, client authentication, session tickets. `weft::tls` has its names.

mod alpn_challenge;
pub mod certificate;
mod certificate_compression;
mod cipher_order;
mod client_auth;
mod config;
mod crypto; // cryptography of aws-lc-rs or ring
mod files;
mod handshake;
mod identity;
mod named_identities;
#[cfg(feature = "http3")]
pub(crate) mod quic;
mod records;
mod resolver;
mod session;
mod session_age;
mod settings;
mod shared_tickets;
mod stream;
mod tickets;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "http3")]
use crate::net::secure::QuicSecurity;
use crate::net::secure::{ReportReload, SecureAcceptor, SecureHandshake};

pub use alpn_challenge::AlpnChallenges;
pub use client_auth::{ClientAuth, Roots};
use config::Configs;
pub use config::ReloadFailure;
use files::FileVersions;
use handshake::Handshake;
pub use identity::Identity;
pub use named_identities::{IdentitySource, NamedIdentities, ObtainIdentity};
pub use settings::{TlsSettings, Version};
pub use shared_tickets::TicketSecret;

/// TLS configuration of a server. Clones share their state: a [reload](Tls::reload) of one applies
/// to all.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    /// Configuration of new connections. Read once per handshake, not per request.
    current: RwLock<Arc<Configs>>,
    source: Mutex<ConfigSource>,
}

/// A certificate that clients get.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsedCertificate {
    /// The path of its file.
    pub file: Option<PathBuf>,
    /// Its DNS names.
    pub names: Vec<String>,
    /// The time in which clients accept it.
    pub validity: certificate::Validity,
}

/// Origin of the configuration.
#[derive(Clone)]
struct ConfigSource {
    settings: TlsSettings,
    /// Versions of the files when they were last read.
    files: FileVersions,
    /// Files that could not be used then.
    failures: Vec<ReloadFailure>,
}

impl Tls {
    /// Reads the certificates and keys.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if there is no identity, if a file cannot be
    /// read or has invalid content, or if a key does not belong to its certificate. The message
    /// names the file.
    pub fn new(settings: TlsSettings) -> Result<Tls> {
        // Checked before reading, so that a change during the read is detected later.
        let files = FileVersions::read(&settings);
        let (loaded, failures) = Configs::load_or_keep(&settings, None)?;
        Ok(Tls::loaded(loaded, ConfigSource { settings, files, failures }))
    }

    /// Reads the certificates and keys of other settings, for [`renew`](Tls::renew). An identity
    /// whose files cannot be used keeps the contents that they have in this configuration, and
    /// [`reload_failures`](Tls::reload_failures) of the result lists it.
    ///
    /// # Errors
    /// The errors of [`new`](Tls::new).
    pub fn with_settings(&self, settings: TlsSettings) -> Result<Tls> {
        let files = FileVersions::read(&settings);
        let former = self.0.source();
        let current = self.0.current();
        let (loaded, failures) = Configs::load_with(&settings, (&former.settings, &current))?;
        Ok(Tls::loaded(loaded, ConfigSource { settings, files, failures }))
    }

    fn loaded(loaded: Configs, source: ConfigSource) -> Tls {
        let current = RwLock::new(Arc::new(loaded));
        Tls(Arc::new(Inner { current, source: Mutex::new(source) }))
    }

    /// Returns the certificates of the [identities](TlsSettings::identities) in use, in their
    /// order.
    pub fn certificates(&self) -> Vec<UsedCertificate> {
        let source = self.0.source();
        let current = self.0.current();
        let used = current.identities().filter_map(|(index, loaded)| {
            let validity = certificate::validity(loaded.key.cert.first()?)?;
            let identity = source.settings.identities.get(index);
            let file = identity.and_then(|it| it.paths().next()).map(Path::to_owned);
            Some(UsedCertificate { file, names: loaded.names.clone(), validity })
        });
        used.collect()
    }

    /// Uses the settings and certificates of `newer` for new connections. If
    /// [`client_auth`](TlsSettings::client_auth) or its certificates differ, established
    /// connections are closed after the responses in progress, and idle ones within a second.
    /// Connections that an [upgrade](crate::message::Upgraded) has taken over stay open.
    pub fn renew(&self, newer: Tls) {
        let loaded = Configs::clone(&newer.0.current());
        let newer = newer.0.source().clone();
        // Locked until the configuration is set: a reload must find the contents of its settings.
        let mut source = self.0.source();
        *source = newer;
        self.set(loaded);
    }

    /// Reloads all files, for new connections. A server does so by itself when they
    /// [change](TlsSettings::check_files_every). This function blocks on disk reads. Other
    /// certificate authorities for clients affect established connections as
    /// [`renew`](Tls::renew) does.
    ///
    /// # Errors
    /// The errors of [`new`](Tls::new), for the first file that cannot be used. Such a file keeps
    /// its former contents, as [`reload_failures`](Tls::reload_failures) lists them. All other
    /// files are loaded.
    pub fn reload(&self) -> Result<()> {
        self.reload_if(|_, _| true).map(|_| ())
    }

    /// Returns the files that could not be used when the files were read the last time. Their
    /// former contents, if there are any, stay in use.
    pub fn reload_failures(&self) -> Vec<ReloadFailure> {
        self.0.source().failures.clone()
    }

    /// Returns the current configuration for a protocol other than HTTP, for use with
    /// `tokio-rustls`: the same certificates and client authentication, without ALPN and without
    /// resumption of sessions. Call this for each connection, because a reload replaces the
    /// configuration.
    pub fn server_config(&self) -> Arc<rustls::ServerConfig> {
        self.0.current().other.clone()
    }

    /// Reloads all files if any of them has changed since the last read, and returns true then.
    /// Only needed without a [server](crate::Server::listen_tls), which checks the files by itself.
    /// This function blocks on disk reads.
    ///
    /// # Errors
    /// The errors of [`reload`](Tls::reload).
    pub fn reload_changed(&self) -> Result<bool> {
        self.reload_if(|previous, current| previous != current)
    }

    fn reload_if(&self, is_due: impl Fn(&FileVersions, &FileVersions) -> bool) -> Result<bool> {
        let ConfigSource { settings, files, failures } = &mut *self.0.source();
        let now = FileVersions::read(settings);
        if !is_due(files, &now) {
            return Ok(false);
        }
        // Stored before the files are validated, so that invalid files are not read again until
        // they change. A certificate whose key is written later is therefore loaded with the key.
        *files = now;
        let loaded = Configs::load_or_keep(settings, Some(&self.0.current()))?;
        self.set(loaded.0);
        *failures = loaded.1;
        match failures.first() {
            Some(failure) => Err(failure.to_error()),
            None => Ok(true),
        }
    }

    fn set(&self, loaded: Configs) {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(loaded.superseding(&current));
    }

    /// Returns the configuration as a listener stores it.
    pub(crate) fn acceptor(&self) -> Arc<dyn SecureAcceptor> {
        self.0.clone()
    }

    /// Reloads the files whenever they change, as long as a clone exists.
    async fn reload_on_change(weak: Weak<Inner>, report: ReportReload<'_>) {
        while let Some(inner) = weak.upgrade() {
            let interval = inner.source().settings.check_files_every;
            tokio::time::sleep(interval.max(MIN_CHECK_INTERVAL)).await;
            let Some(tls) = weak.upgrade().map(Tls) else { return };
            let reload = move || (tls.reload_changed(), tls.reload_failures());
            match tokio::task::spawn_blocking(reload).await {
                Ok((Ok(true), _)) => report(Ok(())),
                Ok((Ok(false), _)) => {}
                Ok((Err(error), failures)) if failures.is_empty() => report(Err(&error)),
                Ok((Err(_), failures)) => {
                    failures.iter().for_each(|failure| report(Err(&failure.to_error())));
                }
                Err(panicked) => {
                    let reason = "the reload of TLS certificates panicked";
                    let error = Error::new(ErrorKind::Panicked, reason).with_source(panicked);
                    return report(Err(&error));
                }
            }
        }
    }
}

impl Inner {
    /// Configuration of the next connection.
    fn current(&self) -> Arc<Configs> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn source(&self) -> MutexGuard<'_, ConfigSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SecureAcceptor for Inner {
    fn start_handshake(&self, http2: bool, client: Option<IpAddr>) -> Box<dyn SecureHandshake> {
        let current = self.current();
        let configs = if http2 { &current.http2 } else { &current.http1 };
        let (resolver, policy) = (current.resolver.clone(), current.policy.clone());
        Box::new(Handshake::new(configs.clone(), resolver, policy, client))
    }

    #[cfg(feature = "http3")]
    fn quic(&self) -> Arc<dyn QuicSecurity> {
        Arc::new(quic::QuicTls::new(self.current()))
    }

    fn reload_on_change<'a>(
        self: Arc<Self>,
        report: ReportReload<'a>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(Tls::reload_on_change(Arc::downgrade(&self), report))
    }
}

/// Minimum interval between two checks of the files.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.source().settings).finish()
    }
}
