//! Numbers and addresses as text, by hand: `Display` takes ten times as many instructions. Pure.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

/// Appends a number.
pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    const MAX_DIGITS: usize = 20;
    let (mut digits, mut start) = ([0; MAX_DIGITS], MAX_DIGITS);
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&digits[start..]);
        }
    }
}

/// Appends an IP address.
pub(crate) fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(out, address),
        // Writing to a vector cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Appends an address of IPv4, the common case.
pub(crate) fn push_ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let (mut text, mut length) = ([0; "255.255.255.255".len()], 0);
    let mut push = |b: u8| {
        text[length] = b;
        length += 1;
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            push(b'.');
        }
        if octet >= 100 {
            push(b'0' + octet / 100);
        }
        if octet >= 10 {
            push(b'0' + octet / 10 % 10);
        }
        push(b'0' + octet % 10);
    }
    out.extend_from_slice(&text[..length]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_addresses_are_as_with_display() {
        for number in [0, 1, 9, 10, 99, 100, 65_535, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
        for address in ["0.0.0.0", "1.20.99.100", "101.199.250.255", "::", "2001:db8::1:0:0:1"] {
            let mut out = Vec::new();
            push_address(&mut out, address.parse().unwrap());
            assert_eq!(out, address.as_bytes());
        }
    }
}
