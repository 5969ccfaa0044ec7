//! Validations of other servers, which this server answers, too.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use weft::tls::{IdentitySource, ObtainIdentity};

use super::shared_validations::SharedValidations;
use crate::settings::AcmeSettings;

/// Time for which a validation stays if its server is killed.
pub(super) const LIFETIME: Duration = Duration::from_secs(900);

/// Shortest interval between two reads of the pending validations.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time for which a request or a handshake waits for a read.
const WAIT_TIME: Duration = Duration::from_secs(3);

/// Maximum number of validations of other servers that are kept.
const MAX_PENDING: usize = 1_024;

/// Lengths of a token that an authority may use: it has at least 128 bits in base64url (RFC 8555
/// §8.3).
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 22..=128;

/// The validations of other servers, as of the last read.
///
/// A read is for all requests that wait, so that clients with random tokens cost one read each 50
/// ms, however many they are. The reads belong to the thread of the orders: a client that leaves
/// aborts none.
#[derive(Clone, Default)]
pub(crate) struct RemoteValidations(Arc<Inner>);

#[derive(Default)]
struct Inner {
    source: RwLock<Source>,
    has_source: AtomicBool,
    found: Mutex<HashMap<String, String>>,
    asked: Notify,
    /// Number of reads that have begun.
    begun: AtomicU64,
    /// Number of the last read that has ended.
    ended: watch::Sender<u64>,
}

/// The source of validations, and the names that may be validated.
#[derive(Default)]
struct Source {
    shared: Option<Arc<dyn SharedValidations>>,
    server_names: HashSet<String>,
    is_on_demand: bool,
}

/// Change of the validations by a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) new: Vec<(String, String)>,
    pub(super) removed: Vec<String>,
}

impl RemoteValidations {
    pub(crate) fn set(&self, settings: &AcmeSettings) {
        let source = Source {
            shared: settings.validations.clone(),
            server_names: settings.names.iter().map(|name| name.server_name()).collect(),
            is_on_demand: settings.on_demand.is_some(),
        };
        self.0.has_source.store(source.shared.is_some(), Relaxed);
        *self.0.source.write().unwrap_or_else(PoisonError::into_inner) = source;
    }

    pub(super) fn shared(&self) -> Option<Arc<dyn SharedValidations>> {
        self.0.source.read().unwrap_or_else(PoisonError::into_inner).shared.clone()
    }

    /// Returns the value of a validation of another server.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        self.found().get(key).cloned()
    }

    /// Returns a future that waits for a read that begins after this call, if a token may be the
    /// token of another server.
    pub(super) fn look_up_token(&self, token: &str) -> Option<LookUp> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_token = TOKEN_BYTES.contains(&token.len()) && token.bytes().all(is_plain);
        (self.0.has_source.load(Relaxed) && is_token).then(|| self.look_up())
    }

    fn look_up(&self) -> LookUp {
        let this = self.clone();
        let number = this.0.begun.load(Relaxed) + 1;
        this.0.asked.notify_one();
        Box::pin(async move {
            let mut ended = this.0.ended.subscribe();
            // Without an answer the validation is unknown.
            let _ = timeout(WAIT_TIME, ended.wait_for(|ended| *ended >= number)).await;
        })
    }

    /// Reads the pending validations when requests wait, until the future is dropped. `apply` gets
    /// the changes.
    pub(super) async fn run(&self, apply: impl Fn(Changes)) {
        let mut has_failed = false;
        loop {
            self.0.asked.notified().await;
            let number = self.0.begun.fetch_add(1, Relaxed) + 1;
            if let Some(shared) = self.shared() {
                match shared.pending().await {
                    Ok(pending) => {
                        has_failed = false;
                        apply(self.replace(pending));
                    }
                    Err(reason) if !has_failed => {
                        has_failed = true;
                        log::warn!("validations of other machines cannot be read: {reason}");
                    }
                    Err(_) => {}
                }
            }
            self.0.ended.send_replace(number);
            sleep(READ_INTERVAL).await;
        }
    }

    fn replace(&self, pending: Vec<(String, String)>) -> Changes {
        let pending: HashMap<_, _> = pending.into_iter().take(MAX_PENDING).collect();
        let mut found = self.found();
        let new = pending.iter().filter(|(key, value)| found.get(*key) != Some(*value));
        let new = new.map(|(key, value)| (key.clone(), value.clone())).collect();
        let removed = found.keys().filter(|key| !pending.contains_key(*key)).cloned().collect();
        *found = pending;
        Changes { new, removed }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Future that ends when the validations of other servers were read.
pub(crate) type LookUp = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handshakes of authorities wait for a read.
impl IdentitySource for RemoteValidations {
    fn obtain(&self, name: &str, _: Option<IpAddr>) -> Option<ObtainIdentity> {
        if !self.0.has_source.load(Relaxed) {
            return None;
        }
        let source = self.0.source.read().unwrap_or_else(PoisonError::into_inner);
        let may_be_validated =
            source.is_on_demand || source.server_names.contains(&name.to_ascii_lowercase());
        let look_up = may_be_validated.then(|| self.look_up())?;
        Some(Box::pin(async move {
            look_up.await;
            Ok(())
        }))
    }
}

impl fmt::Debug for RemoteValidations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteValidations").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::validation::shared_validations::ValidationFuture;

    /// Counts the reads.
    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);

    impl SharedValidations for Counted {
        fn publish<'a>(&'a self, _: &'a str, _: &'a str, _: Duration) -> ValidationFuture<'a, ()> {
            unreachable!("nothing is published")
        }

        fn withdraw(&self, _: &str) {
            unreachable!("nothing is published")
        }

        fn pending(&self) -> ValidationFuture<'_, Vec<(String, String)>> {
            let count = self.0.fetch_add(1, Relaxed);
            Box::pin(async move { Ok(vec![(format!("http-01/{count}"), "value".to_owned())]) })
        }
    }

    fn remote(counted: &Arc<Counted>) -> RemoteValidations {
        let remote = RemoteValidations::default();
        remote.set(&AcmeSettings {
            names: vec!["a.example".parse().unwrap()],
            validations: Some(counted.clone()),
            ..AcmeSettings::default()
        });
        remote
    }

    #[test]
    fn only_tokens_and_names_that_may_be_validated_are_looked_up() {
        let remote = remote(&Arc::default());
        for (token, expected) in [
            ("a".repeat(21), false),
            ("a".repeat(22), true),
            ("a".repeat(128), true),
            ("a".repeat(129), false),
            ("a-_9".repeat(8), true),
            ("a/..".repeat(8), false),
            ("a%2f".repeat(8), false),
        ] {
            assert_eq!(remote.look_up_token(&token).is_some(), expected, "{token}");
        }
        assert!(remote.obtain("A.example", None).is_some());
        assert!(remote.obtain("b.example", None).is_none());
        remote.set(&AcmeSettings::default());
        assert!(remote.look_up_token(&"a".repeat(22)).is_none());
        assert!(remote.obtain("a.example", None).is_none());
    }

    #[test]
    fn a_read_is_for_all_that_wait_and_begins_after_their_request() {
        let counted = Arc::<Counted>::default();
        let remote = remote(&counted);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let wait = async {
                let token = "a".repeat(43);
                let look_ups = (0..1_000).map(|_| remote.look_up_token(&token).unwrap());
                for look_up in look_ups.collect::<Vec<_>>() {
                    look_up.await;
                }
                assert_eq!(counted.0.load(Relaxed), 1);
                assert!(remote.get("http-01/0").is_some());
                remote.look_up_token(&token).unwrap().await;
                assert!(remote.get("http-01/1").is_some() && remote.get("http-01/0").is_none());
            };
            tokio::select! {
                () = remote.run(|_| {}) => {}
                () = wait => {}
            }
        });
    }
}
