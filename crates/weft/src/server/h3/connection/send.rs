//! Responses, and the data of tunnels.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::server::h3::connection::{Http3Connection, stream_id};
use crate::server::h3::outgoing::Outgoing;
use crate::server::h3::stream::{Sending, Stream};
use weft_proto::http3::frame::{self, kind};
use weft_proto::http3::qpack::Encoder;

/// Maximum number of content bytes that all exchanges of a connection hold together. Beyond it, a
/// file is read in pieces of [`MIN_PIECE_BYTES`], and a body waits.
const MAX_HELD_BYTES: usize = 512 << 10;

const MAX_PIECE_BYTES: usize = 64 << 10;
const MIN_PIECE_BYTES: usize = 1 << 10;

impl Http3Connection {
    /// Sends a field section, of a head or of trailers, and the content behind it. `write` encodes
    /// the fields. What the transport does not accept is kept.
    pub(in crate::server::h3) fn send_fields(
        &mut self,
        id: u64,
        (content, ends): (&[u8], bool),
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Result<()> {
        sendable(self.streams.get_mut(&id))?;
        let frames = self.quic.with_scratch(|section| {
            let mut encoder = Encoder;
            encoder.begin(section);
            write(&mut encoder, section);
            message(section, content)
        });
        self.send(id, Outgoing::frames(frames, ends), content.len())
    }

    /// Passes output to the transport, and keeps the rest.
    pub(super) fn send(
        &mut self,
        id: u64,
        mut outgoing: Outgoing,
        content_bytes: usize,
    ) -> Result<()> {
        let Http3Connection { quic, streams, written, held, .. } = self;
        let stream = sendable(streams.get_mut(&id))?;
        stream.content_sent += content_bytes as u64;
        if outgoing.ends {
            stream.sending = Sending::Ended;
        }
        if stream.queued.is_empty() {
            *written += outgoing.write(quic, stream_id(id))? as u64;
        }
        if !outgoing.is_empty() {
            stream.queued_bytes += outgoing.bytes();
            *held += outgoing.bytes();
            stream.queued.push_back(outgoing);
        }
        Ok(())
    }

    /// Returns true if output that the transport does not accept may be kept.
    pub(in crate::server::h3) fn may_queue(&self) -> bool {
        self.held < MAX_HELD_BYTES
    }

    /// Passes the queued output of a stream to the transport.
    fn flush(&mut self, id: u64) -> Result<()> {
        let Http3Connection { quic, streams, written, .. } = self;
        let Some(stream) = streams.get_mut(&id) else { return Ok(()) };
        let mut accepted = 0;
        while let Some(outgoing) = stream.queued.front_mut() {
            accepted += outgoing.write(quic, stream_id(id))?;
            if !outgoing.is_empty() {
                break;
            }
            stream.queued.pop_front();
        }
        *written += accepted as u64;
        stream.queued_bytes -= accepted;
        self.release(accepted);
        Ok(())
    }

    /// Ready when an exchange may obtain the next piece of its content; returns the number of bytes
    /// to read from a file.
    pub(in crate::server::h3) fn poll_turn(
        &mut self,
        id: u64,
        is_file: bool,
        cx: &Context<'_>,
    ) -> Poll<Result<usize>> {
        let stream = sendable(self.streams.get_mut(&id))?;
        if !stream.queued.is_empty() {
            stream.register_waker(cx);
            return Poll::Pending;
        }
        let room = MAX_HELD_BYTES.saturating_sub(self.held);
        if room == 0 && !is_file {
            if !self.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                self.waiting.push(cx.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(Ok(room.clamp(MIN_PIECE_BYTES, MAX_PIECE_BYTES)))
    }

    /// Counts a piece of content that an exchange holds.
    pub(in crate::server::h3) fn hold(&mut self, bytes: usize) {
        self.held += bytes;
    }

    /// Ends the count of [`hold`](Http3Connection::hold) for accepted or discarded content.
    pub(in crate::server::h3) fn release(&mut self, bytes: usize) {
        self.held -= bytes;
        if bytes > 0 && self.held < MAX_HELD_BYTES {
            self.waiting.drain(..).for_each(std::task::Waker::wake);
        }
    }

    /// Sends a piece of content. Ready when the transport has accepted all of it.
    pub(in crate::server::h3) fn poll_send(
        &mut self,
        id: u64,
        outgoing: &mut Outgoing,
        cx: &Context<'_>,
    ) -> Poll<Result<()>> {
        let Http3Connection { quic, streams, written, .. } = self;
        let Some(stream) = streams.get_mut(&id) else {
            return Poll::Ready(Err(Error::disconnected()));
        };
        if stream.sending == Sending::Reset {
            return Poll::Ready(Err(Error::disconnected()));
        }
        if stream.queued.is_empty() {
            let (before, ends) = (outgoing.content_bytes(), outgoing.ends);
            *written += outgoing.write(quic, stream_id(id))? as u64;
            let accepted = before - outgoing.content_bytes();
            stream.content_sent += accepted as u64;
            if outgoing.is_empty() {
                if ends {
                    stream.sending = Sending::Ended;
                }
                self.release(accepted);
                return Poll::Ready(Ok(()));
            }
            stream.register_waker(cx);
            self.release(accepted);
            return Poll::Pending;
        }
        stream.register_waker(cx);
        Poll::Pending
    }

    /// Ready with an error when the client has reset the stream.
    pub(in crate::server::h3) fn poll_reset(&mut self, id: u64, cx: &Context<'_>) -> Poll<Error> {
        match sendable_or_ended(self.streams.get_mut(&id)) {
            Ok(stream) => {
                stream.register_waker(cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }

    /// Number of content bytes that were passed to the transport.
    pub(in crate::server::h3) fn content_sent(&self, id: u64) -> u64 {
        self.streams.get(&id).map_or(0, |stream| stream.content_sent)
    }

    /// Continues the output of a stream.
    pub(super) fn on_writable(&mut self, id: u64) {
        // An error is found by the exchange.
        let _ = self.flush(id);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.wake();
        self.send_tunnel_data(id);
        self.remove_if_done(id);
    }

    /// Makes the handler of an upgrade the owner of a stream.
    pub(in crate::server::h3) fn make_tunnel(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.make_tunnel();
        }
        self.send_tunnel_data(id);
    }

    /// Sends what the handler of a tunnel has written, as long as the transport accepts all of it:
    /// the next call of [`take_outgoing`](crate::server::multiplex::pipe::Pipe::take_outgoing) wakes
    /// the handler.
    pub(super) fn send_tunnel_data(&mut self, id: u64) {
        while let Some((bytes, ends)) = self.take_tunnel_data(id) {
            let length = bytes.len();
            // An error is found by the next read of the handler.
            if self.send(id, Outgoing::data(bytes, ends), length).is_err() {
                return;
            }
        }
    }

    /// Takes what the handler of a tunnel has written, once earlier output is accepted.
    fn take_tunnel_data(&mut self, id: u64) -> Option<(Bytes, bool)> {
        let stream = self.streams.get(&id)?;
        let is_ready = stream.is_tunnel() && stream.sending == Sending::Open;
        let pipe = stream.pipe.as_ref().filter(|_| is_ready && stream.queued.is_empty())?;
        let (bytes, ends) = pipe.take_outgoing();
        (!bytes.is_empty() || ends).then_some((bytes, ends))
    }
}

/// Returns the frames of a field section and its content, without spare capacity: otherwise their
/// conversion to [`Bytes`](bytes::Bytes) allocates once more.
fn message(section: &[u8], content: &[u8]) -> Vec<u8> {
    let head_bytes = [section, content].map(|payload| match payload.len() {
        0 => 0,
        1..=0x3f => 2,
        0x40..=0x3fff => 3,
        _ => 5,
    });
    let bytes = head_bytes[0] + section.len() + head_bytes[1] + content.len();
    let mut frames = Vec::with_capacity(bytes);
    for (kind, payload) in [(kind::HEADERS, section), (kind::DATA, content)] {
        if !payload.is_empty() {
            frame::head(&mut frames, kind, payload.len() as u64);
            frames.extend_from_slice(payload);
        }
    }
    frames
}

/// Returns a stream on which output can be sent.
fn sendable(stream: Option<&mut Stream>) -> Result<&mut Stream> {
    match stream {
        Some(stream) if stream.sending == Sending::Open => Ok(stream),
        _ => Err(Error::disconnected()),
    }
}

fn sendable_or_ended(stream: Option<&mut Stream>) -> Result<&mut Stream> {
    match stream {
        Some(stream) if stream.sending != Sending::Reset => Ok(stream),
        _ => Err(Error::disconnected()),
    }
}

/// Content of up to this size is sent together with its head.
pub(in crate::server::h3) const MAX_SMALL_CONTENT_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_spare_capacity() {
        for (section, content) in [(3, 0), (63, 1), (64, 63), (16_383, 64), (16_384, 16_384)] {
            let frames = message(&vec![1; section], &vec![2; content]);
            assert_eq!(frames.len(), frames.capacity(), "{section}, {content}");
            let mut expected = Vec::new();
            frame::head(&mut expected, kind::HEADERS, section as u64);
            expected.resize(expected.len() + section, 1);
            if content > 0 {
                frame::head(&mut expected, kind::DATA, content as u64);
                expected.resize(expected.len() + content, 2);
            }
            assert_eq!(frames, expected, "{section}, {content}");
        }
    }
}
