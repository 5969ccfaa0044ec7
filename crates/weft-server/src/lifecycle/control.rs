//! The control socket: `weft reload`, `weft stop` and `weft upgrade` connect to it, and get the
//! result.
//!
//! A signal has no result. The socket has a name in the abstract namespace of Linux, so that it
//! needs no file and no setting: the PID of the server, with the namespace of the PID, because
//! containers may share their network. The client sends one line, the name of its request. Both
//! sides compare the credentials of the other one: the server accepts its own user and root, and
//! the client checks that it has reached the process with the PID.

use std::io::{self, Read, Write};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{UnixListener as TokioListener, UnixStream as TokioStream};
use tokio::time::{sleep, timeout};
use weft_config::Problem;

use crate::base::sys::{UnixListener, UnixStream, control_address, effective_user, peer_pid};
use crate::cli::control_request::ControlRequest;

/// Maximum time for a client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of a request, in bytes.
const MAX_REQUEST_BYTES: u64 = 16;

/// Maximum number of clients whose requests are awaited. The others wait in the queue of the
/// socket.
const MAX_CLIENTS: usize = 64;

/// Maximum time for a client to read the result.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time until the result, for the client.
const RESULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum size of a result, for the client.
const MAX_RESULT_BYTES: u64 = 1 << 20;

/// Delay after a failure to accept, such as without a free descriptor.
const ACCEPT_DELAY: Duration = Duration::from_secs(1);

/// Reply of a server that stops.
const STOPPING: &str = "stopping\n";

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlResult {
    /// The request was carried out.
    Complete,
    /// The configuration is in effect, without the sites that could not be opened.
    Incomplete,
    /// Nothing has changed.
    Failed,
}

/// Result of a request, with its errors and warnings.
pub(crate) struct ControlReport {
    pub(crate) result: ControlResult,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl ControlResult {
    const ALL: [ControlResult; 3] =
        [ControlResult::Complete, ControlResult::Incomplete, ControlResult::Failed];

    fn name(self) -> &'static str {
        match self {
            ControlResult::Complete => "complete",
            ControlResult::Incomplete => "incomplete",
            ControlResult::Failed => "failed",
        }
    }
}

impl ControlReport {
    pub(super) fn complete() -> ControlReport {
        let (problems, warnings) = Default::default();
        ControlReport { result: ControlResult::Complete, problems, warnings }
    }

    pub(super) fn failed(problems: Vec<Problem>) -> ControlReport {
        ControlReport { result: ControlResult::Failed, problems, warnings: Vec::new() }
    }
}

/// The socket of this process.
pub(super) struct ControlSocket {
    listener: TokioListener,
    /// Clients whose requests are awaited.
    connected: FuturesUnordered<BoxFuture<'static, Option<(ControlRequest, ControlClient)>>>,
}

/// A client that waits for the result of its request.
pub(super) struct ControlClient(UnixStream);

impl ControlSocket {
    /// Creates the socket. Must be called within a runtime.
    pub(super) fn bind() -> io::Result<ControlSocket> {
        let listener = UnixListener::bind_addr(&control_address(std::process::id())?)?;
        listener.set_nonblocking(true)?;
        let listener = TokioListener::from_std(listener)?;
        Ok(ControlSocket { listener, connected: FuturesUnordered::new() })
    }

    /// Waits for the request of a permitted client. Others are disconnected. Nothing is lost if the
    /// future is dropped.
    pub(super) async fn next(&mut self) -> (ControlRequest, ControlClient) {
        loop {
            let has_place = self.connected.len() < MAX_CLIENTS;
            tokio::select! {
                Some(received) = self.connected.next() => {
                    if let Some(request) = received {
                        return request;
                    }
                }
                stream = accept(&self.listener), if has_place => {
                    self.connected.push(Box::pin(receive(stream)));
                }
            }
        }
    }
}

/// Waits for a client that may control the server.
async fn accept(listener: &TokioListener) -> TokioStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let user = stream.peer_cred().map(|peer| peer.uid()).ok();
                if user.is_some_and(|user| user == 0 || user == effective_user().as_raw()) {
                    return stream;
                }
            }
            Err(_) => sleep(ACCEPT_DELAY).await,
        }
    }
}

/// Receives a request; `None` if the client is late, has sent something else, or has disconnected.
async fn receive(mut stream: TokioStream) -> Option<(ControlRequest, ControlClient)> {
    let mut line = String::new();
    let mut input = BufReader::new((&mut stream).take(MAX_REQUEST_BYTES));
    timeout(REQUEST_TIMEOUT, input.read_line(&mut line)).await.ok()?.ok()?;
    let request = ControlRequest::parse(line.strip_suffix('\n')?)?;
    Some((request, ControlClient(stream.into_std().ok()?)))
}

impl ControlClient {
    /// Sends the result. A failure is ignored: the client has disconnected, and the result is
    /// logged.
    pub(super) fn reply(mut self, report: &ControlReport) {
        let mut text = format!("{}\n", report.result.name());
        let problems = report.problems.iter().map(Problem::to_string);
        let warnings = report.warnings.iter().map(Problem::as_warning);
        for line in problems.chain(warnings) {
            text.push_str(&line.replace('\n', " "));
            text.push('\n');
        }
        self.send(&text);
    }

    /// Reports that the server stops, and carries out nothing more.
    pub(super) fn refuse(mut self) {
        self.send(STOPPING);
    }

    fn send(&mut self, text: &str) {
        let _ = self.0.set_nonblocking(false);
        let _ = self.0.set_write_timeout(Some(WRITE_TIMEOUT));
        let _ = self.0.write_all(text.as_bytes());
    }
}

/// Sends a request to the server with this PID, and waits for the result, with one warning or error
/// in each text.
///
/// # Errors
/// If there is no such server, or if it stops.
pub(crate) fn send(
    request: ControlRequest,
    pid: u32,
) -> Result<(ControlResult, Vec<String>), String> {
    let name = request.name();
    let cannot = |reason: String| format!("cannot {name} the server with the PID {pid}: {reason}");
    let stream = control_address(pid).and_then(|address| UnixStream::connect_addr(&address));
    let mut stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => cannot("no server of weft has this PID".to_owned()),
        _ => cannot(error.to_string()),
    })?;
    if peer_pid(&stream).map_err(|error| cannot(error.to_string()))? != pid {
        return Err(cannot("another process has its control socket".to_owned()));
    }
    // A server that does not permit this user has disconnected, which the result shows.
    let _ = stream.write_all(format!("{name}\n").as_bytes());
    let mut text = String::new();
    stream
        .set_read_timeout(Some(RESULT_TIMEOUT))
        .and_then(|()| stream.take(MAX_RESULT_BYTES).read_to_string(&mut text).map(drop))
        // A server that disconnects a client before it has read its request resets the connection.
        .or_else(|error| match error.kind() {
            io::ErrorKind::ConnectionReset => Ok(()),
            _ => Err(error),
        })
        .map_err(|error| cannot(format!("no result: {error}")))?;
    if text == STOPPING {
        return Err(cannot("it is stopping".to_owned()));
    }
    let mut lines = text.lines();
    let result = lines
        .next()
        .and_then(|name| ControlResult::ALL.into_iter().find(|result| result.name() == name));
    match result {
        Some(result) => Ok((result, lines.map(str::to_owned).collect())),
        None => Err(cannot(
            "no result: the server has stopped, or this user is neither its user nor root"
                .to_owned(),
        )),
    }
}
