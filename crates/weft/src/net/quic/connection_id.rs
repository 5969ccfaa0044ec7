//! Connection identifiers, which contain the worker of their connection (RFC 9000 §5.1).
//!
//! The kernel distributes datagrams over the sockets of an address by the client's address. A client
//! whose address changes would reach another worker, which forwards its datagrams.

use std::sync::Arc;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};

use crate::net::secure::{ID_RANDOM_BYTES, MaskConnectionId};
use crate::random::random_bytes;

/// Length of an identifier: 8 random bytes and the masked number of the worker.
pub(super) const ID_BYTES: usize = ID_RANDOM_BYTES + 1;

/// Generator of the identifiers of one worker.
pub(super) struct WorkerIds {
    pub(super) worker: u8,
    pub(super) mask: Arc<dyn MaskConnectionId>,
}

impl WorkerIds {
    /// Returns the number of the worker that has issued an identifier. An identifier that a client
    /// has chosen gives some number.
    pub(super) fn worker_of(&self, id: &[u8; ID_BYTES]) -> u8 {
        let [random @ .., worker] = id;
        worker ^ self.mask.mask(random)
    }
}

impl ConnectionIdGenerator for WorkerIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut random = [0; ID_RANDOM_BYTES];
        random.copy_from_slice(&random_bytes()[..ID_RANDOM_BYTES]);
        let mut id = [0; ID_BYTES];
        id[..ID_RANDOM_BYTES].copy_from_slice(&random);
        id[ID_RANDOM_BYTES] = self.worker ^ self.mask.mask(&random);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
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
            let mut ids = WorkerIds { worker, mask: mask.clone() };
            let id = ids.generate_cid();
            let other = WorkerIds { worker: 3, mask: mask.clone() };
            assert_eq!(other.worker_of(id[..].try_into().unwrap()), worker);
        }
    }

    #[test]
    fn finds_the_destination_of_short_and_long_headers() {
        let id = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let short = [&[0x40][..], &id, b"payload"].concat();
        let long = |length: u8| [&[0xc0, 0, 0, 0, 1, length][..], &id, b"payload"].concat();
        for (datagram, expected) in [
            (&short[..], Some(&id)),
            (&long(9), Some(&id)),
            (&long(8), None),
            (&short[..9], None),
            (&[], None),
        ] {
            assert_eq!(destination(datagram), expected, "{datagram:?}");
        }
    }
}
