//! Pinned keys of upstreams, which are verified in addition to their certificates.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::base::crypto::digest;

use weft::tls::certificate::public_key;

/// SHA-256 of a public key with its algorithm (SubjectPublicKeyInfo, RFC 7469 §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyPin([u8; 32]);

const PREFIX: &str = "sha256/";

impl KeyPin {
    /// Returns the pin of the key in a certificate.
    fn of(certificate: &[u8]) -> Option<KeyPin> {
        let hash = digest::digest(&digest::SHA256, public_key(certificate)?);
        hash.as_ref().try_into().map(KeyPin).ok()
    }
}

impl FromStr for KeyPin {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyPin, String> {
        let hash = text.strip_prefix(PREFIX).and_then(|hash| BASE64_STANDARD.decode(hash).ok());
        let hash = hash.and_then(|hash| hash.try_into().ok());
        hash.map(KeyPin).ok_or_else(|| {
            format!("expected sha256/ and the SHA-256 of a public key in base64, found {text:?}")
        })
    }
}

impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64_STANDARD.encode(self.0))
    }
}

/// Verifies certificates as usual, and then that the key of the upstream is pinned.
#[derive(Debug)]
pub(crate) struct PinVerifier {
    pub(crate) inner: Arc<WebPkiServerVerifier>,
    pub(crate) pins: Vec<KeyPin>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        match KeyPin::of(end_entity) {
            Some(pin) if self.pins.contains(&pin) => Ok(verified),
            Some(pin) => Err(Error::General(format!("its key is not a pinned one: {pin}"))),
            None => Err(Error::General("its certificate has no key".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
