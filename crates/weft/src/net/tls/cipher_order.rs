//! Order of preference of the cipher suites.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::ClientHello;
use rustls::{CipherSuite, ServerConfig};

use crate::error::Result;
use crate::net::tls::crypto::default_provider;

/// A configuration in two orders of cipher suites. The server's order counts, with AES-128 before
/// AES-256, which clients with OpenSSL prefer: its hash is SHA-384, a fifth of the CPU time of a
/// handshake on a CPU without instructions for it. A client that prefers ChaCha20 is likely to have
/// no instructions for AES, so its suites come first then, as with Go and BoringSSL.
#[derive(Clone)]
pub(super) struct OrderedConfigs {
    aes_first: Arc<ServerConfig>,
    chacha_first: Arc<ServerConfig>,
}

impl OrderedConfigs {
    /// Calls a function that makes the configuration for each of the two orders.
    pub(super) fn new(
        configure: impl Fn(Arc<CryptoProvider>) -> Result<ServerConfig>,
    ) -> Result<OrderedConfigs> {
        let configure = |is_chacha_first| -> Result<Arc<ServerConfig>> {
            let mut provider = default_provider();
            provider.cipher_suites.sort_by_key(|suite| rank(suite.suite(), is_chacha_first));
            let mut config = configure(Arc::new(provider))?;
            config.ignore_client_order = true;
            Ok(Arc::new(config))
        };
        Ok(OrderedConfigs { aes_first: configure(false)?, chacha_first: configure(true)? })
    }

    /// Returns a copy with a change.
    pub(super) fn with(&self, change: impl Fn(&mut ServerConfig)) -> OrderedConfigs {
        let changed = |config: &Arc<ServerConfig>| {
            let mut config = ServerConfig::clone(config);
            change(&mut config);
            Arc::new(config)
        };
        OrderedConfigs {
            aes_first: changed(&self.aes_first),
            chacha_first: changed(&self.chacha_first),
        }
    }

    /// Returns the configuration for a client.
    pub(super) fn for_client(&self, hello: &ClientHello<'_>) -> &Arc<ServerConfig> {
        let mut ciphers = hello.cipher_suites().iter().map(|suite| cipher(*suite));
        match ciphers.find(|cipher| *cipher != Cipher::Other) {
            Some(Cipher::ChaCha20) => &self.chacha_first,
            _ => &self.aes_first,
        }
    }

    /// Returns the configuration for a client whose order of preference is unknown.
    pub(super) fn for_any_client(&self) -> &Arc<ServerConfig> {
        &self.aes_first
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cipher {
    Aes128,
    Aes256,
    ChaCha20,
    /// A cipher suite that the server does not support.
    Other,
}

fn cipher(suite: CipherSuite) -> Cipher {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Cipher::Aes128,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Cipher::Aes256,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Cipher::ChaCha20,
        _ => Cipher::Other,
    }
}

/// Key of a suite in the order of preference: false before true.
fn rank(suite: CipherSuite, is_chacha_first: bool) -> (bool, Cipher) {
    let cipher = cipher(suite);
    (is_chacha_first && cipher != Cipher::ChaCha20, cipher)
}
