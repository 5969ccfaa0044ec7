//! Keys of a proxy route about the choice of an upstream.

use super::key::{Key, ValueKind};
use super::keys::quoted;
use super::location::{ConfigResult, Located};
use crate::apps::proxy::{Balance, ProxySettings};
use crate::template::Template;

const POLICIES: [(&str, Balance); 4] = [
    ("round-robin", Balance::RoundRobin),
    ("least-connections", Balance::LeastConnections),
    ("random-two", Balance::RandomTwo),
    ("hash", Balance::Hash),
];

pub(super) const BALANCE: Key<ProxySettings> = Key {
    name: "balance",
    flag: "",
    argument: "",
    help: "load balancing between upstreams: round-robin, least-connections, random-two (of two at \
           random, the one with fewer requests) or hash (by `hash_key`)",
    kind: ValueKind::Choice(
        &["round-robin", "least-connections", "random-two", "hash"],
        |settings, choice| {
            let policy = POLICIES.iter().find(|(name, _)| *name == choice);
            settings.balance = policy.map_or_else(Balance::default, |(_, policy)| *policy);
        },
    ),
    show: |settings| {
        let policy = POLICIES.iter().find(|(_, policy)| *policy == settings.balance);
        policy.map_or_else(String::new, |(name, _)| quoted(name))
    },
};

pub(super) const HASH_KEY: Key<ProxySettings> = Key {
    name: "hash_key",
    flag: "",
    argument: "",
    help: "value by which `balance = \"hash\"` chooses the upstream, such as {uri} or \
           {cookie.session}; requests without a value take turns; by default the address of the \
           client",
    kind: ValueKind::Text(set_hash_key),
    show: |settings| match settings.balance {
        Balance::Hash => quoted(&settings.hash_key),
        _ => String::new(),
    },
};

fn set_hash_key(settings: &mut ProxySettings, text: Located<String>) -> ConfigResult {
    let template = Template::parse(&text.value).map_err(|invalid| text.problem(invalid))?;
    if template.as_literal().is_some() {
        return Err(text.problem("expected a text with placeholders, such as {client_ip}"));
    }
    settings.hash_key = text.value;
    Ok(())
}
