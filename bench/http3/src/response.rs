//! Verification of a response: status, length and all bytes of its content.

use bytes::{Buf, Bytes};
use weft_proto::http3::frame::{FrameHead, kind};
use weft_proto::http3::qpack::Decoder;

/// The content that all responses must have.
pub struct Expected {
    content: Bytes,
    /// The last field section that was accepted: most responses have the same.
    section: Vec<u8>,
    decoder: Decoder,
}

/// The part of a response that was received.
#[derive(Default)]
pub struct Response {
    /// The head of a frame or a field section that is not complete.
    incomplete: Vec<u8>,
    frame: Option<FrameHead>,
    has_head: bool,
    received: usize,
}

pub type Result<T> = std::result::Result<T, String>;

impl Expected {
    pub fn new(content: Vec<u8>) -> Expected {
        Expected { content: content.into(), section: Vec::new(), decoder: Decoder::default() }
    }

    /// Checks the status and the length in a field section.
    fn check_section(&mut self, section: &[u8]) -> Result<()> {
        if section == self.section {
            return Ok(());
        }
        let (mut status, mut length) = (Vec::new(), None);
        // The table has no capacity: no section waits, for whichever stream.
        let decoded = self.decoder.decode(0, section, |field| {
            match field.name {
                b":status" => status = field.value.to_vec(),
                b"content-length" => length = Some(field.value.to_vec()),
                _ => {}
            }
            true
        });
        decoded.map_err(|error| format!("an invalid field section: {error:?}"))?;
        if status != b"200" {
            return Err(format!("status {}", String::from_utf8_lossy(&status)));
        }
        if length.is_some_and(|length| length != self.content.len().to_string().as_bytes()) {
            return Err("a content-length other than the length of the content".to_owned());
        }
        self.section = section.to_vec();
        Ok(())
    }
}

impl Response {
    /// Processes received bytes of the stream.
    pub fn receive(&mut self, mut bytes: Bytes, expected: &mut Expected) -> Result<()> {
        while !bytes.is_empty() {
            let Some(frame) = self.frame else {
                self.read_frame_head(&mut bytes);
                continue;
            };
            let size = (frame.length as usize).min(bytes.len());
            let part = bytes.split_to(size);
            match frame.kind {
                kind::DATA if !self.has_head => return Err("content before the head".to_owned()),
                kind::DATA => {
                    let rest = expected.content.get(self.received..).unwrap_or_default();
                    if !rest.starts_with(&part) {
                        return Err(format!("wrong content behind byte {}", self.received));
                    }
                    self.received += size;
                }
                kind::HEADERS if self.has_head => {}
                kind::HEADERS if size as u64 == frame.length && self.incomplete.is_empty() => {
                    expected.check_section(&part)?;
                    self.has_head = true;
                }
                kind::HEADERS => {
                    self.incomplete.extend_from_slice(&part);
                    if size as u64 == frame.length {
                        expected.check_section(&std::mem::take(&mut self.incomplete))?;
                        self.has_head = true;
                    }
                }
                // Unknown frames are ignored (RFC 9114 §9).
                _ => {}
            }
            let length = frame.length - size as u64;
            self.frame = (length > 0).then_some(FrameHead { length, ..frame });
        }
        Ok(())
    }

    fn read_frame_head(&mut self, bytes: &mut Bytes) {
        let head = match self.incomplete.is_empty() {
            true => FrameHead::read(bytes).inspect(|(_, length)| bytes.advance(*length)),
            false => None,
        };
        let head = head.or_else(|| {
            while !bytes.is_empty() {
                self.incomplete.push(bytes.get_u8());
                if let Some(head) = FrameHead::read(&self.incomplete) {
                    return Some(head);
                }
            }
            None
        });
        if let Some((head, _)) = head {
            self.incomplete.clear();
            self.frame = (head.length > 0).then_some(head);
        }
    }

    /// Checks that a response is complete at the end of its stream.
    pub fn end(&self, expected: &Expected) -> Result<()> {
        match self.has_head && self.frame.is_none() && self.received == expected.content.len() {
            true => Ok(()),
            false => Err(format!("{} bytes of {}", self.received, expected.content.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &[u8], size: usize) -> Result<()> {
        let mut expected = Expected::new(b"content".to_vec());
        let mut response = Response::default();
        for part in input.chunks(size) {
            response.receive(Bytes::copy_from_slice(part), &mut expected)?;
        }
        response.end(&expected)
    }

    #[test]
    fn accepts_the_expected_response_only() {
        // `:status: 200` and `content-length: 7`.
        let head = b"\x01\x06\0\0\xd9\x54\x017";
        let response = |head: &[u8], data: &[u8]| [head, b"\x21\x02xx", data].concat();
        let long_head = [&b"\x01\x40\x08\0\0\xd9\x54\x017"[..], b"\x54\x00"].concat();
        for (input, is_accepted) in [
            (response(head, b"\x00\x07content"), true),
            (response(head, b"\x00\x03con\x00\x00\x00\x04tent"), true),
            (response(head, b"\x00\x07conteNt"), false),
            (response(head, b"\x00\x06conten"), false),
            (response(head, b"\x00\x08contentt"), false),
            (response(head, b"\x00\x07conten"), false),
            (response(b"\x01\x03\0\0\xdb", b"\x00\x07content"), false),
            (response(b"\x01\x06\0\0\xd9\x54\x018", b"\x00\x07content"), false),
            (response(&long_head, b"\x00\x07content"), false),
            (response(b"", b"\x00\x07content"), false),
        ] {
            for size in 1..=input.len() {
                assert_eq!(check(&input, size).is_ok(), is_accepted, "{input:?} by {size}");
            }
        }
    }
}
