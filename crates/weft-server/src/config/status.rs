//! The keys of `[status]`.

use super::key::{Key, Takes};
use super::keys::{addresses, addresses_shown};
use super::place::At;

/// Where the status endpoint is. Nowhere: nothing is counted.
#[derive(Debug, Default)]
pub(crate) struct StatusConfig {
    pub(crate) listen: Vec<At<String>>,
}

pub(crate) static STATUS: [Key<StatusConfig>; 1] = [Key {
    name: "listen",
    flag: "status-listen",
    argument: "ADDR",
    help: "where to say how the server is: a page, and numbers for Prometheus",
    takes: Takes::Texts(|status, given| addresses(given).map(|listen| status.listen = listen)),
    show: |status| addresses_shown(&status.listen),
}];
