//! Upgrades: a new process takes over the listening sockets of the running one. The sockets stay
//! open throughout, so that no connection is refused.
//!
//! The old process starts the new one with one end of a socket pair as its standard input. It sends
//! a message with a descriptor for each socket, and then a message without one. HTTP/3 has further
//! descriptors: its UDP sockets, and a channel for the datagrams of the old process's connections.
//! The new process completes its startup, begins to serve, and sends `ready`. Only then does the old
//! process stop accepting and drain its connections. If the new process exits instead, the old one
//! continues to serve.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SocketType, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use weft::net::Http3Descriptor;

use crate::base::descriptors;
use crate::base::sys::{RECEIVE_RIGHTS, message_socket_pair, send_flags};
use crate::sockets::{BoundSocket, ListenSpec, OpenSocket};

/// Maximum time until the new process serves.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of the text of a [`ListenSpec`].
const MAX_SPEC_BYTES: usize = 4_096;

/// Beginning of the text of a descriptor of HTTP/3. It is not the text of any [`ListenSpec`].
const HTTP3: &str = "http3 ";

/// Message of the new process once it serves.
const READY: &[u8] = b"ready";

// -- the old process

/// The process that is to replace this one.
pub(crate) struct Successor {
    process: Pid,
    result: oneshot::Receiver<UpgradeResult>,
}

/// Result of an upgrade.
pub(crate) enum UpgradeResult {
    /// The new process serves.
    Serving,
    /// The new process does not serve, for this reason.
    Failed(String),
}

impl Successor {
    /// Starts the program with the arguments of this process, and sends it the sockets.
    pub(crate) fn start(
        sockets: Vec<(ListenSpec, OwnedFd)>,
        http3: Vec<Http3Descriptor>,
    ) -> io::Result<Successor> {
        let sockets = sockets.into_iter().map(|(spec, socket)| (spec.to_string(), socket));
        let http3 = http3.into_iter().map(|it| {
            let (text, descriptor) = it.into_parts();
            (format!("{HTTP3}{text}"), descriptor)
        });
        let sockets: Vec<(String, OwnedFd)> = sockets.chain(http3).collect();
        let (ours, theirs) = message_socket_pair()?;
        let mut arguments = std::env::args_os();
        // Started by its name and not as `/proc/self/exe`, so that a replaced file takes effect.
        let program = arguments.next().unwrap_or_else(|| "weft".into());
        let mut command = Command::new(program);
        command.args(arguments).stdin(theirs);
        let child = descriptors::pass_inherited_limit(&mut command).spawn()?;
        // Closes the parent's copy of `theirs`, so that the exit of the child closes the channel.
        drop(command);
        let process = Pid::from_child(&child);
        let (sender, result) = oneshot::channel();
        let thread = thread::Builder::new().name("weft-handover".to_owned());
        thread.spawn(move || {
            let result = hand_over(&ours, sockets, child);
            // The receiver is dropped only when this process exits.
            let _ = sender.send(result);
        })?;
        Ok(Successor { process, result })
    }

    /// Waits for the result of the upgrade.
    pub(crate) async fn result(&mut self) -> UpgradeResult {
        let failed = |_| UpgradeResult::Failed("the handover thread has panicked".to_owned());
        (&mut self.result).await.unwrap_or_else(failed)
    }

    /// Stops the new process because this process is to stop. Must be called before the result has
    /// been received.
    pub(crate) fn cancel(self) {
        // Fails if the process has just exited.
        let _ = kill_process(self.process, Signal::TERM);
    }
}

/// Sends the sockets to the new process, and waits until it serves.
fn hand_over(ours: &OwnedFd, sockets: Vec<(String, OwnedFd)>, mut child: Child) -> UpgradeResult {
    let set_timeout = |id| sockopt::set_socket_timeout(ours, id, Some(HANDOVER_TIMEOUT));
    let reply = set_timeout(sockopt::Timeout::Send).map_err(io::Error::from);
    let reply = reply.and_then(|()| send_sockets(ours, sockets)).and_then(|()| {
        set_timeout(sockopt::Timeout::Recv)?;
        let mut reply = [0; READY.len()];
        let (_, bytes) = retry_on_intr(|| rustix::net::recv(ours, &mut reply, RecvFlags::empty()))?;
        Ok(reply[..bytes].to_vec())
    });
    let reason = match reply {
        Ok(reply) if reply == READY => {
            // Reaps the child if it exits before this process. There is one such thread at most,
            // because this process exits after its successor serves.
            let thread = thread::Builder::new().name("weft-successor".to_owned());
            drop(thread.spawn(move || child.wait()));
            return UpgradeResult::Serving;
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            "it did not serve within 60 seconds".to_owned()
        }
        Ok(_) | Err(_) => "it exited before it served".to_owned(),
    };
    // Fails if the process has exited already.
    let _ = child.kill();
    let _ = child.wait();
    UpgradeResult::Failed(reason)
}

fn send_sockets(ours: &OwnedFd, sockets: Vec<(String, OwnedFd)>) -> io::Result<()> {
    for (text, socket) in sockets {
        let descriptors = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        let text = [IoSlice::new(text.as_bytes())];
        retry_on_intr(|| rustix::net::sendmsg(ours, &text, &mut rights, send_flags()))?;
    }
    let mut no_rights = SendAncillaryBuffer::default();
    let end = [IoSlice::new(END)];
    retry_on_intr(|| rustix::net::sendmsg(ours, &end, &mut no_rights, send_flags()))?;
    Ok(())
}

/// Message after the last socket. It is not the text of any [`ListenSpec`].
const END: &[u8] = b"end";

// -- the new process

/// Sockets that a process gets at its start, from its predecessor or the service manager.
#[derive(Default)]
pub(crate) struct InheritedSockets {
    pub(crate) sockets: Vec<OpenSocket>,
    pub(crate) http3: Vec<Http3Descriptor>,
}

/// Channel to the process whose sockets this process takes over.
pub(crate) struct Predecessor(OwnedFd);

impl Predecessor {
    /// Receives the sockets of the predecessor, if this process was started for an upgrade.
    pub(crate) fn detect() -> io::Result<Option<(Predecessor, InheritedSockets)>> {
        let stdin = std::io::stdin();
        // Only an upgrade starts the program with such a socket as its standard input.
        if sockopt::socket_type(&stdin) != Ok(SocketType::SEQPACKET) {
            return Ok(None);
        }
        let channel = stdin.as_fd().try_clone_to_owned()?;
        // Replaces stdin, so that child processes do not inherit the channel and keep it open.
        let dev_null = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&dev_null)?;
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(HANDOVER_TIMEOUT))?;
        let mut inherited = InheritedSockets::default();
        while receive_socket(&channel, &mut inherited)? {}
        Ok(Some((Predecessor(channel), inherited)))
    }

    /// Notifies the predecessor that the sockets are being served.
    pub(crate) fn notify_ready(self) {
        // Fails if the predecessor has exited.
        let _ = rustix::net::send(&self.0, READY, send_flags());
    }
}

/// Receives a socket. Returns false after the last one.
fn receive_socket(channel: &OwnedFd, inherited: &mut InheritedSockets) -> io::Result<bool> {
    let mut text = [0; MAX_SPEC_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        let buffers = &mut [IoSliceMut::new(&mut text)];
        rustix::net::recvmsg(channel, buffers, &mut rights, RECEIVE_RIGHTS)
    })?;
    let text = &text[..message.bytes];
    if text == END {
        return Ok(false);
    }
    let mut descriptors = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let invalid = || io::Error::other("the running process sent an invalid message");
    let socket = descriptors.next().and_then(|mut rights| rights.next()).ok_or_else(invalid)?;
    let text = std::str::from_utf8(text).map_err(|_| invalid())?;
    if let Some(text) = text.strip_prefix(HTTP3) {
        inherited.http3.push(Http3Descriptor::from_parts(text, socket).ok_or_else(invalid)?);
        return Ok(true);
    }
    let spec = text.parse::<ListenSpec>().map_err(|()| invalid())?;
    let socket = BoundSocket::inherited(socket, spec.protocol).map_err(io::Error::other)?;
    inherited.sockets.push(OpenSocket { spec, socket });
    Ok(true)
}
