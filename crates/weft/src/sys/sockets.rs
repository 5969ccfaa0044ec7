//! Calls of stream sockets that all systems have.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Result;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketType, sockopt};

#[cfg(feature = "http3")]
use super::system::{DISTRIBUTES_PORT, REPORTED_BUFFER_FACTOR};
use super::system::{SEND, SEND_MORE, is_listening, nonblocking_socket, share_port};
use super::types::{BorrowedFd, OwnedFd};

/// The directions of a connection that a shutdown ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Both,
}

/// Listens on an address. `is_ipv6_only` is the option of an IPv6 socket; `None` leaves the
/// system's default.
pub(crate) fn tcp_listener(
    address: SocketAddr,
    is_ipv6_only: Option<bool>,
    reuse_port: bool,
    backlog: u16,
) -> Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = nonblocking_socket(family, SocketType::STREAM)?;
    // On Windows, the option would let any other process take the address.
    if cfg!(unix) {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    if reuse_port {
        share_port(&socket)?;
    }
    // Accepted sockets inherit TCP_NODELAY: small responses must not wait for the peer's ACK.
    sockopt::set_tcp_nodelay(&socket, true)?;
    if let Some(is_ipv6_only) = is_ipv6_only {
        sockopt::set_ipv6_v6only(&socket, is_ipv6_only)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog.into())?;
    let bound = local_address(&socket).unwrap_or(address);
    Ok((socket, bound))
}

/// Returns the Internet address of a listening stream socket.
pub(crate) fn listening_address(socket: &OwnedFd) -> Option<SocketAddr> {
    is_listening_stream(socket).then(|| local_address(socket))?
}

/// Returns true if the socket is a listening stream socket.
pub(super) fn is_listening_stream(socket: &OwnedFd) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::STREAM) && is_listening(socket)
}

/// Returns the Internet address of a UDP socket.
pub(crate) fn datagram_address(socket: &OwnedFd) -> Option<SocketAddr> {
    let is_datagram = sockopt::socket_type(socket) == Ok(SocketType::DGRAM);
    is_datagram.then(|| local_address(socket))?
}

/// Makes an inherited listener nonblocking.
pub(crate) fn prepare_listener(socket: &OwnedFd, is_tcp: bool) -> Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    #[cfg(unix)]
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
    match is_tcp {
        true => sockopt::set_tcp_nodelay(socket, true),
        false => Ok(()),
    }
}

/// Returns the Internet address of this end of a socket.
pub(crate) fn local_address(socket: &OwnedFd) -> Option<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()
}

/// Returns true if an IPv6 socket accepts no connections of IPv4.
pub(crate) fn is_ipv6_only(socket: &OwnedFd) -> bool {
    sockopt::ipv6_v6only(socket) == Ok(true)
}

/// Sends bytes. If more bytes follow at once, both share a packet where the system can do so.
#[inline]
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], more_follow: bool) -> Result<usize> {
    rustix::net::send(socket, bytes, if more_follow { SEND_MORE } else { SEND })
}

/// Sends several slices with one call.
#[inline]
#[cfg(unix)]
pub(crate) fn send_slices(
    socket: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    more_follow: bool,
) -> Result<usize> {
    let mut control = rustix::net::SendAncillaryBuffer::default();
    let flags = if more_follow { SEND_MORE } else { SEND };
    rustix::net::sendmsg(socket, slices, &mut control, flags)
}

/// Sends the first slice that is not empty.
#[cfg(windows)]
pub(crate) fn send_slices(
    socket: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    more_follow: bool,
) -> Result<usize> {
    let first = slices.iter().find(|slice| !slice.is_empty());
    first.map_or(Ok(0), |slice| send(socket, slice, more_follow))
}

/// Receives bytes; 0 at the end of the stream.
#[inline]
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    Ok(rustix::net::recv(socket, buffer, RecvFlags::empty())?.0)
}

/// Receives bytes into memory that is not initialized.
pub(crate) fn receive_uninit<'a>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [MaybeUninit<u8>],
) -> Result<&'a [u8]> {
    let ((received, _), _) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(received)
}

/// Shuts down one direction or both.
pub(crate) fn shutdown(socket: BorrowedFd<'_>, direction: Direction) -> Result<()> {
    let how = match direction {
        Direction::Write => Shutdown::Write,
        Direction::Both => Shutdown::Both,
    };
    rustix::net::shutdown(socket, how)
}

/// Lets the kernel send `max_lost` probes to the peer of a TCP connection.
pub(crate) fn set_keepalive(
    socket: BorrowedFd<'_>,
    interval: Duration,
    max_lost: u32,
) -> Result<()> {
    sockopt::set_tcp_keepidle(socket, interval)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, max_lost)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Returns the number of UDP sockets that `workers` use together: one for each of them, or one for
/// all if the system does not distribute datagrams.
#[cfg(feature = "http3")]
pub(crate) fn udp_socket_count(workers: usize) -> usize {
    if DISTRIBUTES_PORT { workers } else { workers.min(1) }
}

/// Binds a UDP socket to an address, beside other sockets. Its buffers for receiving and sending are
/// smaller if the limit of the kernel is lower.
#[cfg(feature = "http3")]
pub(crate) fn shared_udp_socket(
    address: SocketAddr,
    is_ipv6_only: bool,
    (receive_bytes, send_bytes): (usize, usize),
) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = nonblocking_socket(family, SocketType::DGRAM)?;
    if DISTRIBUTES_PORT {
        share_port(&socket)?;
    }
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, is_ipv6_only)?;
    }
    set_largest(receive_bytes, |bytes| sockopt::set_socket_recv_buffer_size(&socket, bytes));
    set_largest(send_bytes, |bytes| sockopt::set_socket_send_buffer_size(&socket, bytes));
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Sets the size of a buffer, or the half if it is over the limit of the kernel, and so on. Linux
/// applies its limit itself.
#[cfg(feature = "http3")]
fn set_largest(bytes: usize, set: impl Fn(usize) -> Result<()>) {
    const MIN_BUFFER_BYTES: usize = 64 << 10;
    let mut sizes = std::iter::successors(Some(bytes), |bytes| Some(bytes / 2));
    sizes.find(|&bytes| bytes < MIN_BUFFER_BYTES || set(bytes).is_ok());
}

/// Prepares an inherited UDP socket, with buffers of at least these sizes if the kernel permits. A
/// service manager can set larger buffers than this process, which are kept.
#[cfg(feature = "http3")]
pub(crate) fn prepare_datagrams(
    socket: &OwnedFd,
    (receive_bytes, send_bytes): (usize, usize),
) -> Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    #[cfg(unix)]
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC)?;
    let is_less = |reported: usize, bytes| reported / REPORTED_BUFFER_FACTOR < bytes;
    if is_less(sockopt::socket_recv_buffer_size(socket)?, receive_bytes) {
        set_largest(receive_bytes, |bytes| sockopt::set_socket_recv_buffer_size(socket, bytes));
    }
    if is_less(sockopt::socket_send_buffer_size(socket)?, send_bytes) {
        set_largest(send_bytes, |bytes| sockopt::set_socket_send_buffer_size(socket, bytes));
    }
    Ok(())
}

/// Returns the number of bytes of datagrams for which the kernel's receive buffer has room.
#[cfg(feature = "http3")]
pub(crate) fn receive_buffer_bytes(socket: &OwnedFd) -> Option<usize> {
    let reported = sockopt::socket_recv_buffer_size(socket).ok()?;
    Some(reported / REPORTED_BUFFER_FACTOR)
}

#[cfg(all(test, feature = "http3"))]
mod tests {
    use super::*;

    #[test]
    fn inherited_datagram_sockets_keep_larger_buffers() {
        const KIB: usize = 1 << 10;
        for (own, requested, expected) in [(96, 64, 96), (64, 96, 96)] {
            let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
            sockopt::set_socket_recv_buffer_size(&socket, own * KIB).unwrap();
            prepare_datagrams(&socket, (requested * KIB, requested * KIB)).unwrap();
            assert_eq!(receive_buffer_bytes(&socket), Some(expected * KIB));
        }
    }
}
