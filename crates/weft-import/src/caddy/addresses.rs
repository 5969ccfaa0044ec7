//! Addresses of sites → names and listeners of hosts.

use std::collections::BTreeSet;

use super::global::Global;
use super::notes::Notes;
use super::tree::Directive;
use crate::listeners::Listener;

/// Names of a site that have the same listeners.
#[derive(Clone, Debug)]
pub(super) struct Site<'a> {
    /// Names as in the section of a host.
    pub(super) names: Vec<String>,
    pub(super) listeners: BTreeSet<Listener>,
    /// The listener without TLS that only redirects.
    pub(super) redirecting: Option<Listener>,
    pub(super) block: &'a [Directive],
    pub(super) at: &'a str,
    /// A part of the addresses cannot be carried over.
    pub(super) is_refused: bool,
    /// Index of the site in the Caddyfile.
    pub(super) index: usize,
}

impl Site<'_> {
    pub(super) fn has_tls(&self) -> bool {
        self.listeners.iter().any(|(_, is_tls)| *is_tls)
    }
}

/// An address of a site, such as `https://example.org:8443`.
#[derive(Debug, PartialEq, Eq)]
struct Address<'a> {
    scheme: Option<&'a str>,
    host: &'a str,
    port: Option<u16>,
}

/// Parses an address; `None` for one with a path or a range of ports.
fn parse(text: &str) -> Option<Address<'_>> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest),
        Some(_) => return None,
        None => (None, text),
    };
    let rest = rest.strip_suffix("/*").or(rest.strip_suffix('/')).unwrap_or(rest);
    if rest.contains(['/', '{']) {
        return None;
    }
    let has_port = |(host, port): &(&str, &str)| {
        !host.contains(':') && !port.is_empty() || host.ends_with(']')
    };
    let (host, port) = match rest.rsplit_once(':').filter(has_port) {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (rest, None),
    };
    Some(Address { scheme, host, port })
}

/// Returns true for names without public certificates.
pub(super) fn is_internal(name: &str) -> bool {
    let name = name.trim_start_matches("*.");
    name.parse::<std::net::IpAddr>().is_ok()
        || name.starts_with('[')
        || name == "localhost"
        || [".localhost", ".local", ".internal", ".home.arpa", ".lan"]
            .iter()
            .any(|end| name.ends_with(end))
        || !name.contains('.')
}

/// A part of a site that has an address with a path. It precedes the site with the name.
pub(super) struct Part {
    pub(super) host: String,
    pub(super) path: String,
}

/// Returns the part of an address that has a path.
fn part(text: &str) -> Option<Part> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (host, path) = rest.split_at(rest.find('/')?);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    Some(Part { host: host.to_ascii_lowercase(), path: path.to_owned() })
}

/// Returns the sites of a Caddyfile, and parts of sites that cannot be carried over.
pub(super) fn sites<'a>(
    items: &'a [Directive],
    global: &Global,
    notes: &Notes,
) -> (Vec<Site<'a>>, Vec<Part>) {
    let mut sites = Vec::<Site<'a>>::new();
    let mut parts = Vec::new();
    let is_site = |item: &&Directive| {
        !item.name.is_empty() && !item.name.starts_with("&(") && item.block.is_some()
    };
    let blocks = items.iter().filter(is_site);
    for (index, item) in blocks.enumerate() {
        let words = std::iter::once(&item.name).chain(&item.args);
        let texts = words.flat_map(|word| word.split(',')).filter(|text| !text.is_empty());
        for text in texts {
            let Some(address) = parse(text) else {
                notes.lost(item, format!("the address `{text}` has no equivalent"));
                parts.extend(part(text));
                continue;
            };
            let mut site = site(&address, item, global);
            site.index = index;
            add(&mut sites, site);
        }
    }
    without_overlaps(&mut sites);
    merge_redirects(&mut sites);
    (sites, parts)
}

/// Adds a site, or its name to a site of the same block with the same listeners.
fn add<'a>(sites: &mut Vec<Site<'a>>, site: Site<'a>) {
    let is_same = |known: &&mut Site<'a>| {
        known.index == site.index
            && known.listeners == site.listeners
            && known.redirecting == site.redirecting
    };
    match sites.iter_mut().find(is_same) {
        Some(known) => {
            for name in site.names {
                if !known.names.contains(&name) {
                    known.names.push(name);
                }
            }
        }
        None => sites.push(site),
    }
}

fn site<'a>(address: &Address<'_>, item: &'a Directive, global: &Global) -> Site<'a> {
    let block = item.children();
    let tls = block.iter().find(|it| it.name == "tls");
    let Address { scheme, host, port } = *address;
    let is_tls = match (scheme, port) {
        (Some(scheme), _) => scheme == "https",
        (None, Some(port)) if port == global.http_port => false,
        _ if tls.is_some() => true,
        (None, Some(port)) if host.is_empty() => port == global.https_port,
        _ => global.has_auto_https && !host.is_empty(),
    };
    let port = port.unwrap_or(match (is_tls, host.is_empty() && scheme.is_none()) {
        (true, _) => global.https_port,
        // Without automatic HTTPS, Caddy listens on that port nevertheless.
        (false, false) if scheme.is_none() => global.https_port,
        (false, _) => global.http_port,
    });
    let binds: Vec<&String> = match block.iter().rfind(|it| it.name == "bind") {
        Some(bind) => bind.args.iter().collect(),
        None => global.bind.iter().collect(),
    };
    let at = |port: u16| -> Vec<String> {
        let bound = binds.iter().map(|bind| match bind.strip_prefix("unix/") {
            Some(path) => format!("unix:{}", path.split('|').next().unwrap_or(path)),
            None if bind.contains(':') && !bind.starts_with('[') => format!("[{bind}]:{port}"),
            None => format!("{bind}:{port}"),
        });
        if binds.is_empty() { vec![format!(":{port}")] } else { bound.collect() }
    };
    let mut listeners: BTreeSet<Listener> =
        at(port).into_iter().map(|address| (address, is_tls)).collect();
    let is_redirected = is_tls && global.has_redirects && port == global.https_port;
    let mut redirecting = None;
    if is_redirected && !host.is_empty() {
        let plain = at(global.http_port).into_iter().find(|it| !it.starts_with("unix:"));
        redirecting = plain.map(|address| (address, false));
        listeners.extend(redirecting.clone());
    }
    let name = match host {
        "" | "*" => "*".to_owned(),
        host => host.to_ascii_lowercase(),
    };
    Site {
        names: vec![name],
        listeners,
        redirecting,
        block,
        at: &item.at,
        is_refused: false,
        index: 0,
    }
}

/// A name with a site of its own without TLS is not redirected by another site.
fn without_overlaps(sites: &mut Vec<Site<'_>>) {
    for index in 0..sites.len() {
        let Some(redirecting) = sites[index].redirecting.clone() else { continue };
        let has_own = |name: &String| {
            sites.iter().enumerate().any(|(other, site)| {
                other != index
                    && site.redirecting.as_ref() != Some(&redirecting)
                    && site.listeners.contains(&redirecting)
                    && site.names.contains(name)
                    && !redirects_to_https(site)
            })
        };
        let (own, others): (Vec<String>, Vec<String>) =
            sites[index].names.clone().into_iter().partition(has_own);
        if own.is_empty() {
            continue;
        }
        let mut site = sites[index].clone();
        site.names = own;
        site.listeners.remove(&redirecting);
        site.redirecting = None;
        match others.is_empty() {
            true => sites[index] = site,
            false => {
                sites[index].names = others;
                sites.push(site);
            }
        }
    }
}

/// Returns true for a site that only redirects to HTTPS of the same host.
fn redirects_to_https(site: &Site<'_>) -> bool {
    let [only] = site.block else { return false };
    let target = only.args.iter().find(|arg| arg.starts_with("https://"));
    only.name == "redir" && !site.has_tls() && target.is_some_and(|to| *to == "https://{host}{uri}")
}

/// Drops the sites that only redirect to HTTPS, if another site has the names and redirects them.
fn merge_redirects(sites: &mut Vec<Site<'_>>) {
    let is_redirected = |site: &Site<'_>, sites: &[Site<'_>]| {
        let listener = site.listeners.first();
        site.listeners.len() == 1
            && redirects_to_https(site)
            && site.names.iter().all(|name| {
                sites.iter().any(|other| {
                    other.redirecting.as_ref() == listener && other.names.contains(name)
                })
            })
    };
    let all = sites.clone();
    sites.retain(|site| !is_redirected(site, &all));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses() {
        let address = |scheme, host, port| Some(Address { scheme, host, port });
        for (text, expected) in [
            ("example.org", address(None, "example.org", None)),
            ("http://example.org", address(Some("http"), "example.org", None)),
            ("https://a:8443/", address(Some("https"), "a", Some(8443))),
            (":8080", address(None, "", Some(8080))),
            ("[::1]:80", address(None, "[::1]", Some(80))),
            ("*.example.org", address(None, "*.example.org", None)),
            ("http://", address(Some("http"), "", None)),
            ("example.org/api/*", None),
            ("example.org/api", None),
            ("a:8000-8010", None),
            ("ftp://a", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn parts_of_sites_have_a_path() {
        let parts = |text| part(text).map(|part| (part.host, part.path));
        let expected = Some(("a.org".to_owned(), "/api/*".to_owned()));
        assert_eq!(parts("https://A.org:8443/api/*"), expected);
        assert_eq!(parts("a.org:80-90"), None);
    }

    #[test]
    fn internal_names_have_no_public_certificate() {
        for name in ["localhost", "a.localhost", "10.0.0.1", "[::1]", "nas", "x.home.arpa"] {
            assert!(is_internal(name), "{name}");
        }
        assert!(!is_internal("example.org") && !is_internal("*.example.org"));
    }
}
