//! One order: account, authorization, validation, certificate.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationStatus, CertificateIdentifier,
    ChallengeType, Error, ExternalAccountKey, Identifier, Key, NewAccount, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{Der, PrivatePkcs8KeyDer};
use tokio::time::sleep;

use super::challenges::{Challenges, Published};
use super::client::AuthorityClient;
use super::settings::{AcmePlan, ChallengeKind, EabKey, Name};
use super::store::Store;
use crate::certificate;

/// Interval at which the account that another process creates is looked up.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// Polls an order after 250 ms, 500 ms, and so on.
const POLLING: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// Reason why there is no certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The authority did not accept a nonce several times in a row, which a new attempt mends.
    BadNonce,
    /// In the words of the authority, if they are from it.
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

/// Signs in to an authority, with the account of the store or a new one.
///
/// The key is stored before the account is created, and an authority has one account for a key: a
/// crash between the two creates no second account. The library cannot do so for an account that is
/// bound to an external one.
pub(super) async fn sign_in(
    store: &Store,
    plan: &AcmePlan,
    directory: &str,
    client: &AuthorityClient,
) -> Result<Account, Failure> {
    let builder = || Account::builder_with_http(Box::new(client.clone()));
    let stored = |error: std::io::Error| format!("cannot store the account: {error}");
    let _lock = loop {
        if let Some(credentials) = store.account::<AccountCredentials>(directory) {
            return Ok(builder().from_credentials(credentials).await?);
        }
        match store.lock_account(directory).map_err(stored)? {
            Some(lock) => break lock,
            // Another process creates it.
            None => sleep(LOCK_INTERVAL).await,
        }
    };
    let (account, credentials) = match &plan.eab {
        None => {
            let key = account_key(store, directory)?;
            let parsed = Key::from_pkcs8_der(key.clone_key())?;
            builder().create_from_key((parsed, key.into()), directory.to_owned()).await?
        }
        Some(eab) => create_bound(builder(), eab, directory).await?,
    };
    if let Some(email) = &plan.email {
        let contact = format!("mailto:{email}");
        account.update_contacts(&[&contact]).await?;
    }
    store.write_account(directory, &credentials).map_err(stored)?;
    log::info!("created an account with {directory}");
    Ok(account)
}

/// Creates an account that is bound to an external one (RFC 8555 §7.3.4).
async fn create_bound(
    builder: AccountBuilder,
    eab: &EabKey,
    directory: &str,
) -> Result<(Account, AccountCredentials), Failure> {
    let path = eab.key.display();
    let text = std::fs::read_to_string(&eab.key);
    let text = text.map_err(|error| format!("cannot read the key {path}: {error}"))?;
    // Authorities use either alphabet, with or without padding.
    let text = text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_");
    let key = BASE64_URL_SAFE_NO_PAD.decode(text);
    let key = key.map_err(|error| format!("the key {path} is not in base64: {error}"))?;
    let account =
        NewAccount { contact: &[], terms_of_service_agreed: true, only_return_existing: false };
    let key = ExternalAccountKey::new(eab.id.clone(), &key);
    Ok(builder.create(&account, directory.to_owned(), Some(&key)).await?)
}

/// Returns the stored key for an account, or stores a new one.
fn account_key(store: &Store, directory: &str) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    let pem = match store.account_key(directory) {
        Some(pem) => pem,
        None => {
            let key =
                KeyPair::generate().map_err(|error| format!("cannot create a key: {error}"))?;
            let pem = key.serialize_pem();
            let written = store.write_account_key(directory, &pem);
            written.map_err(|error| format!("cannot store the key of the account: {error}"))?;
            pem
        }
    };
    PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("the key of the account is invalid: {error}"))
}

/// Orders a certificate. Returns its private key and its chain, in PEM.
pub(super) async fn order(
    account: &Account,
    plan: &AcmePlan,
    name: &Name,
    kind: ChallengeKind,
    replaced: Option<&[u8]>,
    challenges: &Challenges,
    client: &AuthorityClient,
) -> Result<String, Failure> {
    let identifiers = [identifier(name)];
    let mut order = new_order(account, plan, &identifiers, replaced).await?;
    let published = authorize(&mut order, plan, name, kind, challenges).await?;
    let status = match order.state().status {
        OrderStatus::Ready => Ok(OrderStatus::Ready),
        _ => order.poll_ready(&POLLING).await,
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
        Err(error) => return Err(error.into()),
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
    let chain = order.poll_certificate(&POLLING).await?;
    Ok([key.serialize_pem(), chain].concat())
}

/// Creates an order, which replaces the certificate `replaced` in DER. Authorities without renewal
/// information refuse the reference.
async fn new_order(
    account: &Account,
    plan: &AcmePlan,
    identifiers: &[Identifier],
    replaced: Option<&[u8]>,
) -> Result<Order, Error> {
    let new = |replaced: Option<CertificateIdentifier<'static>>| {
        let order = NewOrder::new(identifiers);
        let order = replaced.into_iter().fold(order, NewOrder::replaces);
        plan.profile.iter().fold(order, |order, profile| order.profile(profile))
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
pub(super) fn certificate_identifier(der: &[u8]) -> Option<CertificateIdentifier<'static>> {
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
    plan: &AcmePlan,
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
        let (dns, token) = (plan.dns.as_ref(), &challenge.token);
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
