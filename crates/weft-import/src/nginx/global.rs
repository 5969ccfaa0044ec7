//! Blocks and values to which locations refer by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::maps::ValueTables;
use super::tree::{Directive, named};
use crate::Target;
use crate::regex;

pub(super) struct Global<'a> {
    /// The server that reads the result.
    pub(super) target: &'a dyn Target,
    /// Absolute directory of the main file.
    pub(super) base: PathBuf,
    /// Groups of servers by name.
    pub(super) upstreams: BTreeMap<&'a str, &'a Directive>,
    /// `limit_req_zone` and `limit_conn_zone` by the name of their zone.
    pub(super) zones: BTreeMap<&'a str, &'a Directive>,
    /// `log_format` by name.
    pub(super) formats: BTreeMap<&'a str, &'a Directive>,
    /// `map` by the name of its variable, without the `$`.
    pub(super) maps: BTreeMap<&'a str, &'a Directive>,
    /// Variables that are maps of the result.
    pub(super) tables: ValueTables<'a>,
    pub(super) client_certificates: ClientCertificates<'a>,
    /// Access logs of the whole server.
    pub(super) access_logs: Vec<&'a Directive>,
}

/// `ssl_verify_client` and `ssl_client_certificate` of all servers with TLS.
pub(super) struct ClientCertificates<'a> {
    /// Values of `ssl_verify_client`.
    modes: Vec<&'a str>,
    /// The authority of the whole server in Weft.
    pub(super) authority: Option<&'a str>,
}

impl<'a> ClientCertificates<'a> {
    fn of(http: &'a [Directive]) -> ClientCertificates<'a> {
        let find = |block: &'a [Directive], name: &str| {
            block.iter().find(|child| child.name == name).map(|child| child.arg(0))
        };
        let has_tls = |server: &&Directive| {
            server.children().iter().any(|child| match &*child.name {
                "listen" => child.args.iter().any(|arg| arg == "ssl"),
                name => name == "ssl" && child.arg(0) == "on",
            })
        };
        let servers = named(http, "server").filter(has_tls);
        let of_server = |name: &'static str| {
            let servers = servers.clone();
            servers.map(move |server| find(server.children(), name).or_else(|| find(http, name)))
        };
        ClientCertificates {
            modes: of_server("ssl_verify_client").map(|mode| mode.unwrap_or("off")).collect(),
            authority: find(http, "ssl_client_certificate")
                .or_else(|| of_server("ssl_client_certificate").flatten().next()),
        }
    }

    /// Returns true if all servers with TLS require a certificate.
    pub(super) fn is_required(&self) -> bool {
        self.modes.iter().all(|mode| *mode == "on")
    }
}

/// Returns the name of a zone in shared memory, such as `a` of `zone=a:10m`.
pub(super) fn zone_name(directive: &Directive) -> Option<&str> {
    directive.parameter("zone").and_then(|zone| zone.split(':').next())
}

/// Returns the access logs of the whole server: the logs outside of all `server` blocks, or else
/// the log that all blocks have in common.
fn common_access_logs(http: &[Directive]) -> Vec<&Directive> {
    let own: Vec<_> = named(http, "access_log").collect();
    if !own.is_empty() {
        return own;
    }
    let mut all = Vec::new();
    collect_access_logs(http, &mut all);
    all.retain(|log| !is_log_off(log) && log.parameter("if").is_none());
    match all.split_first() {
        Some((first, others)) if others.iter().all(|it| it.args == first.args) => vec![first],
        _ => Vec::new(),
    }
}

fn collect_access_logs<'a>(block: &'a [Directive], found: &mut Vec<&'a Directive>) {
    for directive in block {
        match &*directive.name {
            "access_log" => found.push(directive),
            "server" | "location" => collect_access_logs(directive.children(), found),
            _ => {}
        }
    }
}

/// Returns true if an access log has no lines.
pub(super) fn is_log_off(directive: &Directive) -> bool {
    matches!(directive.arg(0), "off" | "/dev/null")
}

impl<'a> Global<'a> {
    pub(super) fn new(base: PathBuf, http: &'a [Directive], target: &'a dyn Target) -> Global<'a> {
        let upstreams = named(http, "upstream").map(|group| (group.arg(0), group)).collect();
        let zones = http.iter().filter_map(|directive| {
            let is_zone = matches!(&*directive.name, "limit_req_zone" | "limit_conn_zone");
            zone_name(directive).filter(|_| is_zone).map(|name| (name, directive))
        });
        let zones = zones.collect();
        let by_argument = |name: &'static str, index: usize| {
            let key = move |directive: &'a Directive| directive.arg(index).trim_start_matches('$');
            named(http, name).map(move |directive| (key(directive), directive)).collect()
        };
        Global {
            target,
            base,
            upstreams,
            zones,
            formats: by_argument("log_format", 0),
            maps: by_argument("map", 1),
            tables: ValueTables::of(http, target),
            client_certificates: ClientCertificates::of(http),
            access_logs: common_access_logs(http),
        }
    }

    /// Returns the variables whose `map` has nothing but a default value.
    pub(super) fn constants(&self) -> impl Iterator<Item = (String, String)> {
        let maps = self.maps.iter().filter_map(|(name, map)| match map.children() {
            [only] if only.name == "default" => Some(((*name).to_owned(), only.arg(0).to_owned())),
            _ => None,
        });
        maps.collect::<Vec<_>>().into_iter()
    }

    /// Returns a path that does not depend on the location of the resulting file.
    pub(super) fn path(&self, path: &str) -> String {
        match Path::new(path).is_absolute() {
            true => path.to_owned(),
            false => self.base.join(path).to_string_lossy().into_owned(),
        }
    }

    /// Returns true if a directive of the server, or of one of its locations, has this URI.
    pub(super) fn is_target(&self, block: &Directive, name: &str, uri: &str) -> bool {
        block.children().iter().any(|child| {
            let is_it = child.name == name && child.args.last().is_some_and(|last| last == uri);
            is_it || self.is_target(child, name, uri)
        })
    }

    /// Returns true if the location of the server with the longest prefix of a URI passes
    /// requests to an upstream.
    pub(super) fn is_passed(&self, server: &'a Directive, uri: &str) -> bool {
        if self.exact_location(server, uri).is_some() {
            return false;
        }
        let locations = named(server.children(), "location");
        let prefixed = locations.filter(|location| match &*location.args {
            [path] => uri.starts_with(&**path),
            [modifier, path] => modifier == "^~" && uri.starts_with(&**path),
            _ => false,
        });
        let longest = prefixed.max_by_key(|location| location.args.last().map_or(0, String::len));
        let passes = |child: &Directive| child.name.ends_with("_pass");
        longest.is_some_and(|location| location.children().iter().any(passes))
    }

    /// Returns the location of a block for a URI, as nginx searches it.
    pub(super) fn location_of(&self, block: &'a Directive, uri: &str) -> Option<&'a Directive> {
        let locations = || named(block.children(), "location");
        let is_exact = |child: &&Directive| child.arg(0) == "=" && child.arg(1) == uri;
        if let Some(exact) = locations().find(is_exact) {
            return Some(exact);
        }
        let prefix = |child: &'a Directive| match &*child.args {
            [path] if !path.starts_with('@') => Some((&**path, false)),
            [modifier, path] if modifier == "^~" => Some((&**path, true)),
            _ => None,
        };
        let prefixes = locations().filter_map(|child| Some((child, prefix(child)?)));
        let longest = prefixes
            .filter(|(_, (path, _))| uri.starts_with(path))
            .max_by_key(|(_, (path, _))| path.len());
        if let Some((_, (_, true))) = longest {
            return longest.map(|(child, _)| self.location_of(child, uri).unwrap_or(child));
        }
        let is_match = |child: &&Directive| {
            let regex = regex::of_modifier(self.target, child.arg(0), child.arg(1));
            regex.is_some_and(|regex| self.target.matches(&regex, uri))
        };
        let inner = longest.and_then(|(child, _)| self.location_of(child, uri));
        inner.or_else(|| locations().find(is_match)).or(longest.map(|(child, _)| child))
    }

    /// Returns the location of the server for exactly this URI.
    pub(super) fn exact_location(&self, server: &'a Directive, uri: &str) -> Option<&'a Directive> {
        let locations = named(server.children(), "location");
        let mut locations = locations.filter(|child| match &*child.args {
            [path] => path == uri,
            [modifier, path] => matches!(&**modifier, "=" | "^~") && path == uri,
            _ => false,
        });
        locations.next()
    }
}
