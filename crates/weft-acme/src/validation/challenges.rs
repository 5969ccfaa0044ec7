//! Responses to the validations of a certificate authority.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use weft::tls::{AlpnChallenges, Identity};
use weft::{Request, Response};

use super::challenge_kind::ChallengeKind;
use super::dns_provider::{DnsSettings, PublishedRecord};
use crate::name::Name;

/// Path of a token. The authority requests it over HTTP without TLS (RFC 8555 §8.3).
const PREFIX: &str = "/.well-known/acme-challenge/";

/// Pending validations. All workers and all TLS listeners respond to them. Clones share their
/// state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Challenges {
    /// Key authorizations by token.
    tokens: Arc<RwLock<HashMap<String, String>>>,
    pub(crate) alpn: AlpnChallenges,
}

/// A validation that the server responds to until this value is dropped.
pub(crate) struct Published<'a> {
    challenges: &'a Challenges,
    key: Key,
}

enum Key {
    Token(String),
    ServerName(String),
    /// Removed when it is dropped.
    Record {
        _record: PublishedRecord,
    },
    /// The operator has published it.
    None,
}

impl Challenges {
    /// Responds to the request of an authority. Returns `None` for all other requests, also for
    /// unknown tokens: the routes may have the tokens of another ACME client.
    pub(crate) fn respond(&self, request: &Request) -> Option<Response> {
        let token = request.path().strip_prefix(PREFIX)?;
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let authorization = tokens.get(token)?.clone();
        Some(Response::text(authorization))
    }

    /// Responds to the validation of `name`.
    ///
    /// # Errors
    /// If the certificate of the validation cannot be created, or if the DNS cannot be changed.
    pub(crate) async fn publish(
        &self,
        kind: ChallengeKind,
        dns: Option<&DnsSettings>,
        name: &Name,
        token: &str,
        authorization: &KeyAuthorization,
    ) -> Result<Published<'_>, String> {
        let key = match kind {
            ChallengeKind::Http01 => {
                let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
                tokens.insert(token.to_owned(), authorization.as_str().to_owned());
                Key::Token(token.to_owned())
            }
            ChallengeKind::TlsAlpn01 => {
                let identity = validation_certificate(name, authorization.digest().as_ref())
                    .map_err(|error| {
                        format!("cannot create the certificate of a validation: {error}")
                    })?;
                let server_name = name.server_name();
                self.alpn.insert(&server_name, &identity).map_err(|error| error.to_string())?;
                Key::ServerName(server_name)
            }
            ChallengeKind::Dns01 => {
                let settings = dns.ok_or("there is no DNS provider")?;
                let record =
                    PublishedRecord::add(settings, name, authorization.dns_value()).await?;
                Key::Record { _record: record }
            }
            ChallengeKind::DnsPersist01 => Key::None,
        };
        Ok(Published { challenges: self, key })
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        match &self.key {
            Key::Token(token) => {
                let tokens = &self.challenges.tokens;
                tokens.write().unwrap_or_else(PoisonError::into_inner).remove(token);
            }
            Key::ServerName(name) => self.challenges.alpn.remove(name),
            Key::Record { .. } | Key::None => {}
        }
    }
}

/// Creates a self-signed certificate with the digest of a key authorization (RFC 8737 §3).
fn validation_certificate(name: &Name, digest: &[u8]) -> Result<Identity, rcgen::Error> {
    let mut params = CertificateParams::new(vec![name.as_str().to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Identity::pem(certificate.pem(), key.serialize_pem()))
}
