//! Settings of the whole server: addresses, TLS, logs, user, proxies in front of it.

use std::time::Duration;

use weft_config::{show_size, show_time};

use super::global::Global;
use super::logs;
use super::outcomes::Outcomes;
use super::scope::Scope;
use super::sites::Server;
use super::tree::{Directive, named};
use crate::document::{Document, Table, Value};
use crate::listeners::Listening;
use crate::values::{bytes, duration, time};

pub(super) struct Process<'a> {
    pub(super) main: &'a [Directive],
    pub(super) http: &'a [Directive],
    pub(super) servers: &'a [Server<'a>],
    /// Addresses of all hosts that are not bound.
    pub(super) listening: Listening,
    pub(super) global: &'a Global<'a>,
    pub(super) outcomes: &'a Outcomes,
}

impl<'a> Process<'a> {
    pub(super) fn translate(&self, document: &mut Document) {
        self.listen(document);
        self.run_as(document);
        self.logs(document);
        self.tls(document);
        self.proxies(document);
        self.limits(document);
        self.response_cache(document);
        self.http3(document);
        self.early_data(document);
    }

    /// Returns the directives with this name in the whole configuration, except in locations.
    fn all(&self, name: &str) -> Vec<&'a Directive> {
        let servers = self.servers.iter().map(|server| server.directive.children());
        let blocks = [self.main, self.http].into_iter().chain(servers);
        let found = blocks.flatten().filter(|directive| directive.name == name);
        found.inspect(|directive| self.outcomes.carried(directive)).collect()
    }

    fn main(&self, name: &str) -> Option<&'a Directive> {
        let found = self.main.iter().rev().find(|directive| directive.name == name);
        found.inspect(|directive| self.outcomes.carried(directive))
    }

    fn listen(&self, document: &mut Document) {
        let Listening { plain, tls } = &self.listening;
        if !plain.is_empty() {
            document.top.set("listen", plain.clone());
        }
        if !tls.is_empty() {
            document.section("tls").set("listen", tls.clone());
        }
    }

    fn run_as(&self, document: &mut Document) {
        if let Some(user) = self.main("user") {
            document.top.set("user", user.arg(0));
            if let Some(group) = user.args.get(1) {
                document.top.set("group", group.clone());
            }
        }
        if let Some(workers) = self.main("worker_processes") {
            match workers.arg(0).parse::<u64>() {
                Ok(count @ 1..) => document.top.set("workers", count),
                _ if workers.arg(0) == "auto" => {}
                _ => self.outcomes.lost(workers, "the number is invalid"),
            }
        }
        if let Some(pid) = self.main("pid") {
            document.top.set("pid_file", self.global.path(pid.arg(0)));
        }
        let events = named(self.main, "events").next();
        let connections = events.and_then(|events| events.child("worker_connections"));
        if let Some(connections) = connections {
            let note = "`max_connections` of Weft applies to all workers together";
            self.outcomes.adapted(connections, note);
        }
    }

    fn logs(&self, document: &mut Document) {
        let log = document.section("log");
        if let Some(error) = self.all("error_log").into_iter().next_back() {
            logs::error_log(self.global, error, self.outcomes, log);
        }
        logs::access_log(self.global, self.outcomes, log);
    }

    fn tls(&self, document: &mut Document) {
        let tls = document.section("tls");
        let mut pairs = Vec::new();
        for server in self.servers.iter().filter(|server| !server.listening.tls.is_empty()) {
            let scope = Scope::new(self.outcomes).inside(self.http);
            let found = certificate_pairs(&scope.inside(server.directive.children()), self.global);
            for pair in found {
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        let has_tls = self.servers.iter().any(|server| !server.listening.tls.is_empty());
        if !pairs.is_empty() {
            tls.set("certificates", pairs);
        } else if has_tls {
            tls.set("self_signed", true);
            let servers = self.servers.iter().map(|server| server.directive);
            let listens = servers
                .flat_map(|server| server.children())
                .find(|it| it.name == "listen" && it.args.iter().any(|arg| arg == "ssl"));
            if let Some(listen) = listens {
                let reason = "there is no certificate, and Weft generates a self-signed one";
                self.outcomes.lost(listen, reason);
            }
        }
        let protocols = self.all("ssl_protocols");
        let is_modern = |directive: &&Directive| directive.args == ["TLSv1.3"];
        if has_tls && !protocols.is_empty() && protocols.iter().all(is_modern) {
            tls.set("profile", "modern");
        }
        self.client_certificates(tls);
    }

    fn client_certificates(&self, tls: &mut Table) {
        let modes = self.all("ssl_verify_client");
        let authorities = self.all("ssl_client_certificate");
        if modes.iter().all(|mode| mode.arg(0) == "off") {
            return;
        }
        let Some(authority) = authorities.first() else { return };
        tls.set("client_ca", self.global.path(authority.arg(0)));
        if !self.global.client_certificates.is_required() {
            tls.set("client_auth", "optional");
        }
        let unverified = modes.iter().filter(|mode| mode.arg(0) == "optional_no_ca");
        unverified.for_each(|mode| {
            self.outcomes.lost(mode, "a certificate of another authority is not accepted");
        });
    }

    /// Translates limits that apply to the whole server in Weft.
    fn limits(&self, document: &mut Document) {
        for (names, key, convert) in SERVER_LIMITS {
            // `http` is before its servers.
            let directives: Vec<_> = names.iter().map(|name| self.all(name)).collect();
            let first = directives.iter().filter_map(|all| all.first());
            // One limit stands for two directives; the larger value is sufficient for both.
            let Some(chosen) = first.max_by_key(|it| duration(it.arg(0))) else { continue };
            match convert(chosen) {
                Some((other_key, value)) => {
                    let key = if other_key.is_empty() { key } else { other_key };
                    document.section("limits").set(key, value);
                }
                None => self.outcomes.lost(chosen, "the value is invalid"),
            }
            for all in &directives {
                for other in all.iter().filter(|other| other.args != all[0].args) {
                    let reason = format!("it applies to the whole server, `[limits] {key}`");
                    self.outcomes.lost(other, reason);
                }
            }
        }
    }

    /// Translates the folders of all caches that locations use, which are one store in Weft.
    fn response_cache(&self, document: &mut Document) {
        let is_path = |directive: &&Directive| directive.name.ends_with("_cache_path");
        let is_used = |path: &&Directive| uses_zone(self.http, path);
        let paths: Vec<_> = self.http.iter().filter(is_path).filter(is_used).collect();
        let Some(first) = paths.first() else { return };
        let section = document.section("response_cache");
        // nginx removes files that are not its own.
        section.set("folder", format!("{}/weft", first.arg(0).trim_end_matches('/')));
        let sizes = paths.iter().map(|path| path.parameter("max_size").and_then(bytes));
        if let Some(total) = sizes.sum::<Option<u64>>() {
            section.set("disk", show_size(total.max(1 << 20)));
        }
    }

    /// Translates `http3 off`, which applies to the whole server in Weft.
    fn http3(&self, document: &mut Document) {
        let switches = self.all("http3");
        let (off, on): (Vec<_>, Vec<_>) = switches.iter().partition(|it| it.arg(0) == "off");
        if on.is_empty() && !off.is_empty() {
            document.section("limits").set("http3", false);
        } else {
            for directive in off {
                self.outcomes.lost(directive, "it applies to the whole server, `[limits] http3`");
            }
        }
    }

    /// Translates `ssl_early_data`, which applies to the whole server in Weft, and to HTTP/3 only.
    fn early_data(&self, document: &mut Document) {
        let switches = self.all("ssl_early_data");
        let (on, off): (Vec<_>, Vec<_>) = switches.iter().partition(|it| it.arg(0) == "on");
        if off.is_empty() && !on.is_empty() {
            document.section("tls").set("early_data", true);
        } else {
            for directive in on {
                self.outcomes.lost(directive, "it applies to the whole server, `[tls] early_data`");
            }
        }
    }

    /// Translates the trust in proxies in front of the server.
    fn proxies(&self, document: &mut Document) {
        let networks = self.all("set_real_ip_from");
        let header = self.all("real_ip_header").into_iter().next_back();
        let header_name = header.map_or("X-Real-IP", |header| header.arg(0));
        let texts: Vec<&str> = networks.iter().map(|network| network.arg(0)).collect();
        let has_protocol = self.servers.iter().any(|server| server.listening.has_proxy_protocol);
        match (has_protocol, texts.is_empty()) {
            // nginx accepts the header of all clients, Weft requires their networks.
            (true, true) => document.section("limits").set("proxy_protocol", ANY_NETWORK),
            (true, false) => document.section("limits").set("proxy_protocol", texts),
            (false, true) => {}
            (false, false) => {
                document.top.set("trusted_proxies", texts);
                if !header_name.eq_ignore_ascii_case("X-Forwarded-For") {
                    document.top.set("client_ip_header", header_name);
                }
            }
        }
        self.all("real_ip_recursive");
    }
}

/// Networks of all addresses.
pub(super) const ANY_NETWORK: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Returns the certificates that apply to a server, each with its key.
pub(super) fn certificate_pairs(scope: &Scope<'_>, global: &Global<'_>) -> Vec<Table> {
    let mut pairs = Vec::new();
    let keys = scope.all(&["ssl_certificate_key"]);
    for (certificate, key) in scope.all(&["ssl_certificate"]).into_iter().zip(keys) {
        if [certificate, key].iter().any(|it| it.arg(0).contains(['$', ':'])) {
            scope.outcomes.lost(certificate, "only files without variables are");
            continue;
        }
        let mut pair = Table::default();
        pair.set("cert", global.path(certificate.arg(0)));
        pair.set("key", global.path(key.arg(0)));
        pairs.push(pair);
    }
    pairs
}

/// Converts the arguments of a directive to a value, with its key if that is another one.
type Convert = fn(&Directive) -> Option<(&'static str, Value)>;

/// Directives with their keys of `[limits]`.
const SERVER_LIMITS: &[(&[&str], &str, Convert)] = &[
    (&["keepalive_timeout"], "idle_timeout", |directive| match duration(directive.arg(0))? {
        // No connection is kept.
        Duration::ZERO => Some(("max_requests", 1.into())),
        time => Some(("", show_time(time).into())),
    }),
    (&["keepalive_requests"], "max_requests", |directive| {
        directive.arg(0).parse::<u64>().ok().map(|number| ("", number.into()))
    }),
    (&["client_header_timeout"], "head_timeout", convert_time),
    (&["client_body_timeout", "send_timeout"], "stall_timeout", convert_time),
    (&["lingering_timeout"], "linger_timeout", convert_time),
    (&["large_client_header_buffers"], "max_head_bytes", |directive| {
        let bytes = bytes(directive.arg(1))?.checked_mul(directive.arg(0).parse().ok()?)?;
        Some(("", show_size(bytes.min(MAX_HEAD_BYTES)).into()))
    }),
];

/// Returns the names of directives that are limits of the whole server in Weft.
pub(super) fn server_limits() -> impl Iterator<Item = &'static str> {
    SERVER_LIMITS.iter().flat_map(|(names, ..)| names.iter().copied())
}

/// Maximum of `max_head_bytes`.
const MAX_HEAD_BYTES: u64 = 65_000;

fn convert_time(directive: &Directive) -> Option<(&'static str, Value)> {
    time(directive.arg(0)).map(|time| ("", time.into()))
}

/// Returns true if a location uses the zone of `path`, such as a `proxy_cache_path`.
fn uses_zone(block: &[Directive], path: &Directive) -> bool {
    let kind = path.name.trim_end_matches("_path");
    let zone = path.parameter("keys_zone").and_then(|zone| zone.split(':').next());
    block.iter().any(|directive| {
        let is_use = directive.name == kind && zone == Some(directive.arg(0));
        is_use || uses_zone(directive.children(), path)
    })
}
