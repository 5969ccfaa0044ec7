//! The content of a request on a stream.
//!
//! Bytes that the application has read are credited to the client's windows, so the bytes in
//! flight are bounded, and the application's pace is the client's pace.

use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::server::h2::pipe::{Next, Pipe};
use crate::server::inbound::{ContentEvent, ContentSource, ReceiveClock};

/// The content of a request, read from the pipe of its stream.
pub(super) struct StreamContent {
    pipe: Pipe,
    /// The number of bytes that remain, if the client declared it.
    remaining: Option<u64>,
    /// Notified on the first read if the client waits for a 100.
    on_read: Option<oneshot::Sender<()>>,
}

impl StreamContent {
    pub(super) fn new(
        pipe: Pipe,
        length: Option<u64>,
        on_read: Option<oneshot::Sender<()>>,
    ) -> StreamContent {
        StreamContent { pipe, remaining: length, on_read }
    }
}

impl ContentSource for StreamContent {
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut ReceiveClock,
    ) -> Poll<Result<ContentEvent>> {
        match self.pipe.poll_next(cx) {
            Poll::Ready(Next::Data(data)) => {
                clock.received(data.len());
                let bytes = data.len() as u64;
                self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(bytes));
                Poll::Ready(Ok(ContentEvent::Data(data)))
            }
            Poll::Ready(Next::End(trailers)) => Poll::Ready(Ok(ContentEvent::End(trailers))),
            Poll::Ready(Next::Cut) => {
                let reason = "the stream ended in the middle of the body";
                Poll::Ready(Err(Error::new(ErrorKind::BodyIncomplete, reason)))
            }
            Poll::Pending => {
                if let Some(on_read) = self.on_read.take() {
                    // The receiver is gone if the response has begun.
                    let _ = on_read.send(());
                }
                Poll::Pending
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.remaining
    }

    /// The application keeps its end of the pipe until it drops the body.
    fn release(&mut self, _failed: bool) {}
}

/// The connection discards the rest, or tells the client to stop.
impl Drop for StreamContent {
    fn drop(&mut self) {
        self.pipe.leave();
    }
}
