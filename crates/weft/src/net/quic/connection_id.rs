//! Connection identifiers, which contain the process and the worker of their connection (RFC 9000
//! §5.1).
//!
//! The kernel distributes datagrams over the sockets of an address by the client's address. A client
//! whose address changes would reach another worker, which forwards its datagrams. During an upgrade
//! two processes share the sockets. All connections of a process have the same generation, which
//! therefore needs no mask: it links no connection to another address of its client.

use std::sync::Arc;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};

use crate::net::secure::{ID_RANDOM_BYTES, MaskConnectionId};
use crate::random::random_bytes;

/// Length of an identifier: the generation of the process, 8 random bytes, and the masked number of
/// the worker.
pub(super) const ID_BYTES: usize = GENERATION_BYTES + ID_RANDOM_BYTES + 1;

const GENERATION_BYTES: usize = 2;

/// Generator of the identifiers of one worker.
pub(super) struct WorkerIds {
    pub(super) generation: u16,
    pub(super) worker: u8,
    pub(super) mask: Arc<dyn MaskConnectionId>,
}

impl WorkerIds {
    /// Returns the number of the worker that has issued an identifier. An identifier that a client
    /// has chosen gives some number.
    pub(super) fn worker_of(&self, id: &[u8; ID_BYTES]) -> u8 {
        let [_, _, random @ .., worker] = id;
        worker ^ self.mask.mask(random)
    }
}

impl ConnectionIdGenerator for WorkerIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut random = [0; ID_RANDOM_BYTES];
        random.copy_from_slice(&random_bytes()[..ID_RANDOM_BYTES]);
        let mut id = [0; ID_BYTES];
        let (generation, rest) = id.split_at_mut(GENERATION_BYTES);
        generation.copy_from_slice(&self.generation.to_be_bytes());
        rest[..ID_RANDOM_BYTES].copy_from_slice(&random);
        rest[ID_RANDOM_BYTES] = self.worker ^ self.mask.mask(&random);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Returns the generation of the process that has issued an identifier.
pub(super) fn generation_of(id: &[u8; ID_BYTES]) -> u16 {
    u16::from_be_bytes([id[0], id[1]])
}

/// Returns the destination of a datagram, if its first packet has an identifier of this length
/// (RFC 8999 §5).
pub(super) fn destination(datagram: &[u8]) -> Option<&[u8; ID_BYTES]> {
    match datagram {
        [first, id @ ..] if first & 0x80 == 0 => id.first_chunk(),
        [_, _, _, _, _, length, id @ ..] if usize::from(*length) == ID_BYTES => id.first_chunk(),
        _ => None,
    }
}

/// Returns true if a datagram begins with a packet of a handshake (RFC 8999 §5.1).
pub(super) fn has_long_header(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0x80 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_name_their_worker() {
        struct Sum;
        impl MaskConnectionId for Sum {
            fn mask(&self, random: &[u8; ID_RANDOM_BYTES]) -> u8 {
                random.iter().fold(7, |sum, byte| byte.wrapping_add(sum))
            }
        }
        let mask: Arc<dyn MaskConnectionId> = Arc::new(Sum);
        for worker in [0, 1, 7, 255] {
            let mut ids = WorkerIds { generation: 0x102, worker, mask: mask.clone() };
            let id = ids.generate_cid();
            let other = WorkerIds { generation: 0, worker: 3, mask: mask.clone() };
            let id = id[..].try_into().unwrap();
            assert_eq!((generation_of(id), other.worker_of(id)), (0x102, worker));
        }
    }

    #[test]
    fn finds_the_destination_of_short_and_long_headers() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        let short = [&[0x40][..], &id, b"payload"].concat();
        let long = |length: u8| [&[0xc0, 0, 0, 0, 1, length][..], &id, b"payload"].concat();
        for (datagram, expected) in [
            (&short[..], Some(&id)),
            (&long(11), Some(&id)),
            (&long(10), None),
            (&short[..11], None),
            (&[], None),
        ] {
            assert_eq!(destination(datagram), expected, "{datagram:?}");
        }
    }
}
