//! `stream`: TCP and UDP → `[streams]`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::client_rules;
use super::directives::{Treatment, treatment};
use super::global::{Global, zone_name};
use super::listen::address;
use super::maps::{Map, MapKey, SERVER_NAME};
use super::outcomes::Outcomes;
use super::process::{ANY_NETWORK, certificate_pairs};
use super::scope::Scope;
use super::tree::{Directive, named};
use super::upstream::{self, GroupKind, member};
use super::variables::is_client_address;
use crate::document::{Document, Stream, Table, Value};
use crate::values::lists;

/// Directives of `stream` blocks, and of the servers in them, that have an equivalent.
const READ: &str = "
    listen allow deny proxy_pass proxy_ssl proxy_ssl_verify proxy_ssl_trusted_certificate
    proxy_protocol set_real_ip_from proxy_timeout proxy_connect_timeout proxy_responses
    preread_timeout ssl_handshake_timeout ssl_preread ssl_certificate ssl_certificate_key limit_conn
    limit_conn_zone access_log error_log log_format server upstream map
";

/// Adds a section for each server of the `stream` blocks. Returns the servers, in the same order.
///
/// A server with rules that have no equivalent is not added: it would accept connections that nginx
/// refuses.
pub(super) fn translate<'a>(
    main: &'a [Directive],
    global: &Global<'a>,
    outcomes: &Outcomes,
    document: &mut Document,
) -> Vec<&'a Directive> {
    let mut added = Vec::new();
    let mut addresses = BTreeSet::new();
    for block in named(main, "stream") {
        let blocks = Blocks::new(block);
        let scope = Scope::new(outcomes).inside(block.children());
        report_unread(block.children(), outcomes);
        for directive in named(block.children(), "server") {
            let scope = scope.inside(directive.children());
            report_unread(directive.children(), outcomes);
            let server = Server { blocks: &blocks, global, scope };
            let Some((stream, pairs)) = server.translate(&mut addresses) else {
                outcomes.lost(directive, "see the notes of its directives");
                document.notes.extend(outcomes.block_notes(directive));
                continue;
            };
            document.streams.push(stream);
            added.push(directive);
            if !pairs.is_empty() {
                add_certificates(document.section("tls"), pairs);
            }
        }
    }
    added
}

/// Reports directives that apply to HTTP only, or that streams do not have.
fn report_unread(block: &[Directive], outcomes: &Outcomes) {
    for directive in block {
        let is_read = lists(READ, &directive.name);
        if !is_read && treatment(&directive.name) == Some(Treatment::Translated) {
            outcomes.lost(directive, "it has no equivalent for streams");
        }
    }
}

/// Adds certificates to the certificates of the hosts: they are selected by the server name.
fn add_certificates(tls: &mut Table, pairs: Vec<Table>) {
    let mut all = match tls.get("certificates") {
        Some(Value::List(list)) => list.clone(),
        _ => Vec::new(),
    };
    let pairs = pairs.into_iter().map(Value::from);
    all.extend(pairs.filter(|pair| !all.contains(pair)).collect::<Vec<_>>());
    tls.remove("self_signed");
    tls.set("certificates", all);
}

/// Blocks of a `stream` to which its servers refer by name.
struct Blocks<'a> {
    upstreams: BTreeMap<&'a str, &'a Directive>,
    /// Maps by the name of their variable, with its `$`.
    maps: BTreeMap<&'a str, &'a Directive>,
}

impl<'a> Blocks<'a> {
    fn new(block: &'a Directive) -> Blocks<'a> {
        let by_argument = |name: &'static str, index: usize| {
            named(block.children(), name).map(move |child| (child.arg(index), child)).collect()
        };
        Blocks { upstreams: by_argument("upstream", 0), maps: by_argument("map", 1) }
    }
}

struct Server<'s, 'a> {
    blocks: &'s Blocks<'a>,
    global: &'s Global<'a>,
    scope: Scope<'a>,
}

/// The addresses of a server.
#[derive(Default)]
struct StreamListen {
    names: Vec<String>,
    is_tcp: bool,
    is_udp: bool,
    has_tls: bool,
    has_proxy_protocol: bool,
}

impl Server<'_, '_> {
    /// Returns the section with the certificates of its clients; `None` if it cannot be carried
    /// over.
    fn translate(&self, addresses: &mut BTreeSet<String>) -> Option<(Stream, Vec<Table>)> {
        let listening = self.listening(addresses)?;
        let mut options = Table::default();
        let is_routed = self.upstreams(&listening, &mut options)?;
        if !self.restrictions(&mut options) {
            return None;
        }
        let mut pairs = Vec::new();
        if listening.has_tls {
            options.set("tls", true);
            pairs = certificate_pairs(&self.scope, self.global);
        }
        if listening.has_proxy_protocol {
            let networks = self.scope.all(&["set_real_ip_from"]);
            let networks: Vec<&str> = networks.iter().map(|network| network.arg(0)).collect();
            options.set("proxy_protocol_from", ANY_NETWORK);
            options.set_filled("proxy_protocol_from", networks);
        }
        self.settings(&listening, is_routed, &mut options);
        let addresses = listening.names.join(" ");
        Some((Stream { notes: Vec::new(), addresses, options }, pairs))
    }

    fn listening(&self, addresses: &mut BTreeSet<String>) -> Option<StreamListen> {
        let mut listening = StreamListen::default();
        for directive in self.scope.own("listen") {
            let has = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
            let text = directive.arg(0);
            let Some(address) = address(text).filter(|_| text.contains(':') || !text.contains('.'))
            else {
                self.scope.outcomes.lost(directive, "this is neither an address nor a port");
                return None;
            };
            if address.starts_with("unix:") {
                self.scope.outcomes.lost(directive, "streams listen on TCP and UDP only");
                return None;
            }
            let name = if has("udp") { format!("udp://{address}") } else { address };
            if !addresses.insert(name.clone()) {
                self.scope.outcomes.lost(directive, "another server has this address");
                return None;
            }
            listening.names.push(name);
            listening.is_udp |= has("udp");
            listening.is_tcp |= !has("udp");
            listening.has_tls |= has("ssl");
            listening.has_proxy_protocol |= has("proxy_protocol");
        }
        (!listening.names.is_empty()).then_some(listening)
    }

    /// Translates `proxy_pass`. Returns true if the server name selects the upstreams.
    fn upstreams(&self, listening: &StreamListen, options: &mut Table) -> Option<bool> {
        let pass = self.scope.own("proxy_pass").pop()?;
        let target = pass.arg(0);
        if !target.contains('$') {
            let to = self.addresses(target, options)?;
            options.set("to", Value::one_or_list(to));
            return Some(false);
        }
        let lost = |reason: &str| self.scope.outcomes.lost(pass, reason);
        let map = self.blocks.maps.get(target);
        let read = map.and_then(|directive| {
            let map = Map::of(directive, self.global.target)?;
            let is_name = matches!(map.source, SERVER_NAME | "$ssl_server_name");
            is_name.then_some((*directive, map))
        });
        let Some((directive, map)) = read else {
            lost("its address depends on a variable other than the server name of TLS");
            return None;
        };
        let is_read = self.scope.is_on("ssl_preread") || listening.has_tls;
        if !is_read {
            lost("the server name is read with `ssl_preread on` only");
            return None;
        }
        self.scope.outcomes.carried(directive);
        let mut names = Table::default();
        for (key, value) in &map.entries {
            let MapKey::Text(name) = key else {
                self.scope.outcomes.lost(directive, "only names and `*.example.org` are");
                return None;
            };
            let to = self.addresses(value, options)?.join(" ");
            for name in server_names(name) {
                names.set(name, to.clone());
            }
        }
        options.set("server_names", names);
        if !map.default.is_empty() {
            let to = self.addresses(map.default, options)?;
            options.set("to", Value::one_or_list(to));
        }
        Some(true)
    }

    /// Returns the addresses of a group, or of one upstream; `None` if there is none.
    fn addresses(&self, target: &str, options: &mut Table) -> Option<Vec<String>> {
        let scheme = if self.scope.is_on("proxy_ssl") { "tls://" } else { "" };
        let address = |text: &str| match text.strip_prefix("unix:") {
            Some(_) => text.to_owned(),
            None => format!("{scheme}{text}"),
        };
        let Some(group) = self.blocks.upstreams.get(target) else {
            return Some(vec![address(target)]);
        };
        let outcomes = self.scope.outcomes;
        let mut found = Vec::new();
        for directive in group.children() {
            match &*directive.name {
                "server" => {
                    let address = address(directive.arg(0));
                    let kind = GroupKind::Stream;
                    found.extend(member(outcomes, group, directive, address, kind, options));
                    continue;
                }
                "least_conn" => options.set("balance", "least-connections"),
                "hash" if is_client_address(directive.arg(0)) => options.set("balance", "hash"),
                "random" if matches!(directive.arg(1), "" | "least_conn") => {
                    options.set("balance", "random-two");
                }
                "hash" | "random" => {
                    outcomes.lost(directive, "connections are distributed by turns")
                }
                _ => continue,
            }
            outcomes.carried(directive);
        }
        if found.is_empty() {
            outcomes.lost(group, "it has no servers");
            return None;
        }
        Some(found)
    }

    /// Translates limits of connections. Returns false if one of them, or an access rule, has no
    /// equivalent.
    fn restrictions(&self, options: &mut Table) -> bool {
        let is_refused = Cell::new(false);
        let refuse = |rule: &Directive, reason: &str| {
            self.scope.outcomes.lost(rule, reason);
            is_refused.set(true);
        };
        client_rules::translate(&self.scope, &refuse, options);
        if is_refused.get() {
            return false;
        }
        for limit in self.scope.all(&["limit_conn"]) {
            let zones = self.scope.all(&["limit_conn_zone"]);
            let zone = zones.into_iter().find(|zone| zone_name(zone) == Some(limit.arg(0)));
            let of_address = zone.is_some_and(|zone| is_client_address(zone.arg(0)));
            match limit.arg(1).parse::<u64>() {
                Ok(number @ 1..) if of_address => {
                    options.set("max_connections_per_client", number);
                }
                _ => {
                    self.scope.outcomes.lost(limit, "only a number for each client address is");
                    return false;
                }
            }
        }
        true
    }

    fn settings(&self, listening: &StreamListen, is_routed: bool, options: &mut Table) {
        let scope = &self.scope;
        if scope.is_on("proxy_protocol") {
            options.set("proxy_protocol", "v1");
        }
        let preread = if is_routed { Some("handshake_timeout") } else { None };
        let of_tls = if listening.has_tls { Some("handshake_timeout") } else { preread };
        let times = [
            ("proxy_timeout", listening.is_tcp.then_some("idle_timeout")),
            ("proxy_timeout", listening.is_udp.then_some("udp_idle_timeout")),
            ("proxy_connect_timeout", listening.is_tcp.then_some("connect_timeout")),
            ("preread_timeout", preread),
            ("ssl_handshake_timeout", of_tls),
        ];
        for (name, key) in times {
            if let Some(key) = key {
                options.set_some(key, scope.time(name));
            }
        }
        let responses = scope.one("proxy_responses").filter(|_| listening.is_udp);
        let number = responses.and_then(|it| scope.outcomes.number(it, it.arg(0)));
        options.set_some("udp_responses", number);
        if scope.is_on("proxy_ssl") {
            upstream::authority(scope, self.global, "proxy", options);
        }
        self.access_log(options);
    }

    fn access_log(&self, options: &mut Table) {
        let Some(log) = self.scope.all(&["access_log"]).into_iter().next() else { return };
        match log.arg(0) {
            "off" => {}
            path if path.contains(['$', ':']) => {
                self.scope.outcomes.lost(log, "only a file is");
            }
            path => {
                options.set("access_log", self.global.path(path));
                self.scope.outcomes.adapted(log, "the lines have a format of their own");
            }
        }
    }
}

/// Returns the names that a key of a map with `hostnames` stands for.
fn server_names(key: &str) -> Vec<String> {
    match key.strip_prefix('.') {
        Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
        None => vec![key.to_owned()],
    }
}
