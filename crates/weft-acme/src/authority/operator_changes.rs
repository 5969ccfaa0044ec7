//! Changes of accounts and stored certificates by the operator.

use std::io;
use std::time::SystemTime;

use instant_acme::{Account, AccountCredentials, RevocationReason, RevocationRequest};
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::authority_client::AuthorityClient;
use super::failure::Failure;
use crate::name::Name;
use crate::settings::AcmeSettings;
use crate::store::store_entries::{NameState, StoreEntries};
use crate::store::stored_certificate::{CertificateInfo, StoredCertificate};

/// Reasons of a revocation that apply to the certificate of a server (RFC 5280 §5.3.1).
const REASONS: [(&str, RevocationReason); 5] = [
    ("unspecified", RevocationReason::Unspecified),
    ("key-compromise", RevocationReason::KeyCompromise),
    ("affiliation-changed", RevocationReason::AffiliationChanged),
    ("superseded", RevocationReason::Superseded),
    ("cessation-of-operation", RevocationReason::CessationOfOperation),
];

impl AcmeSettings {
    /// Returns all names in the store, in order. The names include orders on demand, and orders by
    /// other settings.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn stored_names(&self) -> io::Result<Vec<Name>> {
        let mut names = self.stored().names()?;
        names.sort();
        Ok(names)
    }

    /// Returns the state of a name in the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn stored_certificate(&self, name: &Name) -> io::Result<CertificateInfo> {
        let stored = StoredCertificate::read(&self.stored(), name)?;
        let due = stored.due(SystemTime::now());
        Ok(stored.into_info(due))
    }

    /// Revokes the stored certificate of a name (RFC 8555 §7.6). A server with the same store
    /// replaces the certificate within 10 s. Returns the directory of the authority.
    ///
    /// The reasons are:
    /// - `unspecified`
    /// - `key-compromise`
    /// - `affiliation-changed`
    /// - `superseded`
    /// - `cessation-of-operation`
    ///
    /// # Errors
    /// If there is no certificate, or if no authority revokes the certificate.
    pub async fn revoke(&self, name: &Name, reason: Option<&str>) -> Result<String, String> {
        let reason = reason.map(parse_reason).transpose()?;
        let store = self.stored();
        let failed = |error: io::Error| format!("cannot change the state of {name}: {error}");
        let der = StoredCertificate::read(&store, name).map_err(failed)?.der;
        let der = CertificateDer::from(der.ok_or_else(|| format!("{name} has no certificate"))?);
        let lease = store.lease(name).map_err(failed)?;
        let _lease =
            lease.ok_or_else(|| format!("an order for {name} is in progress; try it again"))?;
        let request = RevocationRequest { certificate: &der, reason };
        let mut reasons = Vec::new();
        for (directory, credentials) in self.accounts()? {
            let revoked = async {
                let account = self.sign_in(credentials).await?;
                Ok::<_, Failure>(account.revoke(&request).await?)
            };
            match revoked.await {
                Ok(()) => {
                    // A window in the past: the certificate is renewed at once.
                    let state = NameState { window: Some((0, 1)), ..NameState::default() };
                    store.write_state(name, &state).map_err(failed)?;
                    return Ok(directory.to_owned());
                }
                Err(reason) => reasons.push(format!("{directory}: {reason}")),
            }
        }
        Err(match reasons.is_empty() {
            true => "there is no account with an authority".to_owned(),
            false => format!("the certificate for {name} is not revoked: {}", reasons.join("; ")),
        })
    }

    /// Changes the keys of all accounts (RFC 8555 §7.3.5). Returns the directories of their
    /// authorities.
    ///
    /// # Errors
    /// If there is no account, or if an authority does not change a key.
    pub async fn roll_over(&self) -> Result<Vec<String>, String> {
        let store = self.stored();
        let mut changed = Vec::new();
        for (directory, credentials) in self.accounts()? {
            let failed =
                |reason: String| format!("the key for {directory} is not changed: {reason}");
            let lease =
                store.lease_account(directory).map_err(|error| failed(error.to_string()))?;
            let _lease = lease.ok_or_else(|| failed("another process uses it".to_owned()))?;
            let new_key = async {
                let mut account = self.sign_in(credentials).await?;
                Ok::<_, Failure>(account.update_key().await?)
            };
            let credentials = new_key.await.map_err(|failure| failed(failure.to_string()))?;
            let stored = store
                .write_account(directory, &credentials)
                .and_then(|()| store.write_account_key(directory, &pem(&credentials)?));
            stored.map_err(|error| format!("cannot store the new key for {directory}: {error}"))?;
            changed.push(directory.to_owned());
        }
        match changed.is_empty() {
            true => Err("there is no account with an authority".to_owned()),
            false => Ok(changed),
        }
    }

    fn stored(&self) -> StoreEntries {
        StoreEntries(self.store.clone())
    }

    /// Returns the stored accounts, in the order of the directories.
    fn accounts(&self) -> Result<Vec<(&str, AccountCredentials)>, String> {
        let store = self.stored();
        let directories = self.directories.iter().chain(&self.staging);
        let account = |directory: &'_ String| store.account(directory).transpose();
        let accounts = directories.filter_map(|it| Some((it.as_str(), account(it)?)));
        let accounts = accounts.map(|(directory, account)| Ok((directory, account?)));
        accounts
            .collect::<io::Result<_>>()
            .map_err(|error| format!("cannot read the accounts: {error}"))
    }

    async fn sign_in(&self, credentials: AccountCredentials) -> Result<Account, Failure> {
        let client = AuthorityClient::new(self.client.clone(), self.order_timeout);
        Ok(Account::builder_with_http(Box::new(client)).from_credentials(credentials).await?)
    }
}

fn pem(credentials: &AccountCredentials) -> io::Result<String> {
    let key = PrivateKeyDer::from(credentials.private_key().clone_key());
    let key = KeyPair::try_from(&key).map_err(io::Error::other)?;
    Ok(key.serialize_pem())
}

fn parse_reason(text: &str) -> Result<RevocationReason, String> {
    let known = REASONS.iter().find(|(name, _)| *name == text);
    known.map(|(_, reason)| reason.clone()).ok_or_else(|| {
        let names: Vec<_> = REASONS.iter().map(|(name, _)| *name).collect();
        format!("expected one of {} as the reason, found {text:?}", names.join(", "))
    })
}
