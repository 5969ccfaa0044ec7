//! Addresses of hosts. In other servers a site belongs to addresses. In Weft, a host is bound to
//! addresses if it does not have the addresses that most hosts have. Pure.

use std::collections::BTreeSet;

/// An address, and whether its connections use TLS.
pub(crate) type Listener = (String, bool);

/// The names of a site, and the addresses at which it has them.
#[derive(Clone, Copy)]
pub(crate) struct Listeners<'a> {
    pub(crate) names: &'a [String],
    pub(crate) listeners: &'a BTreeSet<Listener>,
}

/// Addresses of the hosts that are not bound.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    pub(crate) plain: Vec<String>,
    pub(crate) tls: Vec<String>,
}

/// Chooses the addresses of hosts that are not bound: the addresses that most names have. Returns
/// them, and the addresses of each site that is bound to others.
pub(crate) fn bind(sites: &[Listeners<'_>]) -> (Listening, Vec<Vec<String>>) {
    let count = |listeners: &BTreeSet<Listener>| {
        let equal = sites.iter().filter(|site| site.listeners == listeners);
        equal.map(|site| site.names.len()).sum::<usize>()
    };
    // Of equally many, the addresses of the first site.
    let main = sites.iter().map(|site| site.listeners).rev().max_by_key(|it| count(it));
    let is_bound = |site: &Listeners<'_>| Some(site.listeners) != main;
    let has_bound = sites.iter().any(is_bound);
    let of_kind = |is_tls: bool| -> BTreeSet<String> {
        let listeners = main.into_iter().flatten().filter(|(_, tls)| *tls == is_tls);
        listeners.map(|(address, _)| address.clone()).collect()
    };
    // A host that is bound to an address of IPv4 is not to get the requests of `[::]`.
    let list = |addresses: BTreeSet<String>| match has_bound {
        true => addresses.into_iter().collect(),
        false => joined(&addresses),
    };
    let listening = Listening { plain: list(of_kind(false)), tls: list(of_kind(true)) };
    let written = |(address, is_tls): &Listener| match is_tls {
        true => format!("tls://{address}"),
        false => address.clone(),
    };
    let bound = sites.iter().map(|site| match is_bound(site) {
        true => site.listeners.iter().map(written).collect(),
        false => Vec::new(),
    });
    (listening, bound.collect())
}

/// Returns the text for the section of a host: its names, or its port if it has all names there. A
/// label distinguishes it from other sections with the same names.
pub(crate) fn title(names: &[String], listen: &[String], known: &[String]) -> String {
    let ports: BTreeSet<&str> =
        listen.iter().filter_map(|it| it.rsplit_once(':')).map(|(_, port)| port).collect();
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let names = match (names, ports.first()) {
        ([name], Some(port)) if name == "*" && ports.len() == 1 && is_port(port) => {
            format!(":{port}")
        }
        (names, _) => names.join(" "),
    };
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    if names.starts_with("~ ") {
        // The expression is the whole text.
        let mut title = names;
        while known.contains(&title) {
            title = format!("~ (?:{})", &title["~ ".len()..]);
        }
        return title;
    }
    let label = |address: &String| {
        let text: String = address.trim_start_matches("tls://").chars().map(word).collect();
        format!("{names} @{}", text.trim_matches('-'))
    };
    let candidates = std::iter::once(names.clone()).chain(listen.iter().map(label));
    let mut new = candidates.filter(|title| !known.contains(title));
    new.next().unwrap_or_else(|| format!("{names} @{}", known.len()))
}

/// Joins equal ports of all IPv4 and all IPv6 addresses: `[::]:80` is both in Weft.
pub(crate) fn joined(addresses: &BTreeSet<String>) -> Vec<String> {
    let mut joined = addresses.clone();
    for address in addresses {
        let port = address.strip_prefix("0.0.0.0:");
        let both = port.map(|port| format!("[::]:{port}"));
        if both.is_some_and(|both| addresses.contains(&both)) {
            joined.remove(address);
        }
    }
    joined.into_iter().collect()
}
