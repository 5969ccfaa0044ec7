//! From one process to the next: a program that was replaced on disk takes over the sockets of
//! the one that runs, without a moment in which nobody listens.
//!
//! The old process starts the new one with one end of a pair of sockets as its standard input. It
//! sends a message with a descriptor for each socket, and an empty one. The new process
//! prepares all that it needs, begins to serve, and says so. Only then does the old one accept no
//! more and finish what is under way. If the new one ends instead, nothing has changed.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use weft::Listener;

use crate::sockets::{Open, Place};

/// How long the new process may take until it serves.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest text that stands for a socket.
const MOST_TEXT_BYTES: usize = 4_096;

/// What the new process says when it serves.
const READY: &[u8] = b"ready";

// -- the old process

/// The process that is to follow this one.
pub(crate) struct Successor {
    process: Pid,
    arrival: oneshot::Receiver<Arrival>,
}

/// What became of it.
pub(crate) enum Arrival {
    /// It serves.
    Serves,
    /// It does not, for this reason.
    Failed(String),
}

impl Successor {
    /// Starts the program anew, as it was started, and gives it sockets.
    pub(crate) fn start(sockets: Vec<(Place, OwnedFd)>) -> io::Result<Successor> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let mut line = std::env::args_os();
        // Not the file that runs, which may have been replaced.
        let program = line.next().unwrap_or_else(|| "weft".into());
        let mut command = Command::new(program);
        let child = command.args(line).stdin(theirs).spawn()?;
        // Its end is the child's alone now, so that the child's end is heard of.
        drop(command);
        let process = Pid::from_child(&child);
        let (tell, arrival) = oneshot::channel();
        let thread = thread::Builder::new().name("weft-handover".to_owned());
        thread.spawn(move || {
            let arrival = hand_over(&ours, sockets, child);
            // If nobody waits any more, this process ends.
            let _ = tell.send(arrival);
        })?;
        Ok(Successor { process, arrival })
    }

    /// Waits for what becomes of it.
    pub(crate) async fn arrival(&mut self) -> Arrival {
        let failed = |_| Arrival::Failed("nobody waited for it".to_owned());
        (&mut self.arrival).await.unwrap_or_else(failed)
    }

    /// Stops it, as this process is to stop. To be called before it has arrived.
    pub(crate) fn call_off(self) {
        // One that has just ended need not be told.
        let _ = kill_process(self.process, Signal::TERM);
    }
}

/// Gives the sockets over, and waits until they are served.
fn hand_over(ours: &OwnedFd, sockets: Vec<(Place, OwnedFd)>, mut child: Child) -> Arrival {
    let patience = |way| sockopt::set_socket_timeout(ours, way, Some(PATIENCE));
    let arrived = patience(sockopt::Timeout::Send).map_err(io::Error::from);
    let arrived = arrived.and_then(|()| send_all(ours, sockets)).and_then(|()| {
        patience(sockopt::Timeout::Recv)?;
        let mut word = [0; READY.len()];
        let (_, bytes) = retry_on_intr(|| rustix::net::recv(ours, &mut word, RecvFlags::empty()))?;
        Ok(word[..bytes].to_vec())
    });
    let problem = match arrived {
        Ok(word) if word == READY => {
            // Somebody has to ask for its status, if it ends before this process does.
            drop(thread::Builder::new().spawn(move || child.wait()));
            return Arrival::Serves;
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => "it takes too long".to_owned(),
        Ok(_) | Err(_) => "it ended before it served".to_owned(),
    };
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
    Arrival::Failed(problem)
}

fn send_all(ours: &OwnedFd, sockets: Vec<(Place, OwnedFd)>) -> io::Result<()> {
    for (place, socket) in sockets {
        let descriptors = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        let text = place.to_string();
        let text = [IoSlice::new(text.as_bytes())];
        retry_on_intr(|| rustix::net::sendmsg(ours, &text, &mut rights, SendFlags::NOSIGNAL))?;
    }
    let mut nothing = SendAncillaryBuffer::default();
    let end = [IoSlice::new(END)];
    retry_on_intr(|| rustix::net::sendmsg(ours, &end, &mut nothing, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Follows the last socket. No place is written so.
const END: &[u8] = b"end";

// -- the new process

/// The process that this one takes over from.
pub(crate) struct Predecessor(OwnedFd);

impl Predecessor {
    /// The predecessor, if there is one, and its sockets.
    pub(crate) fn find() -> io::Result<Option<(Predecessor, Vec<Open>)>> {
        let stdin = std::io::stdin();
        // Nobody else starts a program with such a socket there.
        if sockopt::socket_type(&stdin) != Ok(SocketType::SEQPACKET) {
            return Ok(None);
        }
        let channel = stdin.as_fd().try_clone_to_owned()?;
        // What this process starts is not to inherit the channel, or its end would not be heard of.
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, Some(PATIENCE))?;
        let mut sockets = Vec::new();
        while let Some(socket) = receive(&channel)? {
            sockets.push(socket);
        }
        Ok(Some((Predecessor(channel), sockets)))
    }

    /// Says that the sockets are served.
    pub(crate) fn relieve(self) {
        // A predecessor that has gone need not be told.
        let _ = rustix::net::send(&self.0, READY, SendFlags::NOSIGNAL);
    }
}

/// Receives a socket; `None` behind the last.
fn receive(channel: &OwnedFd) -> io::Result<Option<Open>> {
    let mut text = [0; MOST_TEXT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        let room = &mut [IoSliceMut::new(&mut text)];
        rustix::net::recvmsg(channel, room, &mut rights, RecvFlags::CMSG_CLOEXEC)
    })?;
    let text = &text[..message.bytes];
    if text == END {
        return Ok(None);
    }
    let mut descriptors = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let wrong = || io::Error::other("the process that runs sent something else than sockets");
    let socket = descriptors.next().and_then(|mut rights| rights.next()).ok_or_else(wrong)?;
    let place = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let listener = Listener::inherited(socket).map_err(io::Error::other)?;
    Ok(Some(Open { place: place.ok_or_else(wrong)?, listener }))
}
