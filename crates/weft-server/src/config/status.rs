//! The keys of `[status]`.

use super::key::{Key, ValueKind};
use super::keys::{addresses, quoted_addresses};
use super::location::Located;

/// Values of `[status]`: addresses of the status endpoint. Without an endpoint no metrics are
/// collected.
#[derive(Debug, Default)]
pub(crate) struct StatusConfig {
    pub(crate) listen: Vec<Located<String>>,
}

pub(crate) static STATUS: [Key<StatusConfig>; 1] = [Key {
    name: "listen",
    flag: "status-listen",
    argument: "ADDR",
    help: "address of the status endpoint: a page, and metrics for Prometheus",
    kind: ValueKind::Texts(|status, given| addresses(given).map(|listen| status.listen = listen)),
    show: |status| quoted_addresses(&status.listen),
}];
