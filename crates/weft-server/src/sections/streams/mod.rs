//! A section of `[streams]`: TCP connections and UDP sessions that are forwarded without HTTP.

mod settings; // the values of the keys

use std::time::Duration;

use weft::net::{Address, IpNetwork};
use weft_config::{
    ConfigResult, Key, Located, Pair, Problem, ValueKind, quoted, quoted_list, quoted_path,
    quoted_table, show_size, show_time,
};
use weft_upstream::{DnsSettings, UpstreamMember, UpstreamUrl};

pub(crate) use self::settings::{LineFormat, ProxyVersion, ServerNamePattern, StreamSettings};

use super::balance_policy::{POLICY_NAMES, policy, policy_name};
use super::limits::limit;
use super::resolver::{HasDns, key_of_setting, max_ttl, min_ttl, resolver};
use super::tls::NEEDS_CERTIFICATES;
use crate::base::log_target::{LOG_TARGET, LogTarget};
use crate::base::network_set::networks;

/// A section of `[streams]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamConfig {
    /// Addresses to listen on.
    pub(crate) listen: Vec<String>,
    pub(crate) settings: Located<StreamSettings>,
}

impl StreamConfig {
    /// Makes a section of the name of its table: addresses that are separated by spaces.
    pub(crate) fn new(name: Located<String>, settings: StreamSettings) -> StreamConfig {
        let listen = name.value.split_whitespace().map(str::to_owned).collect();
        StreamConfig { listen, settings: name.map(|_| settings) }
    }

    /// Returns the addresses, each with the location of the section.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Located<String>> {
        let location = &self.settings.location;
        self.listen.iter().map(|text| Located { value: text.clone(), location: location.clone() })
    }

    /// Validates the section. A missing value is an error only if the configuration is complete.
    pub(crate) fn check(
        &self,
        has_certificates: bool,
        is_complete: bool,
        problems: &mut Vec<Problem>,
        warnings: &mut Vec<Problem>,
    ) {
        let settings = &self.settings.value;
        let section = &self.settings;
        let invalid = self.listen.iter().filter_map(|address| check_address(address).err());
        problems.extend(invalid.map(|message| section.problem(message)));
        if self.listen.is_empty() {
            problems.push(section.problem("expected an address to listen on, such as :5432"));
        }
        if is_complete && settings.to.is_empty() && settings.server_names.is_empty() {
            problems.push(section.problem("expected `to = \"HOST:PORT\"`, or `server_names`"));
        }
        if let (Some(address), Some(found)) =
            (self.listen.iter().find(|it| is_udp(it)), not_for_udp(settings))
        {
            problems.push(section.problem(format!("{found} cannot be combined with {address}")));
        }
        let invalid = settings.groups().filter_map(|group| UpstreamMember::check_list(group).err());
        problems.extend(invalid.map(|message| section.problem(message)));
        let invalid = settings.dns.validate().err();
        let invalid = invalid.map(|invalid| invalid.with_names(key_of_setting));
        problems.extend(invalid.map(|message| section.problem(message)));
        if is_complete && settings.tls && !has_certificates {
            problems.push(section.problem(format!("`tls` {NEEDS_CERTIFICATES}")));
        }
        let has_tls_upstreams = settings.upstreams().any(UpstreamUrl::is_tls);
        let has_checks = settings.check_interval != Duration::MAX;
        if has_checks && has_tls_upstreams && settings.proxy_protocol.is_some() {
            problems.push(section.problem(
                "`check_interval` cannot be combined with `proxy_protocol` and upstreams with tls://: \
                 a check has no client whose address it could send",
            ));
        }
        if settings.ca.is_some() && !has_tls_upstreams {
            warnings.push(section.problem("`ca` has no effect without an upstream tls://"));
        }
        if !settings.dns.servers.is_empty() && !settings.upstreams().any(UpstreamUrl::has_name) {
            warnings
                .push(section.problem("`resolver` has no effect without an upstream with a name"));
        }
    }
}

const MAX_CONNECTIONS: u64 = 1_000_000;

/// Keys of a stream, which have no command-line options.
pub(crate) static STREAM: [Key<StreamSettings>; 28] = [
    Key {
        name: "to",
        help: "upstreams: HOST:PORT, tls://HOST:PORT for connections with TLS, srv+tcp://SERVICE, \
               srv+udp://SERVICE, or unix:/SOCKET, each with its options; of all connections, or of those without one \
               of the `server_names`",
        kind: ValueKind::Texts(|stream, texts| {
            let groups = texts.iter().map(upstreams).collect::<ConfigResult<Vec<_>>>()?;
            stream.to = groups.into_iter().flatten().collect();
            Ok(())
        }),
        show: |stream| quoted_list(stream.to.iter().map(UpstreamMember::to_string)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "server_names",
        help: "upstreams, separated by spaces, by the server name that a TLS client sends: \
               { \"a.example\" = \"HOST:PORT\", \"*.b.example\" = \"HOST:PORT\" }; without `tls`, \
               the connection stays encrypted",
        kind: ValueKind::Pairs(set_server_names),
        show: |stream| {
            let texts = |members: &Vec<UpstreamMember>| {
                members.iter().map(UpstreamMember::to_string).collect::<Vec<_>>().join(" ")
            };
            let names = stream.server_names.iter();
            quoted_table(names.map(|(name, members)| (name.to_string(), texts(members))))
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "allow",
        help: "networks of the clients that are allowed; connections of others are closed",
        kind: ValueKind::Texts(|stream, texts| networks(texts).map(|list| stream.allow = list)),
        show: |stream| quoted_list(stream.allow.iter().map(IpNetwork::to_string)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "deny",
        help: "networks of clients whose connections are closed, even within allowed ones",
        kind: ValueKind::Texts(|stream, texts| networks(texts).map(|list| stream.deny = list)),
        show: |stream| quoted_list(stream.deny.iter().map(IpNetwork::to_string)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "allow_file",
        help: "file with further networks that are allowed, one in each line, # begins a comment; \
               reloaded when it changes",
        kind: ValueKind::Path(|stream, path| stream.allow_file = Some(path.value)),
        show: |stream| quoted_path(stream.allow_file.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "deny_file",
        help: "file with further networks that are denied, as in `allow_file`",
        kind: ValueKind::Path(|stream, path| stream.deny_file = Some(path.value)),
        show: |stream| quoted_path(stream.deny_file.as_ref()),
        ..Key::FILE_ONLY
    },
    limit!(
        tls,
        "",
        switch,
        "terminate TLS with the certificates of [tls]; upstreams get the decrypted bytes"
    ),
    Key {
        name: "ca",
        help: "trusted CA certificates in PEM for upstreams with tls://, in place of the \
               certificates of the system",
        kind: ValueKind::Path(|stream, path| stream.ca = Some(path.value)),
        show: |stream| quoted_path(stream.ca.as_ref()),
        ..Key::FILE_ONLY
    },
    Key {
        name: "balance",
        help: "load balancing between upstreams: round-robin, least-connections, random-two (of two at \
               random, the one with fewer connections) or hash (by the address of the client)",
        kind: ValueKind::Choice(&POLICY_NAMES, |stream, choice| stream.balance = policy(choice)),
        show: |stream| quoted(policy_name(stream.balance)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "proxy_protocol",
        help: "version of the PROXY protocol header by which upstreams get the address of the \
               client: none, v1 or v2",
        kind: ValueKind::Choice(&["none", "v1", "v2"], |stream, choice| {
            stream.proxy_protocol = match choice {
                "v1" => Some(ProxyVersion::V1),
                "v2" => Some(ProxyVersion::V2),
                _ => None,
            };
        }),
        show: |stream| match stream.proxy_protocol {
            None => quoted("none"),
            Some(ProxyVersion::V1) => quoted("v1"),
            Some(ProxyVersion::V2) => quoted("v2"),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "proxy_protocol_from",
        help: "proxies in front of the server; each of their connections must begin with a PROXY \
               protocol header",
        kind: ValueKind::Texts(|stream, texts| {
            networks(texts).map(|proxies| stream.proxy_protocol_from = proxies)
        }),
        show: |stream| quoted_list(stream.proxy_protocol_from.iter().map(IpNetwork::to_string)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "access_log",
        help: "destination of a line for each connection that has ended, as of `access` in [log]: \
               none, stdout, a file, syslog or journald",
        kind: ValueKind::Custom(&LOG_TARGET, |stream, given| {
            let to = LogTarget::read(given)?;
            stream.access_log = Some(to.value).filter(|to| *to != LogTarget::None);
            Ok(())
        }),
        show: |stream| stream.access_log.as_ref().unwrap_or(&LogTarget::None).show(),
        ..Key::FILE_ONLY
    },
    Key {
        name: "log_format",
        help: "format of these lines: text or json",
        kind: ValueKind::Choice(&["text", "json"], |stream, choice| {
            stream.log_format = match choice {
                "json" => LineFormat::Json,
                _ => LineFormat::Text,
            };
        }),
        show: |stream| match stream.log_format {
            LineFormat::Text => quoted("text"),
            LineFormat::Json => quoted("json"),
        },
        ..Key::FILE_ONLY
    },
    resolver(),
    min_ttl(),
    max_ttl(),
    limit!(
        connect_timeout,
        "",
        time,
        "maximum time to connect to one upstream, before another one is tried"
    ),
    limit!(
        handshake_timeout,
        "",
        time,
        "maximum time for the PROXY protocol header, the server name and the handshake of TLS"
    ),
    limit!(
        check_interval,
        "",
        time,
        "time between two checks of each upstream, which gets connections only while it accepts them"
    ),
    limit!(max_failures, "", count 1..=1_000,
        "number of failures in a row after which an upstream is tried last for `down_time`"),
    limit!(failure_window, "", time, "time for which a failure is counted"),
    limit!(down_time, "", time, "time for which an upstream is tried last after `max_failures`"),
    limit!(
        idle_timeout,
        "",
        time,
        "time without data in both directions after which a connection is closed"
    ),
    limit!(
        udp_idle_timeout,
        "",
        time,
        "time without datagrams in both directions after which a session of UDP ends"
    ),
    limit!(udp_responses, "", count 0..=MAX_CONNECTIONS,
        "number of datagrams of the upstream for each one of a client, after which a session of UDP \
         ends; 0: any number"),
    limit!(max_datagram_bytes, "", size 1..=65_536,
        "maximum size of a datagram of UDP; larger ones are dropped"),
    limit!(max_connections, "", count 1..=MAX_CONNECTIONS,
        "maximum number of connections and sessions of UDP; further ones are closed"),
    limit!(max_connections_per_client, "", count 0..=MAX_CONNECTIONS,
        "maximum number of these of one client address, or /64 of IPv6; 0: half of \
         `max_connections`"),
];

impl HasDns for StreamSettings {
    fn dns(&self) -> &DnsSettings {
        &self.dns
    }

    fn dns_mut(&mut self) -> &mut DnsSettings {
        &mut self.dns
    }
}

/// Parses upstreams, each with its options behind it.
fn upstreams(text: &Located<String>) -> ConfigResult<Vec<UpstreamMember>> {
    let members = UpstreamMember::parse_list(&text.value, UpstreamUrl::tcp);
    match members.map_err(|message| text.problem(message))? {
        none if none.is_empty() => Err(text.problem("expected an upstream such as 127.0.0.1:5432")),
        members => Ok(members),
    }
}

fn set_server_names(stream: &mut StreamSettings, pairs: Vec<Pair>) -> ConfigResult {
    stream.server_names = Vec::new();
    for Pair { name, value, .. } in pairs {
        let pattern = name.value.parse().map_err(|message| name.problem(message))?;
        stream.server_names.push((pattern, upstreams(&value)?));
    }
    Ok(())
}

/// Returns the part of an address of UDP behind its scheme.
pub(crate) fn udp_address(text: &str) -> Option<&str> {
    text.strip_prefix("udp://")
}

fn is_udp(address: &str) -> bool {
    udp_address(address).is_some()
}

/// Returns a key or value that only TCP has.
fn not_for_udp(settings: &StreamSettings) -> Option<&'static str> {
    let has = |is_it: fn(&UpstreamUrl) -> bool| settings.upstreams().any(is_it);
    let found = [
        (settings.tls, "`tls`"),
        (!settings.server_names.is_empty(), "`server_names`"),
        (settings.proxy_protocol.is_some(), "`proxy_protocol`"),
        (!settings.proxy_protocol_from.is_empty(), "`proxy_protocol_from`"),
        (settings.check_interval != Duration::MAX, "`check_interval`"),
        (has(UpstreamUrl::is_tls), "an upstream tls://"),
        (has(UpstreamUrl::is_unix), "an upstream unix:"),
    ];
    found.into_iter().find(|(is_found, _)| *is_found).map(|(_, name)| name)
}

fn check_address(address: &str) -> Result<(), String> {
    match udp_address(address).unwrap_or(address).parse() {
        Ok(Address::Unix(_)) => {
            Err("a stream listens on HOST:PORT or :PORT, or udp://HOST:PORT for UDP".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.reason().to_owned()),
    }
}
