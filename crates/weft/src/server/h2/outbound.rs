//! The content of a response, and the rate at which the client receives it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::server::h2::connection::Connection;
use crate::server::worker::Worker;

/// Content of up to this size is queued in the connection regardless of the client's windows,
/// because that is cheaper than waiting. The number of streams bounds the total size.
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// The content of one response.
pub(super) struct OutboundContent {
    stream: u32,
    /// The minimum rate; set at the first wait for the client.
    pace: Option<(Pace, Deadline)>,
    /// Number of content bytes for which `pace` was credited.
    credited: u64,
    /// Number of bytes that the connection had sent when `pace` was last reset.
    sent_at_reset: u64,
    /// Number of bytes queued by [`queue_small`](OutboundContent::queue_small).
    queued: u64,
}

impl OutboundContent {
    pub(super) fn new(stream: u32) -> OutboundContent {
        OutboundContent { stream, pace: None, credited: 0, sent_at_reset: 0, queued: 0 }
    }

    /// Number of bytes sent, or queued in the connection.
    pub(super) fn body_bytes(&self, connection: &mut Connection) -> u64 {
        match self.queued {
            0 => connection.content_sent(self.stream),
            queued => queued,
        }
    }

    /// Queues small content, which is the complete content, in the connection.
    pub(super) fn queue_small(&mut self, connection: &mut Connection, bytes: Bytes) -> Result<()> {
        self.queued = bytes.len() as u64;
        connection.send(self.stream, bytes, true)
    }

    /// Sends bytes, and waits until they are written.
    pub(super) async fn send<A>(
        &mut self,
        worker: &Worker<A>,
        connection: &RefCell<Connection>,
        bytes: Bytes,
        is_last: bool,
    ) -> Result<()> {
        if bytes.is_empty() && !is_last {
            return Ok(());
        }
        connection.borrow_mut().send(self.stream, bytes, is_last)?;
        poll_fn(|cx| self.poll_sent(worker, &mut connection.borrow_mut(), cx)).await
    }

    /// Ready when all queued bytes of the stream are framed.
    fn poll_sent<A>(
        &mut self,
        worker: &Worker<A>,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        let polled = connection.poll_sent(self.stream, cx);
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
