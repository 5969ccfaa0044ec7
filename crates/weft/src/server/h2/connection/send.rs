//! Framing of the output of streams, which are served in turn as the client's windows and the
//! output buffer allow.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use crate::error::{Error, Result};
use crate::server::h2::connection::Http2Connection;
use crate::server::h2::demand::{Demand, Lane};
use crate::server::h2::streams::{Outbox, Stream};
use crate::server::h2::turns::OutputState;
use crate::server::multiplex::response_head;
use weft_proto::http2::frame::{
    self, FRAME_HEADER_LEN, FrameHeader, MAX_FRAME_PAYLOAD, flag, kind,
};
use weft_proto::http2::hpack::Encoder;

impl Http2Connection {
    /// Writes a field block, of a head or of trailers. `write` encodes the fields.
    pub(in crate::server::h2) fn send_fields(
        &mut self,
        id: u32,
        ends: bool,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Result<()> {
        let stream = sendable(self.streams.get_mut(id))?;
        if ends {
            stream.end_sent();
        }
        let out = self.writer.out();
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER_LEN]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        frame_block(out, start, id, ends);
        Ok(())
    }

    /// Sends content. It is framed at once if the windows allow it and no other stream waits;
    /// otherwise it is queued.
    pub(in crate::server::h2) fn send(&mut self, id: u32, bytes: Bytes, ends: bool) -> Result<()> {
        if !self.send_now(id, &bytes, ends)? {
            let stream = sendable(self.streams.get_mut(id))?;
            self.turns.on_queued(stream, bytes.len());
            self.queue_content(id, bytes, ends);
        }
        Ok(())
    }

    /// Sends small content, which is all of a response. Returns it if it has to wait, because much
    /// small content is already queued.
    pub(in crate::server::h2) fn send_small(
        &mut self,
        id: u32,
        bytes: Bytes,
    ) -> Result<Option<Bytes>> {
        if self.send_now(id, &bytes, true)? {
            return Ok(None);
        }
        let stream = sendable(self.streams.get_mut(id))?;
        if !self.turns.queue_small(stream, bytes.len()) {
            return Ok(Some(bytes));
        }
        self.queue_content(id, bytes, true);
        Ok(None)
    }

    /// Frames content if the windows allow it and no other stream waits. Returns false otherwise.
    fn send_now(&mut self, id: u32, bytes: &[u8], ends: bool) -> Result<bool> {
        let Http2Connection { streams, queue, turns, writer, send, .. } = self;
        let stream = sendable(streams.get_mut(id))?;
        let fits = bytes.len() <= MAX_FRAME_PAYLOAD
            && (bytes.is_empty()
                || bytes.len() <= stream.window().available().min(send.available()))
            && stream.outbox().is_empty();
        let is_next = queue.is_empty() && !writer.must_flush();
        if fits && is_next {
            turns.release(stream);
            write_data(writer.out(), stream, bytes, ends);
            send.consume(bytes.len());
        }
        Ok(fits && is_next)
    }

    fn queue_content(&mut self, id: u32, bytes: Bytes, ends: bool) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.set_outbox(Outbox { bytes, trailers: None, ends });
            self.queue.push_ready(stream);
            self.pump();
        }
    }

    /// Ready when the exchange of a stream may obtain the next piece of its content; returns the
    /// number of bytes to read from a file. The exchange then obtains the piece and sends it, or
    /// polls again if the piece is not available.
    pub(in crate::server::h2) fn poll_turn(
        &mut self,
        id: u32,
        demand: Demand,
        cx: &Context<'_>,
    ) -> Poll<Result<usize>> {
        let output = self.output_state();
        let stream = sendable(self.streams.get_mut(id))?;
        if let Some(bytes) = self.turns.take(stream, demand, output) {
            return Poll::Ready(Ok(bytes));
        }
        stream.register_waker(cx);
        Poll::Pending
    }

    fn output_state(&self) -> OutputState {
        OutputState { has_space: !self.writer.must_flush(), window: self.send.available() }
    }

    /// The streams whose turn it is to obtain content.
    fn next_turns(&mut self) -> impl Iterator<Item = u32> + use<> {
        let output = self.output_state();
        let next = [Lane::Wide, Lane::Narrow].map(|lane| self.turns.next(lane, output));
        next.into_iter().flatten()
    }

    /// Sends trailers after all content.
    pub(in crate::server::h2) fn send_trailers(
        &mut self,
        id: u32,
        trailers: Box<HeaderMap>,
    ) -> Result<()> {
        let stream = sendable(self.streams.get_mut(id))?;
        stream.set_trailers(trailers);
        self.queue.push_ready(stream);
        self.pump();
        Ok(())
    }

    /// Ready when all data queued by [`send`](Http2Connection::send) is framed.
    pub(in crate::server::h2) fn poll_sent(
        &mut self,
        id: u32,
        cx: &Context<'_>,
    ) -> Poll<Result<()>> {
        let stream = match sendable(self.streams.get_mut(id)) {
            Ok(stream) => stream,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if stream.outbox().is_empty() {
            return Poll::Ready(Ok(()));
        }
        stream.register_waker(cx);
        Poll::Pending
    }

    /// Ready when the stream was reset, or the connection has ended.
    pub(in crate::server::h2) fn poll_reset(&mut self, id: u32, cx: &Context<'_>) -> Poll<Error> {
        match sendable(self.streams.get_mut(id)) {
            Ok(stream) => {
                stream.register_waker(cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }

    /// Length of the content of a request that was not received, if the client declared it.
    pub(in crate::server::h2) fn unreceived_length(&self, id: u32) -> Option<u64> {
        self.streams.get(id)?.unreceived_length()
    }

    /// Number of framed content bytes of a stream.
    pub(in crate::server::h2) fn content_sent(&self, id: u32) -> u64 {
        self.streams.get(id).map_or(0, Stream::content_sent)
    }

    /// Returns true if the client is not the cause of a stream's wait. That is, the stream waits
    /// only for its turn, for the socket, or for connection credit. The deadline of the connection
    /// applies to the socket, and other streams have used the credit since `sent` bytes were sent.
    pub(in crate::server::h2) fn is_blocked_by_others(&self, id: u32, sent: u64) -> bool {
        let may_send = self.send.is_open() || self.progress.sent > sent;
        may_send && self.streams.get(id).is_some_and(|stream| stream.window().is_open())
    }

    /// Returns true if any stream can send, or obtain content, now. END_STREAM without content
    /// needs no window.
    pub(in crate::server::h2) fn can_send(&mut self) -> bool {
        if self.next_turns().next().is_some() {
            return true;
        }
        let needs_no_window =
            |id| self.streams.get(id).is_some_and(|stream| stream.outbox().bytes.is_empty());
        !self.queue.is_empty() && (self.send.is_open() || self.queue.iter().any(needs_no_window))
    }

    /// Frames queued data, one frame per stream in turn, until the output buffer is full. Returns
    /// `true` if an exchange was woken because all of its content is framed, or because it may
    /// obtain more.
    pub(in crate::server::h2) fn pump(&mut self) -> bool {
        let mut has_woken = false;
        // Streams that wait for connection credit do not block other streams.
        let mut turns = self.queue.len();
        while turns > 0
            && !self.writer.must_flush()
            && let Some(stream) = self.queue.pop(&mut self.streams)
        {
            turns -= 1;
            let is_empty = stream.outbox().bytes.is_empty();
            let window = stream.window().available();
            let room = window.min(self.send.available()).min(MAX_FRAME_PAYLOAD);
            if !is_empty && room == 0 {
                // If the window of the stream is closed, a WINDOW_UPDATE queues the stream again.
                if window > 0 {
                    self.queue.push(stream);
                }
                continue;
            }
            let piece = stream.take_piece(room);
            self.turns.on_framed(stream, piece.len());
            let is_last = stream.outbox().bytes.is_empty();
            let ends = is_last && stream.outbox().ends;
            if !piece.is_empty() || ends {
                self.send.consume(piece.len());
                write_data(self.writer.out(), stream, &piece, ends);
            }
            if !is_last {
                self.queue.push_ready(stream);
                turns += 1;
            } else {
                let id = stream.id;
                has_woken |= self.on_content_framed(id);
            }
        }
        for id in self.next_turns() {
            has_woken |= self.streams.get_mut(id).is_some_and(Stream::wake);
        }
        has_woken
    }

    /// Processes a stream whose content is framed: trailers may follow. Returns true if its
    /// exchange was woken.
    fn on_content_framed(&mut self, id: u32) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let trailers = stream.take_trailers();
        let has_woken = stream.wake();
        if let Some(trailers) = trailers {
            // Cannot fail: the stream exists.
            let _ = self.send_fields(id, true, |encoder, out| {
                response_head::write_trailers(encoder, out, &trailers);
            });
        }
        self.queue_tunnel_data(id);
        self.remove_if_done(id);
        has_woken
    }

    /// Queues the bytes that the handler of a tunnel has written.
    pub(super) fn queue_tunnel_data(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if !stream.is_tunnel() || !stream.state().is_sending() || !stream.outbox().is_empty() {
            return;
        }
        let Some(pipe) = &stream.pipe else { return };
        let (bytes, ends) = pipe.take_outgoing();
        stream.set_outbox(Outbox { bytes, trailers: None, ends });
        self.queue.push_ready(stream);
    }

    /// Turns a stream into a tunnel for the handler of an upgrade.
    pub(in crate::server::h2) fn make_tunnel(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.make_tunnel();
        }
    }
}

/// Returns the stream, or an error if it is closed or was reset.
fn sendable(stream: Option<&mut Stream>) -> Result<&mut Stream> {
    stream.filter(|stream| !stream.is_reset()).ok_or_else(Error::disconnected)
}

/// Space for a full output buffer, the frame that fills it, and some small frames.
const OUTPUT_BYTES: usize = (32 << 10) + MAX_FRAME_PAYLOAD + (2 << 10);

fn write_data(out: &mut Vec<u8>, stream: &mut Stream, bytes: &[u8], ends: bool) {
    let has_space = out.capacity() - out.len() >= FRAME_HEADER_LEN + bytes.len();
    if bytes.len() >= MAX_FRAME_PAYLOAD / 2 && !has_space {
        // A buffer that grows by doubling has a third more than it needs when it is full.
        out.reserve_exact(OUTPUT_BYTES.saturating_sub(out.len()));
    }
    let flags = if ends { flag::END_STREAM } else { 0 };
    frame::write(out, kind::DATA, flags, stream.id, bytes);
    stream.content_framed(bytes.len(), ends);
}

/// Frames a field block. Space for a frame header was reserved before it.
fn frame_block(out: &mut Vec<u8>, start: usize, stream: u32, ends: bool) {
    let ends = if ends { flag::END_STREAM } else { 0 };
    let length = out.len() - start - FRAME_HEADER_LEN;
    if length <= MAX_FRAME_PAYLOAD {
        let head =
            FrameHeader { length, kind: kind::HEADERS, flags: ends | flag::END_HEADERS, stream };
        out[start..start + FRAME_HEADER_LEN].copy_from_slice(&head.bytes());
        return;
    }
    let block = out.split_off(start + FRAME_HEADER_LEN);
    out.truncate(start);
    let mut pieces = block.chunks(MAX_FRAME_PAYLOAD).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, ends);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        frame::write(out, kind, flags, stream, piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}
