//! Accounts and certificates as entries of a [`CertificateStore`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use instant_acme::AccountCredentials;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::certificate_store::{CertificateStore, Lease, Version};
use crate::name::Name;

/// Accounts and certificates.
#[derive(Clone)]
pub(crate) struct StoreEntries(pub(crate) Arc<dyn CertificateStore>);

/// State of a name between attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NameState {
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// Earliest time of the next attempt, in seconds since 1970.
    pub(crate) retry_at: u64,
    pub(crate) last_error: Option<String>,
    /// Times between which the authority suggests a renewal, in seconds since 1970.
    pub(crate) window: Option<(u64, u64)>,
    /// Time at which the authority is to be asked for the window again, in seconds since 1970.
    pub(crate) ask_at: u64,
}

/// An order that the authority has created. The next owner of the lease continues it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredOrder {
    /// Directory of the authority.
    pub(crate) directory: String,
    pub(crate) url: String,
    /// Private key of the certificate, in PEM.
    pub(crate) key: String,
}

/// Versions of a name's certificate and state; `None` for a missing entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameVersions([Option<Version>; 2]);

/// Folder of the names.
const CERTIFICATES: &str = "certificates";

impl StoreEntries {
    /// Returns the private key and the certificate chain of a name, in PEM.
    pub(crate) fn certificate(&self, name: &Name) -> io::Result<Option<Vec<u8>>> {
        self.0.get(&certificate_key(name))
    }

    pub(crate) fn write_certificate(&self, name: &Name, pem: &str) -> io::Result<()> {
        self.0.put(&certificate_key(name), pem.as_bytes())
    }

    /// Returns all names that have entries.
    pub(crate) fn names(&self) -> io::Result<Vec<Name>> {
        let names = self.0.list(CERTIFICATES)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Removes the entries of a name, unless a process has an order for it.
    pub(crate) fn remove(&self, name: &Name) {
        if let Ok(Some(_lease)) = self.lease(name)
            && let Err(error) = self.0.remove(&name_folder(name))
        {
            log::error!("cannot remove the files of {name}: {error}");
        }
    }

    /// Returns the state of a name. Returns the default if there is no state, or if another release
    /// has written it in another form.
    pub(crate) fn state(&self, name: &Name) -> io::Result<NameState> {
        Ok(self.read_json(&state_key(name))?.unwrap_or_default())
    }

    pub(crate) fn write_state(&self, name: &Name, state: &NameState) -> io::Result<()> {
        self.write_json(&state_key(name), state)
    }

    /// Returns the last order of a name and the version of its entry. The order is `None` if the
    /// entry has another form.
    pub(crate) fn order(&self, name: &Name) -> io::Result<(Option<StoredOrder>, Option<Version>)> {
        // Read before the entry, so that a change during the read is found later.
        let version = self.0.version(&order_key(name))?;
        let order = self.read_json::<Option<StoredOrder>>(&order_key(name))?;
        Ok((order.flatten(), version))
    }

    /// Replaces the last order of a name, or removes it, if its entry has this version. Returns
    /// false if it is another.
    pub(crate) fn replace_order(
        &self,
        name: &Name,
        order: Option<&StoredOrder>,
        version: Option<Version>,
    ) -> io::Result<bool> {
        self.0.put_if(&order_key(name), &json(&order)?, version)
    }

    /// Returns the versions of a name's entries. If a version cannot be determined, it is `None`,
    /// so that the entry is read again.
    pub(crate) fn versions(&self, name: &Name) -> NameVersions {
        let keys = [certificate_key(name), state_key(name)];
        NameVersions(keys.map(|key| self.0.version(&key).ok().flatten()))
    }

    /// Acquires the right to order a name; `None` if another process has an order for it.
    pub(crate) fn lease(&self, name: &Name) -> io::Result<Option<Lease>> {
        self.0.lease(&name_folder(name))
    }

    /// Acquires the right to change the account with an authority.
    pub(crate) fn lease_account(&self, directory: &str) -> io::Result<Option<Lease>> {
        self.0.lease(&account_folder(directory))
    }

    /// Returns the private key of the account with an authority, in PEM.
    pub(crate) fn account_key(&self, directory: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.get(&key_of_account(directory))
    }

    /// Stores the private key of a new account. Returns false if there is a key.
    pub(crate) fn create_account_key(&self, directory: &str, pem: &str) -> io::Result<bool> {
        self.0.put_if(&key_of_account(directory), pem.as_bytes(), None)
    }

    pub(crate) fn write_account_key(&self, directory: &str, pem: &str) -> io::Result<()> {
        self.0.put(&key_of_account(directory), pem.as_bytes())
    }

    /// Returns the account with an authority; `None` if there is none, or if it has another form.
    pub(crate) fn account(&self, directory: &str) -> io::Result<Option<AccountCredentials>> {
        self.read_json(&account_entry(directory))
    }

    pub(crate) fn write_account(
        &self,
        directory: &str,
        account: &AccountCredentials,
    ) -> io::Result<()> {
        self.write_json(&account_entry(directory), account)
    }

    fn read_json<T: DeserializeOwned>(&self, key: &str) -> io::Result<Option<T>> {
        let text = self.0.get(key)?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    fn write_json<T: Serialize>(&self, key: &str, value: &T) -> io::Result<()> {
        self.0.put(key, &json(value)?)
    }
}

impl fmt::Debug for StoreEntries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

fn name_folder(name: &Name) -> String {
    format!("{CERTIFICATES}/{name}")
}

fn certificate_key(name: &Name) -> String {
    format!("{CERTIFICATES}/{name}/certificate.pem")
}

fn state_key(name: &Name) -> String {
    format!("{CERTIFICATES}/{name}/state.json")
}

fn order_key(name: &Name) -> String {
    format!("{CERTIFICATES}/{name}/order.json")
}

/// Returns the folder of an authority. Its name is the URL, without the characters of paths.
fn account_folder(directory: &str) -> String {
    let url = directory.split_once("://").map_or(directory, |(_, rest)| rest);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let name: String = url.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("accounts/{}", name.trim_matches(['.', '_']))
}

fn account_entry(directory: &str) -> String {
    account_folder(directory) + "/account.json"
}

fn key_of_account(directory: &str) -> String {
    account_folder(directory) + "/key.pem"
}

/// Returns seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileStore;

    #[test]
    fn states_of_another_form_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreEntries(Arc::new(FileStore::new(folder.path()).ephemeral_state()));
        let name: Name = "example.org".parse().unwrap();
        assert_eq!(store.state(&name).unwrap(), NameState::default());
        let state = NameState { failures: 3, window: Some((1, 2)), ..NameState::default() };
        store.write_state(&name, &state).unwrap();
        assert_eq!(store.state(&name).unwrap(), state);
        assert_eq!(store.names().unwrap(), std::slice::from_ref(&name));
        for (text, failures) in [("{\"failures\": 7, \"new\": 1}", 7), ("{", 0)] {
            store.0.put(&state_key(&name), text.as_bytes()).unwrap();
            assert_eq!(store.state(&name).unwrap().failures, failures, "{text}");
        }
    }

    #[test]
    fn accounts_of_different_authorities_are_apart() {
        for (url, expected) in [
            ("https://a.example/directory", "accounts/a.example_directory"),
            ("https://a.example:14000/dir", "accounts/a.example_14000_dir"),
            ("https://../../x", "accounts/x"),
            ("https://a/../../x/", "accounts/a_.._.._x"),
        ] {
            assert_eq!(account_folder(url), expected, "{url}");
        }
    }
}
