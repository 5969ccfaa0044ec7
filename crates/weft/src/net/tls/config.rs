//! Converts settings to a rustls configuration.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};

use crate::error::Result;
use crate::net::tls::resolver::Resolver;
use crate::net::tls::tickets::TicketKeys;
use crate::net::tls::{TlsSettings, Version, invalid};

/// Configurations for new connections.
pub(super) struct Configs {
    /// For servers with HTTP/2 enabled.
    pub(super) http2: Arc<ServerConfig>,
    /// For servers with HTTP/2 disabled.
    pub(super) http1: Arc<ServerConfig>,
}

impl Configs {
    /// Reads all certificates and keys that the settings refer to.
    pub(super) fn load(settings: &TlsSettings) -> Result<Configs> {
        // Explicit, because other code may have set the default provider of the process.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let identities = settings.identities.iter().map(|identity| identity.load(&provider));
        let identities = identities.collect::<Result<Vec<_>>>()?;
        if identities.is_empty() {
            return Err(invalid("TLS requires a certificate, and none is configured".to_owned()));
        }
        let client_auth = settings.client_auth.load(&provider)?;
        let unusable = |error| invalid("cannot configure TLS".to_owned()).with_source(error);
        // Tickets with other keys, or issued under other client authentication settings, are not
        // accepted: rustls does not check which client certificate was required when a session
        // began.
        let ticketer = match &settings.ticket_keys {
            Some(path) => TicketKeys::read(path, client_auth.digest)?,
            None => aws_lc_rs::Ticketer::new().map_err(unusable)?,
        };
        let versions = match settings.min_version {
            Version::Tls12 => &[&TLS13, &TLS12][..],
            Version::Tls13 => &[&TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(unusable)?
            .with_client_cert_verifier(client_auth.verifier)
            .with_cert_resolver(Arc::new(Resolver::new(identities)));
        config.ticketer = ticketer;
        // Clients store their sessions in tickets. A server-side cache would need a lock and a
        // bound.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = ["h2", "http/1.1", "http/1.0"].map(Vec::from).to_vec();
        let mut http1 = config.clone();
        http1.alpn_protocols.remove(0);
        Ok(Configs { http2: Arc::new(config), http1: Arc::new(http1) })
    }
}
