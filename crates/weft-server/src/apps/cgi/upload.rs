//! Transfer of the request body to a script's standard input.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use weft::client_limit::Client;
use weft::{Body, Error, ErrorKind, Request};
use weft_upstream::gateway_error::GatewayError;
use weft_upstream::spool::{self, BufferSpace, ReceivedBody, SpoolLimits};

use super::settings::CgiSettings;

/// Source of a script's standard input.
pub(super) enum Input {
    Empty,
    /// Body received from the client before, or streamed from it.
    Body(Body),
}

/// Progress of the transfer. A separate task transfers the body, because a script may write output
/// before it reads all input, or read before it writes.
#[derive(Default)]
pub(super) struct Progress {
    /// Number of completed writes to the script.
    writes: AtomicU64,
    is_reading_client: AtomicBool,
}

/// Party that the transfer is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitingFor {
    Client,
    /// Script, with the number of writes so far.
    Script(u64),
}

/// Error that ended the body early, and the pipe to the script, which is still open.
pub(super) struct IncompleteBody {
    pub(super) error: Error,
    pub(super) stdin: pipe::Sender,
}

impl Input {
    /// Takes and receives the body of a request. Returns the input for the script and its
    /// `CONTENT_LENGTH` (RFC 3875 §4.1.2).
    pub(super) async fn from_request(
        request: &mut Request,
        settings: &CgiSettings,
        space: &Arc<BufferSpace>,
        client: Option<Client>,
    ) -> Result<(Input, Option<u64>), GatewayError> {
        let mut body = std::mem::take(request.body());
        let limits = settings.spool_limits(settings.request_buffer_bytes, space);
        let Some(length) = body.length() else {
            let max_bytes = settings.max_spooled_bytes.min(settings.max_body_bytes);
            body.set_limit(max_bytes);
            let limits = SpoolLimits { max_file_bytes: max_bytes, ..(*limits).clone() };
            let limits = Arc::new(limits);
            let received = spool::receive(body, &limits, client, false).await;
            let received = received.map_err(GatewayError::Client)?;
            let no_space = GatewayError::Overloaded("no space for a request body");
            let length = received.length.ok_or(no_space)?;
            return Ok((Input::Body(received.body), Some(length)));
        };
        if length > settings.max_body_bytes {
            let reason = format!("the body is larger than {} bytes", settings.max_body_bytes);
            return Err(GatewayError::Client(Error::new(ErrorKind::BodyTooLarge, reason)));
        }
        body.set_limit(settings.max_body_bytes);
        let has_length_field = request.headers().get_bytes("content-length").is_some();
        Ok(match length {
            0 => (Input::Empty, has_length_field.then_some(0)),
            _ if !settings.buffer_requests => (Input::Body(body), Some(length)),
            _ => {
                let received = spool::receive(body, &limits, client, false).await;
                let ReceivedBody { body, .. } = received.map_err(GatewayError::Client)?;
                (Input::Body(body), Some(length))
            }
        })
    }
}

/// Writes a body to a pipe. Reports an incomplete body on `incomplete`.
pub(super) async fn send(
    mut body: Body,
    mut stdin: pipe::Sender,
    progress: Arc<Progress>,
    incomplete: oneshot::Sender<IncompleteBody>,
) {
    loop {
        progress.is_reading_client.store(true, Relaxed);
        let next = body.chunk().await;
        progress.is_reading_client.store(false, Relaxed);
        let mut chunk = match next {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return,
            Err(error) => {
                // Fails if the run has been dropped, which terminates the script.
                let _ = incomplete.send(IncompleteBody { error, stdin });
                return;
            }
        };
        while !chunk.is_empty() {
            // A script is not required to read the whole body (RFC 3875 §4.2).
            let Ok(written) = stdin.write(&chunk).await else { return };
            progress.writes.fetch_add(1, Relaxed);
            let _ = chunk.split_to(written);
        }
    }
}

impl Progress {
    pub(super) fn waiting_for(&self) -> WaitingFor {
        match self.is_reading_client.load(Relaxed) {
            true => WaitingFor::Client,
            false => WaitingFor::Script(self.writes.load(Relaxed)),
        }
    }
}
