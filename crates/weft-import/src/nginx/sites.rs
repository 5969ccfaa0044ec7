//! Servers → hosts. In nginx a server belongs to addresses. In Weft, a host is bound to addresses
//! if it does not have the addresses that most hosts have.

use std::collections::{BTreeMap, BTreeSet};

use super::listen::HttpListen;
use super::location::redirect::is_redirect_to_https;
use super::outcomes::Outcomes;
use super::tree::{Directive, named};
use crate::listeners::Listener;

pub(super) struct Server<'a> {
    pub(super) directive: &'a Directive,
    /// Names of `server_name`, as in the section of a host.
    pub(super) names: Vec<String>,
    pub(super) listening: HttpListen,
}

/// Names with the same content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Names as in the section of a host.
    pub(super) names: Vec<String>,
    /// Index of the server that responds.
    pub(super) server: usize,
    /// Index of the server that redirects to HTTPS, with further locations.
    pub(super) redirecting: Option<usize>,
    /// Requests without TLS are redirected.
    pub(super) is_redirected: bool,
    /// Addresses at which the names have this server.
    pub(super) listeners: BTreeSet<Listener>,
}

impl<'a> Server<'a> {
    pub(super) fn new(directive: &'a Directive, outcomes: &Outcomes) -> Server<'a> {
        let listening = HttpListen::of(directive, outcomes);
        let mut names = Vec::new();
        for directive in named(directive.children(), "server_name") {
            outcomes.carried(directive);
            for name in &directive.args {
                match host_names(name) {
                    Some(found) => names.extend(found),
                    None => outcomes.lost(directive, format!("no client sends the host `{name}`")),
                }
            }
        }
        Server { directive, names, listening }
    }

    /// Returns the arguments of the `return` that applies to all requests.
    fn response(&self) -> Option<&[String]> {
        self.directive.child("return").map(|response| &*response.args)
    }

    /// Returns true if the server does nothing but redirect a host to HTTPS, except for certain
    /// locations.
    fn redirects_to_https(&self, host: &str) -> bool {
        let children = self.directive.children();
        let in_root = |directive: &&Directive| {
            directive.name == "location"
                && directive.args == ["/"]
                && redirects(directive.children(), host)
        };
        redirects(children, host) || children.iter().any(|child| in_root(&child))
    }
}

/// Moves addresses at which another server has TLS: in nginx, TLS belongs to the socket.
pub(super) fn share_tls(servers: &mut [Server<'_>]) {
    let tls: BTreeSet<String> =
        servers.iter().flat_map(|server| server.listening.tls.iter().cloned()).collect();
    for HttpListen { plain, tls: own, .. } in servers.iter_mut().map(|it| &mut it.listening) {
        own.extend(plain.intersection(&tls).cloned());
        plain.retain(|address| !tls.contains(address));
    }
}

/// Reports addresses of IPv6 only, at which Weft accepts IPv4, too.
pub(super) fn report_ipv6_only(servers: &[Server<'_>], outcomes: &Outcomes) {
    let has_ipv4 = |port: &str| {
        let listeners = servers.iter().flat_map(|server| server.listening.listeners());
        let mut addresses = listeners.map(|(address, _)| address);
        addresses.any(|it| !it.starts_with('[') && it.ends_with(&format!(":{port}")))
    };
    for server in servers {
        for directive in named(server.directive.children(), "listen") {
            let port = directive.arg(0).strip_prefix("[::]:");
            if port.is_some_and(|port| !has_ipv4(port)) {
                outcomes.lost(directive, "Weft accepts connections of IPv4 at this address, too");
            }
        }
    }
}

/// Returns true if a block redirects to HTTPS, or does so for this host and refuses others.
fn redirects(block: &[Directive], host: &str) -> bool {
    let is_refusal = |directive: &Directive| {
        directive.name == "return" && matches!(directive.arg(0), "404" | "403" | "444")
    };
    // Unknown hosts are redirected, too: over HTTPS they get the same site.
    let is_of_host = |condition: &&Directive| match condition.condition().strip_prefix("$host = ") {
        Some(name) => host == "*" || name.trim() == host,
        None => true,
    };
    let is_conditional = named(block, "if")
        .filter(is_of_host)
        .any(|condition| condition.children().iter().any(is_redirect_to_https));
    block.iter().any(is_redirect_to_https) || is_conditional && block.iter().any(is_refusal)
}

/// Converts a name of `server_name`. Returns nothing for names of a default server, and `None` for
/// a name that cannot be a host.
pub(super) fn host_names(name: &str) -> Option<Vec<String>> {
    let lower = name.to_ascii_lowercase();
    if lower.is_empty() || lower == "_" {
        return Some(Vec::new());
    }
    if let Some(regex) = name.strip_prefix('~') {
        return Some(vec![format!("~ {regex}")]);
    }
    if let Some(domain) = lower.strip_prefix('.') {
        return Some(vec![domain.to_owned(), format!("*.{domain}")]);
    }
    if let Some(begin) = lower.strip_suffix(".*") {
        return Some(vec![format!("~ ^{}\\.", begin.replace('.', "\\."))]);
    }
    let is_name = |name: &str| {
        name.split('.').all(|label| {
            let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
            !label.is_empty() && label.bytes().all(is_permitted)
        })
    };
    let rest = lower.strip_prefix("*.").unwrap_or(&lower);
    (is_name(rest.trim_end_matches('.')) || lower.starts_with('[')).then(|| vec![lower])
}

/// Servers of a name, by address.
type ByListener = BTreeMap<Listener, usize>;

/// Determines the server of each name at each address, and groups names with the same servers.
pub(super) fn sites(servers: &[Server<'_>], outcomes: &Outcomes) -> Vec<Site> {
    let mut names = Vec::<String>::new();
    for name in servers.iter().flat_map(|server| &server.names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let defaults = defaults(servers);
    let mut sites = Vec::<Site>::new();
    for name in names.iter().map(|name| &**name).chain(["*"]) {
        let of_name = match name {
            "*" => defaults.clone(),
            name => servers_of(servers, name, outcomes),
        };
        for mut site in sites_of(servers, name, &of_name, &defaults) {
            let is_equal = |known: &&mut Site| {
                (known.server, known.redirecting, known.is_redirected, &known.listeners)
                    == (site.server, site.redirecting, site.is_redirected, &site.listeners)
                    // A pattern has a section of its own.
                    && !name.starts_with('~') && !known.names[0].starts_with('~')
            };
            match sites.iter_mut().find(is_equal) {
                Some(known) => known.names.push(name.to_owned()),
                None => {
                    site.names.push(name.to_owned());
                    sites.push(site);
                }
            }
        }
    }
    sites
}

/// Returns the server of a name at each address that has one: the first.
fn servers_of(servers: &[Server<'_>], name: &str, outcomes: &Outcomes) -> ByListener {
    let mut found = ByListener::new();
    for (index, server) in servers.iter().enumerate() {
        if !server.names.iter().any(|known| known == name) {
            continue;
        }
        for listener in server.listening.listeners() {
            if *found.entry(listener.clone()).or_insert(index) != index {
                let reason = format!("another server has the host `{name}` at {}", listener.0);
                outcomes.lost(server.directive, reason);
            }
        }
    }
    found
}

/// Returns the default server of each address.
fn defaults(servers: &[Server<'_>]) -> ByListener {
    let mut found = ByListener::new();
    let is_default =
        |server: &Server<'_>, (address, _): &Listener| server.listening.defaults.contains(address);
    for is_explicit in [true, false] {
        for (index, server) in servers.iter().enumerate() {
            for listener in server.listening.listeners() {
                if !is_explicit || is_default(server, &listener) {
                    found.entry(listener).or_insert(index);
                }
            }
        }
    }
    found
}

/// Returns the sites of a name. A server that redirects to HTTPS and the server with TLS are one
/// site, if the name has no others.
fn sites_of(
    servers: &[Server<'_>],
    name: &str,
    of_name: &ByListener,
    defaults: &ByListener,
) -> Vec<Site> {
    let distinct = |of: &ByListener, is_tls: bool| -> BTreeSet<usize> {
        of.iter().filter(|((_, tls), _)| *tls == is_tls).map(|(_, server)| *server).collect()
    };
    let (mut plain, tls) = (distinct(of_name, false), distinct(of_name, true));
    let mut listeners = of_name.clone();
    if plain.is_empty() {
        // Without TLS, nginx serves this name by the default server.
        let others = distinct(defaults, false);
        if others.len() == 1 && others.iter().all(|index| servers[*index].redirects_to_https(name))
        {
            plain = others;
            let of_plain = defaults.iter().filter(|((_, tls), _)| !tls);
            listeners.extend(of_plain.map(|(listener, server)| (listener.clone(), *server)));
        }
    }
    if let (Some(plain), Some(tls)) = (only(&plain), only(&tls))
        && plain != tls
        && servers[plain].redirects_to_https(name)
    {
        // Another redirect in front of an equal one would be needless.
        let is_equal = servers[plain].response() == servers[tls].response();
        return vec![Site {
            names: Vec::new(),
            server: tls,
            redirecting: Some(plain),
            is_redirected: !is_equal || servers[tls].response().is_none(),
            listeners: listeners.into_keys().collect(),
        }];
    }
    let mut sites = Vec::<Site>::new();
    for (listener, server) in of_name {
        match sites.iter_mut().find(|site| site.server == *server) {
            Some(site) => drop(site.listeners.insert(listener.clone())),
            None => sites.push(Site {
                names: Vec::new(),
                server: *server,
                redirecting: None,
                is_redirected: false,
                listeners: BTreeSet::from([listener.clone()]),
            }),
        }
    }
    sites
}

fn only(servers: &BTreeSet<usize>) -> Option<usize> {
    servers.first().copied().filter(|_| servers.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_names() {
        for (name, expected) in [
            ("A.org", Some(vec!["a.org"])),
            (".a.org", Some(vec!["a.org", "*.a.org"])),
            ("*.a.org", Some(vec!["*.a.org"])),
            ("_", Some(vec![])),
            ("~^x$", Some(vec!["~ ^x$"])),
            ("www.a.*", Some(vec!["~ ^www\\.a\\."])),
            ("[::1]", Some(vec!["[::1]"])),
            ("--", Some(vec!["--"])),
            ("a/b", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(host_names(name), expected, "{name}");
        }
    }
}
