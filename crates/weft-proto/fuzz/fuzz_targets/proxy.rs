//! PROXY protocol headers: the result does not depend on the bytes after the header, a header is
//! complete only when all of it has arrived, and version 1 agrees with a second parser.
#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use weft_proto::proxy_protocol::read;

fuzz_target!(|input: &[u8]| {
    let result = read(input);
    let Ok(Some(header)) = result else {
        // A prefix of an incomplete header is incomplete, too; of an invalid one it is either.
        let is_incomplete = result.is_ok();
        for end in (0..input.len()).rev().take(64) {
            let prefix = read(&input[..end]);
            assert!(!matches!(prefix, Ok(Some(_))), "a prefix of {end} bytes is complete");
            assert!(!is_incomplete || prefix.is_ok(), "a prefix of {end} bytes is invalid");
        }
        return;
    };
    assert!(header.length <= input.len());
    let alone = read(&input[..header.length]);
    assert_eq!(alone.expect("valid").expect("complete"), header);
    let truncated = read(&input[..header.length - 1]);
    assert!(matches!(truncated, Ok(None)), "complete without its last byte");
    if let Some(line) = input[..header.length].strip_prefix(b"PROXY ") {
        assert_eq!(header.source, version_1(line));
    }
});

/// Parses a valid line of version 1 after its first word.
fn version_1(line: &[u8]) -> Option<SocketAddr> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix("\r\n")?;
    let fields: Vec<&str> = line.split(' ').collect();
    let ["TCP4" | "TCP6", source, _, port, _] = fields[..] else { return None };
    let address: IpAddr = source.parse().expect("an address");
    Some(SocketAddr::new(address, port.parse().expect("a port")))
}
