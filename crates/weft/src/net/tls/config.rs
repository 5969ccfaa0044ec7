//! Converts settings to a rustls configuration.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::version::{TLS12, TLS13};

use crate::error::{Error, Result};
use crate::net::tls::alpn_challenge::ACME_TLS;
use crate::net::tls::certificate_compression;
use crate::net::tls::cipher_order::OrderedConfigs;
use crate::net::tls::client_auth::{ClientAuth, ClientAuthDigest};
use crate::net::tls::resolver::Resolver;
use crate::net::tls::session_age::AgedTickets;
use crate::net::tls::settings::{TlsSettings, Version};
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
    client_auth: ClientAuthDigest,
}

impl Configs {
    /// Reads all certificates and keys that the settings refer to.
    pub(super) fn load(settings: &TlsSettings) -> Result<Configs> {
        // Explicit, because other code may have set the default provider of the process.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let identities = settings.identities.iter().map(|identity| identity.load(&provider));
        let identities = identities.collect::<Result<Vec<_>>>()?;
        if identities.is_empty() && settings.named_identities.is_none() {
            return Err(Error::invalid_setting(
                "TLS requires a certificate, and none is configured".to_owned(),
            ));
        }
        let client_auth = settings.client_auth.load(&provider)?;
        let unusable =
            |error| Error::invalid_setting("cannot configure TLS".to_owned()).with_source(error);
        let tickets = match &settings.ticket_keys {
            Some(path) => TicketKeys::read(path)?,
            None => TicketKeys::generated().map_err(unusable)?,
        };
        // rustls checks neither which client certificate was required when a session began, nor
        // whether its certificate is still valid. A session could be verified only after it was
        // resumed, when a client cannot fall back to a full handshake any more.
        let tickets: Arc<dyn ProducesTickets> = match settings.client_auth {
            ClientAuth::None => Arc::new(AgedTickets(tickets)),
            ClientAuth::Optional(_) | ClientAuth::Required(_) => Arc::new(NoTickets),
        };
        let (named, challenges) = (&settings.named_identities, &settings.alpn_challenges);
        let resolver = Arc::new(Resolver::new(identities, named.clone(), challenges.clone()));
        let versions = match settings.min_version {
            Version::Tls12 => &[&TLS13, &TLS12][..],
            Version::Tls13 => &[&TLS13],
        };
        let http2 = OrderedConfigs::new(|provider| {
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(versions)
                .map_err(unusable)?
                .with_client_cert_verifier(client_auth.verifier.clone())
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
        Ok(Configs {
            http2,
            http1,
            resolver,
            other: other.for_any_client().clone(),
            policy: Arc::default(),
            client_auth: client_auth.digest,
        })
    }

    /// Continues the policy of `former` if clients are authenticated in the same way, and
    /// supersedes it otherwise.
    pub(super) fn superseding(self, former: &Configs) -> Configs {
        if self.client_auth == former.client_auth {
            return Configs { policy: former.policy.clone(), ..self };
        }
        former.policy.is_superseded.store(true, Relaxed);
        self
    }
}
