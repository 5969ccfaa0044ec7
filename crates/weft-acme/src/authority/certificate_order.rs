//! One order: authorization, validation, certificate.

use std::time::SystemTime;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, Der, ServerName};
use rustls::server::ParsedCertificate;
use weft::tls::{Identity, NamedIdentities, certificate};

use super::authority_client::AuthorityClient;
use super::failure::Failure;
use crate::name::Name;
use crate::settings::AcmeSettings;
use crate::validation::challenge_kind::ChallengeKind;
use crate::validation::challenges::{Challenges, Published};

/// An order for the certificate of a name.
pub(crate) struct CertificateOrder<'a> {
    pub(crate) account: &'a Account,
    pub(crate) settings: &'a AcmeSettings,
    pub(crate) name: &'a Name,
    pub(crate) kind: ChallengeKind,
    pub(crate) challenges: &'a Challenges,
    pub(crate) client: &'a AuthorityClient,
}

impl<'a> CertificateOrder<'a> {
    /// Orders a certificate, in place of the certificate `replaced` in DER. Returns its private key
    /// and its chain, in PEM.
    pub(crate) async fn obtain(&self, replaced: Option<&[u8]>) -> Result<String, Failure> {
        let mut order = self.create(replaced).await?;
        let published = self.authorize(&mut order).await?;
        // Polls after 250 ms, 500 ms, and so on.
        let polling = RetryPolicy::new().timeout(self.settings.order_timeout * 2 / 5);
        let status = match order.state().status {
            OrderStatus::Ready => Ok(OrderStatus::Ready),
            _ => order.poll_ready(&polling).await,
        };
        match status {
            Ok(OrderStatus::Ready) => {}
            Ok(_) | Err(Error::Api(_)) => return Err(self.refusal(&mut order).await.into()),
            Err(error) => return Err(unfinished(&mut order, error)),
        }
        drop(published);
        let failed = |error: rcgen::Error| -> Failure {
            format!("cannot create a certificate request: {error}").into()
        };
        let mut params =
            CertificateParams::new(vec![self.name.as_str().to_owned()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().map_err(failed)?;
        let request = params.serialize_request(&key).map_err(failed)?;
        order.finalize_csr(request.der()).await?;
        let chain = match order.poll_certificate(&polling).await {
            Ok(chain) => chain,
            Err(error) => return Err(unfinished(&mut order, error)),
        };
        let key = key.serialize_pem();
        let unusable = |reason| format!("the authority's certificate is of no use: {reason}");
        verify(self.name, &key, &chain, SystemTime::now()).map_err(unusable)?;
        Ok([key, chain].concat())
    }

    /// Creates the order. An authority without renewal information refuses the reference to the
    /// certificate `replaced`; then it is omitted.
    async fn create(&self, replaced: Option<&[u8]>) -> Result<Order, Error> {
        let identifier = match self.name.ip() {
            Some(address) => Identifier::Ip(address),
            None => Identifier::Dns(self.name.as_str().to_owned()),
        };
        let identifiers = [identifier];
        let new = |replaced: Option<CertificateIdentifier<'static>>| {
            let order = NewOrder::new(&identifiers);
            let order = replaced.into_iter().fold(order, NewOrder::replaces);
            self.settings.profile.iter().fold(order, |order, profile| order.profile(profile))
        };
        if let Some(replaced) = replaced.and_then(certificate_identifier) {
            match self.account.new_order(&new(Some(replaced))).await {
                // Another order has replaced the certificate already (RFC 9773 §5), or it is from
                // another authority.
                Err(Error::Api(_) | Error::Unsupported(_)) => {}
                result => return result,
            }
        }
        self.account.new_order(&new(None)).await
    }

    /// Publishes the responses to the validations, and starts the validations.
    async fn authorize(&self, order: &mut Order) -> Result<Vec<Published<'a>>, Failure> {
        let mut published = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                status => return Err(format!("the authorization is {status:?}").into()),
            }
            let Some(mut challenge) = authorization.challenge(self.challenge_type()) else {
                return Err(format!("the authority does not offer {}", self.kind.name()).into());
            };
            let authorization = challenge.key_authorization();
            let (dns, token) = (self.settings.dns.as_ref(), &challenge.token);
            let response =
                self.challenges.publish(self.kind, dns, self.name, token, &authorization);
            published.push(response.await?);
            challenge.set_ready().await?;
        }
        Ok(published)
    }

    /// Returns the authority's reason for an order that has become invalid.
    async fn refusal(&self, order: &mut Order) -> String {
        let mut reason = order.state().error.as_ref().map(ToString::to_string);
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if authorization.refresh().await.is_err() {
                continue;
            }
            let challenge = authorization.challenge(self.challenge_type());
            if let Some(problem) = challenge.as_ref().and_then(|it| it.error.as_ref()) {
                reason = Some(problem.to_string());
                break;
            }
        }
        let unknown = || "the authority refused the order without a reason".to_owned();
        let reason = reason.unwrap_or_else(unknown);
        match self.kind {
            ChallengeKind::DnsPersist01 => format!("{reason}; {}", self.persistent_record()),
            _ => reason,
        }
    }

    /// Describes the record that the operator has to set for `dns-persist-01`.
    fn persistent_record(&self) -> String {
        let issuer = self.client.reported().issuer.clone();
        let issuer = issuer.unwrap_or_else(|| "ISSUER-DOMAIN-NAME".to_owned());
        let policy = if self.name.is_wildcard() { "; policy=wildcard" } else { "" };
        format!(
            "set the record _validation-persist.{} TXT \"{issuer}; accounturi={}{policy}\"",
            self.name.domain(),
            self.account.id()
        )
    }

    fn challenge_type(&self) -> ChallengeType {
        match self.kind {
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
            ChallengeKind::Dns01 => ChallengeType::Dns01,
            ChallengeKind::DnsPersist01 => ChallengeType::Unknown(self.kind.name().to_owned()),
        }
    }
}

/// Returns the failure of an order after an error of its polling.
fn unfinished(order: &mut Order, error: Error) -> Failure {
    match error {
        Error::Timeout(_) => {
            let status = format!("{:?}", order.state().status).to_lowercase();
            format!("timed out, the order is still {status}").into()
        }
        error => error.into(),
    }
}

/// Checks that clients can accept an issued certificate. A certificate that they reject must not
/// replace a valid one, and an expired certificate would be renewed again and again.
fn verify(name: &Name, key: &str, chain: &str, now: SystemTime) -> Result<(), String> {
    let chain_der: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let chain_der = chain_der.map_err(|error| format!("it is not in PEM: {error}"))?;
    let first = chain_der.first().ok_or("it is not in PEM")?;
    let identity = Identity::pem(chain, key);
    let usable = NamedIdentities::default().insert(name.as_str(), &identity);
    usable.map_err(|_| "it is invalid, or for another key")?;
    let is_expired = certificate::validity(first).is_none_or(|it| it.not_after <= now);
    // A wildcard stands for one label.
    let server_name = ServerName::try_from(name.as_str().replace('*', "any"));
    let parsed = ParsedCertificate::try_from(first).map_err(|error| error.to_string())?;
    let is_for_name = server_name.is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
    match (is_expired, is_for_name) {
        (true, _) => Err("it has expired already".to_owned()),
        (_, false) => Err(format!("it is not for {name}")),
        (false, true) => Ok(()),
    }
}

/// Returns the identifier of a certificate for its renewal (RFC 9773 §4.1).
pub(crate) fn certificate_identifier(der: &[u8]) -> Option<CertificateIdentifier<'static>> {
    let (issuer, serial) = certificate::issuer_and_serial(der)?;
    Some(CertificateIdentifier::new(Der::from_slice(issuer), Der::from_slice(serial)).into_owned())
}
