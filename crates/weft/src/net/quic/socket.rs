//! A UDP socket: batches of datagrams in both directions.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;

use crate::error::{Error, ErrorKind, Result};
use crate::sys::{self, OwnedFd};

/// Size of the kernel's receive buffer that is requested. With 208 KiB, the default of Linux,
/// bursts of 64 clients lose datagrams.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

const SEND_BUFFER_BYTES: usize = 2 << 20;

/// Maximum number of messages in a batch. Each may contain several datagrams of one client.
pub(super) const MAX_MESSAGES: usize = 32;

/// Maximum size of a message.
const MESSAGE_BYTES: usize = 1 << 16;

/// A UDP socket that is not registered with an event loop.
#[derive(Debug)]
pub(crate) struct QuicSocket {
    socket: OwnedFd,
    address: SocketAddr,
}

impl QuicSocket {
    /// Binds a socket to the address of a TCP listener, beside the sockets of the other workers.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if the address cannot be bound.
    fn bind(address: SocketAddr, is_ipv6_only: bool) -> Result<QuicSocket> {
        let buffers = (RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES);
        let socket = sys::shared_udp_socket(address, is_ipv6_only, buffers).map_err(|error| {
            let reason = format!("cannot listen on UDP {address}");
            Error::new(ErrorKind::Listen, reason).with_source(io::Error::from(error))
        })?;
        Ok(QuicSocket { socket, address })
    }

    /// Binds a socket for each worker, on the same port. If the system does not distribute datagrams
    /// over them, it binds one socket, and the first worker has all connections.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if the address cannot be bound.
    pub(crate) fn bind_all(
        address: SocketAddr,
        is_ipv6_only: bool,
        workers: usize,
    ) -> Result<Vec<QuicSocket>> {
        let sockets = sys::udp_socket_count(workers);
        (0..sockets).map(|_| QuicSocket::bind(address, is_ipv6_only)).collect()
    }

    /// Takes over a socket of another process, which is bound to `address`.
    ///
    /// # Errors
    /// [`Listen`](ErrorKind::Listen) if it is not a UDP socket.
    pub(crate) fn inherited(socket: OwnedFd, address: SocketAddr) -> Result<QuicSocket> {
        let buffers = (RECEIVE_BUFFER_BYTES, SEND_BUFFER_BYTES);
        sys::prepare_datagrams(&socket, buffers).map_err(|error| {
            let reason = format!("cannot use the inherited socket of UDP {address}");
            Error::new(ErrorKind::Listen, reason).with_source(io::Error::from(error))
        })?;
        Ok(QuicSocket { socket, address })
    }

    /// Returns a duplicate of the descriptor.
    pub(super) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns a socket with a duplicate of the descriptor.
    pub(super) fn try_clone(&self) -> io::Result<QuicSocket> {
        Ok(QuicSocket { socket: self.duplicate()?, address: self.address })
    }

    /// Returns an error if the kernel has given less than the requested receive buffer.
    pub(crate) fn warning(&self) -> Option<Error> {
        let bytes = sys::receive_buffer_bytes(&self.socket)?;
        let reason = format!(
            "UDP {} has a receive buffer of {bytes} bytes, so that HTTP/3 loses datagrams of bursts: set \
             {} to {RECEIVE_BUFFER_BYTES}",
            self.address,
            sys::SOCKET_BUFFER_LIMIT,
        );
        (bytes < RECEIVE_BUFFER_BYTES).then(|| Error::new(ErrorKind::Listen, reason))
    }

    /// Registers the socket with the event loop of the current thread.
    pub(super) fn register(self) -> io::Result<UdpSocket> {
        let socket = tokio::net::UdpSocket::from_std(self.socket.into())?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(UdpSocket { socket, state, address: self.address })
    }
}

/// A registered UDP socket.
pub(super) struct UdpSocket {
    socket: tokio::net::UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
}

/// The storage of a batch of received datagrams.
pub(super) struct Batch {
    bytes: Vec<u8>,
    messages: [RecvMeta; MAX_MESSAGES],
}

impl Batch {
    pub(super) fn new() -> Batch {
        // The kernel gives zeroed pages when they are first used.
        Batch {
            bytes: vec![0; MAX_MESSAGES * MESSAGE_BYTES],
            messages: [RecvMeta::default(); MAX_MESSAGES],
        }
    }

    /// The first `count` messages, each split into its datagrams.
    pub(super) fn datagrams(&self, count: usize) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let messages = self.messages[..count].iter().zip(self.bytes.chunks(MESSAGE_BYTES));
        messages.flat_map(|(meta, bytes)| {
            bytes[..meta.len].chunks(meta.stride.max(1)).map(move |datagram| (meta, datagram))
        })
    }
}

impl UdpSocket {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives a batch of messages. Returns their number.
    pub(super) fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        batch: &mut Batch,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_recv_ready(cx))?;
            let Batch { bytes, messages } = batch;
            let received = self.socket.try_io(Interest::READABLE, || {
                let mut slices = bytes.chunks_mut(MESSAGE_BYTES);
                let mut slices: [IoSliceMut<'_>; MAX_MESSAGES] =
                    std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
                self.state.recv((&self.socket).into(), &mut slices, messages)
            });
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    if count < MAX_MESSAGES {
                        self.expect_no_more();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Waits for the next datagram before the next call: a batch that is not full has emptied the
    /// socket, and another call would fail.
    fn expect_no_more(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.socket.try_io(Interest::READABLE, nothing);
    }

    /// Maximum number of datagrams that one call sends.
    pub(super) fn max_datagrams(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends the datagrams of a transmit.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the socket accepts none.
    pub(super) fn try_send(
        &self,
        transmit: &quinn_proto::Transmit,
        contents: &[u8],
    ) -> io::Result<()> {
        let transmit = Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.socket
            .try_io(Interest::WRITABLE, || self.state.try_send((&self.socket).into(), &transmit))
    }

    /// Waits until the socket accepts datagrams.
    pub(super) async fn writable(&self) {
        // An error is found by the next call.
        let _ = self.socket.writable().await;
    }
}
