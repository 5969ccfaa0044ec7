//! The end of streams, and the flow-control credit that the client gets back for them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::message::request::Shared;
use crate::server::h2::connection::Connection;
use crate::server::h2::streams::{By, StreamState};
use weft_proto::http2::frame::{self, ErrorCode, FrameHeader};

/// The number of streams that may be reset because of errors of the client, in the lifetime of a
/// connection, before it is taken for an attack.
const MAX_FAULTS: usize = 1_000;

/// The number of streams remembered after we have reset them. Frames for one that is forgotten
/// are an error.
const MAX_REMEMBERED: usize = 512;

/// Streams that we have reset: a client that has not noticed yet continues to send on them.
#[derive(Default)]
pub(super) struct ResetHistory {
    recent: VecDeque<u32>,
    /// Streams reset because of errors of the client.
    faults: usize,
    /// Streams refused because there were too many, less those accepted since.
    refused: usize,
}

impl ResetHistory {
    pub(super) fn contains(&self, id: u32) -> bool {
        self.recent.contains(&id)
    }

    pub(super) fn on_accepted(&mut self) {
        self.refused = self.refused.saturating_sub(1);
    }

    fn remember(&mut self, id: u32) {
        if self.recent.len() == MAX_REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.recent.len()
    }
}

impl Connection {
    /// RFC 9113 §6.4
    pub(super) fn on_rst_stream(
        &mut self,
        head: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ErrorCode> {
        if payload.len() != 4 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let id = self.opened(head.stream)?;
        self.reset(id, By::Client);
        Ok(())
    }

    /// Resets a stream because of an error of the client.
    pub(super) fn fail_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.reset(id, By::Us);
        self.reject_stream(id, code)
    }

    /// Sends RST_STREAM for a stream that has no state here.
    pub(super) fn reject_stream(&mut self, id: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.send_rst_stream(id, code);
        self.resets.faults += 1;
        if self.resets.faults > MAX_FAULTS { Err(ErrorCode::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    /// Refuses a stream beyond the limit. That may not be the client's fault, since streams that
    /// it has reset may still count here; but then others of its requests are accepted.
    pub(super) fn refuse_stream(&mut self, id: u32) -> Result<(), ErrorCode> {
        self.send_rst_stream(id, ErrorCode::REFUSED_STREAM);
        self.resets.refused += 1;
        if self.resets.refused > MAX_FAULTS { Err(ErrorCode::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    fn send_rst_stream(&mut self, id: u32, code: ErrorCode) {
        frame::rst_stream(self.writer.out(), id, code);
        self.resets.remember(id);
    }

    /// Gives up a response that cannot be completed, so that the client can tell.
    pub(in crate::server::h2) fn abandon(&mut self, id: u32, code: ErrorCode) {
        if self.streams.get(id).is_some_and(|stream| !stream.is_reset()) {
            self.reset(id, By::Us);
            self.send_rst_stream(id, code);
        }
    }

    /// Ends both directions of a stream.
    fn reset(&mut self, id: u32, by: By) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let discarded = stream.reset(by);
        self.credit_connection(discarded);
        self.settle(id);
    }

    /// Ends all streams with their connection.
    pub(in crate::server::h2) fn reset_all(&mut self) {
        let all: Vec<u32> = self.streams.iter().map(|stream| stream.id).collect();
        all.into_iter().for_each(|id| self.reset(id, By::Client));
    }

    /// Ends an exchange. Its shared state is kept for the next, unless the application holds it.
    pub(in crate::server::h2) fn release(&mut self, id: u32, mut shared: Arc<Shared>) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.release();
            self.settle(id);
        }
        if shared.renew() {
            self.spare = Some(shared);
        }
    }

    /// Removes a stream if nothing remains to be done for it.
    pub(super) fn settle(&mut self, id: u32) {
        let Some(mut stream) = self.streams.take_settled(id) else { return };
        self.queue.remove(&stream);
        if stream.state() != StreamState::Reset(By::Client) {
            self.progress.end_stream(self.writer.waiting());
        }
        if let Some(pipe) = stream.pipe.take() {
            pipe.end(crate::server::h2::pipe::End::Cut);
            self.credit_connection(pipe.clear());
        }
        if stream.state().is_sending() {
            self.send_rst_stream(id, ErrorCode::CANCEL);
        } else if stream.state().is_receiving() {
            // RFC 9113 §8.1: the response is complete, the rest of the request is not needed.
            self.send_rst_stream(id, ErrorCode::NO_ERROR);
        }
    }

    // -- credit for the client

    /// Credits discarded content of a stream whose rest is wanted after all.
    pub(in crate::server::h2) fn credit_stream(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.recv.release(bytes);
            self.update_stream_window(id);
        }
    }

    /// Credits bytes that were processed, on any stream.
    pub(super) fn credit_connection(&mut self, bytes: usize) {
        self.recv.release(bytes);
        if let Some(increment) = self.recv.take_update() {
            frame::window_update(self.writer.out(), 0, increment);
        }
    }

    pub(super) fn update_stream_window(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.state().is_receiving()
            && let Some(increment) = stream.recv.take_update()
        {
            frame::window_update(self.writer.out(), id, increment);
        }
    }

    /// Processes a stream whose application has read, or has something to send.
    pub(super) fn on_pipe_changed(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let Some(pipe) = &stream.pipe else { return };
        let read = pipe.take_read();
        stream.recv.release(read);
        self.credit_connection(read);
        self.update_stream_window(id);
        self.fetch_tunnel(id);
        self.settle(id);
    }
}
