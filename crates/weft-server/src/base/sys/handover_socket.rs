//! The socket between a process and its successor: messages, which may have a descriptor.

use std::io::{self, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, sockopt,
};

use super::system::{
    handover_pair, is_handover_socket, mark_successor, receive_message, send_message,
};

/// One end of a pair of sockets.
pub(crate) struct HandoverSocket(OwnedFd);

impl HandoverSocket {
    /// Creates a pair of sockets. The other end becomes the standard input of the successor, and
    /// stays open until the command is dropped.
    pub(crate) fn create(successor: &mut Command, timeout: Duration) -> io::Result<HandoverSocket> {
        let (ours, theirs) = handover_pair()?;
        mark_successor(successor).stdin(theirs);
        HandoverSocket::with_timeout(ours, timeout)
    }

    /// Returns the socket to the predecessor. `None` if this process was not started for an
    /// upgrade.
    pub(crate) fn inherited(timeout: Duration) -> io::Result<Option<HandoverSocket>> {
        let stdin = stdin();
        if !is_handover_socket(&stdin) {
            return Ok(None);
        }
        let socket = stdin.as_fd().try_clone_to_owned()?;
        // Replaces stdin, so that child processes do not inherit the socket and keep it open.
        let dev_null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&dev_null)?;
        HandoverSocket::with_timeout(socket, timeout).map(Some)
    }

    fn with_timeout(socket: OwnedFd, timeout: Duration) -> io::Result<HandoverSocket> {
        for direction in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, direction, Some(timeout))?;
        }
        Ok(HandoverSocket(socket))
    }

    /// Sends a message. The text is not empty.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after the timeout.
    pub(crate) fn send(&self, text: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let descriptors = descriptor.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        send_message(&self.0, text, &mut rights)
    }

    /// Receives a message of at most `text.len()` bytes. Returns its length, 0 after the end of the
    /// other process, and its descriptor.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after the timeout.
    pub(crate) fn receive(&self, text: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let length = receive_message(&self.0, text, &mut rights)?;
        let mut descriptors = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        let descriptor = descriptors.next().and_then(|mut rights| rights.next());
        if let Some(descriptor) = &descriptor {
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
        Ok((length, descriptor))
    }
}
