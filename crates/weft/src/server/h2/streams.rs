//! The open streams of a connection, by their identifiers.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::HeaderMap;

use crate::server::h2::demand::Holding;
use crate::server::multiplex::pipe::{Pipe, RecvEnd};
use weft_proto::http2::flow::{Overflow, RecvWindow, SendWindow};

/// The states of a stream that a client has opened (RFC 9113 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    Open,
    /// The response has ended; the client may still send DATA.
    HalfClosedLocal,
    /// The client has ended its request.
    HalfClosedRemote,
    /// Both directions have ended.
    Closed,
    /// RST_STREAM was sent or received.
    Reset(Initiator),
}

/// The sender of a RST_STREAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initiator {
    Server,
    Client,
}

impl StreamState {
    /// Returns true if the client may send DATA or trailers.
    pub(super) fn is_receiving(self) -> bool {
        matches!(self, StreamState::Open | StreamState::HalfClosedLocal)
    }

    /// Returns true if the response has not ended.
    pub(super) fn is_sending(self) -> bool {
        matches!(self, StreamState::Open | StreamState::HalfClosedRemote)
    }

    fn after_end_received(self) -> StreamState {
        match self {
            StreamState::Open => StreamState::HalfClosedRemote,
            StreamState::HalfClosedLocal => StreamState::Closed,
            state => state,
        }
    }

    fn after_end_sent(self) -> StreamState {
        match self {
            StreamState::Open => StreamState::HalfClosedLocal,
            StreamState::HalfClosedRemote => StreamState::Closed,
            state => state,
        }
    }
}

/// The owner of a stream, which determines when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Its exchange.
    Exchange,
    /// The handler of a tunnel, which runs in the exchange.
    Tunnel,
    /// A tunnel whose handler has ended; its last bytes may be unsent.
    EndedTunnel,
    None,
}

/// The state of a stream: a request and its response, or a tunnel.
pub(super) struct Stream {
    pub(super) id: u32,
    state: StreamState,
    owner: Owner,
    /// Size of the request's head beyond the size of an ordinary head.
    pub(super) excess_head_bytes: usize,
    /// Remaining length of the content, if the client declared it.
    content_length: Option<u64>,
    pub(super) recv: RecvWindow,
    /// The channel for its content, or for the data of a tunnel.
    pub(super) pipe: Option<Pipe>,
    send: SendWindow,
    outbox: Outbox,
    /// The part of the outbox, or of the content before it, that `turns` counts.
    pub(super) holding: Holding,
    /// Set while the stream is in the [`SendQueue`].
    is_queued: bool,
    /// Number of framed content bytes.
    content_sent: u64,
    /// Waker of the exchange that waits for the stream.
    waker: Option<Waker>,
}

/// Output of a stream that is not framed yet.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) bytes: Bytes,
    pub(super) trailers: Option<Box<HeaderMap>>,
    pub(super) ends: bool,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.ends && self.trailers.is_none()
    }
}

impl Stream {
    /// Creates a stream opened by a request. `ends` is true if its HEADERS frame has END_STREAM.
    pub(super) fn new(
        id: u32,
        ends: bool,
        content_length: Option<u64>,
        pipe: Option<Pipe>,
        (send, recv): (SendWindow, RecvWindow),
    ) -> Stream {
        Stream {
            id,
            state: if ends { StreamState::HalfClosedRemote } else { StreamState::Open },
            owner: Owner::Exchange,
            excess_head_bytes: 0,
            content_length,
            recv,
            pipe,
            send,
            outbox: Outbox::default(),
            holding: Holding::Nothing,
            is_queued: false,
            content_sent: 0,
            waker: None,
        }
    }

    pub(super) fn state(&self) -> StreamState {
        self.state
    }

    pub(super) fn is_reset(&self) -> bool {
        matches!(self.state, StreamState::Reset(_))
    }

    pub(super) fn content_sent(&self) -> u64 {
        self.content_sent
    }

    /// Counts content against the declared length (RFC 9113 §8.1.1). Returns false if they
    /// differ.
    pub(super) fn receive_content(&mut self, bytes: usize, ends: bool) -> bool {
        let Some(remaining) = &mut self.content_length else { return true };
        match remaining.checked_sub(bytes as u64) {
            Some(rest) if rest == 0 || !ends => {
                *remaining = rest;
                true
            }
            _ => false,
        }
    }

    /// Length of the content that was not received, if the client declared it.
    pub(super) fn unreceived_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns true if all of the declared content was received.
    pub(super) fn is_content_complete(&self) -> bool {
        self.content_length.is_none_or(|remaining| remaining == 0)
    }

    /// Processes END_STREAM from the client.
    pub(super) fn end_received(&mut self, end: RecvEnd) {
        self.state = self.state.after_end_received();
        if let Some(pipe) = &self.pipe {
            pipe.end(end);
        }
    }

    pub(super) fn end_sent(&mut self) {
        self.state = self.state.after_end_sent();
    }

    /// Ends both directions, and wakes all tasks that wait for the stream. Returns the number of
    /// discarded bytes of received data.
    pub(super) fn reset(&mut self, initiator: Initiator) -> usize {
        if !self.is_reset() {
            self.state = StreamState::Reset(initiator);
        }
        self.outbox = Outbox::default();
        let mut discarded = 0;
        if let Some(pipe) = &self.pipe {
            discarded = pipe.clear();
            pipe.end(RecvEnd::Reset);
        }
        self.wake();
        discarded
    }

    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.owner, Owner::Tunnel | Owner::EndedTunnel)
    }

    /// Makes the handler of an upgrade the owner of the stream.
    pub(super) fn make_tunnel(&mut self) {
        self.owner = Owner::Tunnel;
    }

    /// Records the end of the exchange.
    pub(super) fn end_exchange(&mut self) {
        self.owner = match self.owner {
            Owner::Exchange | Owner::None => Owner::None,
            Owner::Tunnel | Owner::EndedTunnel => Owner::EndedTunnel,
        };
    }

    /// Returns true if the stream can be removed: it has no owner, and no unsent or unread data.
    pub(super) fn is_done(&self) -> bool {
        let is_owned = match self.owner {
            Owner::Exchange | Owner::Tunnel => true,
            Owner::EndedTunnel => self.state.is_sending(),
            Owner::None => false,
        };
        !is_owned && self.outbox.is_empty() && self.pipe.as_ref().is_none_or(Pipe::check_finished)
    }

    /// Applies a change of the client's initial window.
    pub(super) fn adjust_window(&mut self, difference: i64) -> Result<(), Overflow> {
        self.send.adjust(difference)
    }

    pub(super) fn increase_window(&mut self, bytes: i64) -> Result<(), Overflow> {
        self.send.increase(bytes)
    }

    pub(super) fn window(&self) -> SendWindow {
        self.send
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn set_outbox(&mut self, outbox: Outbox) {
        self.outbox = outbox;
    }

    pub(super) fn set_trailers(&mut self, trailers: Box<HeaderMap>) {
        self.outbox.trailers = Some(trailers);
    }

    /// Takes up to `max` bytes from the outbox.
    pub(super) fn take_piece(&mut self, max: usize) -> Bytes {
        let length = self.outbox.bytes.len().min(max);
        self.outbox.bytes.split_to(length)
    }

    /// Takes the trailers, after all content was framed.
    pub(super) fn take_trailers(&mut self) -> Option<Box<HeaderMap>> {
        std::mem::take(&mut self.outbox).trailers
    }

    /// Counts framed content, and processes its END_STREAM.
    pub(super) fn content_framed(&mut self, bytes: usize, ends: bool) {
        self.send.consume(bytes);
        self.content_sent += bytes as u64;
        if ends {
            self.end_sent();
        }
    }

    /// Registers the exchange to be woken by the next change of the stream.
    pub(super) fn register_waker(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    /// Wakes the exchange. Returns false if it was not waiting.
    pub(super) fn wake(&mut self) -> bool {
        let waker = self.waker.take();
        let is_waiting = waker.is_some();
        if let Some(waker) = waker {
            waker.wake();
        }
        is_waiting
    }
}

/// Ends the pipe, so that a body or a tunnel that outlives its stream is notified.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(pipe) = &self.pipe {
            pipe.end(RecvEnd::Reset);
        }
    }
}

/// The streams in the order of their identifiers, which is the order of their requests.
#[derive(Default)]
pub(super) struct Streams(Vec<Stream>);

/// Number of streams for which space is added.
const GROWTH: usize = 8;

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, stream: Stream) {
        if self.0.len() == self.0.capacity() {
            // Doubling would take up to twice the memory.
            self.0.reserve_exact(GROWTH);
        }
        self.0.push(stream);
    }

    fn index(&self, id: u32) -> Option<usize> {
        match self.0.last() {
            // Fast path: most lookups are for the stream that was opened last.
            Some(last) if last.id == id => Some(self.0.len() - 1),
            _ => self.0.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.index(id).is_some()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.index(id).map(|index| &self.0[index])
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.index(id).map(|index| &mut self.0[index])
    }

    /// Removes and returns a stream if it is done.
    pub(super) fn take_if_done(&mut self, id: u32) -> Option<Stream> {
        let index = self.index(id)?;
        self.0[index].is_done().then(|| self.0.remove(index))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.0.iter_mut()
    }

    /// Frees the memory of a former larger number of streams.
    pub(super) fn shrink(&mut self) {
        const RETAINED: usize = 4;
        if self.0.capacity() > RETAINED {
            self.0.shrink_to(RETAINED);
        }
    }
}

/// Streams with queued data and an open window, in round-robin order.
#[derive(Default)]
pub(super) struct SendQueue(VecDeque<u32>);

impl SendQueue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Adds a stream if it has queued data that its window allows to send.
    pub(super) fn push_ready(&mut self, stream: &mut Stream) {
        let may_send = stream.send.is_open() || stream.outbox.bytes.is_empty();
        if may_send && !stream.outbox.is_empty() {
            self.push(stream);
        }
    }

    pub(super) fn push(&mut self, stream: &mut Stream) {
        if !std::mem::replace(&mut stream.is_queued, true) {
            self.0.push_back(stream.id);
        }
    }

    /// Takes the next stream.
    pub(super) fn pop<'a>(&mut self, streams: &'a mut Streams) -> Option<&'a mut Stream> {
        while let Some(id) = self.0.pop_front() {
            if let Some(index) = streams.index(id) {
                let stream = &mut streams.0[index];
                stream.is_queued = false;
                return Some(stream);
            }
        }
        None
    }

    /// Removes a closed stream.
    pub(super) fn remove(&mut self, stream: &Stream) {
        if stream.is_queued {
            self.0.retain(|queued| *queued != stream.id);
        }
    }
}
