//! Responses to the validations of a certificate authority.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::KeyAuthorization;
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use weft::tls::{AlpnChallenges, Identity};
use weft::{Request, Response};

use super::challenge_kind::ChallengeKind;
use super::dns_provider::{DnsSettings, PublishedRecord};
use super::remote_validations::{Changes, LIFETIME, LookUp, RemoteValidations};
use super::shared_validations::SharedValidations;
use crate::name::Name;

/// Path of a token. The authority requests it over HTTP without TLS (RFC 8555 §8.3).
const PREFIX: &str = "/.well-known/acme-challenge/";

/// Beginnings of the keys of shared validations.
const TOKENS: &str = "http-01/";
const SERVER_NAMES: &str = "tls-alpn-01/";

/// Length of the digest of a key authorization.
const DIGEST_BYTES: usize = 32;

/// Pending validations. All workers and all TLS listeners respond to them. Clones share their
/// state.
#[derive(Clone, Debug)]
pub(crate) struct Challenges {
    /// Key authorizations by token.
    tokens: Arc<RwLock<HashMap<String, String>>>,
    pub(crate) alpn: AlpnChallenges,
    /// Validations of other servers.
    pub(crate) remote: RemoteValidations,
}

/// A validation that the server responds to until this value is dropped.
pub(crate) struct Published<'a> {
    challenges: &'a Challenges,
    key: Key,
    shared: Option<SharedKey>,
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

/// A validation that other servers can respond to.
struct SharedKey {
    shared: Arc<dyn SharedValidations>,
    key: String,
}

impl Default for Challenges {
    fn default() -> Challenges {
        let remote = RemoteValidations::default();
        let alpn = AlpnChallenges::with_source(remote.clone());
        Challenges { tokens: Arc::default(), alpn, remote }
    }
}

impl Challenges {
    /// Responds to the request of an authority. Returns `None` for all other requests, also for
    /// unknown tokens: the routes may have the tokens of another ACME client.
    pub(crate) fn respond(&self, request: &Request) -> Option<Response> {
        let token = request.path().strip_prefix(PREFIX)?;
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let own = tokens.get(token).cloned();
        drop(tokens);
        let authorization = own.or_else(|| self.remote.get(&format!("{TOKENS}{token}")))?;
        Some(Response::text(authorization))
    }

    /// Looks up an unknown token among the validations of other servers.
    pub(crate) fn look_up(&self, request: &Request) -> Option<LookUp> {
        let token = request.path().strip_prefix(PREFIX)?;
        match self.respond(request) {
            Some(_) => None,
            None => self.remote.look_up_token(token),
        }
    }

    /// Reads the validations of other servers when requests wait, until the future is dropped.
    pub(crate) async fn read_remote(&self) {
        self.remote.run(|changes| self.apply(changes)).await;
    }

    /// Changes the certificates for validations of all servers, which include the validations of
    /// this server.
    fn apply(&self, Changes { new, removed }: Changes) {
        for key in removed {
            if let Some(name) = key.strip_prefix(SERVER_NAMES) {
                self.alpn.remove(name);
            }
        }
        for (key, value) in new {
            let Some(server_name) = key.strip_prefix(SERVER_NAMES) else { continue };
            let Some((name, digest)) = value.split_once(' ') else { continue };
            let (name, digest) = (name.parse::<Name>(), BASE64_URL_SAFE_NO_PAD.decode(digest));
            let (Ok(name), Ok(digest)) = (name, digest) else { continue };
            if digest.len() != DIGEST_BYTES {
                continue;
            }
            let inserted = validation_certificate(&name, &digest)
                .map_err(|error| error.to_string())
                .and_then(|identity| {
                    let inserted = self.alpn.insert(server_name, &identity);
                    inserted.map_err(|error| error.to_string())
                });
            if let Err(reason) = inserted {
                log::error!("cannot respond to the validation of {name}: {reason}");
            }
        }
    }

    /// Responds to the validation of `name`, on all servers that share validations.
    ///
    /// # Errors
    /// If the certificate of the validation cannot be created, or if the DNS or the other servers
    /// cannot be reached.
    pub(crate) async fn publish(
        &self,
        kind: ChallengeKind,
        dns: Option<&DnsSettings>,
        name: &Name,
        token: &str,
        authorization: &KeyAuthorization,
    ) -> Result<Published<'_>, String> {
        let mut value = String::new();
        let key = match kind {
            ChallengeKind::Http01 => {
                let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
                tokens.insert(token.to_owned(), authorization.as_str().to_owned());
                value.push_str(authorization.as_str());
                Key::Token(token.to_owned())
            }
            ChallengeKind::TlsAlpn01 => {
                let digest = authorization.digest();
                let identity = validation_certificate(name, digest.as_ref()).map_err(|error| {
                    format!("cannot create the certificate of a validation: {error}")
                })?;
                let server_name = name.server_name();
                self.alpn.insert(&server_name, &identity).map_err(|error| error.to_string())?;
                value = format!("{name} {}", BASE64_URL_SAFE_NO_PAD.encode(digest));
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
        let mut published = Published { challenges: self, key, shared: None };
        published.share(&value).await?;
        Ok(published)
    }
}

impl Published<'_> {
    /// Lets other servers respond to the validation, before the authority begins with it.
    async fn share(&mut self, value: &str) -> Result<(), String> {
        let key = match &self.key {
            Key::Token(token) => format!("{TOKENS}{token}"),
            Key::ServerName(name) => format!("{SERVER_NAMES}{name}"),
            Key::Record { .. } | Key::None => return Ok(()),
        };
        let Some(shared) = self.challenges.remote.shared() else { return Ok(()) };
        let published = shared.publish(&key, value, LIFETIME).await;
        self.shared = Some(SharedKey { shared, key });
        published.map_err(|reason| format!("other machines cannot answer its validation: {reason}"))
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
        if let Some(SharedKey { shared, key }) = &self.shared {
            shared.withdraw(key);
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
