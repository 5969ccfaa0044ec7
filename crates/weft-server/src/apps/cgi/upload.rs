//! The body of a request on its way to a script's standard input.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use weft::{Body, Error, ErrorKind, Request};

use super::failure::Failure;
use super::settings::Settings;

/// What a script reads.
pub(super) enum Input {
    Empty,
    /// As the client sends it.
    Streamed(Body),
    /// From a file that has no name.
    Spooled(File),
}

/// How far it is. It is moved by a task of its own, for a script may want to write before it
/// reads on, and the other way round.
#[derive(Default)]
pub(super) struct Progress {
    moved: AtomicU64,
    is_awaited: AtomicBool,
}

/// Whose turn it is while a script is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    /// The script's, after so many writes.
    Script(u64),
}

/// Why a body did not come to its end, and the pipe into which it would have gone.
pub(super) struct Cut {
    pub(super) error: Error,
    pub(super) stdin: pipe::Sender,
}

impl Input {
    /// What a script will read of a request, and the length that it is told (RFC 3875 §4.1.2).
    pub(super) async fn of(
        request: &mut Request,
        settings: &Settings,
    ) -> Result<(Input, Option<u64>), Failure> {
        let mut body = std::mem::take(request.body());
        let Some(length) = body.length() else {
            body.set_limit(settings.max_spooled_bytes.min(settings.max_body_bytes));
            let (file, length) = spool(body).await?;
            return Ok((Input::Spooled(file), Some(length)));
        };
        if length > settings.max_body_bytes {
            let reason = "the body is larger than allowed";
            return Err(Failure::Client(Error::new(ErrorKind::BodyTooLarge, reason)));
        }
        body.set_limit(settings.max_body_bytes);
        let said_so = request.headers().get_bytes("content-length").is_some();
        Ok(match length {
            0 => (Input::Empty, said_so.then_some(0)),
            _ => (Input::Streamed(body), Some(length)),
        })
    }
}

/// Keeps a body of unknown length in a temporary file, and says how long it is.
async fn spool(mut body: Body) -> Result<(File, u64), Failure> {
    let mut file = spawn_blocking(tempfile::tempfile).await.map_err(io::Error::other)??;
    let mut length = 0;
    while let Some(chunk) = body.chunk().await.map_err(Failure::Client)? {
        length += chunk.len() as u64;
        let write = move || file.write_all(&chunk).map(|()| file);
        file = spawn_blocking(write).await.map_err(io::Error::other)??;
    }
    file.rewind()?;
    Ok((file, length))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

/// Writes a body into a pipe. If the client does not send all of it, that is told.
pub(super) async fn send(
    mut body: Body,
    mut stdin: pipe::Sender,
    progress: Arc<Progress>,
    cut: oneshot::Sender<Cut>,
) {
    loop {
        progress.is_awaited.store(true, Relaxed);
        let next = body.chunk().await;
        progress.is_awaited.store(false, Relaxed);
        let mut chunk = match next {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return,
            Err(error) => {
                // If nobody listens, the script is ending already.
                let _ = cut.send(Cut { error, stdin });
                return;
            }
        };
        while !chunk.is_empty() {
            // A script need not read everything (RFC 3875 §4.2).
            let Ok(written) = stdin.write(&chunk).await else { return };
            progress.moved.fetch_add(1, Relaxed);
            let _ = chunk.split_to(written);
        }
    }
}

impl Progress {
    pub(super) fn turn(&self) -> Turn {
        match self.is_awaited.load(Relaxed) {
            true => Turn::Client,
            false => Turn::Script(self.moved.load(Relaxed)),
        }
    }
}
