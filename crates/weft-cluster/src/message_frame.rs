//! The form of messages in the store: a code, the process that has sent it, and the content.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};

/// Makes and reads messages. Without the key nobody can make one, also not the store.
pub(crate) struct MessageFrame {
    key: Key,
    process: u64,
}

/// A message that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// Of another process, with its content.
    Other(&'a [u8]),
    /// Of this process.
    Own,
    Forged,
}

const CODE_BYTES: usize = 32;
const PROCESS_BYTES: usize = 8;

/// Bytes of a message besides its content.
pub(crate) const FRAME_BYTES: usize = CODE_BYTES + PROCESS_BYTES;

impl MessageFrame {
    pub(crate) fn new(key: &[u8; 32], process: u64) -> MessageFrame {
        MessageFrame { key: Key::new(HMAC_SHA256, key), process }
    }

    pub(crate) fn make(&self, content: &[u8]) -> Vec<u8> {
        let signed = [&self.process.to_be_bytes()[..], content].concat();
        [sign(&self.key, &signed).as_ref(), &signed].concat()
    }

    pub(crate) fn read<'a>(&self, message: &'a [u8]) -> Frame<'a> {
        let Some((code, signed)) = message.split_first_chunk::<CODE_BYTES>() else {
            return Frame::Forged;
        };
        match (verify(&self.key, signed, code), signed.split_first_chunk::<PROCESS_BYTES>()) {
            (Ok(()), Some((process, _))) if *process == self.process.to_be_bytes() => Frame::Own,
            (Ok(()), Some((_, content))) => Frame::Other(content),
            _ => Frame::Forged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_messages_of_the_cluster_are_read() {
        let frame = |key, process| MessageFrame::new(&[key; 32], process);
        let message = frame(1, 7).make(b"content");
        assert_eq!(message.len(), FRAME_BYTES + 7);
        assert_eq!(frame(1, 8).read(&message), Frame::Other(b"content"));
        assert_eq!(frame(1, 7).read(&message), Frame::Own);
        assert_eq!(frame(2, 8).read(&message), Frame::Forged);
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(frame(1, 8).read(&changed), Frame::Forged, "byte {at} was changed");
            assert_eq!(frame(1, 8).read(&message[..at]), Frame::Forged, "cut at {at}");
        }
    }
}
