//! Networks of the clients that a route serves or refuses.

mod filter; // the filter of addresses, which streams have, too

use std::path::PathBuf;

use weft::net::IpNetwork;
use weft_config::{Key, ValueKind, quoted_path};

pub(crate) use self::filter::{NetworkFilter, NetworkRules};
use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, show_list};
use crate::base::network_set::networks;

/// Networks of clients, in the configuration and in files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct NetworkOptions {
    allow: Option<Vec<IpNetwork>>,
    deny: Option<Vec<IpNetwork>>,
    allow_file: Option<PathBuf>,
    deny_file: Option<PathBuf>,
}

impl NetworkOptions {
    /// Returns true if there are rules about the addresses of clients.
    pub(super) fn has_rules(&self) -> bool {
        *self != NetworkOptions::default()
    }

    /// Opens the filter; `None` without networks.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn filter(&self) -> Result<Option<NetworkFilter>, String> {
        NetworkFilter::new(NetworkRules {
            allow: self.allow.as_deref().unwrap_or_default(),
            allow_file: self.allow_file.as_deref(),
            deny: self.deny.as_deref().unwrap_or_default(),
            deny_file: self.deny_file.as_deref(),
        })
    }
}

impl RouteOption for NetworkOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "allow",
            flag: "allow",
            argument: "NETWORK",
            help: "networks of the clients that are allowed; others: 403",
            kind: ValueKind::Texts(|options, texts| {
                networks(texts).map(|list| options.allow = Some(list))
            }),
            show: |options| show_list(options.allow.as_ref()),
        },
        Key {
            name: "deny",
            flag: "deny",
            argument: "NETWORK",
            help: "networks of clients that are refused, even within allowed ones: 403",
            kind: ValueKind::Texts(|options, texts| {
                networks(texts).map(|list| options.deny = Some(list))
            }),
            show: |options| show_list(options.deny.as_ref()),
        },
        Key {
            name: "allow_file",
            flag: "allow-file",
            argument: "FILE",
            help: "file with further networks that are allowed, one in each line, # begins a comment; \
                   reloaded when it changes",
            kind: ValueKind::Path(|options, path| options.allow_file = Some(path.value)),
            show: |options| quoted_path(options.allow_file.as_ref()),
        },
        Key {
            name: "deny_file",
            flag: "deny-file",
            argument: "FILE",
            help: "file with further networks that are refused, as in `allow_file`",
            kind: ValueKind::Path(|options, path| options.deny_file = Some(path.value)),
            show: |options| quoted_path(options.deny_file.as_ref()),
        },
    ];

    /// The keys belong together: if any of them is set, none is inherited.
    fn or(self, outer: &Self) -> Self {
        if self.has_rules() { self } else { outer.clone() }
    }

    fn open(&self, all: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let filter = self.filter()?.filter(|_| !all.authentication.includes_addresses(all));
        Ok(filter.map(Layer::of_middleware).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherits_all_keys_or_none() {
        let options = |allow: &str, deny: &str| {
            let list = |text: &str| (!text.is_empty()).then(|| vec![text.parse().unwrap()]);
            NetworkOptions { allow: list(allow), deny: list(deny), ..NetworkOptions::default() }
        };
        let outer = options("10.0.0.0/8", "10.1.0.0/16");
        assert_eq!(options("", "10.2.0.0/16").or(&outer), options("", "10.2.0.0/16"));
        assert_eq!(options("", "").or(&outer), outer);
    }
}
