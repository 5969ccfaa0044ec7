//! The workers of an address, which forward datagrams to each other.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use tokio::sync::mpsc;

use crate::net::quic::connection_id::{WorkerIds, destination, has_long_header};
use crate::net::quic::processes::Forwarded;

/// All workers of an address, as one of them sees them.
pub(super) struct AddressWorkers {
    pub(super) ids: WorkerIds,
    /// Set if the workers receive from the same sockets.
    pub(super) shared: Option<RandomState>,
    /// The endpoints of all workers, in their order.
    pub(super) senders: Vec<mpsc::Sender<Forwarded>>,
}

impl AddressWorkers {
    /// Returns the worker of a datagram, if it is another one.
    pub(super) fn other(
        &self,
        client: SocketAddr,
        datagram: &[u8],
    ) -> Option<&mpsc::Sender<Forwarded>> {
        let is_other = |worker: &usize| *worker != usize::from(self.ids.worker);
        let worker = self.worker_of(client, datagram).filter(is_other)?;
        self.senders.get(worker)
    }

    /// Returns the worker of a datagram, or `None` for the worker that has received it. The packets of
    /// a handshake may have an identifier that the client has chosen. If workers share a socket, the
    /// address of the client therefore decides for all of these packets.
    fn worker_of(&self, client: SocketAddr, datagram: &[u8]) -> Option<usize> {
        match &self.shared {
            _ if self.senders.len() == 1 => None,
            Some(hasher) if has_long_header(datagram) => {
                Some(hasher.hash_one(client) as usize % self.senders.len())
            }
            _ => destination(datagram).map(|id| usize::from(self.ids.worker_of(id))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use quinn_proto::ConnectionIdGenerator;

    use super::*;
    use crate::net::secure::{ID_RANDOM_BYTES, MaskConnectionId};

    struct NoMask;

    impl MaskConnectionId for NoMask {
        fn mask(&self, _: &[u8; ID_RANDOM_BYTES]) -> u8 {
            0
        }
    }

    #[test]
    fn workers_agree_on_the_worker_of_a_datagram() {
        for shared in [None, Some(RandomState::new())] {
            let senders: Vec<_> = (0..3).map(|_| mpsc::channel(1).0).collect();
            let mut workers = [0, 1, 2].map(|worker| AddressWorkers {
                ids: WorkerIds { generation: 1, worker, mask: Arc::new(NoMask) },
                shared: shared.clone(),
                senders: senders.clone(),
            });
            let mut found = BTreeSet::new();
            for port in 1..=100 {
                let client = ([127, 0, 0, 1], port).into();
                // The client has chosen the identifier of this packet, of eight bytes.
                let first = [&[0xc0, 0, 0, 0, 1, 8][..], &[7; 100]].concat();
                let of_first = workers.each_ref().map(|it| it.worker_of(client, &first));
                assert!(of_first.iter().all(|worker| *worker == of_first[0]), "{of_first:?}");
                found.insert(of_first[0]);
                let owner = usize::from(port) % 3;
                let id = workers[owner].ids.generate_cid();
                let short = [&[0x40][..], &id, &[7; 100]].concat();
                for (number, worker) in workers.iter().enumerate() {
                    let other = worker.other(client, &short);
                    assert_eq!(other.is_some(), number != owner);
                    assert!(other.is_none_or(|other| other.same_channel(&senders[owner])));
                }
            }
            let expected =
                if shared.is_some() { vec![Some(0), Some(1), Some(2)] } else { vec![None] };
            assert_eq!(Vec::from_iter(found), expected);
        }
    }
}
