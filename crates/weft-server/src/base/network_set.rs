//! Networks: a list in the configuration, or a set in the format of a file, one in each line. Pure.

use std::net::IpAddr;

use weft::net::IpNetwork;
use weft_config::{ConfigResult, Located};

/// Parses the networks of a list in the configuration.
pub(crate) fn networks(texts: Vec<Located<String>>) -> ConfigResult<Vec<IpNetwork>> {
    let network = |text: Located<String>| {
        text.value.parse().map_err(|error: weft_proto::Error| {
            let hint = match &*text.value {
                "all" => "; all of them are \"0.0.0.0/0\" and \"::/0\"",
                _ => "",
            };
            text.problem(format!("{}{hint}", error.reason()))
        })
    };
    texts.into_iter().map(network).collect()
}

/// A set of networks, in which an address is found in logarithmic time.
#[derive(Debug)]
pub(crate) struct NetworkSet {
    /// First and last addresses, sorted, without overlaps.
    ranges: Box<[(Key, Key)]>,
}

/// An address by its family and its bits. A network of IPv6 has no addresses of IPv4.
type Key = (bool, u128);

impl NetworkSet {
    /// Parses a file with an address or a network in each line. `#` begins a comment.
    ///
    /// # Errors
    /// The first line with anything else.
    pub(crate) fn parse(content: &[u8]) -> Result<NetworkSet, String> {
        let text = str::from_utf8(content).map_err(|_| "it is not valid UTF-8".to_owned())?;
        let mut ranges = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let network = line.split('#').next().unwrap_or_default().trim();
            if network.is_empty() {
                continue;
            }
            let parsed: IpNetwork = network.parse().map_err(|_| {
                format!(
                    "line {number}: expected an address or a network such as 192.0.2.0/24, found \
                     {network:?}"
                )
            })?;
            let (first, last) = parsed.range();
            ranges.push((key(first), key(last)));
        }
        Ok(NetworkSet { ranges: merged(ranges).into() })
    }

    /// Returns true if the address is in one of the networks. IPv4-mapped IPv6 addresses count as
    /// IPv4.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = key(address.to_canonical());
        let behind = self.ranges.partition_point(|(first, _)| *first <= address);
        behind.checked_sub(1).is_some_and(|at| address <= self.ranges[at].1)
    }
}

fn key(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(four) => (false, four.to_bits().into()),
        IpAddr::V6(six) => (true, six.to_bits()),
    }
}

/// Sorts ranges and merges those that overlap.
fn merged(mut ranges: Vec<(Key, Key)>) -> Vec<(Key, Key)> {
    ranges.sort_unstable();
    let mut merged: Vec<(Key, Key)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_addresses_in_networks() {
        let file =
            b"# comment\n10.0.0.0/8\n10.1.0.0/16 # within\n\n192.0.2.7\n2001:db8::/32\r\n0:0::1\n";
        let set = NetworkSet::parse(file).unwrap();
        assert_eq!(set.ranges.len(), 4);
        for (address, expected) in [
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("::ffff:10.1.2.3", true),
            ("192.0.2.6", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8::", true),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("2001:db9::", false),
            ("::1", true),
            ("::2", false),
            ("::a00:1", false),
        ] {
            assert_eq!(set.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!NetworkSet::parse(b"").unwrap().contains("::1".parse().unwrap()));
        let all_of_ipv6 = NetworkSet::parse(b"::/0").unwrap();
        for (address, expected) in
            [("203.0.113.1", false), ("::ffff:203.0.113.1", false), ("2001:db8::1", true)]
        {
            assert_eq!(all_of_ipv6.contains(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn names_the_invalid_line() {
        for (file, line) in [("::1\n10.0.0.0/33", 2), ("a", 1), ("10.0.0.0/8 10.1.0.0/16", 1)] {
            let error = NetworkSet::parse(file.as_bytes()).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
        }
        assert!(NetworkSet::parse(b"\xff").is_err());
    }
}
