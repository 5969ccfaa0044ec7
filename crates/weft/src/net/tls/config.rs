//! Converts settings to a rustls configuration.

#[cfg(feature = "http3")]
mod early_sessions; // sessions whose clients may send early data

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::version::{TLS12, TLS13};

#[cfg(feature = "http3")]
use self::early_sessions::EarlySessions;
use crate::error::{Error, Result};
use crate::net::tls::alpn_challenge::ACME_TLS;
use crate::net::tls::certificate_compression;
use crate::net::tls::cipher_order::OrderedConfigs;
use crate::net::tls::client_auth::{ClientAuth, LoadedClientAuth};
use crate::net::tls::crypto::default_provider;
#[cfg(feature = "http3")]
use crate::net::tls::crypto::hkdf;
use crate::net::tls::identity::{Identity, LoadedIdentity};
use crate::net::tls::resolver::Resolver;
use crate::net::tls::session_age::AgedTickets;
use crate::net::tls::settings::{TlsSettings, Version};
use crate::net::tls::shared_tickets::SharedTickets;
use crate::net::tls::tickets::{NoTickets, TicketKeys};
use crate::peer::AuthPolicy;

/// Configurations for new connections.
#[derive(Clone)]
pub(super) struct Configs {
    /// Configuration of servers with HTTP/2 enabled.
    pub(super) http2: OrderedConfigs,
    /// Configuration of servers with HTTP/2 disabled.
    pub(super) http1: OrderedConfigs,
    pub(super) resolver: Arc<Resolver>,
    /// Configuration of protocols other than HTTP.
    pub(super) other: Arc<ServerConfig>,
    /// Policy that the connections belong to.
    pub(super) policy: Arc<AuthPolicy>,
    /// Sessions of HTTP/3 whose clients may send early data.
    #[cfg(feature = "http3")]
    pub(super) early_sessions: Option<EarlySessions>,
    contents: Contents,
}

/// The contents of the files. A part whose file cannot be used after a change keeps its former
/// contents.
#[derive(Clone)]
struct Contents {
    /// In the order of the settings; `None` for an identity that cannot be used.
    identities: Vec<Option<Arc<LoadedIdentity>>>,
    client_auth: LoadedClientAuth,
    /// `None` for keys that are derived or generated.
    ticket_keys: Option<Arc<TicketKeys>>,
    shared_tickets: Option<Arc<SharedTickets>>,
}

/// A file that could not be used when the files were read the last time. Its former contents, if
/// there are any, stay in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadFailure {
    /// The path of the file; of a certificate and its key, the path of the certificate.
    pub file: PathBuf,
    /// The reason, which names the unusable file.
    pub reason: String,
}

impl Contents {
    /// Reads all files that the settings refer to. A file that cannot be used is replaced by its
    /// contents in `former`, and listed in `failures`.
    fn read(
        settings: &TlsSettings,
        former: Option<&Contents>,
        provider: &Arc<CryptoProvider>,
        failures: &mut Vec<ReloadFailure>,
    ) -> Result<Contents> {
        let identities = Contents::read_identities(
            settings,
            former.map(|it| (settings, it)),
            provider,
            failures,
        )?;
        let client_auth = or_former(
            settings.client_auth.load(provider),
            former.map(|former| former.client_auth.clone()),
            settings.client_auth.path(),
            failures,
        )?;
        let ticket_keys = match &settings.ticket_keys {
            None => None,
            Some(path) => {
                let former = former.and_then(|former| former.ticket_keys.clone());
                Some(or_former(TicketKeys::read(path), former, Some(path), failures)?)
            }
        };
        let shared_tickets = SharedTickets::new(&settings.ticket_secrets);
        Ok(Contents { identities, client_auth, ticket_keys, shared_tickets })
    }

    /// Reads the identities. One that cannot be used has its contents in `former`, if the former
    /// settings have the same files.
    fn read_identities(
        settings: &TlsSettings,
        former: Option<(&TlsSettings, &Contents)>,
        provider: &Arc<CryptoProvider>,
        failures: &mut Vec<ReloadFailure>,
    ) -> Result<Vec<Option<Arc<LoadedIdentity>>>> {
        let known = |identity: &Identity| {
            let (settings, contents) = former?;
            let is_same =
                |it: &Identity| it.paths().next().is_some() && it.paths().eq(identity.paths());
            let index = settings.identities.iter().position(is_same)?;
            contents.identities.get(index)?.clone()
        };
        let mut identities = Vec::with_capacity(settings.identities.len());
        for identity in &settings.identities {
            // `None` in place of the former contents, if the identity may be left out.
            let former = known(identity).map(Some).or((!settings.require_all).then_some(None));
            let loaded = identity.load(provider).map(|it| Some(Arc::new(it)));
            identities.push(or_former(loaded, former, identity.paths().next(), failures)?);
        }
        Ok(identities)
    }

    /// Reads all files of other settings. An identity that cannot be used keeps its contents.
    fn read_with(
        former: (&TlsSettings, &Contents),
        settings: &TlsSettings,
        provider: &Arc<CryptoProvider>,
        failures: &mut Vec<ReloadFailure>,
    ) -> Result<Contents> {
        let identities = Contents::read_identities(settings, Some(former), provider, failures)?;
        let rest = TlsSettings { identities: Vec::new(), ..settings.clone() };
        let rest = Contents::read(&rest, None, provider, failures)?;
        Ok(Contents { identities, ..rest })
    }
}

impl ReloadFailure {
    pub(super) fn to_error(&self) -> Error {
        Error::invalid_setting(self.reason.clone())
    }
}

/// Returns the contents of a file, or its former contents, with a failure, if it cannot be used.
fn or_former<T>(
    loaded: Result<T>,
    former: Option<T>,
    path: Option<&Path>,
    failures: &mut Vec<ReloadFailure>,
) -> Result<T> {
    match (loaded, former, path) {
        (Err(error), Some(former), Some(path)) => {
            failures.push(ReloadFailure { file: path.to_owned(), reason: error.to_string() });
            Ok(former)
        }
        (loaded, ..) => loaded,
    }
}

impl Configs {
    /// Returns the secret for the keys of QUIC, if other servers may have it.
    #[cfg(feature = "http3")]
    pub(super) fn quic_secret(&self) -> Option<hkdf::Prk> {
        match &self.contents.ticket_keys {
            Some(keys) => Some(keys.quic_secret.clone()),
            None => self.contents.shared_tickets.as_ref()?.quic_secret(),
        }
    }

    /// Reads all certificates and keys again. A file that cannot be used keeps its contents of
    /// `former`, which has the same settings.
    ///
    /// # Errors
    /// If the settings themselves cannot be used, or a file cannot be used and has no former
    /// contents.
    pub(super) fn load_or_keep(
        settings: &TlsSettings,
        former: Option<&Configs>,
    ) -> Result<(Configs, Vec<ReloadFailure>)> {
        // Explicit, because other code may have set the default provider of the process.
        let provider = Arc::new(default_provider());
        let mut failures = Vec::new();
        let former = former.map(|former| &former.contents);
        let contents = Contents::read(settings, former, &provider, &mut failures)?;
        Configs::new(settings, contents, &failures).map(|configs| (configs, failures))
    }

    /// Reads all certificates and keys of `settings`. An identity that cannot be used keeps its
    /// contents of `former`, which has other settings.
    pub(super) fn load_with(
        settings: &TlsSettings,
        former: (&TlsSettings, &Configs),
    ) -> Result<(Configs, Vec<ReloadFailure>)> {
        let provider = Arc::new(default_provider());
        let mut failures = Vec::new();
        let former = (former.0, &former.1.contents);
        let contents = Contents::read_with(former, settings, &provider, &mut failures)?;
        Configs::new(settings, contents, &failures).map(|configs| (configs, failures))
    }

    fn new(
        settings: &TlsSettings,
        contents: Contents,
        failures: &[ReloadFailure],
    ) -> Result<Configs> {
        if contents.identities.iter().all(Option::is_none) && settings.named_identities.is_none() {
            return Err(failures.first().map_or_else(
                || {
                    let reason = "TLS requires a certificate, and none is configured";
                    Error::invalid_setting(reason.to_owned())
                },
                ReloadFailure::to_error,
            ));
        }
        let unusable =
            |error| Error::invalid_setting("cannot configure TLS".to_owned()).with_source(error);
        let tickets: Arc<dyn ProducesTickets> =
            match (&contents.ticket_keys, &contents.shared_tickets) {
                (Some(keys), _) => keys.clone(),
                (None, Some(shared)) => shared.clone(),
                (None, None) => TicketKeys::generated().map_err(unusable)?,
            };
        // rustls checks neither which client certificate was required when a session began, nor
        // whether its certificate is still valid. A session could be verified only after it was
        // resumed, when a client cannot fall back to a full handshake any more.
        let tickets: Arc<dyn ProducesTickets> = match settings.client_auth {
            ClientAuth::None => Arc::new(AgedTickets(tickets)),
            ClientAuth::Optional(_) | ClientAuth::Required(_) => Arc::new(NoTickets),
        };
        let (named, challenges) = (&settings.named_identities, &settings.alpn_challenges);
        let resolver =
            Arc::new(Resolver::new(&contents.identities, named.clone(), challenges.clone()));
        let versions = match settings.min_version {
            Version::Tls12 => &[&TLS13, &TLS12][..],
            Version::Tls13 => &[&TLS13],
        };
        let http2 = OrderedConfigs::new(|provider| {
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .map_err(unusable)?
                .with_client_cert_verifier(contents.client_auth.verifier.clone())
                .with_cert_resolver(resolver.clone());
            config.ticketer = tickets.clone();
            certificate_compression::enable(&mut config);
            // Clients store their sessions in tickets. A server-side cache would need a lock and a
            // bound.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.alpn_protocols = ["h2", "http/1.1", "http/1.0"].map(Vec::from).to_vec();
            if settings.alpn_challenges.is_some() {
                config.alpn_protocols.push(ACME_TLS.into());
            }
            Ok(config)
        })?;
        let http1 = http2.with(|config| drop(config.alpn_protocols.remove(0)));
        let other = http2.with(|config| {
            config.alpn_protocols.clear();
            // The age of sessions is tracked by the handshakes of this crate only.
            config.ticketer = Arc::new(NoTickets);
        });
        let configs = Configs {
            http2,
            http1,
            resolver,
            other: other.for_any_client().clone(),
            policy: Arc::default(),
            #[cfg(feature = "http3")]
            early_sessions: EarlySessions::new(settings),
            contents,
        };
        Ok(configs)
    }

    /// Returns the identities that can be used.
    pub(super) fn identities(&self) -> impl Iterator<Item = (usize, &LoadedIdentity)> {
        let all = self.contents.identities.iter().enumerate();
        all.filter_map(|(index, identity)| Some((index, identity.as_deref()?)))
    }

    /// Continues the policy of `former` if clients are authenticated in the same way, and
    /// supersedes it otherwise.
    pub(super) fn superseding(self, former: &Configs) -> Configs {
        if self.contents.client_auth.digest == former.contents.client_auth.digest {
            return Configs { policy: former.policy.clone(), ..self };
        }
        former.policy.is_superseded.store(true, Relaxed);
        self
    }
}
