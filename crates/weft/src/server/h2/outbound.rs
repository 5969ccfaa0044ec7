//! The content of a response, and the rate at which the client receives it.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::server::h2::connection::Http2Connection;
use crate::server::h2::demand::{Demand, FRAME_WINDOW};
use crate::server::worker_context::WorkerContext;

/// Content of up to this size is queued in the connection regardless of the client's windows,
/// because that is cheaper than waiting. A budget of the connection bounds the total size.
pub(super) const MAX_SMALL_CONTENT_BYTES: usize = 4 << 10;

/// The content of one response.
pub(super) struct OutboundContent {
    stream: u32,
    /// The minimum rate; set at the first wait for the client.
    pace: Option<(Pace, Deadline)>,
    /// Number of content bytes for which `pace` was credited.
    credited: u64,
    /// Number of bytes that the connection had sent when `pace` was last reset.
    sent_at_reset: u64,
    /// Number of bytes queued by [`send_small`](OutboundContent::send_small).
    queued: u32,
    /// The window that the next frame of a body is expected to need: the size of the last one.
    frame_window: u32,
}

impl OutboundContent {
    pub(super) fn new(stream: u32) -> OutboundContent {
        OutboundContent {
            stream,
            pace: None,
            credited: 0,
            sent_at_reset: 0,
            queued: 0,
            frame_window: FRAME_WINDOW as u32,
        }
    }

    /// The identifier of the stream.
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// Number of bytes sent, or queued in the connection.
    pub(super) fn body_bytes(&self, connection: &mut Http2Connection) -> u64 {
        match self.queued {
            0 => connection.content_sent(self.stream),
            queued => queued.into(),
        }
    }

    /// Queues small content, which is the complete content, in the connection. Returns it if it has
    /// to wait.
    pub(super) fn send_small(
        &mut self,
        connection: &mut Http2Connection,
        bytes: Bytes,
    ) -> Result<Option<Bytes>> {
        let length = bytes.len() as u32;
        let waiting = connection.send_small(self.stream, bytes)?;
        if waiting.is_none() {
            self.queued = length;
        }
        Ok(waiting)
    }

    /// Begins a piece of content. Returns it, unless there is nothing to send.
    pub(super) fn begin_piece(&mut self, bytes: Bytes, is_last: bool) -> Option<Bytes> {
        self.frame_window = bytes.len().clamp(1, FRAME_WINDOW) as u32;
        Some(bytes).filter(|bytes| is_last || !bytes.is_empty())
    }

    /// Sends the piece, once. Ready when it is written.
    pub(super) fn poll_send<A>(
        &mut self,
        worker: &WorkerContext<A>,
        connection: &mut Http2Connection,
        (unsent, is_last): (&mut Option<Bytes>, bool),
        cx: &Context<'_>,
    ) -> Poll<Result<()>> {
        if let Some(bytes) = unsent.take() {
            connection.send(self.stream, bytes, is_last)?;
        }
        let polled = connection.poll_sent(self.stream, cx);
        self.poll_paced(worker, connection, polled, cx)
    }

    /// The demand for the next frame of a body.
    pub(super) fn next_frame(&self) -> Demand {
        Demand::Frame(self.frame_window as usize)
    }

    /// Ready when the next piece of content may be obtained. Returns the number of bytes to read
    /// from a file.
    pub(super) fn poll_turn<A>(
        &mut self,
        worker: &WorkerContext<A>,
        connection: &mut Http2Connection,
        demand: Demand,
        cx: &Context<'_>,
    ) -> Poll<Result<usize>> {
        let polled = connection.poll_turn(self.stream, demand, cx);
        self.poll_paced(worker, connection, polled, cx)
    }

    /// Enforces the minimum rate while the result of a poll is pending.
    fn poll_paced<A, T>(
        &mut self,
        worker: &WorkerContext<A>,
        connection: &Http2Connection,
        polled: Poll<Result<T>>,
        cx: &Context<'_>,
    ) -> Poll<Result<T>> {
        if polled.is_ready() && self.pace.is_none() {
            return polled;
        }
        let sent = connection.content_sent(self.stream);
        let (pace, deadline) = self
            .pace
            .get_or_insert_with(|| (Pace::new(&worker.settings), worker.deadlines.deadline()));
        if polled.is_ready() || sent > self.credited {
            pace.record_progress(sent.saturating_sub(self.credited) as usize, deadline);
            self.credited = sent;
        }
        if polled.is_ready() {
            return polled;
        }
        ready!(pace.poll_expired(deadline, cx));
        if connection.is_blocked_by_others(self.stream, self.sent_at_reset) {
            *pace = Pace::new(&worker.settings);
            self.sent_at_reset = connection.total_sent();
        }
        let expired = pace.poll_expired(deadline, cx);
        let reason = "the peer received the response too slowly";
        expired.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
    }
}
