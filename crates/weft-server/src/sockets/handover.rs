//! Upgrades: a new process takes over the listening sockets of the running one. The sockets stay
//! open throughout, so that no connection is refused.
//!
//! The old process starts the new one with one end of a socket pair as its standard input. It sends
//! a message with a descriptor for each socket, and then a message without one. HTTP/3 has further
//! descriptors: its UDP sockets, and a channel for the datagrams of the old process's connections.
//! The new process completes its startup, begins to serve, and sends `ready`. Only then does the old
//! process stop accepting and drain its connections. If the new process exits instead, the old one
//! continues to serve.

use std::io::{self, ErrorKind};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use weft::net::Http3Descriptor;

use crate::base::descriptors;
use crate::base::sys::{AsFd, HandoverSocket, OwnedFd, Pid, Signal, id_of, signal_process};
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
        let mut arguments = std::env::args_os();
        // Started by its name and not as `/proc/self/exe`, so that a replaced file takes effect.
        let program = arguments.next().unwrap_or_else(|| "weft".into());
        let mut command = Command::new(program);
        command.args(arguments);
        let ours = HandoverSocket::create(&mut command, HANDOVER_TIMEOUT)?;
        let child = descriptors::pass_inherited_limit(&mut command).spawn()?;
        // Closes the copy of the child's socket, so that the exit of the child closes the channel.
        drop(command);
        let process = id_of(&child);
        let (sender, result) = oneshot::channel();
        let thread = thread::Builder::new().name("weft-handover".to_owned());
        thread.spawn(move || {
            let result = hand_over(&ours, &sockets, child);
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
        let _ = signal_process(self.process, Signal::TERM);
    }
}

/// Sends the sockets to the new process, and waits until it serves.
fn hand_over(
    ours: &HandoverSocket,
    sockets: &[(String, OwnedFd)],
    mut child: Child,
) -> UpgradeResult {
    let reply = send_sockets(ours, sockets).and_then(|()| {
        let mut reply = [0; READY.len()];
        let (length, _) = ours.receive(&mut reply)?;
        Ok(reply[..length].to_vec())
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

fn send_sockets(ours: &HandoverSocket, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
    for (text, socket) in sockets {
        ours.send(text.as_bytes(), Some(socket.as_fd()))?;
    }
    ours.send(END, None)
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
pub(crate) struct Predecessor(HandoverSocket);

impl Predecessor {
    /// Receives the sockets of the predecessor, if this process was started for an upgrade.
    pub(crate) fn detect() -> io::Result<Option<(Predecessor, InheritedSockets)>> {
        let Some(channel) = HandoverSocket::inherited(HANDOVER_TIMEOUT)? else { return Ok(None) };
        let mut inherited = InheritedSockets::default();
        while receive_socket(&channel, &mut inherited)? {}
        Ok(Some((Predecessor(channel), inherited)))
    }

    /// Notifies the predecessor that the sockets are being served.
    pub(crate) fn notify_ready(self) {
        // Fails if the predecessor has exited.
        let _ = self.0.send(READY, None);
    }
}

/// Receives a socket. Returns false after the last one.
fn receive_socket(channel: &HandoverSocket, inherited: &mut InheritedSockets) -> io::Result<bool> {
    let mut text = [0; MAX_SPEC_BYTES];
    let (length, socket) = channel.receive(&mut text)?;
    let text = &text[..length];
    if text == END {
        return Ok(false);
    }
    let invalid = || io::Error::other("the running process sent an invalid message");
    let socket = socket.ok_or_else(invalid)?;
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
