//! A stream: a request and its response, or a tunnel.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::Bytes;

use crate::server::h3::outgoing::Outgoing;
use crate::server::h3::pending_reset::PendingReset;
use crate::server::multiplex::pipe::{Pipe, RecvEnd};
use crate::server::multiplex::ready_queue::register;
use weft_proto::http3::request::{RequestPart, RequestReader};

/// The receiving side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Open,
    /// The client has ended it.
    Ended,
    /// It was reset by the client, or stopped by the server.
    Stopped,
}

/// The sending side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Open,
    /// The end of the response was passed to the transport, or waits behind other output.
    Ended,
    /// It was reset by the server, or stopped by the client.
    Reset,
}

/// The owner of a stream, which determines when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The head of the request was not received completely.
    Reader,
    Exchange,
    /// The handler of a tunnel, which runs in the exchange.
    Tunnel,
    /// A tunnel whose handler has ended; its last bytes may be unsent.
    EndedTunnel,
    None,
}

/// The state of a stream.
pub(super) struct Stream {
    pub(super) reader: RequestReader,
    /// A field section that waits for the client's encoder stream, and the input behind it.
    pub(super) blocked: Option<Box<(RequestPart, Bytes)>>,
    pub(super) receiving: Receiving,
    pub(super) sending: Sending,
    pub(super) owner: Owner,
    /// The channel for its content, or for the data of a tunnel.
    pub(super) pipe: Option<Pipe>,
    /// Number of bytes in the pipe that the application has not read.
    pub(super) unread: usize,
    /// Remaining length of the content, if the client declared it.
    content_length: Option<u64>,
    /// Output that the transport has not accepted: heads, small responses, data of a tunnel.
    pub(super) queued: VecDeque<Outgoing>,
    /// Number of bytes in `queued`.
    pub(super) queued_bytes: usize,
    /// Number of content bytes that were passed to the transport, or wait in `queued`.
    pub(super) content_sent: u64,
    /// A reset behind the output.
    pub(super) pending_reset: Option<Box<PendingReset>>,
    /// Rank of the response among the others. The highest rank is sent first.
    pub(super) rank: i32,
    /// Waker of the exchange that waits for the stream.
    waker: Option<Waker>,
}

impl Stream {
    /// Creates a stream whose field sections have at most this size.
    pub(super) fn new(max_section_bytes: usize) -> Stream {
        Stream {
            reader: RequestReader::new(max_section_bytes),
            blocked: None,
            receiving: Receiving::Open,
            sending: Sending::Open,
            owner: Owner::Reader,
            pipe: None,
            unread: 0,
            content_length: None,
            queued: VecDeque::new(),
            queued_bytes: 0,
            content_sent: 0,
            pending_reset: None,
            rank: 0,
            waker: None,
        }
    }

    /// Processes the head of its request.
    pub(super) fn on_head(&mut self, content_length: Option<u64>, pipe: Option<Pipe>) {
        self.owner = Owner::Exchange;
        self.content_length = content_length;
        self.pipe = pipe;
    }

    /// Counts content against the declared length (RFC 9114 §4.1.2). Returns false if there is more.
    pub(super) fn receive_content(&mut self, bytes: usize) -> bool {
        let Some(remaining) = &mut self.content_length else { return true };
        match remaining.checked_sub(bytes as u64) {
            Some(rest) => {
                *remaining = rest;
                true
            }
            None => false,
        }
    }

    /// Returns true if all of the declared content was received.
    pub(super) fn is_content_complete(&self) -> bool {
        self.content_length.is_none_or(|remaining| remaining == 0)
    }

    /// Processes the end of the request.
    pub(super) fn end_received(&mut self, end: RecvEnd) {
        self.receiving = Receiving::Ended;
        if let Some(pipe) = &self.pipe {
            pipe.end(end);
        }
    }

    /// Ends both sides, and wakes all tasks that wait for the stream. Returns the number of bytes of
    /// output that are discarded.
    pub(super) fn reset(&mut self) -> usize {
        self.receiving = Receiving::Stopped;
        self.blocked = None;
        self.sending = Sending::Reset;
        self.pending_reset = None;
        self.queued.clear();
        if let Some(pipe) = &self.pipe {
            pipe.clear();
            pipe.end(RecvEnd::Reset);
        }
        self.wake();
        std::mem::take(&mut self.queued_bytes)
    }

    /// Makes the handler of an upgrade the owner.
    pub(super) fn make_tunnel(&mut self) {
        self.owner = Owner::Tunnel;
    }

    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.owner, Owner::Tunnel | Owner::EndedTunnel)
    }

    /// Records the end of the exchange.
    pub(super) fn end_exchange(&mut self) {
        self.owner = match self.owner {
            Owner::Reader | Owner::Exchange | Owner::None => Owner::None,
            Owner::Tunnel | Owner::EndedTunnel => Owner::EndedTunnel,
        };
    }

    /// Returns true if the stream can be removed: it has no owner, and no unsent or unread data.
    pub(super) fn is_done(&self) -> bool {
        let is_owned = match self.owner {
            Owner::Reader | Owner::Exchange | Owner::Tunnel => true,
            Owner::EndedTunnel => self.sending == Sending::Open,
            Owner::None => false,
        };
        let is_sent = self.queued.is_empty() && self.pending_reset.is_none();
        !is_owned && is_sent && self.pipe.as_ref().is_none_or(Pipe::check_finished)
    }

    /// Registers the exchange to be woken by the next change of the stream.
    pub(super) fn register_waker(&mut self, cx: &Context<'_>) {
        register(&mut self.waker, cx);
    }

    pub(super) fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
