//! One order: authorization, validation, certificate.

use std::fmt;
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

use crate::authority::AuthorityClient;
use crate::challenges::{Challenges, Published};
use crate::name::Name;
use crate::settings::{AcmeSettings, ChallengeKind};
use weft::tls::{Identity, NamedIdentities, certificate};

/// Reason why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The authority did not accept a nonce several times in a row, which a new attempt mends.
    BadNonce,
    /// Another reason, as the authority states it if it is from there.
    Other(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Failure {
        Failure::Other(reason)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Api(problem) if problem.r#type.as_deref() == Some(BAD_NONCE) => {
                Failure::BadNonce
            }
            Error::Json(error) => {
                Failure::Other(format!("the authority's response is invalid: {error}"))
            }
            error => Failure::Other(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::BadNonce => "the authority accepts no nonce",
            Failure::Other(reason) => reason,
        })
    }
}

const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// Orders a certificate. Returns its private key and its chain, in PEM.
pub(crate) async fn order(
    account: &Account,
    settings: &AcmeSettings,
    name: &Name,
    kind: ChallengeKind,
    replaced: Option<&[u8]>,
    challenges: &Challenges,
    client: &AuthorityClient,
) -> Result<String, Failure> {
    let identifiers = [identifier(name)];
    let mut order = new_order(account, settings, &identifiers, replaced).await?;
    let published = authorize(&mut order, settings, name, kind, challenges).await?;
    // Polls after 250 ms, 500 ms, and so on.
    let polling = RetryPolicy::new().timeout(settings.order_timeout * 2 / 5);
    let status = match order.state().status {
        OrderStatus::Ready => Ok(OrderStatus::Ready),
        _ => order.poll_ready(&polling).await,
    };
    match status {
        Ok(OrderStatus::Ready) => {}
        Ok(_) | Err(Error::Api(_)) => {
            let reason = refusal(&mut order, kind).await;
            return Err(match kind {
                ChallengeKind::DnsPersist01 => {
                    format!("{reason}; {}", persistent_record(name, account, client)).into()
                }
                _ => reason.into(),
            });
        }
        Err(error) => return Err(unfinished(&mut order, error)),
    }
    drop(published);
    let failed = |error: rcgen::Error| -> Failure {
        format!("cannot create a certificate request: {error}").into()
    };
    let mut params = CertificateParams::new(vec![name.as_str().to_owned()]).map_err(failed)?;
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
    verify(name, &key, &chain, SystemTime::now()).map_err(unusable)?;
    Ok([key, chain].concat())
}

/// Returns the failure of an order whose polling has ended with an error.
fn unfinished(order: &mut Order, error: Error) -> Failure {
    match error {
        Error::Timeout(_) => {
            let status = format!("{:?}", order.state().status).to_lowercase();
            format!("timed out, the order is still {status}").into()
        }
        error => error.into(),
    }
}

/// Checks that clients can accept a certificate that has been issued. Otherwise it would replace one
/// that they accept, or would be renewed at once, without end.
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

/// Creates an order, which replaces the certificate `replaced` in DER. Authorities without renewal
/// information refuse the reference.
async fn new_order(
    account: &Account,
    settings: &AcmeSettings,
    identifiers: &[Identifier],
    replaced: Option<&[u8]>,
) -> Result<Order, Error> {
    let new = |replaced: Option<CertificateIdentifier<'static>>| {
        let order = NewOrder::new(identifiers);
        let order = replaced.into_iter().fold(order, NewOrder::replaces);
        settings.profile.iter().fold(order, |order, profile| order.profile(profile))
    };
    if let Some(replaced) = replaced.and_then(certificate_identifier) {
        match account.new_order(&new(Some(replaced))).await {
            // Another order has replaced it already (RFC 9773 §5), or it is from another authority.
            Err(Error::Api(_) | Error::Unsupported(_)) => {}
            result => return result,
        }
    }
    account.new_order(&new(None)).await
}

/// Returns the identifier of a certificate for its renewal (RFC 9773 §4.1).
pub(crate) fn certificate_identifier(der: &[u8]) -> Option<CertificateIdentifier<'static>> {
    let (issuer, serial) = certificate::issuer_and_serial(der)?;
    Some(CertificateIdentifier::new(Der::from_slice(issuer), Der::from_slice(serial)).into_owned())
}

fn identifier(name: &Name) -> Identifier {
    match name.ip() {
        Some(address) => Identifier::Ip(address),
        None => Identifier::Dns(name.as_str().to_owned()),
    }
}

/// Publishes what the authority validates, and starts the validations.
async fn authorize<'c>(
    order: &mut Order,
    settings: &AcmeSettings,
    name: &Name,
    kind: ChallengeKind,
    challenges: &'c Challenges,
) -> Result<Vec<Published<'c>>, Failure> {
    let mut published = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            status => return Err(format!("the authorization is {status:?}").into()),
        }
        let Some(mut challenge) = authorization.challenge(challenge_type(kind)) else {
            return Err(format!("the authority does not offer {}", kind.name()).into());
        };
        let authorization = challenge.key_authorization();
        let (dns, token) = (settings.dns.as_ref(), &challenge.token);
        published.push(challenges.publish(kind, dns, name, token, &authorization).await?);
        challenge.set_ready().await?;
    }
    Ok(published)
}

/// Describes the record that the operator has to set for `dns-persist-01`.
fn persistent_record(name: &Name, account: &Account, client: &AuthorityClient) -> String {
    let issuer = client.issuer().unwrap_or_else(|| "ISSUER-DOMAIN-NAME".to_owned());
    let policy = if name.is_wildcard() { "; policy=wildcard" } else { "" };
    format!(
        "set the record _validation-persist.{} TXT \"{issuer}; accounturi={}{policy}\"",
        name.domain(),
        account.id()
    )
}

/// Returns the reason of the authority for an order that has become invalid.
async fn refusal(order: &mut Order, kind: ChallengeKind) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let challenge = authorization.challenge(challenge_type(kind));
        if let Some(problem) = challenge.as_ref().and_then(|challenge| challenge.error.as_ref()) {
            return problem.to_string();
        }
    }
    match &order.state().error {
        Some(problem) => problem.to_string(),
        None => "the authority refused the order without a reason".to_owned(),
    }
}

fn challenge_type(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns01 => ChallengeType::Dns01,
        ChallengeKind::DnsPersist01 => ChallengeType::Unknown(kind.name().to_owned()),
    }
}
