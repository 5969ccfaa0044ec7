//! Unix systems other than Linux.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Child;
use std::task::{Context, Poll, ready};

use nix::unistd::{Gid, Uid};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::SystemFeatures;

/// Features of the system that keys of the configuration require.
pub(crate) const FEATURES: SystemFeatures = SystemFeatures {
    defer_accept: false,
    reuse_port: cfg!(any(target_os = "freebsd", target_os = "linux")),
    groups: cfg!(not(target_vendor = "apple")),
    handover: false,
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

/// Flags with which descriptors are received.
pub(crate) const RECEIVE_RIGHTS: RecvFlags = RecvFlags::empty();

/// Returns the flags of messages to another process.
pub(crate) fn send_flags() -> SendFlags {
    SendFlags::empty()
}

/// Fails: not all systems have sockets that keep the boundaries of messages.
pub(crate) fn message_socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system does not support an upgrade without a pause",
    ))
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
        "this system has no control socket: send SIGHUP to the server instead",
    ))
}

/// Fails: there is no control socket.
pub(crate) fn peer_pid(_stream: &UnixStream) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}
