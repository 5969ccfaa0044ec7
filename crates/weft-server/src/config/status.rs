//! The keys of `[status]`.

use super::key::{Key, ValueKind};
use super::location::Located;
use super::quoting::{quoted, quoted_addresses};
use super::top::addresses;
use crate::config_change::ConfigChanges;

/// Values of `[status]`. Without addresses there is no status endpoint, and no metrics are
/// collected.
#[derive(Debug, Default)]
pub(crate) struct StatusConfig {
    pub(crate) listen: Vec<Located<String>>,
    pub(crate) hosts: Vec<Located<String>>,
    pub(crate) config_changes: ConfigChanges,
}

pub(crate) static STATUS: [Key<StatusConfig>; 3] = [
    Key {
        name: "listen",
        flag: "status-listen",
        argument: "ADDR",
        help: "address of the status endpoint: a page, and metrics for Prometheus",
        kind: ValueKind::Texts(|status, given| {
            addresses(given).map(|listen| status.listen = listen)
        }),
        show: |status| quoted_addresses(&status.listen),
    },
    Key {
        name: "hosts",
        flag: "status-host",
        argument: "NAME",
        help: "host name under which clients request the status endpoint, or *.NAME, or * for any, \
               in addition to localhost, IP addresses and the names in its addresses",
        kind: ValueKind::Texts(|status, given| {
            status.hosts = given;
            Ok(())
        }),
        show: |status| quoted_addresses(&status.hosts),
    },
    Key {
        name: "config_changes",
        flag: "status-config-changes",
        argument: "WHERE",
        help: "connections of the status endpoint on which clients may change the configuration: \
               never, unix (Unix sockets) or loopback (also those from this machine)",
        kind: ValueKind::Choice(&["never", "unix", "loopback"], |status, choice| {
            status.config_changes = match choice {
                "unix" => ConfigChanges::Unix,
                "loopback" => ConfigChanges::Loopback,
                _ => ConfigChanges::Never,
            };
        }),
        show: |status| {
            quoted(match status.config_changes {
                ConfigChanges::Never => "never",
                ConfigChanges::Unix => "unix",
                ConfigChanges::Loopback => "loopback",
            })
        },
    },
];
