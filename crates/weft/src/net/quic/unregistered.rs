//! The endpoints of all workers for one address, before they are given to the workers.

use std::hash::RandomState;
use std::io;

use tokio::sync::mpsc;

use crate::error::Result;
use crate::net::quic::processes::{Forwarded, MAX_PREDECESSORS, next_generation};
use crate::net::quic::socket::QuicSocket;
use crate::net::secure::QuicKeys;
use crate::random::random_bytes;
use crate::sys::{OwnedFd, ProcessChannel};

/// Maximum number of datagrams that wait for their worker after another one has received them.
const MAX_FORWARDED: usize = 1 << 10;

/// Maximum number of channels to successors that wait for an endpoint. Only the last one is used.
const MAX_WAITING_SUCCESSORS: usize = 4;

/// Channels to processes, each with the generation of its process.
pub(crate) type ProcessEnds = Vec<(u16, OwnedFd)>;

/// An endpoint that is not registered with an event loop.
pub(crate) struct Unregistered {
    pub(super) sockets: Vec<QuicSocket>,
    pub(super) shared: Option<RandomState>,
    pub(super) keys: QuicKeys,
    pub(super) generation: u16,
    pub(super) worker: u8,
    pub(super) workers: Vec<mpsc::Sender<Forwarded>>,
    pub(super) forwarded: mpsc::Receiver<Forwarded>,
    pub(super) predecessors: ProcessEnds,
    pub(super) successors: mpsc::Receiver<OwnedFd>,
}

impl Unregistered {
    pub(crate) fn keys(&self) -> &QuicKeys {
        &self.keys
    }
}

/// Duplicates of the descriptors of all endpoints of an address, for another process.
pub(crate) struct EndpointGroup {
    generation: u16,
    sockets: Vec<OwnedFd>,
    /// Channels to the processes before this one, by generation.
    predecessors: ProcessEnds,
    successors: Vec<mpsc::Sender<OwnedFd>>,
}

impl EndpointGroup {
    /// Connects the sockets of an address with the workers. Each worker has at least one socket.
    /// Several workers share sockets if there are fewer.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the process has no file descriptors left.
    pub(crate) fn connect(
        sockets: Vec<QuicSocket>,
        mut predecessors: ProcessEnds,
        workers: usize,
        keys: &QuicKeys,
    ) -> Result<(EndpointGroup, Vec<Unregistered>)> {
        keep_newest(&mut predecessors);
        let generation = predecessors.last().map(|(newest, _)| next_generation(*newest));
        let generation = generation.unwrap_or_else(random_generation);
        let shared = (sockets.len() < workers).then(RandomState::new);
        let duplicates: io::Result<_> = sockets.iter().map(QuicSocket::duplicate).collect();
        let mut group = EndpointGroup {
            generation,
            sockets: duplicates?,
            predecessors,
            successors: Vec::new(),
        };
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| mpsc::channel(MAX_FORWARDED)).unzip();
        let of_workers = distribute(sockets, workers)?.into_iter().zip(receivers).zip(0..);
        let mut endpoints = Vec::new();
        for ((sockets, forwarded), worker) in of_workers {
            let (successor, successors) = mpsc::channel(MAX_WAITING_SUCCESSORS);
            group.successors.push(successor);
            endpoints.push(Unregistered {
                sockets,
                shared: shared.clone(),
                keys: keys.clone(),
                generation,
                worker,
                workers: senders.clone(),
                forwarded,
                predecessors: group.duplicate_predecessors()?,
                successors,
            });
        }
        Ok((group, endpoints))
    }

    /// Returns duplicates of the sockets, and channels to the former processes and to this one, the
    /// newest last. The endpoints receive from the channel of this process from now on.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if the process has no file descriptors left, or if the system
    /// has no such channels.
    pub(crate) fn pass(&self) -> Result<(Vec<OwnedFd>, ProcessEnds)> {
        let sockets: io::Result<_> = self.sockets.iter().map(OwnedFd::try_clone).collect();
        let mut processes = self.duplicate_predecessors()?;
        let (ours, theirs) = ProcessChannel::pair()?;
        for successor in &self.successors {
            // Sending fails only if the endpoint has ended.
            let _ = successor.try_send(ours.try_clone()?);
        }
        processes.push((self.generation, theirs));
        Ok((sockets?, processes))
    }

    fn duplicate_predecessors(&self) -> io::Result<ProcessEnds> {
        let duplicate = |(generation, end): &(u16, OwnedFd)| Ok((*generation, end.try_clone()?));
        self.predecessors.iter().map(duplicate).collect()
    }
}

/// Drops the oldest processes, whose clients then connect anew after a time-out.
fn keep_newest<T>(predecessors: &mut Vec<T>) {
    predecessors.drain(..predecessors.len().saturating_sub(MAX_PREDECESSORS));
}

/// Distributes the sockets over the workers.
fn distribute(sockets: Vec<QuicSocket>, workers: usize) -> io::Result<Vec<Vec<QuicSocket>>> {
    let mut of_workers: Vec<Vec<QuicSocket>> = (0..workers).map(|_| Vec::new()).collect();
    let count = sockets.len();
    for (number, socket) in sockets.into_iter().enumerate() {
        for worker in (number + count..workers).step_by(count) {
            of_workers[worker].push(socket.try_clone()?);
        }
        of_workers[number % workers].push(socket);
    }
    Ok(of_workers)
}

/// Returns the generation of a process without a predecessor, which probably differs from the
/// generation of a process that has crashed.
fn random_generation() -> u16 {
    let [a, b, ..] = random_bytes();
    u16::from_be_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_processes_are_bounded() {
        for (count, expected) in [(0, 0..0), (1, 0..1), (8, 0..8), (9, 1..9), (20, 12..20)] {
            let mut predecessors: Vec<usize> = (0..count).collect();
            keep_newest(&mut predecessors);
            assert_eq!(predecessors, expected.collect::<Vec<_>>());
        }
    }
}
