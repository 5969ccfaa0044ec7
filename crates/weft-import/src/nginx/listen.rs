//! `listen`: addresses and their purposes.

use std::collections::BTreeSet;

use super::outcomes::Outcomes;
use super::tree::Directive;

/// Addresses that a server listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HttpListen {
    /// Addresses without TLS, such as `0.0.0.0:80`, `[::]:80` and `unix:/run/a`.
    pub(super) plain: BTreeSet<String>,
    pub(super) tls: BTreeSet<String>,
    /// Addresses with the parameter `default_server`.
    pub(super) defaults: BTreeSet<String>,
    pub(super) has_proxy_protocol: bool,
}

impl HttpListen {
    pub(super) fn of(server: &Directive, outcomes: &Outcomes) -> HttpListen {
        let mut listening = HttpListen::default();
        let is_named = |directive: &&Directive, name: &str| directive.name == name;
        let all_tls = server.children().iter().find(|it| is_named(it, "ssl"));
        let all_tls = all_tls.is_some_and(|directive| directive.arg(0) == "on");
        let directives = || server.children().iter().filter(|it| is_named(it, "listen"));
        for directive in directives().filter(|it| !is_quic(it)) {
            outcomes.carried(directive);
            listening.add(directive, all_tls, outcomes);
        }
        for directive in directives().filter(is_quic) {
            outcomes.carried(directive);
            listening.add_quic(directive, outcomes);
        }
        if listening.plain.is_empty() && listening.tls.is_empty() {
            listening.plain.insert("0.0.0.0:80".to_owned());
        }
        listening
    }

    fn add(&mut self, directive: &Directive, all_tls: bool, outcomes: &Outcomes) {
        let has = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
        let Some(address) = address(directive.arg(0)) else {
            return outcomes.lost(directive, INVALID_ADDRESS);
        };
        let is_default = has("default_server") || has("default");
        self.has_proxy_protocol |= has("proxy_protocol");
        if is_default {
            self.defaults.insert(address.clone());
        }
        let addresses = if all_tls || has("ssl") { &mut self.tls } else { &mut self.plain };
        addresses.insert(address);
    }

    /// Adds an address of HTTP/3. Weft serves HTTP/3 at each address with TLS over TCP.
    fn add_quic(&mut self, directive: &Directive, outcomes: &Outcomes) {
        let Some(address) = address(directive.arg(0)) else {
            return outcomes.lost(directive, INVALID_ADDRESS);
        };
        if directive.args.iter().skip(1).any(|arg| arg == "default_server") {
            self.defaults.insert(address.clone());
        }
        if self.tls.insert(address) {
            outcomes.adapted(directive, "Weft serves this address over TCP, too");
        }
    }
}

const INVALID_ADDRESS: &str = "this is neither an address, nor a port, nor a socket";

/// Returns true for `listen` of HTTP/3: `quic`, or `http3` before nginx 1.25.
fn is_quic(directive: &&Directive) -> bool {
    directive.args.iter().skip(1).any(|arg| arg == "quic" || arg == "http3")
}

impl HttpListen {
    /// Returns the addresses; those with TLS are marked.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (String, bool)> {
        let plain = self.plain.iter().map(|address| (address.clone(), false));
        plain.chain(self.tls.iter().map(|address| (address.clone(), true)))
    }
}

/// Normalizes an address: a port alone stands for all IPv4 addresses, and the default port is 80.
pub(super) fn address(text: &str) -> Option<String> {
    if text.starts_with("unix:") {
        return Some(text.to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse::<u16>().ok().map(|port| format!("0.0.0.0:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, 80_u16),
    };
    match host {
        "" => None,
        "*" => Some(format!("0.0.0.0:{port}")),
        "localhost" => Some(format!("127.0.0.1:{port}")),
        host => Some(format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::joined;

    #[test]
    fn normalizes_addresses() {
        for (text, expected) in [
            ("80", Some("0.0.0.0:80")),
            ("*:8080", Some("0.0.0.0:8080")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("[::]:443", Some("[::]:443")),
            ("[::1]", Some("[::1]:80")),
            ("localhost:81", Some("127.0.0.1:81")),
            ("unix:/run/a.sock", Some("unix:/run/a.sock")),
            ("a:b", None),
            ("99999", None),
        ] {
            assert_eq!(address(text).as_deref(), expected, "{text}");
        }
        let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let both = ["0.0.0.0:80", "[::]:80", "0.0.0.0:81", "[::]:82"];
        assert_eq!(joined(&set(&both)), ["0.0.0.0:81", "[::]:80", "[::]:82"]);
    }
}
