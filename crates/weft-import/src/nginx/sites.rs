//! Servers → hosts. In nginx a server belongs to addresses, and a name may have one server without
//! TLS and another one with it; in Weft a host is the same on all addresses.

use std::collections::BTreeMap;

use super::listen::HttpListen;
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
        let in_condition = |directive: &&Directive| {
            directive.name == "if" && directive.children().iter().any(is_redirect_to_https)
        };
        let in_root = |directive: &&Directive| {
            directive.name == "location"
                && directive.args == ["/"]
                && directive.children().iter().any(is_redirect_to_https)
        };
        let is_refusal = |directive: &Directive| {
            directive.name == "return" && matches!(directive.arg(0), "404" | "403" | "444")
        };
        let has = |is_it: &dyn Fn(&&Directive) -> bool| children.iter().any(|it| is_it(&it));
        children.iter().any(is_redirect_to_https)
            || has(&in_root)
            || has(&in_condition) && children.iter().any(is_refusal)
    }
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

/// Determines the server of each name, and groups names with the same servers.
pub(super) fn sites(servers: &[Server<'_>], outcomes: &Outcomes) -> Vec<Site> {
    let (mut plain, mut tls) = (BTreeMap::new(), BTreeMap::new());
    let mut names = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        for name in &server.names {
            if !names.contains(name) {
                names.push(name.clone());
            }
            for (known, has) in [
                (&mut plain, !server.listening.plain.is_empty()),
                (&mut tls, !server.listening.tls.is_empty()),
            ] {
                if has && *known.entry(name.clone()).or_insert(index) != index {
                    outcomes.lost(
                        server.directive,
                        format!(
                            "another server has the host `{name}`; Weft serves all hosts on \
                                 all addresses"
                        ),
                    );
                }
            }
        }
    }
    let first = |is_default: fn(&HttpListen) -> bool, has: fn(&HttpListen) -> bool| {
        let default = servers.iter().position(|server| is_default(&server.listening));
        default.or_else(|| servers.iter().position(|server| has(&server.listening)))
    };
    let plain_default = first(|it| it.is_plain_default, |it| !it.plain.is_empty());
    let tls_default = first(|it| it.is_tls_default, |it| !it.tls.is_empty());
    names.push("*".to_owned());
    let mut sites = Vec::<Site>::new();
    for name in names {
        let is_other = name == "*";
        let own = |known: &BTreeMap<String, usize>| known.get(&name).copied();
        let (plain, tls) = match is_other {
            true => (plain_default, tls_default),
            false => (own(&plain), own(&tls)),
        };
        let Some(mut site) = site(servers, plain, tls, plain_default, outcomes) else { continue };
        let is_equal = |known: &&mut Site| {
            (known.server, known.redirecting, known.is_redirected)
                == (site.server, site.redirecting, site.is_redirected)
                // A pattern has a section of its own.
                && !name.starts_with('~') && !known.names[0].starts_with('~')
        };
        match sites.iter_mut().find(is_equal) {
            Some(known) => known.names.push(name),
            None => {
                site.names.push(name);
                sites.push(site);
            }
        }
    }
    sites
}

/// Combines the server of a name without TLS and its server with TLS.
fn site(
    servers: &[Server<'_>],
    plain: Option<usize>,
    tls: Option<usize>,
    plain_default: Option<usize>,
    outcomes: &Outcomes,
) -> Option<Site> {
    let site = |server, redirecting, is_redirected| {
        Some(Site { names: Vec::new(), server, redirecting, is_redirected })
    };
    match (plain, tls) {
        (None, None) => None,
        (Some(plain), None) => site(plain, None, false),
        (Some(plain), Some(tls)) if plain == tls => site(tls, None, false),
        (Some(plain), Some(tls)) if servers[plain].redirects_to_https() => {
            // Another redirect in front of an equal one would be needless.
            let is_equal = servers[plain].response() == servers[tls].response();
            site(tls, Some(plain), !is_equal || servers[tls].response().is_none())
        }
        (Some(plain), Some(tls)) => {
            outcomes.lost(
                servers[plain].directive,
                "the server with TLS and the same host has precedence, and requests without TLS are \
                 redirected to it",
            );
            site(tls, None, true)
        }
        // Without TLS, nginx serves this name by the default server.
        (None, Some(tls)) => {
            let redirecting = plain_default.filter(|index| servers[*index].redirects_to_https());
            // Content for TLS only must not be readable without it.
            site(tls, redirecting, plain_default.is_some())
        }
    }
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
