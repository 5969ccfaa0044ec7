//! Base64 (RFC 4648 §4) of the bodies of gRPC-Web.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::Frame;

use crate::error::{Error, Result};
use crate::message::body::Body;

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A request body decoded from base64. Padding may end each group, because clients encode messages
/// one by one.
pub(super) struct DecodedBody {
    body: Body,
    decoder: Decoder,
}

impl DecodedBody {
    pub(super) fn new(body: Body) -> DecodedBody {
        DecodedBody { body, decoder: Decoder::default() }
    }
}

impl http_body::Body for DecodedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        loop {
            let Some(piece) = ready!(self.body.poll_chunk(cx)?) else {
                return Poll::Ready(self.decoder.finish().err().map(Err));
            };
            let decoded = self.decoder.decode(&piece)?;
            if !decoded.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(decoded.into()))));
            }
        }
    }
}

/// Bytes of a group of four that is not complete.
#[derive(Default)]
struct Decoder(Vec<u8>);

impl Decoder {
    /// Decodes the groups that `piece` completes.
    fn decode(&mut self, piece: &[u8]) -> Result<Vec<u8>> {
        let mut decoded = Vec::with_capacity((self.0.len() + piece.len()) / 4 * 3);
        let missing = (4 - self.0.len()).min(piece.len());
        let (first, rest) = piece.split_at(missing);
        self.0.extend_from_slice(first);
        if self.0.len() < 4 {
            return Ok(decoded);
        }
        decode_groups(&self.0, &mut decoded)?;
        let (groups, rest) = rest.split_at(rest.len() / 4 * 4);
        decode_groups(groups, &mut decoded)?;
        self.0.clear();
        self.0.extend_from_slice(rest);
        Ok(decoded)
    }

    fn finish(&mut self) -> Result<()> {
        match std::mem::take(&mut self.0).is_empty() {
            true => Ok(()),
            false => Err(invalid()),
        }
    }
}

/// Decodes whole groups. The decoder of the library permits padding only at the end of its input.
fn decode_groups(mut groups: &[u8], decoded: &mut Vec<u8>) -> Result<()> {
    while !groups.is_empty() {
        let padding = groups.iter().position(|&b| b == b'=');
        let end = padding.map_or(groups.len(), |at| (at / 4 + 1) * 4);
        let (padded, rest) = groups.split_at(end);
        STANDARD.decode_vec(padded, decoded).map_err(|_| invalid())?;
        groups = rest;
    }
    Ok(())
}

fn invalid() -> Error {
    Error::malformed("the body is not valid base64")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case whole, and in pieces of any two lengths.
    #[test]
    fn decodes_pieces_with_padding_in_each() {
        for (input, expected) in [
            ("", Some("")),
            ("YWJj", Some("abc")),
            ("YQ==YmM=ZGVm", Some("abcdef")),
            ("YWJjZGVmZ2g=aQ==", Some("abcdefghi")),
            ("YWJ", None),
            ("YWJjZ", None),
            ("Y===", None),
            ("YQ=a", None),
            ("Y!Jj", None),
            ("YWJj\r\nYWJj", None),
        ] {
            for split in 0..=input.len() {
                let (first, second) = input.as_bytes().split_at(split);
                let mut decoder = Decoder::default();
                let decoded = decoder.decode(first).and_then(|mut decoded| {
                    decoded.extend(decoder.decode(second)?);
                    decoder.finish().map(|()| String::from_utf8(decoded).unwrap())
                });
                assert_eq!(decoded.ok().as_deref(), expected, "{input:?} {split}");
            }
        }
    }

    #[test]
    fn memory_of_the_decoder_is_bounded() {
        let mut decoder = Decoder::default();
        let piece = "YWJj".repeat(1 << 14) + "YWI";
        assert_eq!(decoder.decode(piece.as_bytes()).unwrap().len(), 3 << 14);
        assert!(decoder.0.capacity() <= 8, "{}", decoder.0.capacity());
    }
}
