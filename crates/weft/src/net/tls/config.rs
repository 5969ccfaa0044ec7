//! Settings → what rustls wants to know.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};

use crate::error::Result;
use crate::net::tls::resolver::Resolver;
use crate::net::tls::tickets::SharedKeys;
use crate::net::tls::{Settings, Version, invalid};

/// What new connections get.
pub(super) struct Configs {
    /// For servers that speak HTTP/2.
    pub(super) http2: Arc<ServerConfig>,
    /// For those that do not.
    pub(super) http1: Arc<ServerConfig>,
}

impl Configs {
    /// Reads all that the settings name.
    pub(super) fn load(settings: &Settings) -> Result<Configs> {
        // Named, and not the default of the process, which others may have set.
        let provider = Arc::new(aws_lc_rs::default_provider());
        let identities = settings.identities.iter().map(|identity| identity.load(&provider));
        let identities = identities.collect::<Result<Vec<_>>>()?;
        if identities.is_empty() {
            return Err(invalid("TLS needs a certificate, and none was given".to_owned()));
        }
        let clients = settings.client_auth.load(&provider)?;
        let unusable = |error| invalid("TLS cannot be set up".to_owned()).because(error);
        // Tickets of other keys, or of another rule for clients, are not taken: rustls
        // does not ask what was demanded of a client when its session began.
        let ticketer = match &settings.ticket_keys {
            Some(path) => SharedKeys::read(path, clients.rule)?,
            None => aws_lc_rs::Ticketer::new().map_err(unusable)?,
        };
        let versions = match settings.min_version {
            Version::Tls12 => &[&TLS13, &TLS12][..],
            Version::Tls13 => &[&TLS13],
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(unusable)?
            .with_client_cert_verifier(clients.verifier)
            .with_cert_resolver(Arc::new(Resolver::new(identities)));
        config.ticketer = ticketer;
        // Clients keep their sessions themselves. A cache would be ours to lock and to bound.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = ["h2", "http/1.1", "http/1.0"].map(Vec::from).to_vec();
        let mut http1 = config.clone();
        http1.alpn_protocols.remove(0);
        Ok(Configs { http2: Arc::new(config), http1: Arc::new(http1) })
    }
}
