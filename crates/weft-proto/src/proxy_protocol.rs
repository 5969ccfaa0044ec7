//! Parser and composer for the PROXY protocol, versions 1 and 2, by which a TCP proxy forwards the
//! address of its client. Pure.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>
//!
//! ```
//! let input = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET / HTTP/1.1\r\n";
//! let header = weft_proto::proxy_protocol::read(input)?.expect("the header is complete");
//! assert_eq!(header.source, Some("192.0.2.1:56324".parse().unwrap()));
//! assert!(input[header.length..].starts_with(b"GET /"));
//! # Ok::<(), weft_proto::Error>(())
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use crate::{Error, Result};

/// A parsed PROXY header.
#[derive(Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client's address. `None` for connections of the proxy itself (LOCAL) and unknown
    /// addresses.
    pub source: Option<SocketAddr>,
    /// Length of the header in bytes.
    pub length: usize,
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Longest header of version 1 in bytes, with its CRLF.
const MAX_V1_BYTES: usize = 107;

/// Largest accepted block of addresses and TLVs of version 2 in bytes.
const MAX_V2_BLOCK_BYTES: usize = 4_096;

/// Parses the header at the start of a connection. `None` means that more input is needed.
///
/// # Errors
/// [`Malformed`](crate::ErrorKind::Malformed) if the input does not start with a PROXY header, or
/// if the header is invalid or has more than 4 KiB of addresses and extensions.
pub fn read(input: &[u8]) -> Result<Option<ProxyHeader>> {
    let starts = |with: &[u8]| input.iter().zip(with).all(|(a, b)| a == b);
    if starts(SIGNATURE) {
        version_2(input)
    } else if starts(b"PROXY ") {
        version_1(input)
    } else {
        Err(malformed())
    }
}

fn malformed() -> Error {
    Error::malformed("expected a PROXY protocol header from this proxy")
}

/// Parses `PROXY TCP4 source destination port port CRLF`, or `PROXY UNKNOWN … CRLF`.
fn version_1(input: &[u8]) -> Result<Option<ProxyHeader>> {
    let window = &input[..input.len().min(MAX_V1_BYTES)];
    let Some(end) = window.windows(2).position(|two| two == b"\r\n") else {
        return if input.len() < MAX_V1_BYTES { Ok(None) } else { Err(malformed()) };
    };
    let line = std::str::from_utf8(&input[..end]).map_err(|_| malformed())?;
    let words: Vec<&str> = line.split(' ').collect();
    let source = match words[..] {
        ["PROXY", "TCP4", source, destination, port, other] => {
            let (source, _): (Ipv4Addr, Ipv4Addr) = (parse(source)?, parse(destination)?);
            Some(SocketAddr::new(source.into(), parse_ports(port, other)?))
        }
        ["PROXY", "TCP6", source, destination, port, other] => {
            let (source, _): (Ipv6Addr, Ipv6Addr) = (parse(source)?, parse(destination)?);
            Some(SocketAddr::new(source.into(), parse_ports(port, other)?))
        }
        ["PROXY", "UNKNOWN", ..] => None,
        _ => return Err(malformed()),
    };
    Ok(Some(ProxyHeader { source, length: end + 2 }))
}

fn parse<T: FromStr>(word: &str) -> Result<T> {
    word.parse().map_err(|_| malformed())
}

fn parse_ports(source: &str, destination: &str) -> Result<u16> {
    parse::<u16>(destination)?;
    parse(source)
}

/// Parses signature, version and command, family, length, addresses, TLVs.
fn version_2(input: &[u8]) -> Result<Option<ProxyHeader>> {
    let Some((head, block)) = input.split_first_chunk::<16>() else { return Ok(None) };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || length > MAX_V2_BLOCK_BYTES {
        return Err(malformed());
    }
    let Some(block) = block.get(..length) else { return Ok(None) };
    let source = match (command & 15, family) {
        // LOCAL: a health check of the proxy itself.
        (0, _) => None,
        (1, 0x11) => Some(address::<4>(block, 8)?),
        (1, 0x21) => Some(address::<16>(block, 32)?),
        // Families other than TCP over IP have no usable address.
        (1, _) => None,
        _ => return Err(malformed()),
    };
    Ok(Some(ProxyHeader { source, length: head.len() + length }))
}

/// Reads the source address at the start of a block. The ports follow both addresses.
fn address<const N: usize>(block: &[u8], ports: usize) -> Result<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let ip = block.first_chunk::<N>().ok_or_else(malformed)?;
    match block.get(ports..ports + 4) {
        Some(&[high, low, _, _]) => {
            Ok(SocketAddr::new(IpAddr::from(*ip), u16::from_be_bytes([high, low])))
        }
        _ => Err(malformed()),
    }
}

/// Source and destination in one family: IPv4 if both are, also as IPv4-mapped IPv6 addresses.
enum AddressPair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl AddressPair {
    fn new(source: IpAddr, destination: IpAddr) -> AddressPair {
        let v6 = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        match (source.to_canonical(), destination.to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => AddressPair::V4(source, destination),
            (source, destination) => AddressPair::V6(v6(source), v6(destination)),
        }
    }
}

/// Appends a header of version 1, at most 104 bytes.
///
/// ```
/// let (source, destination) = ("192.0.2.1:56324".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
/// let mut out = Vec::new();
/// weft_proto::proxy_protocol::write_v1(source, destination, &mut out);
/// assert_eq!(out, b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n");
/// ```
pub fn write_v1(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    let addresses = match AddressPair::new(source.ip(), destination.ip()) {
        AddressPair::V4(source, destination) => format!("TCP4 {source} {destination}"),
        AddressPair::V6(source, destination) => format!("TCP6 {source} {destination}"),
    };
    let header = format!("PROXY {addresses} {} {}\r\n", source.port(), destination.port());
    out.extend_from_slice(header.as_bytes());
}

/// Appends a header of version 2, without TLVs: 28 bytes for IPv4, 52 for IPv6.
pub fn write_v2(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    // Version 2, command PROXY.
    out.push(0x21);
    match AddressPair::new(source.ip(), destination.ip()) {
        AddressPair::V4(source, destination) => {
            out.extend_from_slice(&[0x11, 0, 12]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        AddressPair::V6(source, destination) => {
            out.extend_from_slice(&[0x21, 0, 36]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// A range of IP addresses, written `10.0.0.0/8`, `2001:db8::/32`, or as one address.
///
/// ```
/// use weft_proto::proxy_protocol::IpNetwork;
///
/// let network: IpNetwork = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse().unwrap()));
/// assert!(!network.contains("11.1.2.3".parse().unwrap()));
/// # Ok::<(), weft_proto::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    address: IpAddr,
    bits: u8,
}

impl IpNetwork {
    /// Returns the first and the last address.
    pub fn range(&self) -> (IpAddr, IpAddr) {
        match self.address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                let address = address.to_bits();
                (
                    Ipv4Addr::from_bits(address & !host).into(),
                    Ipv4Addr::from_bits(address | host).into(),
                )
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(self.bits.into()).unwrap_or(0);
                let address = address.to_bits();
                (
                    Ipv6Addr::from_bits(address & !host).into(),
                    Ipv6Addr::from_bits(address | host).into(),
                )
            }
        }
    }

    /// Returns true if the address is in the range. IPv4-mapped IPv6 addresses count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shares = |differing: u32, width: u8| differing >= u32::from(self.bits.min(width));
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                shares((a.to_bits() ^ b.to_bits()).leading_zeros(), 32)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                shares((a.to_bits() ^ b.to_bits()).leading_zeros(), 128)
            }
            _ => false,
        }
    }
}

/// Formats the range so that it can be parsed again: `10.0.0.0/8`, or one address.
impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        match self.bits {
            bits if bits == width => self.address.fmt(f),
            bits => write!(f, "{}/{bits}", self.address),
        }
    }
}

impl FromStr for IpNetwork {
    type Err = Error;

    fn from_str(text: &str) -> Result<IpNetwork> {
        let invalid = || Error::malformed("expected an address, or one with /bits");
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| invalid())?;
        if bits <= width { Ok(IpNetwork { address, bits }) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version_2_of(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let length = (block.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, block].concat()
    }

    #[test]
    fn parses_headers_truncated_at_every_byte_and_with_a_tail() {
        let four = [192, 0, 2, 1, 198, 51, 100, 1, 0xde, 0xad, 0, 80];
        let mut six = [0; 36];
        six[..2].copy_from_slice(&[0x20, 0x01]);
        six[15] = 7;
        six[32..34].copy_from_slice(&1234u16.to_be_bytes());
        let cases: Vec<(Vec<u8>, Option<Option<&str>>)> = vec![
            (
                b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".into(),
                Some(Some("192.0.2.1:56324")),
            ),
            (b"PROXY TCP6 2001::7 2001::8 1234 443\r\n".into(), Some(Some("[2001::7]:1234"))),
            (b"PROXY UNKNOWN\r\n".into(), Some(None)),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".into(), Some(None)),
            (version_2_of(0x21, 0x11, &four), Some(Some("192.0.2.1:57005"))),
            (
                version_2_of(0x21, 0x11, &[&four[..], b"\x04\0\x01x"].concat()),
                Some(Some("192.0.2.1:57005")),
            ),
            (version_2_of(0x21, 0x21, &six), Some(Some("[2001::7]:1234"))),
            (version_2_of(0x20, 0, b""), Some(None)),
            (version_2_of(0x21, 0x31, &[0; 216]), Some(None)),
            (version_2_of(0x21, 0x11, &four[..11]), None),
            (version_2_of(0x11, 0x11, &four), None),
            (version_2_of(0x22, 0x11, &four), None),
            (version_2_of(0x20, 0, &[0; MAX_V2_BLOCK_BYTES + 1]), None),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n".into(), None),
            (b"PROXY TCP4 2001::7 2001::8 1 2\r\n".into(), None),
            (b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n".into(), None),
            (b"PROXY TCP4  192.0.2.1 198.51.100.1 1 2\r\n".into(), None),
            (b"GET / HTTP/1.1\r\n".into(), None),
            ([&b"PROXY UNKNOWN "[..], &[b'x'; 200]].concat(), None),
        ];
        for (input, expected) in cases {
            let tail = [&input[..], b"GET /"].concat();
            for text in [&input, &tail] {
                let got = read(text).ok().map(|preface| preface.expect("the header is complete"));
                let expected = expected.map(|source| ProxyHeader {
                    source: source.map(|source| source.parse().unwrap()),
                    length: input.len(),
                });
                assert_eq!(got, expected, "{}", input.escape_ascii());
            }
            for cut in 0..input.len() {
                let so_far = read(&input[..cut]);
                assert!(!matches!(so_far, Ok(Some(_))), "{} at {cut}", input.escape_ascii());
                assert!(expected.is_none() || so_far.is_ok(), "{} at {cut}", input.escape_ascii());
            }
        }
    }

    #[test]
    fn matches_and_formats_networks() {
        for (network, address, contains) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("0.0.0.0/0", "255.0.0.1", true),
            ("0.0.0.0/0", "::1", false),
            ("10.128.0.0/9", "10.127.255.255", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
        ] {
            let network: IpNetwork = network.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                contains,
                "{network:?} {address}"
            );
        }
        for text in ["127.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "::1", "2001:db8::/33"] {
            assert_eq!(text.parse::<IpNetwork>().unwrap().to_string(), text);
        }
        for invalid in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "a/8", "10.0.0.0/-1"]
        {
            assert!(invalid.parse::<IpNetwork>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn written_headers_are_read() {
        for (source, destination, v1) in [
            ("192.0.2.1:1", "198.51.100.1:443", "PROXY TCP4 192.0.2.1 198.51.100.1 1 443\r\n"),
            ("[::ffff:192.0.2.1]:65535", "10.0.0.1:1", "PROXY TCP4 192.0.2.1 10.0.0.1 65535 1\r\n"),
            ("[2001:db8::1]:2", "[2001:db8::2]:80", "PROXY TCP6 2001:db8::1 2001:db8::2 2 80\r\n"),
            ("192.0.2.1:3", "[2001:db8::2]:80", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 3 80\r\n"),
        ] {
            let (source, destination): (SocketAddr, SocketAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            let [mut first, mut second] = [(); 2].map(|()| Vec::new());
            write_v1(source, destination, &mut first);
            assert_eq!(String::from_utf8_lossy(&first), v1);
            write_v2(source, destination, &mut second);
            for written in [first, second] {
                let header = read(&written).unwrap().unwrap();
                let from = header.source.unwrap();
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                assert_eq!(from, SocketAddr::new(source.ip().to_canonical(), source.port()));
                assert_eq!(header.length, written.len());
            }
        }
    }
}
