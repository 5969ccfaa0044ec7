//! The section `[cluster]`: several machines that share rate limits, session tickets, purges and
//! certificates.

#[cfg(feature = "cluster")]
mod opened; // the machine in its cluster
#[cfg(feature = "cluster")]
mod shared_certificates; // certificates in the store
#[cfg(not(feature = "cluster"))]
#[path = "disabled.rs"]
mod opened; // a program without the feature

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_path};

pub(crate) use self::opened::OpenedCluster;

/// Values of `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterConfig {
    store: Option<Located<String>>,
    secret_file: Option<Located<PathBuf>>,
    name: String,
    user: Option<String>,
    password_file: Option<Located<PathBuf>>,
    ca: Option<Located<PathBuf>>,
}

/// Event of the other machines.
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "there are no other machines"))]
pub(crate) enum ClusterInput {
    /// Another machine has stored a certificate.
    CertificatesChanged,
    /// Another message.
    Message(Vec<u8>),
    /// Messages were lost.
    Gap,
}

/// A machine of the cluster, as it has described itself. All times are in seconds since 1970.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MachineEntry {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) seen: u64,
    #[serde(default)]
    pub(crate) listen: Vec<String>,
    /// Beginning of the SHA-256 of the configuration, as `weft check --print` prints it.
    pub(crate) configuration: String,
    pub(crate) certificates: usize,
    /// Number of certificates that have not expired.
    pub(crate) valid: usize,
    /// End of the first validity.
    pub(crate) expires: Option<u64>,
}

/// State and counts of a machine in its cluster.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ClusterReport {
    /// The store answers.
    pub(crate) is_connected: bool,
    /// Number of servers, as the store last reported.
    pub(crate) servers: u32,
    /// Messages that the store has accepted from this server.
    pub(crate) published: u64,
    /// Messages of other servers.
    pub(crate) received: u64,
    /// Messages of nobody with the secret.
    pub(crate) forged: u64,
    /// Interruptions in which messages were lost.
    pub(crate) gaps: u64,
}

/// Outcome of passing a purge on to the other machines.
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "there are no other machines"))]
pub(crate) enum PublishedPurge {
    /// There is no store.
    OnlyHere,
    Sent,
    /// The store has not accepted it so far.
    Pending,
    Refused,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            store: None,
            secret_file: None,
            name: "weft".to_owned(),
            user: None,
            password_file: None,
            ca: None,
        }
    }
}

impl ClusterConfig {
    /// Returns true if the machines share a store.
    pub(crate) fn has_store(&self) -> bool {
        self.store.is_some()
    }

    /// Validates the section. Returns `None` if this machine belongs to no cluster. A missing value
    /// is an error only if the configuration is complete.
    pub(crate) fn plan(self, is_complete: bool) -> ConfigResult<Option<ClusterConfig>> {
        let needs_store = [&self.password_file, &self.ca];
        if let Some(path) = needs_store.into_iter().flatten().next()
            && self.store.is_none()
        {
            return Err(path.problem("this needs `store` in [cluster]"));
        }
        match (&self.store, &self.secret_file) {
            (Some(store), None) if is_complete => Err(store.problem(
                "`store` needs `secret_file` in [cluster], a file that is the same on all machines; \
                 `openssl rand -hex 32` generates a secret",
            )),
            (_, None) => Ok(None),
            (_, Some(path)) => {
                opened::check_support().map_err(|reason| path.problem(reason))?;
                Ok(Some(self))
            }
        }
    }
}

pub(crate) static CLUSTER: [Key<ClusterConfig>; 6] = [
    Key {
        name: "store",
        help: "URL of a Valkey or Redis server that the machines share, such as redis://10.0.0.5:6379; \
               rediss:// with TLS",
        kind: ValueKind::Text(|cluster, url| {
            opened::check_url(&url.value).map_err(|reason| url.problem(reason))?;
            cluster.store = Some(url);
            Ok(())
        }),
        show: |cluster| cluster.store.as_ref().map_or_else(String::new, |url| quoted(&url.value)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "secret_file",
        help: "file with the secret of the cluster, the same on all machines; of several lines, the first \
               is used, and tickets of the others are accepted",
        kind: ValueKind::Path(|cluster, path| cluster.secret_file = Some(path)),
        show: |cluster| quoted_path(cluster.secret_file.as_ref().map(|path| &path.value)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "name",
        help: "name of the cluster, which distinguishes clusters with the same store",
        kind: ValueKind::Text(|cluster, name| {
            if name.value.is_empty() {
                return Err(name.problem("expected a name"));
            }
            cluster.name = name.value;
            Ok(())
        }),
        show: |cluster| quoted(&cluster.name),
        ..Key::FILE_ONLY
    },
    Key {
        name: "user",
        help: "user in the access control list of the store, in place of its default user",
        kind: ValueKind::Text(|cluster, user| {
            cluster.user = Some(user.value);
            Ok(())
        }),
        show: |cluster| cluster.user.as_deref().map_or_else(String::new, quoted),
        ..Key::FILE_ONLY
    },
    Key {
        name: "password_file",
        help: "file with the password of the user",
        kind: ValueKind::Path(|cluster, path| cluster.password_file = Some(path)),
        show: |cluster| quoted_path(cluster.password_file.as_ref().map(|path| &path.value)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "ca",
        help: "CA certificates in PEM that the store is trusted by, in place of the certificates of the \
               system",
        kind: ValueKind::Path(|cluster, path| cluster.ca = Some(path)),
        show: |cluster| quoted_path(cluster.ca.as_ref().map(|path| &path.value)),
        ..Key::FILE_ONLY
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_needs_a_secret() {
        let store = Some(Located::without_location("redis://a".to_owned()));
        let path = || Some(Located::without_location(PathBuf::from("secret")));
        for (case, config, expected) in [
            ("nothing", ClusterConfig::default(), Some(false)),
            ("store", ClusterConfig { store: store.clone(), ..ClusterConfig::default() }, None),
            (
                "secret",
                ClusterConfig { secret_file: path(), ..ClusterConfig::default() },
                Some(true),
            ),
            (
                "both",
                ClusterConfig { store, secret_file: path(), ..ClusterConfig::default() },
                Some(true),
            ),
            (
                "password without store",
                ClusterConfig { secret_file: path(), ca: path(), ..ClusterConfig::default() },
                None,
            ),
        ] {
            let planned = config.plan(true).ok().map(|planned| planned.is_some());
            assert_eq!(planned, expected, "{case}");
        }
    }
}
