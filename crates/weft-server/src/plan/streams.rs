//! Streams of the plan.

use std::time::Duration;

use weft::Address;
use weft_config::{Located, Problem};

use crate::apps::proxy::{UpstreamMember, UpstreamUrl};
use crate::config::StreamConfig;
use crate::config::StreamSettings;

/// A validated section of `[streams]`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamPlan {
    pub(crate) listen: Vec<String>,
    pub(crate) settings: Located<StreamSettings>,
}

/// Returns the addresses of all sections, each with the location of its section.
pub(super) fn stream_addresses(streams: &[StreamConfig]) -> Vec<Located<String>> {
    let addresses = |stream: &StreamConfig| {
        let texts = stream.listen.value.split_whitespace().map(str::to_owned);
        texts.map(|text| stream.listen.clone().map(|_| text)).collect::<Vec<_>>()
    };
    streams.iter().flat_map(addresses).collect()
}

/// Validates the sections. A missing value is an error only if the configuration is complete.
pub(super) fn plan_streams(
    streams: Vec<StreamConfig>,
    has_certificates: bool,
    is_complete: bool,
    (problems, warnings): (&mut Vec<Problem>, &mut Vec<Problem>),
) -> Vec<StreamPlan> {
    let plan = |StreamConfig { listen, settings }: StreamConfig| {
        let addresses: Vec<_> = listen.value.split_whitespace().map(str::to_owned).collect();
        let invalid = addresses.iter().filter_map(|address| check_address(address).err());
        problems.extend(invalid.map(|message| listen.problem(message)));
        if addresses.is_empty() {
            problems.push(listen.problem("expected an address to listen on, such as :5432"));
        }
        if is_complete && settings.to.is_empty() && settings.server_names.is_empty() {
            problems.push(listen.problem("expected `to = \"HOST:PORT\"`, or `server_names`"));
        }
        if let (Some(address), Some(found)) =
            (addresses.iter().find(|it| is_udp(it)), not_for_udp(&settings))
        {
            problems.push(listen.problem(format!("{found} cannot be combined with {address}")));
        }
        let invalid = settings.groups().filter_map(|group| UpstreamMember::check_list(group).err());
        problems.extend(invalid.map(|message| listen.problem(message)));
        problems.extend(settings.dns.validate().err().map(|message| listen.problem(message)));
        if is_complete && settings.tls && !has_certificates {
            problems.push(listen.problem(
                "`tls` needs `certificates` in [tls], which may be \"auto\", or `self_signed`",
            ));
        }
        let has_tls_upstreams = settings.upstreams().any(UpstreamUrl::is_tls);
        let has_checks = settings.check_interval != Duration::MAX;
        if has_checks && has_tls_upstreams && settings.proxy_protocol.is_some() {
            problems.push(listen.problem(
                "`check_interval` cannot be combined with `proxy_protocol` and upstreams with tls://: \
                 a check has no client whose address it could send",
            ));
        }
        if settings.ca.is_some() && !has_tls_upstreams {
            warnings.push(listen.problem("`ca` has no effect without an upstream tls://"));
        }
        if !settings.dns.servers.is_empty() && !settings.upstreams().any(UpstreamUrl::has_name) {
            warnings
                .push(listen.problem("`resolver` has no effect without an upstream with a name"));
        }
        StreamPlan { listen: addresses, settings: listen.map(|_| settings) }
    };
    streams.into_iter().map(plan).collect()
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
