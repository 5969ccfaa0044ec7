//! Unix systems other than Linux.

use std::ffi::CStr;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command};
use std::task::{Context, Poll, ready};

use nix::unistd::{Gid, Uid};
use rustix::io::{FdFlags, fcntl_setfd, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recv, recvmsg, send, sendmsg, sockopt,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, getppid, waitid};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::SystemFeatures;

/// Features of the system that keys of the configuration require.
pub(crate) const FEATURES: SystemFeatures = SystemFeatures {
    defer_accept: false,
    reuse_port: cfg!(any(target_os = "freebsd", target_os = "linux")),
    groups: cfg!(not(target_vendor = "apple")),
    control_socket: false,
    journald: cfg!(target_os = "linux"),
};

/// Socket of the syslog daemon.
pub(crate) const SYSLOG_SOCKET: &str = if cfg!(target_os = "linux") {
    "/dev/log"
} else if cfg!(target_os = "freebsd") {
    "/var/run/log"
} else {
    "/var/run/syslog"
};

/// Environment variable with the PID of the predecessor: stream sockets as the standard input have
/// other uses.
const PREDECESSOR_VARIABLE: &str = "WEFT_PREDECESSOR";

/// Creates a pair of stream sockets: not all systems have sockets that keep the boundaries of
/// messages and report the end of the other process.
pub(super) fn handover_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let pair = rustix::net::socketpair(family, kind, SocketFlags::empty(), None)?;
    fcntl_setfd(&pair.0, FdFlags::CLOEXEC)?;
    fcntl_setfd(&pair.1, FdFlags::CLOEXEC)?;
    Ok(pair)
}

/// Passes the PID of this process to its successor.
pub(super) fn mark_successor(successor: &mut Command) -> &mut Command {
    successor.env(PREDECESSOR_VARIABLE, std::process::id().to_string())
}

/// Returns true for a socket of a [pair](handover_pair), if the process that created the pair is
/// the parent of this one.
pub(super) fn is_handover_socket(socket: impl AsFd) -> bool {
    let predecessor = std::env::var(PREDECESSOR_VARIABLE).ok().and_then(|text| text.parse().ok());
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get());
    predecessor.is_some()
        && predecessor == parent
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
}

/// Sends a message: its length in two bytes, and its text. The descriptor belongs to the first
/// byte.
pub(super) fn send_message(
    socket: &OwnedFd,
    text: &[u8],
    rights: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> io::Result<()> {
    let length = u16::try_from(text.len()).map_err(|_| ErrorKind::InvalidInput)?;
    let frame = [&length.to_be_bytes(), text].concat();
    let whole = [IoSlice::new(&frame)];
    let mut sent = retry_on_intr(|| sendmsg(socket, &whole, rights, SendFlags::empty()))?;
    while sent < frame.len() {
        sent += retry_on_intr(|| send(socket, &frame[sent..], SendFlags::empty()))?;
    }
    Ok(())
}

/// Receives a message, and no byte of the next one. Returns 0 at the end of the stream.
pub(super) fn receive_message(
    socket: &OwnedFd,
    text: &mut [u8],
    rights: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<usize> {
    let mut length = [0; 2];
    let first = {
        let mut buffers = [IoSliceMut::new(&mut length)];
        retry_on_intr(|| recvmsg(socket, &mut buffers, rights, RecvFlags::empty()))?.bytes
    };
    if first == 0 {
        return Ok(0);
    }
    receive_exact(socket, &mut length[first..])?;
    let length = usize::from(u16::from_be_bytes(length));
    let text = text.get_mut(..length).ok_or(ErrorKind::InvalidData)?;
    receive_exact(socket, text)?;
    Ok(length)
}

fn receive_exact(socket: &OwnedFd, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match retry_on_intr(|| recv(socket, &mut *buffer, RecvFlags::empty()))?.1 {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            received => buffer = &mut buffer[received..],
        }
    }
    Ok(())
}

/// The exit of a process, which every SIGCHLD may announce.
pub(crate) struct ProcessExit {
    process: Pid,
    exits: Signal,
}

impl ProcessExit {
    pub(crate) fn watch(process: Pid) -> io::Result<ProcessExit> {
        Ok(ProcessExit { process, exits: signal(SignalKind::child())? })
    }

    /// Ready when the process has exited. Does not reap it.
    pub(crate) fn poll_exited(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            if waitid(WaitId::Pid(self.process), options)?.is_some() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.exits.poll_recv(cx)).is_none() {
                return Poll::Ready(Err(io::Error::other("the runtime shuts down")));
            }
        }
    }
}

/// Does nothing: there are no capabilities.
pub(crate) fn clear_ambient_capabilities() -> io::Result<()> {
    Ok(())
}

/// Does nothing: no call sets the limit of another process.
pub(crate) fn set_child_descriptor_limit(_child: &Child, _current: Option<u64>) {}

/// Fails, unless it disables what the system does not have.
pub(crate) fn set_defer_accept(_socket: &OwnedFd, seconds: i32) -> io::Result<()> {
    match seconds {
        0 => Ok(()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Sets the supplementary groups of the process to the groups of a user.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn set_groups_of(user: &CStr, gid: Gid) -> nix::Result<()> {
    nix::unistd::initgroups(user, gid)
}

/// Fails: macOS looks up the groups of a process in its directory service.
#[cfg(target_vendor = "apple")]
pub(crate) fn set_groups_of(_user: &CStr, _gid: Gid) -> nix::Result<()> {
    Err(nix::errno::Errno::ENOTSUP)
}

/// Changes all user and group IDs of the process. As root, the calls also set the saved IDs.
pub(crate) fn set_ids(uid: Uid, gid: Gid) -> nix::Result<()> {
    nix::unistd::setgid(gid)?;
    nix::unistd::setuid(uid)
}

/// Fails: only Linux has names of sockets that need no file.
pub(crate) fn control_address(_pid: u32) -> io::Result<SocketAddr> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no control socket: send SIGHUP (reload), SIGTERM (stop) or SIGUSR2 (upgrade) to \
         the server instead",
    ))
}

/// Fails: there is no control socket.
pub(crate) fn peer_pid(_stream: &UnixStream) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns `None`: no call that all systems have reports it.
pub(crate) fn resident_bytes() -> Option<u64> {
    None
}

/// Returns the number of open file descriptors of this process. The `/dev/fd` of FreeBSD has the
/// first three of them only, unless fdescfs is mounted there.
pub(crate) fn open_descriptors() -> Option<u64> {
    if cfg!(target_os = "freebsd") {
        return None;
    }
    let count = std::fs::read_dir("/dev/fd").ok()?.count();
    // One descriptor belongs to the open directory itself.
    Some(count.saturating_sub(1) as u64)
}
