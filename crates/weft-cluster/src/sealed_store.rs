//! Encryption of the values of a store.

use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::secret::ClusterSecret;
use crate::store::{
    Expected, LeaseToken, Store, StoredValue, ValueVersion, check_key, check_value,
};
use crate::store_error::StoreError;

/// Bytes of an encrypted value besides its content: the nonce and the code.
pub(crate) const SEAL_BYTES: usize = NONCE_LEN + 16;

/// A store whose values are encrypted with AES-256-GCM. The code of a value depends on its key, so
/// that the store cannot exchange values. Without the secret nobody can read or make a value.
///
/// The store can still return a former value, or none.
pub struct SealedStore<S> {
    store: S,
    cluster: String,
    /// The first encrypts, and all decrypt.
    keys: Vec<LessSafeKey>,
}

impl<S: Store> SealedStore<S> {
    /// Encrypts the values of a cluster with this name by the first secret. Values of the other
    /// secrets are read, too.
    pub fn new(store: S, cluster: &str, secrets: &[ClusterSecret]) -> SealedStore<S> {
        let key = |secret: &ClusterSecret| {
            let key = secret.derive::<32>("values of the store");
            LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("the key has 32 bytes"))
        };
        SealedStore { store, cluster: cluster.to_owned(), keys: secrets.iter().map(key).collect() }
    }

    fn seal(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let failed = |_| StoreError::Refused("a value cannot be encrypted".to_owned());
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
        let mut sealed = value.to_vec();
        let cipher = self.keys.first().ok_or_else(|| failed(aws_lc_rs::error::Unspecified))?;
        let unique = Nonce::assume_unique_for_key(nonce);
        cipher.seal_in_place_append_tag(unique, self.name(key), &mut sealed).map_err(failed)?;
        Ok([&nonce[..], &sealed].concat())
    }

    fn open(&self, key: &str, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let opened = sealed.split_first_chunk().and_then(|(nonce, sealed)| {
            self.keys.iter().find_map(|cipher| {
                let (nonce, mut value) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
                let length = cipher.open_in_place(nonce, self.name(key), &mut value).ok()?.len();
                value.truncate(length);
                Some(value)
            })
        });
        opened.ok_or_else(|| {
            StoreError::Invalid(format!(
                "the value of {key} has a wrong code: another program has changed it, or this \
                 machine has another secret"
            ))
        })
    }

    /// Returns the data that the code of a value depends on.
    fn name(&self, key: &str) -> Aad<Vec<u8>> {
        Aad::from([self.cluster.as_bytes(), b"\0", key.as_bytes()].concat())
    }
}

impl<S: Store> Store for SealedStore<S> {
    async fn get(&mut self, key: &str) -> Result<Option<StoredValue>, StoreError> {
        let Some(StoredValue { value, version }) = self.store.get(key).await? else {
            return Ok(None);
        };
        Ok(Some(StoredValue { value: self.open(key, &value)?, version }))
    }

    async fn put(
        &mut self,
        key: &str,
        value: &[u8],
        expected: Expected,
        lifetime: Option<Duration>,
    ) -> Result<Option<ValueVersion>, StoreError> {
        check_key(key)?;
        check_value(value, 0)?;
        let sealed = self.seal(key, value)?;
        self.store.put(key, &sealed, expected, lifetime).await
    }

    async fn delete(&mut self, key: &str, expected: Expected) -> Result<bool, StoreError> {
        self.store.delete(key, expected).await
    }

    async fn list(&mut self, prefix: &str) -> Result<Vec<(String, ValueVersion)>, StoreError> {
        self.store.list(prefix).await
    }

    async fn lease(
        &mut self,
        name: &str,
        token: LeaseToken,
        lifetime: Duration,
    ) -> Result<bool, StoreError> {
        self.store.lease(name, token, lifetime).await
    }

    async fn release(&mut self, name: &str, token: LeaseToken) -> Result<(), StoreError> {
        self.store.release(name, token).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store without calls.
    struct NoStore;

    impl Store for NoStore {
        async fn get(&mut self, _: &str) -> Result<Option<StoredValue>, StoreError> {
            Ok(None)
        }

        async fn put(
            &mut self,
            _: &str,
            _: &[u8],
            _: Expected,
            _: Option<Duration>,
        ) -> Result<Option<ValueVersion>, StoreError> {
            Ok(None)
        }

        async fn delete(&mut self, _: &str, _: Expected) -> Result<bool, StoreError> {
            Ok(false)
        }

        async fn list(&mut self, _: &str) -> Result<Vec<(String, ValueVersion)>, StoreError> {
            Ok(Vec::new())
        }

        async fn lease(&mut self, _: &str, _: LeaseToken, _: Duration) -> Result<bool, StoreError> {
            Ok(false)
        }

        async fn release(&mut self, _: &str, _: LeaseToken) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn sealed(cluster: &str, secrets: &[&str]) -> SealedStore<NoStore> {
        let lines: Vec<String> = secrets.iter().map(|letter| letter.repeat(32)).collect();
        let secrets = ClusterSecret::read(lines.join("\n").as_bytes()).unwrap();
        SealedStore::new(NoStore, cluster, &secrets)
    }

    #[test]
    fn only_unchanged_values_of_the_key_and_the_secret_are_read() {
        let old = sealed("a", &["x"]);
        let value = old.seal("key", b"content").unwrap();
        assert_eq!(value.len(), SEAL_BYTES + 7);
        assert_ne!(value, old.seal("key", b"content").unwrap());
        for (case, store, key, expected) in [
            ("the same", sealed("a", &["x"]), "key", true),
            ("a new secret before it", sealed("a", &["y", "x"]), "key", true),
            ("another secret", sealed("a", &["y"]), "key", false),
            ("another key", sealed("a", &["x"]), "kez", false),
            ("another cluster", sealed("b", &["x"]), "key", false),
        ] {
            let opened = store.open(key, &value);
            assert_eq!(opened.as_deref() == Ok(b"content"), expected, "{case}: {opened:?}");
        }
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(old.open("key", &changed).is_err(), "byte {at} was changed");
            assert!(old.open("key", &value[..at]).is_err(), "cut at {at}");
        }
    }
}
