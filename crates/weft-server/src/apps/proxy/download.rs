//! The body of a response on its way from an upstream to the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use weft::{Error, ErrorKind};

use super::pool::Lease;
use super::response;
use super::upload::Upload;

/// A body that holds the connection which it comes from: at its end the next request may have
/// it, and if it is dropped before, the connection closes.
pub(super) struct Download {
    incoming: Incoming,
    lease: Option<Lease>,
    upload: Option<Arc<Upload>>,
    patience: Duration,
    clock: Clock,
}

/// How long the upstream has been silent.
enum Clock {
    /// It never was.
    None,
    Stopped(Pin<Box<Sleep>>),
    Running(Pin<Box<Sleep>>),
}

impl Download {
    pub(super) fn new(
        incoming: Incoming,
        lease: Lease,
        upload: Option<Arc<Upload>>,
        patience: Duration,
    ) -> Download {
        let mut download =
            Download { incoming, lease: Some(lease), upload, patience, clock: Clock::None };
        download.look_for_end();
        download
    }

    /// Gives the connection back if the response is through, and the request too: what is still
    /// to come of that, nobody wants.
    fn look_for_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(lease) = self.lease.take()
            && self.upload.as_ref().is_none_or(|upload| upload.is_done())
        {
            lease.give_back();
        }
    }

    fn fail(&mut self, reason: String) -> Error {
        if let Some(lease) = self.lease.take() {
            lease.upstream().failed(&reason);
            let reason = format!("the upstream {}: {reason}", lease.upstream());
            return Error::new(ErrorKind::ServiceFailed, reason);
        }
        Error::new(ErrorKind::ServiceFailed, reason)
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.clock.stop();
                let frame = match frame.into_trailers() {
                    Ok(trailers) => Frame::trailers(response::trailers(trailers)),
                    Err(frame) => frame,
                };
                this.look_for_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                let cause = cause.unwrap_or_default();
                Poll::Ready(Some(Err(this.fail(format!("the body was cut: {error}{cause}")))))
            }
            Poll::Ready(None) => {
                // What hyper reads to the end of a connection ends here and not before.
                if let Some(lease) = this.lease.take()
                    && this.upload.as_ref().is_none_or(|upload| upload.is_done())
                {
                    lease.give_back();
                }
                Poll::Ready(None)
            }
            Poll::Pending => {
                if this.clock.poll_over(this.patience, cx).is_pending() {
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(this.fail("it is silent in the middle of a body".to_owned()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Clock {
    /// Runs on, or begins to.
    fn poll_over(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let mut sleep = match std::mem::replace(self, Clock::None) {
            Clock::None => Box::pin(sleep(patience)),
            Clock::Stopped(mut stopped) => {
                // A time too far away is none.
                if let Some(end) = Instant::now().checked_add(patience) {
                    stopped.as_mut().reset(end);
                }
                stopped
            }
            Clock::Running(running) => running,
        };
        let over = sleep.as_mut().poll(cx);
        *self = Clock::Running(sleep);
        over
    }

    fn stop(&mut self) {
        *self = match std::mem::replace(self, Clock::None) {
            Clock::Running(sleep) => Clock::Stopped(sleep),
            other => other,
        };
    }
}

/// The body that the head of a response speaks of when there is none: the response to HEAD to
/// which a GET would have had one of unknown length.
pub(super) struct Unsaid;

impl Body for Unsaid {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(None)
    }
}
