//! What a connection sends: the streams take turns, as the client's windows and the socket allow.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use crate::error::{Error, Result};
use crate::proto::http2::frame::{self, HEAD_BYTES, Head, MOST_PAYLOAD_BYTES, flag, kind};
use crate::proto::http2::hpack::{Encoder, Keep};
use crate::server::h2::connection::{Connection, enqueue};
use crate::server::h2::streams::{Outbox, Stream};

impl Connection {
    /// Sends a head, or trailers, whose fields are written by this.
    pub(super) fn send_fields(
        &mut self,
        id: u32,
        ends: bool,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Result<()> {
        let stream = open(self.streams.get(id))?;
        if ends {
            stream.is_outgoing = false;
        }
        let out = &mut self.writer.out;
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        frame_block(out, start, id, ends);
        Ok(())
    }

    /// Sends bytes of a body as soon as it is their turn, behind those before.
    pub(super) fn send(&mut self, id: u32, bytes: Bytes, ends: bool) -> Result<()> {
        let stream = open(self.streams.get(id))?;
        let length = bytes.len() as i64;
        let fits = length <= MOST_PAYLOAD_BYTES as i64
            && length <= stream.window.min(self.window)
            && stream.outbox.is_empty();
        if fits && self.queue.is_empty() && !self.writer.must_flush() {
            write_data(&mut self.writer.out, stream, &bytes, ends);
            self.window -= length;
            return Ok(());
        }
        stream.outbox = Outbox { bytes, trailers: None, ends };
        enqueue(&mut self.queue, stream);
        self.pump();
        Ok(())
    }

    /// Sends trailers behind all of the body.
    pub(super) fn send_trailers(&mut self, id: u32, trailers: HeaderMap) -> Result<()> {
        let stream = open(self.streams.get(id))?;
        stream.outbox.trailers = Some(Box::new(trailers));
        enqueue(&mut self.queue, stream);
        self.pump();
        Ok(())
    }

    /// Ready when all that was left here is on its way.
    pub(super) fn poll_sent(&mut self, id: u32, cx: &Context<'_>) -> Poll<Result<()>> {
        let stream = match open(self.streams.get(id)) {
            Ok(stream) => stream,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if stream.outbox.is_empty() {
            return Poll::Ready(Ok(()));
        }
        stream.wait(cx);
        Poll::Pending
    }

    /// Whether a stream waits for its turn only, or for the socket, whose clock is the
    /// connection's; or for a window that others use up, of what was sent since so much was.
    pub(super) fn serves_others(&mut self, id: u32, sent: u64) -> bool {
        let may_send = self.window > 0 || self.sent > sent;
        may_send && self.streams.get(id).is_some_and(|stream| stream.window > 0)
    }

    /// Ready when the stream was reset, or the connection is over.
    pub(super) fn poll_gone(&mut self, id: u32, cx: &Context<'_>) -> Poll<Error> {
        match open(self.streams.get(id)) {
            Ok(stream) => {
                stream.wait(cx);
                Poll::Pending
            }
            Err(error) => Poll::Ready(error),
        }
    }

    /// Whether there is something that could be sent now: what has no bytes needs no window.
    pub(super) fn has_more(&mut self) -> bool {
        let Connection { queue, streams, window, .. } = self;
        let needs_none = |id: &u32| streams.get(*id).is_some_and(|it| it.outbox.bytes.is_empty());
        !queue.is_empty() && (*window > 0 || queue.iter().any(needs_none))
    }

    /// Lets the streams have their turns until as much is gathered as is sent at a time.
    pub(super) fn pump(&mut self) {
        // Those that wait for the connection's window keep none of the others from their turn.
        let mut turns = self.queue.len();
        while turns > 0
            && !self.writer.must_flush()
            && let Some(id) = self.queue.pop_front()
        {
            turns -= 1;
            let Some(stream) = self.streams.get(id) else { continue };
            stream.is_queued = false;
            let waiting = stream.outbox.bytes.len();
            let room = stream.window.min(self.window).min(MOST_PAYLOAD_BYTES as i64);
            if waiting > 0 && room <= 0 {
                if stream.window <= 0 {
                    continue; // It comes back when its window opens.
                }
                stream.is_queued = true;
                self.queue.push_back(id);
                continue;
            }
            let piece = stream.outbox.bytes.split_to(waiting.min(room.max(0) as usize));
            let is_last = stream.outbox.bytes.is_empty();
            let ends = is_last && stream.outbox.ends;
            if !piece.is_empty() || ends {
                self.window -= piece.len() as i64;
                write_data(&mut self.writer.out, stream, &piece, ends);
            }
            if !is_last {
                enqueue(&mut self.queue, stream);
                turns += 1;
            } else {
                self.sent_all(id);
            }
        }
    }

    /// The bytes of a stream are on their way; trailers may follow.
    fn sent_all(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let outbox = std::mem::take(&mut stream.outbox);
        if let Some(waker) = stream.waker.take() {
            waker.wake();
            self.is_stirred = true;
        }
        if let Some(trailers) = outbox.trailers {
            // It fails if the stream is gone, which was just there.
            let _ = self.send_fields(id, true, |encoder, out| {
                for (name, value) in &*trailers {
                    let field = (name.as_str().as_bytes(), value.as_bytes().trim_ascii());
                    encoder.field(out, field, Keep::Again);
                }
            });
        }
        self.fetch(id);
        self.settle(id);
    }

    /// Takes what a tunnel wants to send.
    pub(super) fn fetch(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        if !stream.is_tunnel || !stream.is_outgoing || !stream.outbox.is_empty() {
            return;
        }
        let Some(pipe) = &stream.pipe else { return };
        let (bytes, ends) = pipe.take_outgoing();
        stream.outbox = Outbox { bytes, trailers: None, ends };
        enqueue(&mut self.queue, stream);
    }

    /// What comes and goes on a stream from now on is an application's own.
    pub(super) fn make_tunnel(&mut self, id: u32) {
        if let Some(stream) = self.streams.get(id) {
            stream.is_tunnel = true;
        }
    }
}

/// The stream, if something can still be sent on it.
fn open(stream: Option<&mut Stream>) -> Result<&mut Stream> {
    stream.filter(|stream| stream.reset.is_none()).ok_or_else(Error::disconnected)
}

fn write_data(out: &mut Vec<u8>, stream: &mut Stream, bytes: &[u8], ends: bool) {
    let flags = if ends { flag::END_STREAM } else { 0 };
    frame::write(out, kind::DATA, flags, stream.id, bytes);
    stream.window -= bytes.len() as i64;
    stream.sent += bytes.len() as u64;
    if ends {
        stream.is_outgoing = false;
    }
}

/// Makes frames of a block that stands behind the room for its head.
fn frame_block(out: &mut Vec<u8>, start: usize, stream: u32, ends: bool) {
    let ends = if ends { flag::END_STREAM } else { 0 };
    let length = out.len() - start - HEAD_BYTES;
    if length <= MOST_PAYLOAD_BYTES {
        let head = Head { length, kind: kind::HEADERS, flags: ends | flag::END_HEADERS, stream };
        out[start..start + HEAD_BYTES].copy_from_slice(&head.bytes());
        return;
    }
    let block = out.split_off(start + HEAD_BYTES);
    out.truncate(start);
    let mut pieces = block.chunks(MOST_PAYLOAD_BYTES).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, ends);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= flag::END_HEADERS;
        }
        frame::write(out, kind, flags, stream, piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}
