//! A channel of datagrams between two processes.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::task::{Context, Poll, ready};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::io::ReadBuf;

use super::system::SEND;
use super::types::OwnedFd;

/// Requested size of the queue of a channel. The kernel gives less if its own limit is lower.
const QUEUE_BYTES: usize = 2 << 20;

/// One end of a channel, registered with the event loop of the current thread.
///
/// The socket keeps the borders of datagrams, as a datagram socket does, and reports the end of the
/// last process at the other end, as a stream does.
pub(crate) struct ProcessChannel(tokio::net::UnixDatagram);

impl ProcessChannel {
    /// Creates both ends of a channel.
    pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (a, b) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        for end in [&a, &b] {
            rustix::io::ioctl_fionbio(end, true)?;
            sockopt::set_socket_send_buffer_size(end, QUEUE_BYTES)?;
        }
        Ok((a, b))
    }

    pub(crate) fn register(end: OwnedFd) -> io::Result<ProcessChannel> {
        rustix::io::ioctl_fionbio(&end, true)?;
        tokio::net::UnixDatagram::from_std(UnixDatagram::from(end)).map(ProcessChannel)
    }

    /// Sends a message, or discards it if the queue is full.
    pub(crate) fn send_or_discard(&self, message: &[u8]) {
        // Not by the event loop, which reports the socket as writable only after its next turn.
        let _ = rustix::net::send(&self.0, message, SEND);
    }

    /// Receives a message; `None` at the end of the channel.
    pub(crate) fn poll_receive<'a>(
        &self,
        cx: &mut Context<'_>,
        buffer: &'a mut [u8],
    ) -> Poll<Option<&'a [u8]>> {
        let mut unfilled = ReadBuf::new(buffer);
        let received = ready!(self.0.poll_recv(cx, &mut unfilled));
        let length = received.map_or(0, |()| unfilled.filled().len());
        Poll::Ready((length > 0).then_some(&buffer[..length]))
    }
}
