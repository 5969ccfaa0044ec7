//! Settings of the whole server: addresses, TLS, logs, user, proxies in front of it.

use std::collections::BTreeSet;

use super::global::Global;
use super::listen::joined;
use super::outcomes::Outcomes;
use super::sites::Server;
use super::tree::Directive;
use crate::import::document::{Document, Table, Value};

pub(super) struct Process<'a> {
    pub(super) main: &'a [Directive],
    pub(super) http: &'a [Directive],
    pub(super) servers: &'a [Server<'a>],
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
        let plain: BTreeSet<String> =
            self.servers.iter().flat_map(|server| server.listening.plain.clone()).collect();
        let tls: BTreeSet<String> =
            self.servers.iter().flat_map(|server| server.listening.tls.clone()).collect();
        if !plain.is_empty() {
            document.top.set("listen", Value::texts(joined(&plain)));
        }
        if !tls.is_empty() {
            document.section("tls").set("listen", Value::texts(joined(&tls)));
        }
        for server in self.servers {
            let listening = &server.listening;
            let is_everywhere = |own: &BTreeSet<String>, all| own.is_empty() || own == all;
            let is_equal =
                is_everywhere(&listening.plain, &plain) && is_everywhere(&listening.tls, &tls);
            let listens = server.directive.children().iter().find(|it| it.name == "listen");
            if let (false, Some(listen)) = (is_equal || listening.is_local(), listens) {
                let message = "this host is served on all addresses, as in `listen` at the top";
                self.outcomes.lost(listen, message);
            }
        }
    }

    fn run_as(&self, document: &mut Document) {
        if let Some(user) = self.main("user") {
            document.top.set("user", Value::text(user.arg(0)));
            if let Some(group) = user.args.get(1) {
                document.top.set("group", Value::text(group.clone()));
            }
        }
        if let Some(workers) = self.main("worker_processes") {
            match workers.arg(0).parse::<u64>() {
                Ok(count @ 1..) => document.top.set("workers", Value::Number(count)),
                _ if workers.arg(0) == "auto" => {}
                _ => self.outcomes.lost(workers, "this is no number"),
            }
        }
        if let Some(pid) = self.main("pid") {
            document.top.set("pid_file", Value::Text(self.global.path(pid.arg(0))));
        }
        let events = self.main.iter().find(|directive| directive.name == "events");
        let connections = events.and_then(|events| {
            events.children().iter().find(|directive| directive.name == "worker_connections")
        });
        if let Some(connections) = connections {
            let note = "`max_connections` of Weft is that of all workers together";
            self.outcomes.adapted(connections, note);
        }
    }

    fn logs(&self, document: &mut Document) {
        let log = document.section("log");
        if let Some(error) = self.all("error_log").into_iter().next_back() {
            let level = match error.arg(1) {
                "debug" => "debug",
                "info" | "notice" => "info",
                "warn" => "warn",
                _ => "error",
            };
            match error.arg(0) {
                "stderr" | "/dev/stderr" | "/dev/stdout" => {}
                path if path.starts_with("syslog:") => {
                    self.outcomes.lost(error, "the error log goes to a file or stderr");
                }
                path => log.set("error", Value::Text(self.global.path(path))),
            }
            log.set("level", Value::text(level));
        }
        let all = self.all("access_log");
        let Some((first, others)) = all.split_first() else { return };
        self.access_log(first, log);
        for other in others.iter().filter(|other| other.args != first.args) {
            self.outcomes.lost(other, "there is one access log for all hosts");
        }
    }

    fn access_log(&self, directive: &Directive, log: &mut Table) {
        match directive.arg(0) {
            "off" => log.set("access", Value::text("none")),
            "/dev/stdout" => {}
            "/dev/stderr" => log.set("access", Value::text("stderr")),
            path if path.starts_with("syslog:") || path.contains('$') => {
                self.outcomes.lost(directive, "the access log goes to a file or stdout");
            }
            path => log.set("access", Value::Text(self.global.path(path))),
        }
        if !matches!(directive.arg(1), "" | "combined") {
            self.outcomes.lost(directive, "its format is `combined`");
        }
        if directive.args.iter().any(|arg| arg.starts_with("if=")) {
            self.outcomes.lost(directive, "the access log has all requests");
        }
    }

    fn tls(&self, document: &mut Document) {
        let tls = document.section("tls");
        let mut pairs = Vec::new();
        for server in self.servers.iter().filter(|server| !server.listening.tls.is_empty()) {
            let outer = [server.directive.children(), self.http];
            let of = |name: &str| -> Vec<&Directive> {
                let named = |block: &&'a [Directive]| -> Vec<&Directive> {
                    block.iter().filter(|directive| directive.name == name).collect()
                };
                outer.iter().map(named).find(|found| !found.is_empty()).unwrap_or_default()
            };
            let keys = of("ssl_certificate_key");
            for (certificate, key) in of("ssl_certificate").into_iter().zip(keys) {
                self.outcomes.carried(certificate);
                self.outcomes.carried(key);
                if [certificate, key].iter().any(|it| it.arg(0).contains(['$', ':'])) {
                    self.outcomes.lost(certificate, "only files without variables are");
                    continue;
                }
                let mut pair = Table::default();
                pair.set("cert", Value::Text(self.global.path(certificate.arg(0))));
                pair.set("key", Value::Text(self.global.path(key.arg(0))));
                let pair = Value::Table(pair);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        let has_tls = self.servers.iter().any(|server| !server.listening.tls.is_empty());
        if !pairs.is_empty() {
            tls.set("certificates", Value::List(pairs));
        } else if has_tls {
            tls.set("self_signed", Value::Switch(true));
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
            tls.set("min_version", Value::text("1.3"));
        }
        self.client_certificates(tls);
    }

    fn client_certificates(&self, tls: &mut Table) {
        let required = self.all("ssl_verify_client");
        let authorities = self.all("ssl_client_certificate");
        let Some(verify) = required.iter().find(|verify| verify.arg(0) != "off") else { return };
        let Some(authority) = authorities.first() else { return };
        tls.set("client_ca", Value::Text(self.global.path(authority.arg(0))));
        if verify.arg(0) != "on" {
            self.outcomes.lost(verify, "a certificate of the client is required");
        } else if self.servers.len() > 1 && self.http.iter().all(|it| it.id != verify.id) {
            self.outcomes.lost(verify, "all hosts require a certificate of the client");
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
            (true, true) => {
                // nginx accepts the header of all clients, Weft that of named networks only.
                let all = Value::texts(["0.0.0.0/0", "::/0"]);
                document.section("limits").set("proxy_protocol", all);
            }
            (true, false) => document.section("limits").set("proxy_protocol", Value::texts(texts)),
            (false, true) => {}
            (false, false) => {
                document.top.set("trusted_proxies", Value::texts(texts));
                if !header_name.eq_ignore_ascii_case("X-Forwarded-For") {
                    document.top.set("client_ip_header", Value::text(header_name));
                }
            }
        }
        self.all("real_ip_recursive");
    }
}
