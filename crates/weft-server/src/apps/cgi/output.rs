//! What a script writes behind its head, as the body of the response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use weft::{Error, ErrorKind};

use super::failure::Failure;
use super::run::Run;

/// The body. The script is ended with it: who does not want the rest of the one does not want
/// the other to go on.
pub(super) struct Output {
    /// `None` after the end.
    run: Option<Box<Run>>,
    /// What is still to come of the `Content-Length` that the script has set.
    rest: Option<u64>,
    /// Why no more of it comes.
    failure: Option<Error>,
}

impl Output {
    pub(super) fn new(run: Run, length: Option<u64>) -> Output {
        let mut output = Output { run: Some(Box::new(run)), rest: length, failure: None };
        output.look_for_end();
        output
    }

    /// The body that a head speaks of, in a response to HEAD that tells no length.
    pub(super) fn unsaid() -> Output {
        Output { run: None, rest: None, failure: None }
    }

    /// Leaves the script to itself when it has written as much as it said.
    fn look_for_end(&mut self) {
        if self.rest == Some(0)
            && let Some(run) = self.run.take()
        {
            run.leave();
        }
    }

    /// Keeps to the length that was set, as the rest of the piece is no part of the body.
    fn measure(&mut self, piece: &mut Bytes) {
        let Some(rest) = &mut self.rest else { return };
        if piece.len() as u64 > *rest {
            piece.truncate(*rest as usize);
            if let Some(run) = &self.run {
                run.tell("it writes more than its Content-Length");
            }
        }
        *rest -= piece.len() as u64;
        self.look_for_end();
    }

    /// Ends the script, and the response in a way that does not look like its end.
    fn fail(&mut self, failure: Failure) -> Error {
        let run = self.run.take();
        match (failure, run) {
            (Failure::Client(error), _) => error,
            (failure, run) => {
                let reason = failure.reason().unwrap_or_default();
                if let Some(run) = run {
                    run.tell(&reason);
                }
                Error::new(ErrorKind::ServiceFailed, reason)
            }
        }
    }
}

/// The next bytes; `None` at the end.
fn poll_piece(run: &mut Run, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Failure>> {
    let piece = ready!(run.poll_output(cx))?;
    if piece.is_empty() {
        return run.poll_end(cx).map_ok(|()| None);
    }
    run.was_heard();
    Poll::Ready(Ok(Some(piece)))
}

impl Body for Output {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Some(run) = &mut self.run else { return Poll::Ready(None) };
        let failure = match ready!(poll_piece(run, cx)) {
            Ok(Some(mut piece)) => {
                self.measure(&mut piece);
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            Ok(None) if self.rest.is_some() => Failure::TooShort,
            Ok(None) => {
                if let Some(run) = self.run.take() {
                    run.leave();
                }
                return Poll::Ready(None);
            }
            Err(failure) => failure,
        };
        self.failure = Some(self.fail(failure));
        // While nothing new is to be had, what has come is sent: of a response that fails before it
        // has begun the engine would make one of its own.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.rest == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
