//! Keys by which tokens are verified: of a file, of a secret, or of a URL.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use weft_upstream::RemoteResource;

use super::JwtKeys;
use crate::base::watched_file::WatchedFile;

/// Maximum size of a set of keys, in bytes: enough for a thousand keys.
const MAX_BYTES: usize = 1 << 20;

/// Age at which the keys of a URL are fetched again.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Minimum time between two fetches, also if tokens have unknown keys.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum length of a secret, in bytes: the length of its hash (RFC 7518 §3.2).
const MIN_SECRET_BYTES: usize = 32;

/// Keys with the algorithms for which each is valid.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Key>);

#[derive(Debug)]
pub(super) struct Key {
    id: Option<String>,
    /// The algorithms of the type of the key. The algorithm of a token is never trusted: a public
    /// key must not serve as the secret of an HMAC (RFC 8725 §2.1).
    algorithms: Vec<Algorithm>,
    pub(super) decoding: DecodingKey,
}

impl KeySet {
    /// Parses a JSON Web Key Set (RFC 7517 §5). Keys of other types or uses are ignored.
    fn parse(text: &[u8], with_secrets: bool) -> Result<KeySet, String> {
        #[derive(serde::Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(text)
            .map_err(|error| format!("expected a set of keys (JWKS) in JSON: {error}"))?;
        let keys = set.keys.into_iter().filter_map(|key| Key::new(key, with_secrets));
        match keys.collect::<Vec<_>>() {
            keys if keys.is_empty() => Err("it has no key for signatures".to_owned()),
            keys => Ok(KeySet(keys)),
        }
    }

    fn parse_file(text: &[u8]) -> Result<KeySet, String> {
        KeySet::parse(text, true)
    }

    pub(super) fn parse_secret(text: &[u8]) -> Result<KeySet, String> {
        let secret = text.trim_ascii();
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!("a secret has at least {MIN_SECRET_BYTES} bytes"));
        }
        let algorithms = vec![Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
        let decoding = DecodingKey::from_secret(secret);
        Ok(KeySet(vec![Key { id: None, algorithms, decoding }]))
    }

    /// Returns the keys for an algorithm, and with this ID, if a token names one.
    pub(super) fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Key> {
        let is_named =
            move |key: &&Key| id.is_none() || key.id.is_none() || key.id.as_deref() == id;
        self.0.iter().filter(is_named).filter(move |key| key.algorithms.contains(&algorithm))
    }
}

impl Key {
    fn new(key: serde_json::Value, with_secrets: bool) -> Option<Key> {
        use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512};
        use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
        let key: Jwk = serde_json::from_value(key).ok()?;
        let common = &key.common;
        if common.public_key_use.as_ref().is_some_and(|it| *it != PublicKeyUse::Signature) {
            return None;
        }
        let mut algorithms = match &key.algorithm {
            AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![ES256],
                EllipticCurve::P384 => vec![ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                vec![EdDSA]
            }
            AlgorithmParameters::OctetKey(_) if with_secrets => vec![HS256, HS384, HS512],
            _ => return None,
        };
        if let Some(only) = &common.key_algorithm {
            let only = to_algorithm(only)?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        let decoding = DecodingKey::from_jwk(&key).ok()?;
        Some(Key { id: key.common.key_id, algorithms, decoding })
    }
}

fn to_algorithm(name: &KeyAlgorithm) -> Option<Algorithm> {
    name.to_string().parse().ok()
}

/// Source of the keys of a route.
pub(super) enum KeySource {
    File(WatchedFile<KeySet>),
    Url(RemoteKeys),
}

/// Keys of a URL, shared by all workers.
pub(super) struct RemoteKeys {
    shared: Arc<Shared>,
}

struct Shared {
    resource: RemoteResource,
    state: Mutex<State>,
    /// Held by the fetch in progress.
    fetch: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    keys: Option<Arc<KeySet>>,
    fetched: Option<Instant>,
    attempted: Option<Instant>,
}

impl KeySource {
    /// # Errors
    /// If a file cannot be read. The keys of a URL are fetched for the first token.
    pub(super) fn open(keys: &JwtKeys) -> Result<KeySource, String> {
        let max_bytes = MAX_BYTES as u64;
        Ok(match keys {
            JwtKeys::File(path) => {
                KeySource::File(WatchedFile::open(path, max_bytes, KeySet::parse_file)?)
            }
            JwtKeys::Secret(path) => {
                KeySource::File(WatchedFile::open(path, max_bytes, KeySet::parse_secret)?)
            }
            JwtKeys::Url(url) => {
                let resource = RemoteResource::new(url.upstream.clone(), url.target.clone())?;
                let (state, fetch) = Default::default();
                KeySource::Url(RemoteKeys { shared: Arc::new(Shared { resource, state, fetch }) })
            }
        })
    }

    /// Returns the keys; `None` if they could not be fetched.
    pub(super) async fn keys(&self) -> Option<Arc<KeySet>> {
        match self {
            KeySource::File(file) => Some(file.current()),
            KeySource::Url(remote) => remote.keys(false).await,
        }
    }

    /// Returns the keys for a token whose key is not among the known ones; `None` if there are no
    /// others.
    pub(super) async fn newer_keys(&self) -> Option<Arc<KeySet>> {
        match self {
            KeySource::File(_) => None,
            KeySource::Url(remote) => remote.keys(true).await,
        }
    }
}

impl RemoteKeys {
    async fn keys(&self, is_key_unknown: bool) -> Option<Arc<KeySet>> {
        let (keys, is_due) = self.shared.state().current(is_key_unknown);
        if !is_due && (keys.is_some() || self.shared.fetch.try_lock().is_ok()) {
            return keys;
        }
        if keys.is_some() && !is_key_unknown {
            // The former keys serve meanwhile.
            if let Ok(guard) = self.shared.fetch.clone().try_lock_owned() {
                self.start_fetch(guard);
            }
            return keys;
        }
        let guard = self.shared.fetch.clone().lock_owned().await;
        // Another request may have fetched them meanwhile.
        let (keys, is_due) = self.shared.state().current(is_key_unknown);
        if !is_due {
            return keys;
        }
        // A task of its own, so that a client that disconnects does not end it.
        let _ = self.start_fetch(guard).await;
        self.shared.state().keys.clone()
    }

    fn start_fetch(&self, guard: tokio::sync::OwnedMutexGuard<()>) -> tokio::task::JoinHandle<()> {
        self.shared.state().attempted = Some(Instant::now());
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let fetched = shared.resource.fetch(MAX_BYTES, FETCH_TIMEOUT).await;
            // Secrets are not published.
            let keys = fetched.and_then(|text| {
                KeySet::parse(&text, false)
                    .map_err(|reason| format!("{}: {reason}", shared.resource))
            });
            let mut state = shared.state();
            match keys {
                Ok(keys) => {
                    state.keys = Some(Arc::new(keys));
                    state.fetched = Some(Instant::now());
                }
                Err(error) => log::error!("no new keys for tokens: {error}"),
            }
            drop(state);
            drop(guard);
        })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the keys, and true if they are to be fetched.
    fn current(&self, is_key_unknown: bool) -> (Option<Arc<KeySet>>, bool) {
        let is_old = |time: Option<Instant>, age| time.is_none_or(|time| time.elapsed() >= age);
        let is_wanted = is_key_unknown || is_old(self.fetched, MAX_AGE);
        (self.keys.clone(), is_wanted && is_old(self.attempted, MIN_INTERVAL))
    }
}
