//! The control socket: `weft reload` connects to it, and gets the result of the reload.
//!
//! A signal has no result. The socket has a name in the abstract namespace of Linux, so that it
//! needs no file and no setting: the PID of the server, with the namespace of the PID, because
//! containers may share their network. A connection is the whole request. Both sides compare the
//! credentials of the other one: the server accepts its own user and root, and the client checks
//! that it has reached the process with the PID.

use std::io::{self, Read, Write};
use std::time::Duration;

use tokio::net::UnixListener as TokioListener;
use weft_config::Problem;

use crate::base::sys::{UnixListener, UnixStream, control_address, effective_user, peer_pid};

/// Maximum time for a client to read the result.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time of a reload, for the client.
const RESULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum size of a result, for the client.
const MAX_RESULT_BYTES: u64 = 1 << 20;

/// Delay after a failure to accept, such as without a free descriptor.
const ACCEPT_DELAY: Duration = Duration::from_secs(1);

/// Reply of a server that stops.
const STOPPING: &str = "stopping\n";

/// Result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadResult {
    /// The configuration is in effect.
    Complete,
    /// The configuration is in effect, without the sites that could not be opened.
    Incomplete,
    /// The former configuration stays in effect.
    Failed,
}

/// Result of a reload, with its errors and warnings.
pub(crate) struct ReloadReport {
    pub(crate) result: ReloadResult,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl ReloadResult {
    const ALL: [ReloadResult; 3] =
        [ReloadResult::Complete, ReloadResult::Incomplete, ReloadResult::Failed];

    fn name(self) -> &'static str {
        match self {
            ReloadResult::Complete => "complete",
            ReloadResult::Incomplete => "incomplete",
            ReloadResult::Failed => "failed",
        }
    }
}

/// The socket of this process.
pub(super) struct ControlSocket(TokioListener);

/// A client that waits for the result of a reload.
pub(super) struct ReloadClient(UnixStream);

impl ControlSocket {
    /// Creates the socket. Must be called within a runtime.
    pub(super) fn bind() -> io::Result<ControlSocket> {
        let listener = UnixListener::bind_addr(&control_address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        TokioListener::from_std(listener).map(ControlSocket)
    }

    /// Waits for a client that may request a reload. Others are disconnected.
    pub(super) async fn accept(&self) -> ReloadClient {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => {
                    let user = stream.peer_cred().map(|peer| peer.uid()).ok();
                    let is_permitted =
                        user.is_some_and(|user| user == 0 || user == effective_user().as_raw());
                    if is_permitted && let Ok(stream) = stream.into_std() {
                        return ReloadClient(stream);
                    }
                }
                Err(_) => tokio::time::sleep(ACCEPT_DELAY).await,
            }
        }
    }
}

impl ReloadClient {
    /// Sends the result. A failure is ignored: the client has disconnected, and the result is
    /// logged.
    pub(super) fn reply(mut self, report: &ReloadReport) {
        let mut text = format!("{}\n", report.result.name());
        let problems = report.problems.iter().map(Problem::to_string);
        let warnings = report.warnings.iter().map(Problem::as_warning);
        for line in problems.chain(warnings) {
            text.push_str(&line.replace('\n', " "));
            text.push('\n');
        }
        self.send(&text);
    }

    /// Reports that the server stops, and reloads no more.
    pub(super) fn refuse(mut self) {
        self.send(STOPPING);
    }

    fn send(&mut self, text: &str) {
        let _ = self.0.set_nonblocking(false);
        let _ = self.0.set_write_timeout(Some(WRITE_TIMEOUT));
        let _ = self.0.write_all(text.as_bytes());
    }
}

/// Requests a reload of the server with this PID, and waits for the result, with one warning or
/// error in each text.
///
/// # Errors
/// If there is no such server, or if it stops.
pub(crate) fn request_reload(pid: u32) -> Result<(ReloadResult, Vec<String>), String> {
    let cannot = |reason: String| format!("cannot reload the server with the PID {pid}: {reason}");
    let stream = control_address(pid).and_then(|address| UnixStream::connect_addr(&address));
    let stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => cannot("no server of weft has this PID".to_owned()),
        _ => cannot(error.to_string()),
    })?;
    if peer_pid(&stream).map_err(|error| cannot(error.to_string()))? != pid {
        return Err(cannot("another process has its control socket".to_owned()));
    }
    let mut text = String::new();
    stream
        .set_read_timeout(Some(RESULT_TIMEOUT))
        .and_then(|()| stream.take(MAX_RESULT_BYTES).read_to_string(&mut text))
        .map_err(|error| cannot(format!("no result: {error}")))?;
    if text == STOPPING {
        return Err(cannot("it is stopping".to_owned()));
    }
    let mut lines = text.lines();
    let result = lines
        .next()
        .and_then(|name| ReloadResult::ALL.into_iter().find(|result| result.name() == name));
    match result {
        Some(result) => Ok((result, lines.map(str::to_owned).collect())),
        None => Err(cannot(
            "no result: the server has stopped, or this user is neither its user nor root"
                .to_owned(),
        )),
    }
}
