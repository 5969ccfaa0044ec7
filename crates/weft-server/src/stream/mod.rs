//! TCP connections and UDP datagrams that are forwarded without HTTP (`[streams]`).
//!
//! `stream_server` accepts them, in threads of its own, and `connection` serves each: the PROXY
//! header of the client's proxy, the server name of its TLS ClientHello (`hello`), a connection to
//! one of the upstreams (`targets`), and then bytes in both directions. TLS passes through unless
//! the stream terminates it.

pub(crate) mod connection; // one connection
mod end; // reasons for the end of a connection
mod hello; // the server name of a ClientHello
mod metrics; // counters of upstreams, and of the ends of connections
pub(crate) mod record; // the record of a connection
pub(crate) mod targets; // upstreams, and connections to them

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use weft::client_limit::{Client, ClientLimit, ClientLimitSettings, ClientPermit};
use weft_upstream::ThrottledWarning;
use weft_upstream::copy::SplicePipes;
use weft_upstream::{HealthCheck, HealthCheckTarget, UpstreamUrl, tls};

use crate::options::{NetworkFilter, NetworkRules};
use crate::sections::streams::{ServerNamePattern, StreamSettings};

pub(crate) use self::end::End;
use self::metrics::EndCounts;
pub(crate) use self::metrics::{EndTotals, TargetReport};
use self::targets::Targets;

/// A stream: its upstreams with their health, and its connections. A reload keeps it if its
/// settings do not change.
pub(crate) struct Stream {
    settings: StreamSettings,
    /// Upstreams of the connections without one of the names.
    others: Option<Targets>,
    by_name: Vec<(ServerNamePattern, Targets)>,
    /// Clients that are allowed, if not all are.
    networks: Option<NetworkFilter>,
    connections: ClientLimit,
    /// Pipes through which the kernel moves bytes between two sockets.
    pipes: SplicePipes,
    ends: EndCounts,
    checks_started: AtomicBool,
    limit_warning: ThrottledWarning,
    refusal_warning: ThrottledWarning,
}

impl Stream {
    /// # Errors
    /// If an upstream is invalid, or a file of networks cannot be read.
    pub(crate) fn new(settings: StreamSettings) -> Result<Stream, String> {
        let has_tls = settings.upstreams().any(UpstreamUrl::is_tls);
        let tls =
            has_tls.then(|| tls::client_config_without_alpn(settings.ca.as_deref())).transpose()?;
        let targets = |members: &Vec<_>| Targets::new(members, &settings, &tls);
        let others = (!settings.to.is_empty()).then(|| targets(&settings.to)).transpose()?;
        let by_name = settings.server_names.iter();
        let by_name = by_name.map(|(name, members)| Ok((name.clone(), targets(members)?)));
        let by_name = by_name.collect::<Result<Vec<_>, String>>()?;
        let networks = NetworkFilter::new(NetworkRules {
            allow: &settings.allow,
            allow_file: settings.allow_file.as_deref(),
            deny: &settings.deny,
            deny_file: settings.deny_file.as_deref(),
        })?;
        let connections = ClientLimit::new(ClientLimitSettings {
            max_per_client: settings.max_connections_per_client,
            ..ClientLimitSettings::new(settings.max_connections)
        });
        let [limit_warning, refusal_warning] = Default::default();
        let (pipes, ends, checks_started) = Default::default();
        Ok(Stream {
            settings,
            others,
            by_name,
            networks,
            connections,
            pipes,
            ends,
            checks_started,
            limit_warning,
            refusal_warning,
        })
    }

    /// Starts the checks of the upstreams, once. Must be called on the event loop.
    pub(crate) fn start_checks(&self) {
        let interval = self.settings.check_interval;
        if interval == Duration::MAX || self.checks_started.swap(true, Relaxed) {
            return;
        }
        let check = Arc::new(HealthCheck {
            target: HealthCheckTarget::Connection,
            interval,
            timeout: self.settings.connect_timeout,
            ..HealthCheck::default()
        });
        let by_name = self.by_name.iter().map(|(_, targets)| targets);
        self.others.iter().chain(by_name).for_each(|targets| targets.start_checks(&check));
    }

    /// Returns true if a client with this address is allowed. Its connections are not counted
    /// before.
    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.networks.as_ref().is_none_or(|networks| networks.allows(Some(client)))
    }

    /// Counts a datagram of a client that is not allowed.
    pub(crate) fn count_denied(&self) {
        self.ends.add(End::Denied);
    }

    /// Counts a connection or datagram that was refused because of a limit, and logs that.
    pub(crate) fn refuse(&self, address: &str, message: &str) {
        self.ends.add(End::Limit);
        self.warn_of_limit(address, message);
    }

    /// Logs that a limit was reached.
    pub(crate) fn warn_of_limit(&self, address: &str, message: &str) {
        self.limit_warning.warn(&format!("the stream {address}: {message}"));
    }

    pub(crate) fn settings(&self) -> &StreamSettings {
        &self.settings
    }

    /// Reports all upstreams.
    pub(crate) fn report(&self) -> Vec<TargetReport> {
        let others = self.others.iter().flat_map(|targets| targets.report(""));
        let by_name = self.by_name.iter();
        let by_name = by_name.flat_map(|(name, targets)| targets.report(&name.to_string()));
        others.chain(by_name).collect()
    }

    /// Returns the numbers of ended connections by reason.
    pub(crate) fn end_totals(&self) -> EndTotals {
        self.ends.totals()
    }

    /// Returns the upstreams for a server name: the upstreams of the same name, else of the longest
    /// pattern, else of all other names.
    pub(crate) fn targets(&self, name: Option<&str>) -> Option<&Targets> {
        let matching = self
            .by_name
            .iter()
            .filter(|(pattern, _)| name.is_some_and(|name| pattern.matches(name)));
        let best = matching.max_by_key(|(pattern, _)| pattern.precedence());
        best.map(|(_, targets)| targets).or(self.others.as_ref())
    }

    /// Admits a connection, or returns `None` at the maximum number. Proxies have no limit of their
    /// own: they forward connections of many clients.
    pub(crate) fn admit(&self, peer: IpAddr) -> Option<ClientPermit> {
        let client = (!self.settings.is_proxy(peer)).then(|| Client::new(peer));
        self.connections.try_acquire(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_upstream::UpstreamUrl;

    #[test]
    fn longest_name_decides() {
        let urls =
            |port: &str| vec![UpstreamUrl::tcp(&format!("127.0.0.1:{port}")).unwrap().into()];
        let named = |name: &str, port| (name.parse().unwrap(), urls(port));
        let mut settings = StreamSettings {
            to: urls("1"),
            server_names: vec![
                named("*.example.org", "2"),
                named("a.example.org", "3"),
                named("*.b.example.org", "4"),
            ],
            ..StreamSettings::default()
        };
        let stream = Stream::new(settings.clone()).unwrap();
        for (name, port) in [
            (None, "1"),
            (Some("example.org"), "1"),
            (Some("other.example"), "1"),
            (Some("x.example.org"), "2"),
            (Some("X.EXAMPLE.ORG"), "2"),
            (Some("a.example.org"), "3"),
            (Some("y.x.example.org"), "2"),
            (Some("c.b.example.org"), "4"),
            (Some("b.example.org"), "2"),
        ] {
            let found = stream.targets(name).expect("there are upstreams for all others");
            assert_eq!(found.to_string(), format!("127.0.0.1:{port}"), "{name:?}");
        }
        settings.to = Vec::new();
        let stream = Stream::new(settings).unwrap();
        assert!(stream.targets(Some("other.example")).is_none());
        assert!(stream.targets(None).is_none());
    }
}
