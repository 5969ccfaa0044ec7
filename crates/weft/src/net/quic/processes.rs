//! Processes that share the sockets of an address during an upgrade.
//!
//! The new process has duplicates of the sockets and receives from them. The first bytes of a
//! connection identifier are the generation of its process. Datagrams of a former generation are
//! forwarded to its process, over a channel for each address. The former process sends on its own
//! duplicates of the sockets, so that nothing is forwarded in the other direction, except for
//! datagrams that it has received before its end was requested.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::task::{Context, Poll};

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;

use crate::net::quic::connection_id::{destination, generation_of};
use crate::sys::{OwnedFd, ProcessChannel};

/// Maximum number of former processes whose connections have not ended.
pub(super) const MAX_PREDECESSORS: usize = 8;

/// Maximum number of datagrams that are received from a channel at once.
const MAX_RECEIVED: usize = 64;

/// Maximum size of a datagram that is forwarded. Clients send at most 1,472 bytes, the limit of the
/// transport.
const MAX_DATAGRAM_BYTES: usize = 2_048;

/// Origin of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) client: SocketAddr,
    pub(super) local_ip: Option<IpAddr>,
    pub(super) ecn: Option<EcnCodepoint>,
}

/// A datagram that has reached another worker than its own.
pub(super) struct Forwarded {
    pub(super) origin: Origin,
    pub(super) bytes: BytesMut,
}

/// Channels to the other processes of an address.
pub(super) struct Processes {
    generation: u16,
    predecessors: RefCell<Vec<(u16, ProcessChannel)>>,
    successor: RefCell<Option<ProcessChannel>>,
    has_successor: Cell<bool>,
    buffer: RefCell<Vec<u8>>,
}

impl Processes {
    /// Registers the channels of former processes with the event loop of the current thread.
    pub(super) fn register(
        generation: u16,
        predecessors: Vec<(u16, OwnedFd)>,
    ) -> io::Result<Processes> {
        let register = |(generation, end)| Ok((generation, ProcessChannel::register(end)?));
        let predecessors: io::Result<Vec<_>> = predecessors.into_iter().map(register).collect();
        Ok(Processes {
            generation,
            predecessors: RefCell::new(predecessors?),
            successor: RefCell::default(),
            has_successor: Cell::new(false),
            buffer: RefCell::new(Vec::new()),
        })
    }

    /// Registers the channel to the process that takes over the sockets.
    pub(super) fn set_successor(&self, end: OwnedFd) {
        // Without it, clients of the successor are reset while both processes receive.
        let channel = ProcessChannel::register(end).ok();
        self.has_successor.set(channel.is_some());
        self.successor.replace(channel);
    }

    /// Returns true if another process receives from the sockets.
    pub(super) fn has_successor(&self) -> bool {
        self.has_successor.get()
    }

    /// Forwards a datagram of another process. Returns false if it belongs to this process, or to no
    /// other. A full queue loses it, as the network may.
    pub(super) fn forward(&self, generation: u16, origin: Origin, datagram: &[u8]) -> bool {
        if generation == self.generation {
            return false;
        }
        let predecessors = self.predecessors.borrow();
        let successor = self.successor.borrow();
        let successor = successor.iter().filter(|_| generation == next_generation(self.generation));
        let mut former = predecessors.iter().filter(|(other, _)| *other == generation);
        let Some(channel) = former.next().map(|(_, channel)| channel).or(successor.last()) else {
            return false;
        };
        if datagram.len() <= MAX_DATAGRAM_BYTES {
            let message = &mut *self.buffer.borrow_mut();
            message.clear();
            message.extend_from_slice(&encode(origin));
            message.extend_from_slice(datagram);
            channel.send_or_discard(message);
        }
        true
    }

    /// Receives datagrams that other processes have forwarded. Ready if there may be more.
    ///
    /// Other processes may share the end of a channel during two upgrades. A datagram for one of them
    /// is dropped, because this process would reset its connection.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        mut receive: impl FnMut(Origin, &[u8]),
    ) -> Poll<()> {
        let mut is_pending = true;
        let mut open = |channel: &ProcessChannel| {
            let mut buffer = [0; MAX_DATAGRAM_BYTES + HEADER_BYTES];
            for _ in 0..MAX_RECEIVED {
                match channel.poll_receive(cx, &mut buffer) {
                    Poll::Pending => return true,
                    Poll::Ready(None) => return false,
                    Poll::Ready(Some(message)) => {
                        if let Some((origin, datagram)) = decode(message)
                            && self.is_own(datagram)
                        {
                            receive(origin, datagram);
                        }
                    }
                }
            }
            is_pending = false;
            true
        };
        self.predecessors.borrow_mut().retain(|(_, channel)| open(channel));
        let is_open = self.successor.borrow().as_ref().is_some_and(&mut open);
        if !is_open {
            // The successor has failed, and this process receives again.
            self.successor.take();
            self.has_successor.set(false);
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    }

    fn is_own(&self, datagram: &[u8]) -> bool {
        destination(datagram).is_some_and(|id| generation_of(id) == self.generation)
    }
}

/// Returns the generation of the process that takes over from a process of this generation.
pub(super) fn next_generation(generation: u16) -> u16 {
    generation.wrapping_add(1)
}

/// Length of an encoded origin: address, port and scope of the client, local address, ECN.
const HEADER_BYTES: usize = 41;

/// Family of an address that is absent.
const NO_ADDRESS: u8 = 0;

fn encode(origin: Origin) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let scope = match origin.client {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    };
    encode_address(Some(origin.client.ip()), &mut header[..17]);
    header[17..19].copy_from_slice(&origin.client.port().to_be_bytes());
    header[19..23].copy_from_slice(&scope.to_be_bytes());
    encode_address(origin.local_ip, &mut header[23..40]);
    header[40] = origin.ecn.map_or(0, |ecn| ecn as u8);
    header
}

fn encode_address(address: Option<IpAddr>, out: &mut [u8]) {
    match address {
        None => out[0] = NO_ADDRESS,
        Some(IpAddr::V4(address)) => {
            out[0] = 4;
            out[1..5].copy_from_slice(&address.octets());
        }
        Some(IpAddr::V6(address)) => {
            out[0] = 6;
            out[1..17].copy_from_slice(&address.octets());
        }
    }
}

fn decode(message: &[u8]) -> Option<(Origin, &[u8])> {
    let (header, datagram) = message.split_first_chunk::<HEADER_BYTES>()?;
    let port = u16::from_be_bytes(header[17..19].try_into().ok()?);
    let scope = u32::from_be_bytes(header[19..23].try_into().ok()?);
    let client = match decode_address(&header[..17])? {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
        ip => SocketAddr::new(ip, port),
    };
    let local_ip = decode_address(&header[23..40]);
    let origin = Origin { client, local_ip, ecn: EcnCodepoint::from_bits(header[40]) };
    Some((origin, datagram))
}

fn decode_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes[0] {
        4 => Some(IpAddr::from(*bytes[1..].first_chunk::<4>()?)),
        6 => Some(Ipv6Addr::from(*bytes[1..].first_chunk::<16>()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn forwarded_datagrams_keep_their_origin() {
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 65_535, 0, 7);
        for (client, local_ip, ecn) in [
            ("192.0.2.1:443".parse().unwrap(), None, None),
            (v6.into(), Some("::1".parse().unwrap()), Some(EcnCodepoint::Ce)),
            ("[::ffff:192.0.2.1]:1".parse().unwrap(), Some([127, 0, 0, 1].into()), None),
        ] {
            let origin = Origin { client, local_ip, ecn };
            let message = [&encode(origin)[..], b"datagram"].concat();
            assert_eq!(decode(&message), Some((origin, &b"datagram"[..])));
            assert_eq!(decode(&message[..HEADER_BYTES - 1]), None);
        }
    }

    const ORIGIN: Origin = Origin {
        client: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1),
        local_ip: None,
        ecn: None,
    };

    /// Returns a datagram with an identifier of this generation.
    fn datagram(generation: u16, length: usize) -> Vec<u8> {
        let mut datagram = vec![0; length];
        datagram[0] = 0x40;
        datagram[1..3].copy_from_slice(&generation.to_be_bytes());
        datagram
    }

    /// Returns the processes of the generations 7 and 8; `None` on systems without upgrades.
    fn handover() -> Option<(Processes, Processes)> {
        let (ours, theirs) = ProcessChannel::pair().ok()?;
        let former = Processes::register(7, Vec::new()).unwrap();
        former.set_successor(ours);
        let current = Processes::register(next_generation(7), vec![(7, theirs)]).unwrap();
        Some((former, current))
    }

    /// Returns the lengths of all datagrams that a process receives until `is_last` is true.
    async fn receive_until(process: &Processes, is_last: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        let mut lengths = Vec::new();
        let received = poll_fn(|cx| {
            while process.poll_receive(cx, |_, datagram| lengths.push(datagram.len())).is_ready() {}
            if is_last(&lengths) { Poll::Ready(()) } else { Poll::Pending }
        });
        let received = tokio::time::timeout(Duration::from_secs(30), received).await;
        received.unwrap_or_else(|_| panic!("the last datagram is missing: {lengths:?}"));
        lengths
    }

    #[tokio::test]
    async fn datagrams_reach_the_process_of_their_generation() {
        let Some((former, current)) = handover() else { return };
        for (from, generation, is_forwarded) in [
            (&current, 7, true),
            (&current, 8, false),
            (&current, 9, false),
            (&current, 6, false),
            (&former, 8, true),
            (&former, 7, false),
            (&former, 9, false),
        ] {
            let length = 20 + usize::from(generation);
            let forwarded = from.forward(generation, ORIGIN, &datagram(generation, length));
            assert_eq!(forwarded, is_forwarded, "{generation}");
        }
        // For another process at the same end of the channel.
        assert!(current.forward(7, ORIGIN, &datagram(6, 100)));
        assert!(current.forward(7, ORIGIN, &datagram(7, 30)));
        let received = receive_until(&former, |lengths| lengths.last() == Some(&30)).await;
        assert_eq!(received, [27, 30]);
        assert_eq!(receive_until(&current, |lengths| !lengths.is_empty()).await, [28]);
    }

    #[tokio::test]
    async fn forwarding_is_bounded() {
        let Some((former, current)) = handover() else { return };
        for length in [MAX_DATAGRAM_BYTES + 1, MAX_DATAGRAM_BYTES] {
            assert!(current.forward(7, ORIGIN, &datagram(7, length)));
        }
        // No process receives, and the queue is full at some time.
        for _ in 0..100_000 {
            assert!(current.forward(7, ORIGIN, &datagram(7, 20)));
        }
        assert!(former.has_successor());
        // The end of the channel is behind its messages.
        drop(current);
        let lengths = receive_until(&former, |_| !former.has_successor()).await;
        assert_eq!(lengths[..2], [MAX_DATAGRAM_BYTES, 20]);
        assert!(lengths.len() < 50_000, "{}", lengths.len());
    }
}
