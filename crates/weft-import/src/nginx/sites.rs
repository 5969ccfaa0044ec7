//! Servers → hosts. In nginx a server belongs to addresses. In Weft, a host is bound to addresses
//! if it does not have the addresses that most hosts have.

use std::collections::{BTreeMap, BTreeSet};

use super::listen::{HttpListen, joined};
use super::location::redirect::is_redirect_to_https;
use super::outcomes::Outcomes;
use super::tree::{Directive, named};

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
    listeners: BTreeSet<Listener>,
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

    /// Returns true if the server does nothing but redirect to HTTPS, except for certain locations.
    fn redirects_to_https(&self) -> bool {
        let children = self.directive.children();
        let in_root = |directive: &&Directive| {
            directive.name == "location"
                && directive.args == ["/"]
                && redirects(directive.children())
        };
        redirects(children) || children.iter().any(|child| in_root(&child))
    }
}

/// Returns true if a block redirects to HTTPS, or does so for some hosts and refuses others.
fn redirects(block: &[Directive]) -> bool {
    let is_refusal = |directive: &Directive| {
        directive.name == "return" && matches!(directive.arg(0), "404" | "403" | "444")
    };
    let is_conditional =
        named(block, "if").any(|condition| condition.children().iter().any(is_redirect_to_https));
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

/// An address, and whether its connections use TLS.
type Listener = (String, bool);

/// Servers of a name, by address.
type ByListener = BTreeMap<Listener, usize>;

/// Addresses of the hosts that are not bound.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) plain: Vec<String>,
    pub(super) tls: Vec<String>,
}

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
        for mut site in sites_of(servers, &of_name, &defaults) {
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
fn sites_of(servers: &[Server<'_>], of_name: &ByListener, defaults: &ByListener) -> Vec<Site> {
    let distinct = |of: &ByListener, is_tls: bool| -> BTreeSet<usize> {
        of.iter().filter(|((_, tls), _)| *tls == is_tls).map(|(_, server)| *server).collect()
    };
    let (mut plain, tls) = (distinct(of_name, false), distinct(of_name, true));
    let mut listeners = of_name.clone();
    if plain.is_empty() {
        // Without TLS, nginx serves this name by the default server.
        let others = distinct(defaults, false);
        if others.len() == 1 && others.iter().all(|index| servers[*index].redirects_to_https()) {
            plain = others;
            let of_plain = defaults.iter().filter(|((_, tls), _)| !tls);
            listeners.extend(of_plain.map(|(listener, server)| (listener.clone(), *server)));
        }
    }
    if let (Some(plain), Some(tls)) = (only(&plain), only(&tls))
        && plain != tls
        && servers[plain].redirects_to_https()
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

/// Chooses the addresses of hosts that are not bound: the addresses that most names have. Returns
/// them, and the addresses of each site that is bound to others.
pub(super) fn bind(sites: &[Site]) -> (Listening, Vec<Vec<String>>) {
    let count = |listeners: &BTreeSet<Listener>| {
        let equal = sites.iter().filter(|site| site.listeners == *listeners);
        equal.map(|site| site.names.len()).sum::<usize>()
    };
    // Of equally many, the addresses of the first site.
    let main = sites.iter().map(|site| &site.listeners).rev().max_by_key(|it| count(it));
    let is_bound = |site: &Site| Some(&site.listeners) != main;
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
pub(super) fn title(site: &Site, listen: &[String], known: &[String]) -> String {
    let ports: BTreeSet<&str> =
        listen.iter().filter_map(|it| it.rsplit_once(':')).map(|(_, port)| port).collect();
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let names = match (&*site.names, ports.first()) {
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
