//! Signing in to an authority, with a stored account or a new one.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, ExternalAccountKey, Key, NewAccount,
};
use rcgen::KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{sleep, timeout};

use super::authority_client::AuthorityClient;
use super::failure::Failure;
use crate::settings::{AcmeSettings, ExternalAccount};
use crate::store::store_entries::StoreEntries;

/// Interval at which the store is read while another order or process creates the account.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum number of failures that are kept, one for each authority.
const MAX_FAILED: usize = 16;

/// The last failure to create an account with each authority, by the directory of the authority.
#[derive(Debug, Default)]
pub(crate) struct FailedSignIns(Mutex<HashMap<String, FailedSignIn>>);

#[derive(Clone, Debug)]
struct FailedSignIn {
    at: Instant,
    failure: Failure,
    /// Delay that the authority required.
    retry_after: Option<Duration>,
}

impl FailedSignIns {
    fn insert(&self, directory: &str, failure: Failure, retry_after: Option<Duration>) {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() >= MAX_FAILED {
            failed.clear();
        }
        let failure = FailedSignIn { at: Instant::now(), failure, retry_after };
        failed.insert(directory.to_owned(), failure);
    }

    /// Returns the failure of an attempt that has ended after `start`.
    fn since(&self, start: Instant, directory: &str) -> Option<FailedSignIn> {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get(directory).filter(|failed| failed.at > start).cloned()
    }
}

/// Signs in to an authority, with the account of the store or a new account.
///
/// The key is stored before the account is created, and an authority has one account for a key. A
/// crash after the key was stored thus creates no second account. The library `instant_acme` does
/// not permit this for an account that is bound to an external account.
///
/// Orders wait for each other only while an account is created. If the creation fails, all orders
/// that have waited fail as well. Otherwise they would wait for a slow authority one after the
/// other.
pub(crate) async fn sign_in(
    failed: &FailedSignIns,
    store: &StoreEntries,
    settings: &AcmeSettings,
    directory: &str,
    client: &AuthorityClient,
) -> Result<Account, Failure> {
    let start = Instant::now();
    let _lease = loop {
        if let Some(credentials) = store.account(directory).map_err(not_read)? {
            let builder = Account::builder_with_http(Box::new(client.clone()));
            return Ok(builder.from_credentials(credentials).await?);
        }
        if let Some(FailedSignIn { failure, retry_after, .. }) = failed.since(start, directory) {
            client.reported().retry_after = retry_after;
            return Err(failure);
        }
        match store.lease_account(directory).map_err(not_stored)? {
            Some(lease) => {
                if store.account(directory).map_err(not_read)?.is_none() {
                    break lease;
                }
                // The account was created after the store was read.
            }
            // Another order or process creates the account.
            None => sleep(LOCK_INTERVAL).await,
        }
    };
    // Ends before the time limit of the orders, so that the orders that wait get the failure in
    // time.
    let created =
        timeout(settings.order_timeout / 2, create(store, settings, directory, client)).await;
    let created = created.unwrap_or_else(|_| Err("timed out".to_owned().into()));
    if let Err(failure) = &created {
        failed.insert(directory, failure.clone(), client.reported().retry_after);
    }
    created
}

/// Creates an account.
async fn create(
    store: &StoreEntries,
    settings: &AcmeSettings,
    directory: &str,
    client: &AuthorityClient,
) -> Result<Account, Failure> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let (account, credentials) = match &settings.external_account {
        None => {
            let key = account_key(store, directory)?;
            let parsed = Key::from_pkcs8_der(key.clone_key())?;
            builder.create_from_key((parsed, key.into()), directory.to_owned()).await?
        }
        Some(account) => create_bound(builder, account, directory).await?,
    };
    if let Some(email) = &settings.email {
        let contact = format!("mailto:{email}");
        account.update_contacts(&[&contact]).await?;
    }
    store.write_account(directory, &credentials).map_err(not_stored)?;
    log::info!("created an account with {directory}");
    Ok(account)
}

fn not_read(error: std::io::Error) -> String {
    format!("cannot read the account: {error}")
}

fn not_stored(error: std::io::Error) -> String {
    format!("cannot store the account: {error}")
}

/// Creates an account that is bound to an external account (RFC 8555 §7.3.4).
async fn create_bound(
    builder: AccountBuilder,
    external: &ExternalAccount,
    directory: &str,
) -> Result<(Account, AccountCredentials), Failure> {
    let path = external.key.display();
    let text = std::fs::read_to_string(&external.key);
    let text = text.map_err(|error| format!("cannot read the key {path}: {error}"))?;
    // Authorities use either alphabet, with or without padding.
    let text = text.trim().trim_end_matches('=').replace('+', "-").replace('/', "_");
    let key = BASE64_URL_SAFE_NO_PAD.decode(text);
    let key = key.map_err(|error| format!("the key {path} is not in base64: {error}"))?;
    let account =
        NewAccount { contact: &[], terms_of_service_agreed: true, only_return_existing: false };
    let key = ExternalAccountKey::new(external.id.clone(), &key);
    Ok(builder.create(&account, directory.to_owned(), Some(&key)).await?)
}

/// Returns the stored key for an account. If there is none, stores a new key.
fn account_key(
    store: &StoreEntries,
    directory: &str,
) -> Result<PrivatePkcs8KeyDer<'static>, String> {
    let pem = match store.account_key(directory).map_err(not_read)? {
        Some(pem) => pem,
        None => {
            let key =
                KeyPair::generate().map_err(|error| format!("cannot create a key: {error}"))?;
            let pem = key.serialize_pem();
            let created = store.create_account_key(directory, &pem);
            match created
                .map_err(|error| format!("cannot store the key of the account: {error}"))?
            {
                true => pem.into_bytes(),
                // Another process has created the key, without the lease.
                false => store
                    .account_key(directory)
                    .map_err(not_read)?
                    .ok_or("the key of the account was removed")?,
            }
        }
    };
    PrivatePkcs8KeyDer::from_pem_slice(&pem)
        .map_err(|error| format!("the key of the account is invalid: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_shared_by_orders_that_have_waited_and_bounded() {
        let (failed, before) = (FailedSignIns::default(), Instant::now());
        let (failure, delay) = (Failure::Other("refused".to_owned()), Duration::from_secs(9));
        for number in 0..3 * MAX_FAILED {
            failed.insert(&number.to_string(), failure.clone(), Some(delay));
        }
        let last = (3 * MAX_FAILED - 1).to_string();
        let shared = failed.since(before, &last).unwrap();
        assert_eq!((shared.failure, shared.retry_after), (failure, Some(delay)));
        assert!(failed.since(Instant::now(), &last).is_none());
        assert!(failed.since(before, "other").is_none());
        assert!(failed.0.lock().unwrap().len() <= MAX_FAILED);
    }
}
