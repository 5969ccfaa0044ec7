//! Blocks and values to which locations refer by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::location::Location;
use super::tree::Directive;

pub(super) struct Global<'a> {
    /// Absolute directory of the main file.
    pub(super) base: PathBuf,
    /// Groups of servers by name.
    pub(super) upstreams: BTreeMap<&'a str, &'a Directive>,
    /// `limit_req_zone` and `limit_conn_zone` by the name of their zone.
    pub(super) zones: BTreeMap<&'a str, &'a Directive>,
}

impl<'a> Global<'a> {
    pub(super) fn new(base: PathBuf, http: &'a [Directive]) -> Global<'a> {
        let upstreams = http.iter().filter(|directive| directive.name == "upstream");
        let upstreams = upstreams.map(|directive| (directive.arg(0), directive)).collect();
        let zones = http.iter().filter_map(|directive| {
            let is_zone = matches!(&*directive.name, "limit_req_zone" | "limit_conn_zone");
            let zone = directive.args.iter().find_map(|arg| arg.strip_prefix("zone="));
            let name = zone.map(|zone| zone.split(':').next().unwrap_or(zone));
            name.filter(|_| is_zone).map(|name| (name, directive))
        });
        let zones = zones.collect();
        Global { base, upstreams, zones }
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

    /// Returns the location of the same server for exactly this URI.
    pub(super) fn exact_location(&self, of: &Location<'a>, uri: &str) -> Option<&'a Directive> {
        let locations = of.server.children().iter().filter(|child| child.name == "location");
        let mut locations = locations.filter(|child| match &*child.args {
            [path] => path == uri,
            [modifier, path] => matches!(&**modifier, "=" | "^~") && path == uri,
            _ => false,
        });
        locations.next()
    }
}
