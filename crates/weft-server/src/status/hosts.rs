//! Hosts that the status endpoint serves.
//!
//! A page of any site can make the browser of its visitor send requests to a private address, under
//! a host name that the site resolves to this address (DNS rebinding). The page can read the
//! responses, because for the browser they are of the page's own origin. Such a request has the
//! host name of the site, so only expected hosts are served.

use std::net::IpAddr;

use weft::Request;
use weft::net::Address;

use crate::config::Plan;

/// Returns `true` if a request is for a host of the status endpoint: `localhost`, an IP address,
/// the host in an address of the endpoint, or a configured host.
pub(super) fn is_served(request: &Request, plan: &Plan) -> bool {
    // Neither a browser nor a name of the DNS leads to a Unix socket, and browsers send `Host`.
    let Some(host) = request.host().filter(|_| request.peer().address().is_some()) else {
        return true;
    };
    is_served_host(host, plan.status.listen.texts(), &plan.status.hosts)
}

fn is_served_host<'a>(
    host: &str,
    mut addresses: impl Iterator<Item = &'a String>,
    hosts: &[String],
) -> bool {
    let host = host.to_ascii_lowercase();
    // RFC 6761 §6.3: names below `localhost` are resolved to the loopback address only.
    host == "localhost"
        || host.ends_with(".localhost")
        || is_address(&host)
        || addresses.any(|address| has_host(address, &host))
        || hosts.iter().any(|pattern| matches(pattern, &host))
}

/// Returns true if a host is `localhost` or a loopback address.
pub(super) fn is_loopback_host(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = inner.unwrap_or(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn is_address(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse::<IpAddr>().is_ok()
}

/// Returns `true` if an address to listen on has this host.
fn has_host(address: &str, host: &str) -> bool {
    let Ok(Address::Host(address)) = address.parse() else { return false };
    address.rsplit_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case(host))
}

/// Returns `true` if a host has this name or, after the asterisk of a pattern, this suffix.
fn matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => pattern == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_expected_hosts_only() {
        let addresses = ["Metrics.internal:9145", ":9146", "127.0.0.1:9147", "unix:/run/weft.sock"];
        let addresses = addresses.map(str::to_owned);
        for (host, hosts, is_served) in [
            ("localhost", &[][..], true),
            ("LOCALHOST", &[], true),
            ("weft.localhost", &[], true),
            ("192.0.2.1", &[], true),
            ("[::1]", &[], true),
            ("metrics.INTERNAL", &[], true),
            ("", &[], false),
            ("rebound.example", &[], false),
            ("127.0.0.1.rebound.example", &[], false),
            ("notlocalhost", &[], false),
            ("localhost.rebound.example", &[], false),
            ("a.metrics.internal", &[], false),
            ("a.example", &["a.example"], true),
            ("A.example", &["a.example"], true),
            ("b.a.example", &["a.example"], false),
            ("b.a.example", &["*.a.example"], true),
            ("a.example", &["*.a.example"], false),
            ("xa.example", &["*.a.example"], false),
            ("anything", &["*"], true),
        ] {
            let hosts: Vec<String> = hosts.iter().map(|host: &&str| (*host).to_owned()).collect();
            assert_eq!(
                is_served_host(host, addresses.iter(), &hosts),
                is_served,
                "{host} {hosts:?}"
            );
        }
    }
}
