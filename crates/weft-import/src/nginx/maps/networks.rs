//! Networks of `geo`. Pure.

use std::net::Ipv4Addr;

use weft_proto::proxy_protocol::IpNetwork;

/// Maximum number of networks of a range: 31 on each side of its largest network.
const MAX_NETWORKS: usize = 62;

/// Returns the networks of a key of `geo`: an address, a network, or a range of IPv4 addresses.
pub(super) fn networks(key: &str, has_ranges: bool) -> Option<Vec<String>> {
    if !has_ranges {
        return key.parse::<IpNetwork>().is_ok().then(|| vec![key.to_owned()]);
    }
    let (first, last) = key.split_once('-').unwrap_or((key, key));
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    networks_of_range(address(first)?, address(last)?)
}

/// Splits a range into networks, the first address first.
fn networks_of_range(first: u32, last: u32) -> Option<Vec<String>> {
    let (mut at, last) = (u64::from(first), u64::from(last));
    let mut found = Vec::new();
    while at <= last {
        let is_inside = |bits: &u32| at % (1 << bits) == 0 && at + (1 << bits) - 1 <= last;
        let bits = (0..=32).rev().find(is_inside)?;
        let address = Ipv4Addr::from(u32::try_from(at).ok()?);
        found.push(format!("{address}/{}", 32 - bits));
        at += 1 << bits;
    }
    (!found.is_empty() && found.len() <= MAX_NETWORKS).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_ranges_into_networks() {
        for (key, expected) in [
            ("198.51.100.0-198.51.100.255", Some(vec!["198.51.100.0/24"])),
            ("10.0.0.1-10.0.0.4", Some(vec!["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/32"])),
            ("0.0.0.0-255.255.255.255", Some(vec!["0.0.0.0/0"])),
            ("10.0.0.7", Some(vec!["10.0.0.7/32"])),
            ("10.0.0.2-10.0.0.1", None),
            ("10.0.0.0/8", None),
            ("::1-::2", None),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect());
            assert_eq!(networks(key, true), expected, "{key}");
        }
        assert_eq!(networks("10.0.0.0/8", false), Some(vec!["10.0.0.0/8".to_owned()]));
        assert_eq!(networks("10.0.0.1-10.0.0.4", false), None);
    }
}
