//! The content of a response on its way to its stream, and the rate at which the client takes it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::clock::deadline::{Deadline, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::server::h2::connection::Connection;
use crate::server::worker::Worker;

/// Content of up to this size is left with the connection, whatever the client's windows allow,
/// since that is cheaper. The number of streams bounds its sum.
pub(super) const SMALL_BYTES: usize = 4 << 10;

/// The content of one response.
pub(super) struct OutboundContent {
    stream: u32,
    /// The minimum rate, from the first wait for the client on.
    pace: Option<(Pace, Deadline)>,
    /// The content bytes for which the rate was credited.
    paced: u64,
    /// The bytes that the connection had sent when the rate was last reset.
    sent_at_reset: u64,
    /// The bytes that were left with the connection.
    left_with_connection: u64,
}

impl OutboundContent {
    pub(super) fn new(stream: u32) -> OutboundContent {
        OutboundContent { stream, pace: None, paced: 0, sent_at_reset: 0, left_with_connection: 0 }
    }

    /// The number of bytes sent, or to be sent by the connection on its own.
    pub(super) fn body_bytes(&self, connection: &mut Connection) -> u64 {
        match self.left_with_connection {
            0 => connection.content_sent(self.stream),
            left => left,
        }
    }

    /// Leaves small content with the connection, as all that there is.
    pub(super) fn leave(&mut self, connection: &mut Connection, bytes: Bytes) -> Result<()> {
        self.left_with_connection = bytes.len() as u64;
        connection.send(self.stream, bytes, true)
    }

    /// Sends bytes as the client takes them.
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

    /// Ready when the connection has written all bytes of the stream.
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
        if polled.is_ready() || sent > self.paced {
            pace.record_progress(sent.saturating_sub(self.paced) as usize, deadline);
            self.paced = sent;
        }
        if polled.is_ready() {
            return polled;
        }
        ready!(pace.poll_expired(deadline, cx));
        if connection.is_behind_others(self.stream, self.sent_at_reset) {
            *pace = Pace::new(&worker.settings);
            self.sent_at_reset = connection.total_sent();
        }
        let over = pace.poll_expired(deadline, cx);
        let reason = "the peer took the response too slowly";
        over.map(|()| Err(Error::new(ErrorKind::TooSlow, reason)))
    }
}
