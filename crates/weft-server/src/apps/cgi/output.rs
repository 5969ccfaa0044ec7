//! Body of a script's response, streamed from its standard output.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weft::{Error, ErrorKind};
use weft_upstream::gateway_error::GatewayError;
use weft_upstream::spool::BodySource;

use super::run::Run;

/// Response body. Dropping it before its end terminates the script, because the rest of the output
/// is not needed.
pub(super) struct Output {
    /// `None` after the end of the body.
    run: Option<Box<Run>>,
    /// Bytes remaining of the script's `Content-Length`.
    remaining: Option<u64>,
}

impl Output {
    pub(super) fn new(run: Run, length: Option<u64>) -> Output {
        let mut output = Output { run: Some(Box::new(run)), remaining: length };
        output.detach_if_complete();
        output
    }

    /// Creates the body for a response to HEAD without `Content-Length`: its size is unknown, and
    /// no bytes follow.
    pub(super) fn of_unknown_length() -> Output {
        Output { run: None, remaining: None }
    }

    /// Detaches the script once it has written all of its `Content-Length`.
    fn detach_if_complete(&mut self) {
        if self.remaining == Some(0)
            && let Some(run) = self.run.take()
        {
            run.detach();
        }
    }

    /// Truncates the chunk to the `Content-Length`; bytes beyond it are not part of the body.
    fn limit_to_length(&mut self, chunk: &mut Bytes) {
        let Some(remaining) = &mut self.remaining else { return };
        if chunk.len() as u64 > *remaining {
            chunk.truncate(*remaining as usize);
            if let Some(run) = &self.run {
                run.warn("it writes more than its Content-Length");
            }
        }
        *remaining -= chunk.len() as u64;
        self.detach_if_complete();
    }

    /// Terminates the script. The returned error aborts the response, so that the client can detect
    /// the truncation.
    fn fail(&mut self, failure: GatewayError) -> Error {
        let run = self.run.take();
        match (failure, run) {
            (GatewayError::Client(error), _) => error,
            (failure, run) => {
                let reason = failure.reason();
                if let Some(run) = run {
                    run.warn(&reason);
                }
                Error::new(ErrorKind::ServiceFailed, reason)
            }
        }
    }
}

/// Polls for the next chunk; `None` at the end.
fn poll_chunk(run: &mut Run, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, GatewayError>> {
    let chunk = ready!(run.poll_output(cx))?;
    if chunk.is_empty() {
        return run.poll_exit(cx).map_ok(|()| None);
    }
    run.restart_timeout();
    Poll::Ready(Ok(Some(chunk)))
}

impl Body for Output {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(run) = &mut self.run else { return Poll::Ready(None) };
        let failure = match ready!(poll_chunk(run, cx)) {
            Ok(Some(mut chunk)) => {
                self.limit_to_length(&mut chunk);
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            Ok(None) if self.remaining.is_some() => {
                GatewayError::BadResponse("it wrote less than its Content-Length".to_owned())
            }
            Ok(None) => {
                if let Some(run) = self.run.take() {
                    run.detach();
                }
                return Poll::Ready(None);
            }
            Err(failure) => failure,
        };
        Poll::Ready(Some(Err(self.fail(failure).after_data())))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl BodySource for Output {
    fn limit_read(&mut self, bytes: usize) {
        if let Some(run) = &mut self.run {
            run.limit_read(bytes);
        }
    }

    fn buffered_bytes(&self) -> usize {
        self.run.as_ref().map_or(0, |run| run.buffered_bytes())
    }
}
