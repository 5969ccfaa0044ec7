//! The end of streams.

use std::sync::Arc;

use crate::message::connection::RequestContext;
use crate::server::h2::connection::Http2Connection;
use crate::server::h2::streams::{Initiator, StreamState};
use weft_proto::http2::frame::{self, ErrorCode, FrameHeader};

impl Http2Connection {
    /// Processes a RST_STREAM frame (RFC 9113 §6.4).
    pub(super) fn on_rst_stream(
        &mut self,
        head: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ErrorCode> {
        if payload.len() != 4 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let id = self.check_opened(head.stream)?;
        self.reset(id, Initiator::Client);
        Ok(())
    }

    /// Resets a stream because of a client error.
    pub(super) fn fail_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        // A stream is reset once, however many errors the client sent before it received that.
        // After a RST_STREAM of the client it still gets one for a further frame (RFC 9113 §5.1).
        if self.resets.contains(id) {
            return self.count_stream_error();
        }
        self.reset(id, Initiator::Server);
        self.reject_stream(id, code)
    }

    /// Sends RST_STREAM for a stream without state.
    pub(super) fn reject_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.send_rst_stream(id, code);
        self.count_stream_error()
    }

    fn count_stream_error(&mut self) -> Result<(), ErrorCode> {
        match self.flood.on_stream_error() {
            true => Ok(()),
            false => Err(ErrorCode::ENHANCE_YOUR_CALM),
        }
    }

    /// Refuses a stream beyond the limit. The client may not be at fault, because streams that it
    /// has reset may still count; in that case other requests are accepted in between.
    pub(super) fn refuse_stream(&mut self, id: u32) -> Result<(), ErrorCode> {
        self.send_rst_stream(id, ErrorCode::REFUSED_STREAM);
        match self.resets.on_refused() {
            true => Ok(()),
            false => Err(ErrorCode::ENHANCE_YOUR_CALM),
        }
    }

    fn send_rst_stream(&mut self, id: u32, code: ErrorCode) {
        frame::rst_stream(self.writer.out(), id, code);
        self.resets.record(id);
    }

    /// Resets the stream of a response that cannot be completed.
    pub(in crate::server::h2) fn abandon(&mut self, id: u32, code: ErrorCode) {
        if self.streams.get(id).is_some_and(|stream| !stream.is_reset()) {
            self.reset(id, Initiator::Server);
            self.send_rst_stream(id, code);
        }
    }

    /// Ends both directions of a stream.
    fn reset(&mut self, id: u32, initiator: Initiator) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        self.turns.release(stream);
        let discarded = stream.reset(initiator);
        self.credit_connection(discarded);
        self.remove_if_done(id);
    }

    /// Resets all streams at the end of the connection.
    pub(in crate::server::h2) fn reset_all(&mut self) {
        let all: Vec<u32> = self.streams.iter().map(|stream| stream.id).collect();
        all.into_iter().for_each(|id| self.reset(id, Initiator::Client));
    }

    /// Ends an exchange. Its shared state is reused for the next one, unless the application still
    /// holds it.
    pub(in crate::server::h2) fn end_exchange(&mut self, id: u32, mut shared: Arc<RequestContext>) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.end_exchange();
            self.remove_if_done(id);
        }
        if shared.try_reset() {
            self.spare = Some(shared);
        }
    }

    /// Removes a stream if it is done.
    pub(super) fn remove_if_done(&mut self, id: u32) {
        let Some(mut stream) = self.streams.take_if_done(id) else { return };
        self.queue.remove(&stream);
        self.turns.release(&mut stream);
        self.excess_head_bytes -= stream.excess_head_bytes;
        if stream.state() != StreamState::Reset(Initiator::Client) {
            self.progress.end_stream(self.writer.waiting());
        }
        if let Some(pipe) = stream.pipe.take() {
            pipe.end(crate::server::multiplex::pipe::RecvEnd::Reset);
            self.credit_connection(pipe.clear());
        }
        if stream.state().is_sending() {
            self.send_rst_stream(id, ErrorCode::CANCEL);
        } else if stream.state().is_receiving() {
            // RFC 9113 §8.1: the response is complete, and the rest of the request is not needed.
            self.send_rst_stream(id, ErrorCode::NO_ERROR);
        }
    }
}
