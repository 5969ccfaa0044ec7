//! Received requests and their content.

use crate::error::Error;
use crate::server::h2::connection::header_block::{BlockOpening, HeaderBlock};
use crate::server::h2::connection::{
    GoAway, HEAD_BYTES, Http2Connection, MAX_LARGE_HEADS, StreamRequest, dependency,
};
use crate::server::h2::streams::{Initiator, Stream, StreamState};
use crate::server::multiplex::field_block::{FieldBlockError, InvalidRequest, ParsedRequest};
use crate::server::multiplex::pipe::{Pipe, Pushed, RecvEnd};
use weft_proto::http2::flow::{RecvWindow, SendWindow};
use weft_proto::http2::frame::{ErrorCode, FrameHeader, flag};
use weft_proto::http2::hpack::DecodeError;

/// Maximum number of CONTINUATION frames of a field block.
const MAX_CONTINUATIONS: usize = 5;

/// The result of checking a DATA frame.
enum DataVerdict {
    Accepted,
    /// Sent by the client before it received the server's RST_STREAM; the data is discarded.
    Late,
    Failed(ErrorCode),
}

impl Http2Connection {
    /// Processes a DATA frame (RFC 9113 §6.1).
    pub(super) fn on_data(&mut self, head: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let id = self.check_opened(head.stream)?;
        let data = head.unpadded(payload).ok_or(ErrorCode::PROTOCOL_ERROR)?;
        if !self.recv.receive(payload.len()) {
            return Err(ErrorCode::FLOW_CONTROL_ERROR);
        }
        match self.check_data(id, head, data.len())? {
            DataVerdict::Accepted => self.deliver(id, head, data),
            DataVerdict::Late => {
                self.credit_connection(payload.len());
                Ok(())
            }
            DataVerdict::Failed(code) => {
                self.credit_connection(payload.len());
                self.fail_stream(id, code)
            }
        }
    }

    fn check_data(
        &mut self,
        id: u32,
        head: FrameHeader,
        length: usize,
    ) -> Result<DataVerdict, ErrorCode> {
        let Some(stream) = self.streams.get_mut(id) else {
            let is_late = self.resets.contains(id);
            return Ok(match is_late {
                true => DataVerdict::Late,
                false => DataVerdict::Failed(ErrorCode::STREAM_CLOSED),
            });
        };
        match stream.state() {
            StreamState::Reset(Initiator::Server) => return Ok(DataVerdict::Late),
            StreamState::Reset(Initiator::Client) => {
                return Ok(DataVerdict::Failed(ErrorCode::STREAM_CLOSED));
            }
            state if !state.is_receiving() => return Err(ErrorCode::STREAM_CLOSED),
            _ => {}
        }
        if !stream.recv.receive(head.length) {
            return Ok(DataVerdict::Failed(ErrorCode::FLOW_CONTROL_ERROR));
        }
        Ok(match stream.receive_content(length, head.has(flag::END_STREAM)) {
            true => DataVerdict::Accepted,
            false => DataVerdict::Failed(ErrorCode::PROTOCOL_ERROR),
        })
    }

    /// Passes data to its reader. Padding, and data without a reader, is credited immediately.
    fn deliver(&mut self, id: u32, head: FrameHeader, data: &[u8]) -> Result<(), ErrorCode> {
        let ends = head.has(flag::END_STREAM);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let (mut processed, mut discarded) = (head.length, 0);
        if let Some(pipe) = &stream.pipe {
            processed -= data.len();
            if !data.is_empty() || !ends {
                match pipe.push(data) {
                    Pushed::Kept => {}
                    // Credited only to the connection window, for the other streams. The window of
                    // this stream stays closed.
                    Pushed::Discarded => discarded = data.len(),
                    Pushed::TooSmall => return Err(ErrorCode::ENHANCE_YOUR_CALM),
                }
            }
        }
        stream.recv.release(processed);
        self.credit_connection(processed + discarded);
        if ends {
            self.on_end(id, RecvEnd::Complete(None));
        } else {
            self.update_stream_window(id);
        }
        Ok(())
    }

    /// Processes END_STREAM.
    fn on_end(&mut self, id: u32, end: RecvEnd) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.end_received(end);
        self.remove_if_done(id);
    }

    /// Processes a HEADERS frame (RFC 9113 §6.2).
    pub(super) fn on_headers(
        &mut self,
        head: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<StreamRequest>, ErrorCode> {
        if head.stream.is_multiple_of(2) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let mut block = head.unpadded(payload).ok_or(ErrorCode::PROTOCOL_ERROR)?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) =
                block.split_first_chunk::<5>().ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
            depends_on_itself = dependency(priority) == head.stream;
            block = rest;
        }
        let ends = head.has(flag::END_STREAM);
        let opening = BlockOpening { stream: head.stream, ends, depends_on_itself };
        if head.has(flag::END_HEADERS) {
            return self.on_block(opening, block);
        }
        self.block = Some(HeaderBlock { opening, bytes: block.to_vec(), continuations: 0 });
        Ok(None)
    }

    /// Processes a CONTINUATION frame (RFC 9113 §6.10).
    pub(super) fn on_continuation(
        &mut self,
        head: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<StreamRequest>, ErrorCode> {
        let Some(mut block) = self.block.take() else { return Err(ErrorCode::PROTOCOL_ERROR) };
        block.continuations += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuations > MAX_CONTINUATIONS {
            return Err(ErrorCode::ENHANCE_YOUR_CALM);
        }
        if head.has(flag::END_HEADERS) {
            return self.on_block(block.opening, &block.bytes);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Processes a complete field block. It is decoded in any case, because later blocks may refer
    /// to its fields (RFC 9113 §4.3).
    fn on_block(
        &mut self,
        opening: BlockOpening,
        block: &[u8],
    ) -> Result<Option<StreamRequest>, ErrorCode> {
        let BlockOpening { stream: id, ends, depends_on_itself } = opening;
        let is_trailers = self.streams.contains(id);
        self.field_block.clear(is_trailers);
        let Http2Connection { field_block, limits, decoder, .. } = self;
        match decoder.decode(block, |field| field_block.on_field(field, limits)) {
            Ok(()) => {}
            Err(DecodeError::Malformed) => return Err(ErrorCode::COMPRESSION_ERROR),
            Err(DecodeError::Stopped) => return Err(ErrorCode::ENHANCE_YOUR_CALM),
        }
        if is_trailers {
            return self.on_trailers(id, ends).map(|()| None);
        }
        if id <= self.last_stream {
            let is_late = self.resets.contains(id);
            return if is_late { Ok(None) } else { Err(ErrorCode::STREAM_CLOSED) };
        }
        if self.goaway == GoAway::Sent {
            // RFC 9113 §6.8: by the GOAWAY, the request is not processed.
            return Ok(None);
        }
        self.last_stream = id;
        let request = match self.field_block.request(ends) {
            Err(FieldBlockError::Malformed) => {
                return self.reset_malformed(id, ErrorCode::PROTOCOL_ERROR);
            }
            _ if depends_on_itself => return self.reset_malformed(id, ErrorCode::PROTOCOL_ERROR),
            _ if self.is_full() => return self.refuse_stream(id).map(|()| None),
            Err(FieldBlockError::Respond(error)) => {
                Err(self.field_block.invalid_request(error, false))
            }
            Ok(request) => Ok(request),
        };
        Ok(Some(self.open_stream(id, request, ends)))
    }

    /// Returns true if the request that was received last exceeds the number of streams, or the
    /// size of their heads.
    fn is_full(&self) -> bool {
        let head_bytes = self.excess_head_bytes + self.last_excess_head_bytes();
        self.streams.len() + self.progress.unsent_ends.len() >= self.max_streams
            || head_bytes > MAX_LARGE_HEADS * self.limits.head
    }

    fn last_excess_head_bytes(&self) -> usize {
        self.field_block.text_bytes().saturating_sub(HEAD_BYTES)
    }

    /// Resets the stream of a malformed request (RFC 9113 §8.1.1). The request is returned so that
    /// it is recorded.
    fn reset_malformed(
        &mut self,
        id: u32,
        code: ErrorCode,
    ) -> Result<Option<StreamRequest>, ErrorCode> {
        self.reject_stream(id, code)?;
        let invalid =
            self.field_block.invalid_request(Error::malformed("the request is malformed"), true);
        Ok(Some(StreamRequest { stream: id, request: Err(invalid), pipe: None }))
    }

    fn open_stream(
        &mut self,
        id: u32,
        request: Result<ParsedRequest, Box<InvalidRequest>>,
        ends: bool,
    ) -> StreamRequest {
        self.resets.on_accepted();
        let (is_tunnel, content_length) = match &request {
            // The bytes of a tunnel are not content (RFC 9110 §9.3.6).
            Ok(request) => (request.is_tunnel, request.length.filter(|_| !request.is_tunnel)),
            Err(_) => (false, None),
        };
        let pipe = (request.is_ok() && (!ends || is_tunnel)).then(|| {
            let pipe = Pipe::new(id.into(), self.ready.get_or_insert_default().clone());
            if ends {
                pipe.end(RecvEnd::Complete(None));
            }
            pipe
        });
        let windows =
            (SendWindow::new(self.initial_send_window), RecvWindow::new(self.initial_recv_window));
        let mut stream = Stream::new(id, ends, content_length, pipe.clone(), windows);
        stream.excess_head_bytes = self.last_excess_head_bytes();
        self.excess_head_bytes += stream.excess_head_bytes;
        self.streams.push(stream);
        StreamRequest { stream: id, request, pipe }
    }

    /// Processes trailers, which end the request (RFC 9113 §8.1).
    fn on_trailers(&mut self, id: u32, ends: bool) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        match stream.state() {
            StreamState::Reset(Initiator::Server) => return Ok(()),
            state if !state.is_receiving() => return Err(ErrorCode::STREAM_CLOSED),
            _ => {}
        }
        let is_complete = ends && stream.is_content_complete();
        match self.field_block.trailers() {
            Ok(trailers) if is_complete => {
                let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                self.on_end(id, RecvEnd::Complete(trailers.map(Box::new)));
                Ok(())
            }
            _ => self.fail_stream(id, ErrorCode::PROTOCOL_ERROR),
        }
    }
}
