//! One order: authorization, validation, certificate.

use std::time::SystemTime;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeStatus, ChallengeType, Error,
    Identifier, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, Der, ServerName};
use rustls::server::ParsedCertificate;
use weft::tls::{Identity, NamedIdentities, certificate};

use super::authority_client::AuthorityClient;
use super::failure::{BAD_NONCE, Failure};
use crate::name::Name;
use crate::settings::AcmeSettings;
use crate::store::store_entries::{StoreEntries, StoredOrder};
use crate::store::stored_certificate::StoredCertificate;
use crate::validation::challenge_kind::ChallengeKind;
use crate::validation::challenges::{Challenges, Published};

/// Number of orders that are created in a row because other processes have stored theirs.
const MAX_CREATED: usize = 3;

/// An order for the certificate of a name.
pub(crate) struct CertificateOrder<'a> {
    pub(crate) account: &'a Account,
    pub(crate) settings: &'a AcmeSettings,
    /// Store of the order; `None` for a rehearsal.
    pub(crate) store: Option<&'a StoreEntries>,
    /// Directory of the authority.
    pub(crate) directory: &'a str,
    pub(crate) name: &'a Name,
    pub(crate) kind: ChallengeKind,
    pub(crate) challenges: &'a Challenges,
    pub(crate) client: &'a AuthorityClient,
}

impl<'a> CertificateOrder<'a> {
    /// Orders a certificate, in place of the `current` one. Returns its private key and its chain,
    /// in PEM.
    pub(crate) async fn obtain(
        &self,
        current: Option<&StoredCertificate>,
    ) -> Result<String, Failure> {
        let (mut order, key) = self.begin(current).await?;
        // Polls after 250 ms, 500 ms, and so on.
        let polling = RetryPolicy::new().timeout(self.settings.order_timeout * 2 / 5);
        if !is_finalized(order.state().status) {
            self.validate(&mut order, &polling).await?;
            self.finalize(&mut order, &key).await?;
        }
        let chain = match order.poll_certificate(&polling).await {
            Ok(chain) => chain,
            Err(error) => return Err(unfinished(&mut order, error)),
        };
        let key = key.serialize_pem();
        if let Err(reason) = verify(self.name, &key, &chain, SystemTime::now()) {
            self.forget(&key);
            return Err(format!("the authority's certificate is of no use: {reason}").into());
        }
        Ok([key, chain].concat())
    }

    /// Continues the last order of the name, or creates an order and stores it with the key for the
    /// certificate.
    ///
    /// Only a stored order is continued, so that the next owner of the lease gets the certificate
    /// of an owner that was killed. Two owners at a time, which a store may permit, agree on one
    /// order.
    async fn begin(
        &self,
        current: Option<&StoredCertificate>,
    ) -> Result<(Order, KeyPair), Failure> {
        let failed = |error: rcgen::Error| format!("cannot create a private key: {error}");
        let replaced = current.and_then(|current| current.der.as_deref());
        for _ in 0..MAX_CREATED {
            let (stored, version) = match self.store {
                Some(store) => store.order(self.name).map_err(not_read)?,
                None => (None, None),
            };
            if let Some(stored) = stored
                && let Some(continued) = self.continue_stored(&stored, current).await?
            {
                return Ok(continued);
            }
            let order = self.create(replaced).await?;
            let key = KeyPair::generate().map_err(failed)?;
            let Some(store) = self.store else { return Ok((order, key)) };
            let created = StoredOrder {
                directory: self.directory.to_owned(),
                url: order.url().to_owned(),
                key: key.serialize_pem(),
            };
            let is_stored = store.replace_order(self.name, Some(&created), version);
            if is_stored.map_err(|error| format!("cannot store the order: {error}"))? {
                return Ok((order, key));
            }
            // Another process has stored its order since.
        }
        Err("other processes order it at the same time".to_owned().into())
    }

    /// Continues an order. Returns `None` if it has no future: it is invalid, unknown to the
    /// authority, or its certificate is the current one.
    async fn continue_stored(
        &self,
        stored: &StoredOrder,
        current: Option<&StoredCertificate>,
    ) -> Result<Option<(Order, KeyPair)>, Failure> {
        let current = current.and_then(|current| current.pem.as_deref());
        let is_used = current.is_some_and(|pem| pem.starts_with(stored.key.as_bytes()));
        let key = KeyPair::from_pem(&stored.key);
        let Ok(key) = key.map_err(drop).and_then(|key| match is_used {
            false if stored.directory == self.directory => Ok(key),
            _ => Err(()),
        }) else {
            return Ok(None);
        };
        match self.account.order(stored.url.clone()).await {
            Ok(mut order) => match order.state().status {
                OrderStatus::Invalid => Ok(None),
                status => {
                    log::info!("the order of {} is continued, it is {status:?}", self.name);
                    Ok(Some((order, key)))
                }
            },
            Err(Error::Api(problem)) if is_unknown(&problem) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the authority validate the name, unless it has done so.
    async fn validate(&self, order: &mut Order, polling: &RetryPolicy) -> Result<(), Failure> {
        let _published = self.authorize(order).await?;
        let status = match order.state().status {
            OrderStatus::Ready => Ok(OrderStatus::Ready),
            _ => order.poll_ready(polling).await,
        };
        match status {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) | Err(Error::Api(_)) => Err(self.refusal(order).await.into()),
            Err(error) => Err(unfinished(order, error)),
        }
    }

    /// Requests the certificate for a key.
    async fn finalize(&self, order: &mut Order, key: &KeyPair) -> Result<(), Failure> {
        let failed = |error: rcgen::Error| -> Failure {
            format!("cannot create a certificate request: {error}").into()
        };
        let mut params =
            CertificateParams::new(vec![self.name.as_str().to_owned()]).map_err(failed)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(key).map_err(failed)?;
        match order.finalize_csr(request.der()).await {
            Ok(()) => Ok(()),
            // Another process may have requested it, for the same key.
            Err(error) => match order.refresh().await {
                Ok(state) if is_finalized(state.status) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }

    /// Removes the order with this key, whose certificate is of no use, from the store.
    fn forget(&self, key: &str) {
        let Some(store) = self.store else { return };
        let removed = store.order(self.name).and_then(|(stored, version)| match stored {
            Some(stored) if stored.key == key => store.replace_order(self.name, None, version),
            _ => Ok(false),
        });
        if let Err(error) = removed {
            log::error!("cannot remove the order of {}: {error}", self.name);
        }
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
            // The former owner of the order may have done so.
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
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

/// Returns true if the certificate of an order was requested.
fn is_finalized(status: OrderStatus) -> bool {
    matches!(status, OrderStatus::Processing | OrderStatus::Valid)
}

/// Returns true if the authority does not know an order, or not as an order of the account.
fn is_unknown(problem: &Problem) -> bool {
    let is_client_error = problem.status.is_none_or(|status| matches!(status, 400..=410));
    is_client_error && problem.r#type.as_deref() != Some(BAD_NONCE)
}

fn not_read(error: std::io::Error) -> String {
    format!("cannot read the order: {error}")
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
