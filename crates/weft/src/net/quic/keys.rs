//! The keys that all endpoints of a server share: datagrams may reach another worker than the
//! datagrams before them.

use std::hash::RandomState;
use std::sync::Arc;

use quinn_proto::crypto::{HandshakeTokenKey, HmacKey};

use crate::error::Result;
use crate::net::tls::quic;

/// The keys of stateless resets (RFC 9000 §10.3), of tokens (§8.1) and of connection identifiers.
#[derive(Clone)]
pub(crate) struct QuicKeys {
    pub(super) reset: Arc<dyn HmacKey>,
    pub(super) token: Arc<dyn HandshakeTokenKey>,
    /// Masks the worker in a connection identifier.
    pub(super) ids: RandomState,
}

impl QuicKeys {
    /// Generates keys.
    pub(crate) fn generate() -> Result<QuicKeys> {
        let (reset, token) = quic::generate_keys()?;
        Ok(QuicKeys { reset, token, ids: RandomState::new() })
    }
}
