//! The order in which the addresses of a name are tried (RFC 6724 §6).
//!
//! Rules 3, 4 and 7 compare properties of the system's own addresses that only the kernel has, and
//! it applies them when it chooses the source. Rule 9 is left out: it would always prefer the same
//! one of several servers, although the DNS changes their order.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Sorts addresses: the ones to try first are at the beginning. `source` returns the local address
/// from which the system would reach an address. `None`: there is no route.
pub(crate) fn sort(addresses: &mut [IpAddr], source: impl Fn(IpAddr) -> Option<IpAddr>) {
    // Stable: equal ones keep the order of the DNS (rule 10).
    addresses.sort_by_cached_key(|destination| {
        let source = source(*destination);
        let (scope, policy) = (scope(*destination), policy(*destination));
        let fits = |is_equal: &dyn Fn(IpAddr) -> bool| source.is_some_and(is_equal);
        (
            // Rules 1, 2 and 5: usable, of the same scope and with the same label as its source.
            source.is_none(),
            !fits(&|source| self::scope(source) == scope),
            !fits(&|source| self::policy(source).label == policy.label),
            // Rules 6 and 8.
            Reverse(policy.precedence),
            scope,
        )
    });
}

/// A row of the policy table (RFC 6724 §2.1).
struct Policy {
    prefix: Ipv6Addr,
    length: u32,
    precedence: u8,
    label: u8,
}

const fn row(prefix: [u16; 8], length: u32, precedence: u8, label: u8) -> Policy {
    let [a, b, c, d, e, f, g, h] = prefix;
    Policy { prefix: Ipv6Addr::new(a, b, c, d, e, f, g, h), length, precedence, label }
}

/// The default table; longer prefixes come first.
const POLICIES: [Policy; 9] = [
    row([0, 0, 0, 0, 0, 0, 0, 1], 128, 50, 0),
    row([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, 35, 4),
    row([0; 8], 96, 1, 3),
    row([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, 5, 5),
    row([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, 30, 2),
    row([0x3ffe, 0, 0, 0, 0, 0, 0, 0], 16, 1, 12),
    row([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, 1, 11),
    row([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, 3, 13),
    row([0; 8], 0, 40, 1),
];

fn policy(address: IpAddr) -> &'static Policy {
    let address = u128::from(as_ipv6(address));
    let matches = |row: &&Policy| {
        let difference = address ^ u128::from(row.prefix);
        difference.leading_zeros() >= row.length
    };
    POLICIES.iter().find(matches).unwrap_or(&POLICIES[POLICIES.len() - 1])
}

fn as_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    }
}

/// Returns the scope of an address (RFC 6724 §3.1 and §3.2, RFC 4007 §5).
fn scope(address: IpAddr) -> u8 {
    const LINK_LOCAL: u8 = 2;
    const SITE_LOCAL: u8 = 5;
    const GLOBAL: u8 = 14;
    match address {
        IpAddr::V4(four) => scope_of_ipv4(four, LINK_LOCAL, GLOBAL),
        IpAddr::V6(six) => match six.segments()[0] {
            first if first & 0xff00 == 0xff00 => (first & 0xf) as u8,
            first if first & 0xffc0 == 0xfe80 => LINK_LOCAL,
            first if first & 0xffc0 == 0xfec0 => SITE_LOCAL,
            _ if six.is_loopback() => LINK_LOCAL,
            _ => match six.to_ipv4_mapped() {
                Some(four) => scope_of_ipv4(four, LINK_LOCAL, GLOBAL),
                None => GLOBAL,
            },
        },
    }
}

fn scope_of_ipv4(address: Ipv4Addr, link_local: u8, global: u8) -> u8 {
    if address.is_loopback() || address.is_link_local() { link_local } else { global }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: destinations with their sources, in the expected order, of the examples of RFC
    /// 6724 §10.2 and others. Sorted from both directions, they have the same order unless they
    /// are equal.
    #[test]
    fn orders_destinations() {
        for row in [
            // Prefer matching scope.
            "2001:db8:1::1 2001:db8:1::2, 198.51.100.121 169.254.13.78",
            "198.51.100.121 198.51.100.117, 2001:db8:1::1 fe80::1",
            // Prefer higher precedence, and matching label.
            "2001:db8:1::1 2001:db8:1::2, 10.1.2.3 10.1.2.4",
            "fe80::1 fe80::2, 2001:db8:1::1 2001:db8:1::2",
            "2001:db8:1::1 2001:db8:1::2, 2002:c633:6401::1 2002:c633:6401::2",
            "2002:c633:6401::1 2002:c633:6401::2, 2001:db8:1::1 fe80::2",
            // A host with addresses of a private network and no others of IPv6.
            "198.51.100.1 10.0.0.1, 2001:db8:1::1 fd00::1",
            "198.51.100.1 10.0.0.1, 2001::1 2001:db8::1",
            "::1 ::1, 127.0.0.1 127.0.0.1",
            // Without a route.
            "198.51.100.1 10.0.0.1, 2001:db8:1::1 -",
            "2001:db8:1::1 2001:db8:1::2, 198.51.100.1 -",
        ] {
            let pairs: Vec<(IpAddr, Option<IpAddr>)> = row
                .split(", ")
                .map(|pair| pair.split_once(' ').unwrap())
                .map(|(to, from)| (to.parse().unwrap(), from.parse().ok()))
                .collect();
            let source = |of| pairs.iter().find(|(to, _)| *to == of).unwrap().1;
            let expected: Vec<IpAddr> = pairs.iter().map(|(to, _)| *to).collect();
            for mut addresses in [expected.clone(), expected.iter().rev().copied().collect()] {
                sort(&mut addresses, source);
                assert_eq!(addresses, expected, "{row}");
            }
        }
    }

    #[test]
    fn equal_destinations_keep_the_order_of_the_dns() {
        for row in ["192.0.2.9 192.0.2.1 192.0.2.5", "2001:db8::9 2001:db8::1", "fd00::2 fd00::1"] {
            let expected: Vec<IpAddr> = row.split(' ').map(|text| text.parse().unwrap()).collect();
            let mut addresses = expected.clone();
            sort(&mut addresses, Some);
            assert_eq!(addresses, expected);
        }
    }
}
