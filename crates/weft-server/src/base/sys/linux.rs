//! Linux.

use std::ffi::CStr;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::{Child, Command};
use std::task::{Context, Poll};

use nix::libc;
use nix::sys::socket::SetSockOpt;
use nix::sys::socket::sockopt::SetStruct;
use nix::unistd::{Gid, Uid};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, prlimit};
use tokio::net::unix::pipe;

use super::SystemFeatures;

/// Features of the system that keys of the configuration require.
pub(crate) const FEATURES: SystemFeatures = SystemFeatures {
    defer_accept: true,
    reuse_port: true,
    groups: true,
    control_socket: true,
    journald: true,
};

/// Socket of the syslog daemon.
pub(crate) const SYSLOG_SOCKET: &str = "/dev/log";

/// Creates a pair of sockets that keep the boundaries of messages.
pub(super) fn handover_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Does nothing: the type of the socket suffices.
pub(super) fn mark_successor(successor: &mut Command) -> &mut Command {
    successor
}

/// Returns true for a socket of a [pair](handover_pair): only an upgrade starts the program with
/// such a socket as its standard input.
pub(super) fn is_handover_socket(socket: impl AsFd) -> bool {
    sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
}

pub(super) fn send_message(
    socket: &OwnedFd,
    text: &[u8],
    rights: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> io::Result<()> {
    let text = [IoSlice::new(text)];
    retry_on_intr(|| sendmsg(socket, &text, rights, SendFlags::NOSIGNAL))?;
    Ok(())
}

pub(super) fn receive_message(
    socket: &OwnedFd,
    text: &mut [u8],
    rights: &mut RecvAncillaryBuffer<'_>,
) -> io::Result<usize> {
    let mut buffers = [IoSliceMut::new(text)];
    let receive = || recvmsg(socket, &mut buffers, rights, RecvFlags::CMSG_CLOEXEC);
    Ok(retry_on_intr(receive)?.bytes)
}

/// The exit of a process: a pidfd, which becomes readable. It is not a pipe and is never read; but
/// this is the type of tokio that accepts any file descriptor and waits for readiness.
pub(crate) struct ProcessExit(pipe::Receiver);

impl ProcessExit {
    pub(crate) fn watch(process: Pid) -> io::Result<ProcessExit> {
        let exit = pidfd_open(process, PidfdFlags::NONBLOCK)?;
        pipe::Receiver::from_owned_fd_unchecked(exit).map(ProcessExit)
    }

    /// Ready when the process has exited.
    pub(crate) fn poll_exited(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }
}

/// Removes the ambient capabilities of this thread, from which processes inherit them.
pub(crate) fn clear_ambient_capabilities() -> io::Result<()> {
    Ok(rustix::thread::clear_ambient_capability_set()?)
}

/// Sets the soft limit on the descriptors of a child process.
pub(crate) fn set_child_descriptor_limit(child: &Child, current: Option<u64>) {
    let limit = Rlimit { current, ..getrlimit(Resource::Nofile) };
    // Fails if the child has exited, or runs as another user.
    let _ = prlimit(Some(Pid::from_child(child)), Resource::Nofile, limit);
}

#[derive(Clone, Copy)]
struct DeferAccept;

nix::setsockopt_impl!(
    DeferAccept,
    libc::IPPROTO_TCP,
    libc::TCP_DEFER_ACCEPT,
    libc::c_int,
    SetStruct<'_, libc::c_int>
);

/// Lets the kernel wait up to this many seconds for the first bytes of a connection.
pub(crate) fn set_defer_accept(socket: &OwnedFd, seconds: i32) -> io::Result<()> {
    Ok(DeferAccept.set(socket, &seconds)?)
}

/// Sets the supplementary groups of the process to the groups of a user.
pub(crate) fn set_groups_of(user: &CStr, gid: Gid) -> nix::Result<()> {
    nix::unistd::initgroups(user, gid)
}

/// Changes all user and group IDs of the process.
pub(crate) fn set_ids(uid: Uid, gid: Gid) -> nix::Result<()> {
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)
}

/// Returns the address of the control socket of the process with this PID in the namespace of this
/// process.
pub(crate) fn control_address(pid: u32) -> io::Result<SocketAddr> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    SocketAddr::from_abstract_name(format!("weft-{}-{pid}", namespace.display()))
}

/// Returns the PID of the process at the other end.
pub(crate) fn peer_pid(stream: &UnixStream) -> io::Result<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Returns the memory of this process that is in use, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// Returns the number of open file descriptors of this process.
pub(crate) fn open_descriptors() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One descriptor belongs to the open directory itself.
    Some(count.saturating_sub(1) as u64)
}
