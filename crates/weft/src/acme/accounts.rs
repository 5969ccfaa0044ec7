//! Changes of accounts and certificates by commands of the operator.

use std::fmt::Write;
use std::sync::Arc;

use instant_acme::{Account, AccountCredentials, RevocationReason, RevocationRequest};
use rcgen::KeyPair;
use rustls::pki_types::PrivateKeyDer;
use tokio::runtime::Builder;

use super::client::{AuthorityClient, AuthorityServers};
use super::order::Failure;
use super::settings::{AcmePlan, Name};
use super::store::{NameState, Store};
use crate::certificate;

/// Reasons of a revocation that apply to the certificate of a server (RFC 5280 §5.3.1).
const REASONS: [(&str, RevocationReason); 5] = [
    ("unspecified", RevocationReason::Unspecified),
    ("key-compromise", RevocationReason::KeyCompromise),
    ("affiliation-changed", RevocationReason::AffiliationChanged),
    ("superseded", RevocationReason::Superseded),
    ("cessation-of-operation", RevocationReason::CessationOfOperation),
];

/// Revokes the stored certificate of a name (RFC 8555 §7.6). A server with the same store replaces it
/// at once. Returns a message.
///
/// # Errors
/// If there is no certificate, or no authority revokes it.
pub(crate) fn revoke(plan: &AcmePlan, name: &str, reason: Option<&str>) -> Result<String, String> {
    let name: Name = name.parse().map_err(|reason| format!("{name:?}: {reason}"))?;
    let reason = reason.map(parse_reason).transpose()?;
    let store = Store::new(plan.state.as_deref())?;
    let der = certificate::read(&store.certificate_path(&name))
        .ok_or_else(|| format!("{name} has no certificate"))?;
    let failed = |error: std::io::Error| format!("cannot change the state of {name}: {error}");
    let lock = store.lock(&name).map_err(failed)?;
    let _lock = lock.ok_or_else(|| format!("an order for {name} is in progress; try it again"))?;
    let request = RevocationRequest { certificate: &der, reason };
    let mut reasons = Vec::new();
    for (directory, credentials) in accounts(plan, &store) {
        let revoked = run(async {
            let account = sign_in(plan, credentials).await?;
            Ok(account.revoke(&request).await?)
        });
        match revoked {
            Ok(()) => {
                // A time in the past, at which it is renewed.
                let state = NameState { window: Some((0, 1)), ..NameState::default() };
                store.write_state(&name, &state).map_err(failed)?;
                return Ok(format!("{directory} has revoked the certificate for {name}\n"));
            }
            Err(reason) => reasons.push(format!("{directory}: {reason}")),
        }
    }
    Err(match reasons.is_empty() {
        true => "there is no account with an authority".to_owned(),
        false => format!("the certificate for {name} is not revoked: {}", reasons.join("; ")),
    })
}

/// Changes the keys of all accounts (RFC 8555 §7.3.5). Returns a message.
///
/// # Errors
/// If there is no account, or an authority does not change a key.
pub(crate) fn roll_over(plan: &AcmePlan) -> Result<String, String> {
    let store = Store::new(plan.state.as_deref())?;
    let mut out = String::new();
    for (directory, credentials) in accounts(plan, &store) {
        let failed = |reason: String| format!("the key for {directory} is not changed: {reason}");
        let lock = store.lock_account(directory).map_err(|error| failed(error.to_string()))?;
        let _lock = lock.ok_or_else(|| failed("another process uses it".to_owned()))?;
        let changed = run(async {
            let mut account = sign_in(plan, credentials).await?;
            Ok(account.update_key().await?)
        });
        let credentials = changed.map_err(|failure| failed(failure.to_string()))?;
        let stored = store
            .write_account(directory, &credentials)
            .and_then(|()| store.write_account_key(directory, &pem(&credentials)?));
        stored.map_err(|error| format!("cannot store the new key for {directory}: {error}"))?;
        writeln!(out, "the account with {directory} has a new key")
            .expect("writing to a String cannot fail");
    }
    match out.is_empty() {
        true => Err("there is no account with an authority".to_owned()),
        false => Ok(out),
    }
}

/// Returns the stored accounts, in the order of the configuration.
fn accounts<'p>(
    plan: &'p AcmePlan,
    store: &'p Store,
) -> impl Iterator<Item = (&'p str, AccountCredentials)> {
    let directories = plan.directories.iter().chain(&plan.staging);
    directories.filter_map(|it| Some((it.as_str(), store.account(it)?)))
}

async fn sign_in(plan: &AcmePlan, credentials: AccountCredentials) -> Result<Account, Failure> {
    let servers = Arc::new(AuthorityServers::new(plan.ca.clone()));
    let client = AuthorityClient::new(servers, plan.order_timeout);
    Ok(Account::builder_with_http(Box::new(client)).from_credentials(credentials).await?)
}

fn pem(credentials: &AccountCredentials) -> std::io::Result<String> {
    let key = PrivateKeyDer::from(credentials.private_key().clone_key());
    let key = KeyPair::try_from(&key).map_err(std::io::Error::other)?;
    Ok(key.serialize_pem())
}

fn parse_reason(text: &str) -> Result<RevocationReason, String> {
    let known = REASONS.iter().find(|(name, _)| *name == text);
    known.map(|(_, reason)| reason.clone()).ok_or_else(|| {
        let names: Vec<_> = REASONS.iter().map(|(name, _)| *name).collect();
        format!("expected one of {} as the reason, found {text:?}", names.join(", "))
    })
}

/// Runs the requests of a command.
fn run<T>(requests: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start an event loop: {error}"))?;
    runtime.block_on(requests)
}
