//! The section `[status]`: the status endpoint.

use std::time::Duration;

use weft::Settings;
use weft_config::{ConfigResult, Key, Located, Problem, ValueKind, quoted, quoted_list};

use super::addresses::Addresses;
use crate::base::host_name::host_name;

/// Connections on which changes are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PermittedChanges {
    #[default]
    Never,
    /// Unix sockets, whose permissions decide who may make changes.
    Unix,
    /// Also connections from the loopback address, and so every user of the machine.
    Loopback,
}

/// Values of `[status]`. Without addresses there is no status endpoint, and no metrics are
/// collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusConfig {
    pub(crate) listen: Addresses,
    /// Names of hosts in lower case; `*.example.org` matches all subdomains, `*` all hosts.
    pub(crate) hosts: Vec<String>,
    pub(crate) config_changes: PermittedChanges,
    pub(crate) upstream_changes: PermittedChanges,
    pub(crate) cache_purge: PermittedChanges,
}

pub(crate) static STATUS: [Key<StatusConfig>; 5] = [
    Key {
        name: "listen",
        flag: "status-listen",
        argument: "ADDR",
        help: "address of the status endpoint: a page, and metrics for Prometheus",
        kind: ValueKind::Texts(|status, given| {
            Addresses::parse(given).map(|listen| status.listen = listen)
        }),
        show: |status| status.listen.show(),
    },
    Key {
        name: "hosts",
        flag: "status-host",
        argument: "NAME",
        help: "host name under which clients request the status endpoint, or *.NAME, or * for any, \
               in addition to localhost, IP addresses and the names in its addresses",
        kind: ValueKind::Texts(|status, given| {
            let name = |name: &Located<String>| {
                host_name(&name.value).map_err(|message| name.problem(message))
            };
            status.hosts = given.iter().map(name).collect::<ConfigResult<_>>()?;
            Ok(())
        }),
        show: |status| quoted_list(status.hosts.iter()),
    },
    Key {
        name: "config_changes",
        flag: "status-config-changes",
        argument: "WHERE",
        help: "connections of the status endpoint on which clients may change the configuration: \
               never, unix (Unix sockets) or loopback (also those from this machine)",
        kind: ValueKind::Choice(&CHOICES, |status, choice| {
            status.config_changes = permitted(choice);
        }),
        show: |status| show(status.config_changes),
    },
    Key {
        name: "upstream_changes",
        flag: "status-upstream-changes",
        argument: "WHERE",
        help: "connections of the status endpoint on which clients may drain, disable, add and \
               remove upstreams and change their weights: never, unix or loopback",
        kind: ValueKind::Choice(&CHOICES, |status, choice| {
            status.upstream_changes = permitted(choice);
        }),
        show: |status| show(status.upstream_changes),
    },
    Key {
        name: "cache_purge",
        flag: "status-cache-purge",
        argument: "WHERE",
        help: "connections of the status endpoint on which clients may list and remove the responses \
               of the response cache: never, unix or loopback",
        kind: ValueKind::Choice(&CHOICES, |status, choice| {
            status.cache_purge = permitted(choice);
        }),
        show: |status| show(status.cache_purge),
    },
];

const CHOICES: [&str; 3] = ["never", "unix", "loopback"];

const PERMITTED: [PermittedChanges; 3] =
    [PermittedChanges::Never, PermittedChanges::Unix, PermittedChanges::Loopback];

fn permitted(choice: &str) -> PermittedChanges {
    let position = CHOICES.iter().position(|known| *known == choice);
    position.map_or_else(PermittedChanges::default, |position| PERMITTED[position])
}

fn show(permitted: PermittedChanges) -> String {
    let position = PERMITTED.iter().position(|known| *known == permitted);
    position.map_or_else(String::new, |position| quoted(CHOICES[position]))
}

impl StatusConfig {
    /// Returns warnings about values that have no effect.
    pub(crate) fn warnings(&self) -> Vec<Problem> {
        if self.listen.texts().any(|address| address.starts_with("unix:")) {
            return Vec::new();
        }
        let Some(first) = self.listen.list.first() else { return Vec::new() };
        let keys = [
            ("config_changes", self.config_changes),
            ("upstream_changes", self.upstream_changes),
            ("cache_purge", self.cache_purge),
        ];
        let useless =
            keys.into_iter().filter(|(_, permitted)| *permitted == PermittedChanges::Unix);
        let warning = |(name, _)| {
            first.problem(format!(
                "`{name} = \"unix\"` has no effect without a Unix socket in `listen`"
            ))
        };
        useless.map(warning).collect()
    }
}

/// Maximum size of a configuration, in bytes: a thousand hosts. Files may be larger.
pub(crate) const MAX_CONFIG_BYTES: usize = 1 << 20;

/// Limits of the status endpoint, which has few clients.
pub(crate) fn status_limits() -> Settings {
    Settings {
        max_connections: 64,
        max_connections_per_peer: 32,
        backlog: 64,
        max_body_bytes: MAX_CONFIG_BYTES as u64,
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(10),
        ..Settings::default()
    }
}
