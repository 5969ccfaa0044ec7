//! TLS: what a server proves itself with, and what it wants to know of its clients.
//!
//! ```no_run
//! use weft::tls::{Identity, Settings, Tls};
//! use weft::{Request, Response, Server};
//!
//! # fn main() -> weft::Result<()> {
//! let tls = Tls::new(Settings {
//!     identities: vec![Identity::files("site.crt", "site.key")],
//!     ..Default::default()
//! })?;
//! let server = Server::new(async |_: Request| Response::text("Hello\n"));
//! server.listen_tls(":8443", &tls)?.run()
//! # }
//! ```
//!
//! TLS 1.3 and 1.2 are spoken, with authenticated encryption and forward secrecy only. The
//! protocol is rustls's, the cryptography that of aws-lc-rs. Clients resume their sessions by
//! tickets; data ahead of the handshake (0-RTT) is never taken, for it can be replayed.

mod client_auth;
mod config;
mod files;
mod identity;
mod records;
mod resolver;
mod session;
mod stream;
mod tickets;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;

use crate::error::{Error, ErrorKind, Result};
use crate::net::listen::Listener;

pub use client_auth::{ClientAuth, Roots};
pub use identity::Identity;
pub(crate) use session::session;

use config::Configs;
use files::Files;

pub(crate) use stream::{ReadHalf, WriteHalf, feed, poll_send, split};

/// How TLS is spoken. All but the [`identities`](Settings::identities) have a default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The certificates with their keys; at least one. A client gets the one that is for the
    /// name it asks for (SNI, RFC 6066 §3), by the DNS names in the certificate, of which
    /// `*.example.org` stands for one label. The first is for clients that ask for no
    /// name, or for one that no certificate has. Of several for one name, such as
    /// one with an RSA and one with an ECDSA key, a client gets the first that it can verify.
    ///
    /// Default none, which [`Tls::new`] refuses.
    pub identities: Vec<Identity>,

    /// Whether clients are asked for a certificate.
    ///
    /// Default [`ClientAuth::None`].
    pub client_auth: ClientAuth,

    /// The file with the keys of session tickets: 48 bytes each, the first to encrypt with, all
    /// to decrypt with. `openssl rand 48` makes one; to put a new one in front of the others
    /// now and then, and to take the last away, is left to you. Several servers that share
    /// the file resume each other's sessions.
    ///
    /// Default none: keys of our own, which change every six hours and with each reload.
    pub ticket_keys: Option<PathBuf>,

    /// The oldest version that is spoken.
    ///
    /// Default TLS 1.2: some clients of 2018 and before know no other.
    pub min_version: Version,

    /// How often a server looks whether the files have changed, and if so loads them anew;
    /// 10 ms at least. [`Duration::MAX`]: never.
    ///
    /// Default 10 s: a look is a few `stat(2)`.
    pub check_files_every: Duration,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            identities: Vec::new(),
            client_auth: ClientAuth::None,
            ticket_keys: None,
            min_version: Version::Tls12,
            check_files_every: Duration::from_secs(10),
        }
    }
}

/// TLS as a server speaks it. Clones are the same: what one [reloads](Tls::reload) all have.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    /// What new connections get. Asked for once in a handshake, and not for a request.
    current: RwLock<Arc<Configs>>,
    source: Mutex<Source>,
}

/// Where what new connections get is from.
#[derive(Clone)]
struct Source {
    settings: Settings,
    /// The files as they were when they were last read.
    files: Files,
}

impl Tls {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// [`InvalidSetting`](ErrorKind::InvalidSetting) if there is no identity, a file cannot be
    /// read, or does not hold what it should, or a key does not belong to its certificate;
    /// the reason names the file.
    pub fn new(settings: Settings) -> Result<Tls> {
        // Looked at first: what changes while they are read has changed since.
        let files = Files::look(&settings);
        let current = RwLock::new(Arc::new(Configs::load(&settings)?));
        let source = Mutex::new(Source { settings, files });
        Ok(Tls(Arc::new(Inner { current, source })))
    }

    /// Takes over the settings and the certificates of another, for connections from now on.
    pub fn renew(&self, newer: Tls) {
        let loaded = newer.0.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let source = newer.source().clone();
        *self.source() = source;
        self.set(loaded);
    }

    /// Reads all files anew, for connections from now on. A server does so by itself when
    /// they [change](Settings::check_files_every). It waits for the disk.
    ///
    /// # Errors
    /// As [`new`](Tls::new). Then everything stays as it was.
    pub fn reload(&self) -> Result<()> {
        self.reload_if(|_, _| true)
    }

    /// The same, if the files have changed since they were last read.
    fn reload_changed(&self) -> Result<()> {
        self.reload_if(|known, now| known != now)
    }

    fn reload_if(&self, is_due: impl Fn(&Files, &Files) -> bool) -> Result<()> {
        let Source { settings, files } = &mut *self.source();
        let now = Files::look(settings);
        if !is_due(files, &now) {
            return Ok(());
        }
        // Noted before it is known whether they are good: bad ones are not tried again until
        // they change. So a certificate whose key comes later is right in the end.
        *files = now;
        self.set(Arc::new(Configs::load(settings)?));
        Ok(())
    }

    fn set(&self, loaded: Arc<Configs>) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.0.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks after the files for as long as somebody else has this.
    pub(crate) async fn keep_current(self, report: impl Fn(&Error)) {
        let known = Arc::downgrade(&self.0);
        drop(self);
        while let Some(inner) = known.upgrade() {
            let pause = Tls(inner).source().settings.check_files_every;
            tokio::time::sleep(pause.max(LEAST_PAUSE)).await;
            let Some(tls) = known.upgrade().map(Tls) else { return };
            match tokio::task::spawn_blocking(move || tls.reload_changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => report(&error),
                Err(panicked) => {
                    let reason = "certificates could not be loaded";
                    return report(&Error::new(ErrorKind::Panicked, reason).because(panicked));
                }
            }
        }
    }

    /// Whether it is the same.
    pub(crate) fn is(&self, other: &Tls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the next connection gets.
    pub(crate) fn config(&self, http2: bool) -> Arc<ServerConfig> {
        let current = self.0.current.read().unwrap_or_else(PoisonError::into_inner);
        if http2 { current.http2.clone() } else { current.http1.clone() }
    }
}

/// Files are not looked at more often.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.source().settings).finish()
    }
}

impl Listener {
    /// The same for connections that speak TLS.
    pub fn with_tls(self, tls: &Tls) -> Listener {
        self.secured(Some(tls.clone()))
    }
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidSetting, reason)
}
