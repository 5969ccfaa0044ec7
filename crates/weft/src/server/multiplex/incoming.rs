//! The content of a request on a stream.
//!
//! Bytes are credited to the client's flow-control windows when the application has read them, so
//! the number of buffered bytes is bounded, and backpressure reaches the client.

use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::server::inbound::{ContentEvent, ContentSource, ReceiveClock};
use crate::server::multiplex::pipe::{Pipe, PipeEvent};

/// The content of a request, read from the pipe of its stream.
pub(in crate::server) struct StreamContent {
    pipe: Pipe,
    /// Number of remaining bytes, if the client declared it.
    remaining: Option<u64>,
    /// Notified on the first read if the client waits for a 100.
    on_read: Option<oneshot::Sender<()>>,
}

impl StreamContent {
    pub(in crate::server) fn new(
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
            Poll::Ready(PipeEvent::Data(data)) => {
                clock.received(data.len());
                let bytes = data.len() as u64;
                self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(bytes));
                Poll::Ready(Ok(ContentEvent::Data(data)))
            }
            Poll::Ready(PipeEvent::End(trailers)) => Poll::Ready(Ok(ContentEvent::End(trailers))),
            Poll::Ready(PipeEvent::Reset) => {
                let reason = "the stream ended in the middle of the body";
                Poll::Ready(Err(Error::new(ErrorKind::BodyIncomplete, reason)))
            }
            Poll::Pending => {
                if let Some(on_read) = self.on_read.take() {
                    // The receiver is dropped if the response has started.
                    let _ = on_read.send(());
                }
                Poll::Pending
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.remaining
    }

    /// Does nothing: the application holds its end of the pipe until it drops the body.
    fn release(&mut self, _failed: bool) {}
}

/// Closes the pipe. The connection then discards the rest, or resets the stream.
impl Drop for StreamContent {
    fn drop(&mut self) {
        self.pipe.close_reader();
    }
}
