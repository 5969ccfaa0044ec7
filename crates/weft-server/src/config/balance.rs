//! Keys of a proxy route about the choice of an upstream.

use super::key::{Key, ValueKind};
use super::keys::quoted;
use super::location::{ConfigResult, Located};
use super::units::show_time;
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

pub(super) const STICKY_COOKIE: Key<ProxySettings> = Key {
    name: "sticky_cookie",
    flag: "",
    argument: "",
    help: "name of a cookie that leads the requests of a client to the same upstream, while that is \
           up",
    kind: ValueKind::Text(|settings, name| {
        if name.value.is_empty() {
            return Err(name.problem("expected the name of a cookie".to_owned()));
        }
        settings.sticky.cookie = name.value;
        Ok(())
    }),
    show: |settings| match &*settings.sticky.cookie {
        "" => String::new(),
        name => quoted(name),
    },
};

pub(super) const STICKY_MAX_AGE: Key<ProxySettings> = Key {
    name: "sticky_max_age",
    flag: "",
    argument: "",
    help: "time for which clients keep that cookie; by default until the end of their session",
    kind: ValueKind::Time(|settings, time| settings.sticky.max_age = time),
    show: |settings| match settings.sticky.max_age {
        time if time.is_zero() => String::new(),
        time => quoted(&show_time(time)),
    },
};

pub(super) const STICKY_SECRET: Key<ProxySettings> = Key {
    name: "sticky_secret",
    flag: "",
    argument: "",
    help: "file with the key by which its values are computed, the same on all servers; by default \
           a random key, which reloads keep",
    kind: ValueKind::Path(|settings, path| settings.sticky.secret = Some(path.value)),
    show: |settings| {
        let path = settings.sticky.secret.as_ref();
        path.map_or_else(String::new, |path| quoted(&path.to_string_lossy()))
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
