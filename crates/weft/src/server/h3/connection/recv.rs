//! Received requests and their content.

use bytes::Bytes;
use quinn_proto::{ReadError, StreamId};

use crate::error::Error;
use crate::server::h3::connection::{Http3Connection, StreamRequest, stream_id, varint};
use crate::server::h3::stream::{Owner, Receiving, Sending};
use crate::server::multiplex::field_block::{FieldBlockError, InvalidRequest, ParsedRequest};
use crate::server::multiplex::pipe::{Pipe, Pushed, RecvEnd};
use weft_proto::http3::ErrorCode;
use weft_proto::http3::qpack::{DecodeError, Decoded};
use weft_proto::http3::request::RequestPart;

/// Maximum number of content bytes of a stream that the application has not read. More stays in the
/// transport, whose window then stops the client.
const MAX_UNREAD_BYTES: usize = 64 << 10;

/// The result of reading from the transport.
enum Read {
    Data(Bytes),
    Blocked,
    End,
    Reset,
}

impl Http3Connection {
    /// Reads a request stream, as far as its reader permits.
    pub(super) fn read(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        loop {
            let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
            if stream.receiving != Receiving::Open || stream.unread >= MAX_UNREAD_BYTES {
                return Ok(());
            }
            if stream.blocked.is_some() {
                return self.read_blocked(id);
            }
            match self.read_chunk(id) {
                Read::Data(bytes) => self.on_bytes(id, bytes)?,
                Read::Blocked => return Ok(()),
                Read::End => return self.on_end(id),
                Read::Reset => return self.on_reset(id),
            }
        }
    }

    fn read_chunk(&mut self, id: StreamId) -> Read {
        let mut stream = self.quic.transport().recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Read::Blocked };
        let read = match chunks.next(MAX_UNREAD_BYTES) {
            Ok(Some(chunk)) => {
                self.flood.on_bytes_received(chunk.bytes.len());
                Read::Data(chunk.bytes)
            }
            Ok(None) => Read::End,
            Err(ReadError::Blocked) => Read::Blocked,
            Err(ReadError::Reset(_)) => Read::Reset,
        };
        // The driver sends the credit.
        let _ = chunks.finalize();
        read
    }

    fn on_bytes(&mut self, id: StreamId, mut bytes: Bytes) -> Result<(), ErrorCode> {
        loop {
            let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
            if stream.receiving != Receiving::Open {
                return Ok(());
            }
            let part = stream.reader.next(&mut bytes)?;
            let idle_frames = stream.reader.take_idle_frame_count();
            if idle_frames > 0 && !self.flood.on_idle_frames(idle_frames as u64) {
                return Err(ErrorCode::EXCESSIVE_LOAD);
            }
            let Some(part) = part else { return self.limit_incomplete(id) };
            self.on_part(id, part, &mut bytes)?;
        }
    }

    /// Processes a part of a request, and keeps it if its fields cannot be decoded yet.
    fn on_part(
        &mut self,
        id: StreamId,
        part: RequestPart,
        bytes: &mut Bytes,
    ) -> Result<(), ErrorCode> {
        let decoded = match &part {
            RequestPart::Data(data) => return self.on_data(id, data),
            RequestPart::Head(section) => self.decode(id, section, false)?,
            RequestPart::Trailers(section) => self.decode(id, section, true)?,
        };
        match (decoded, part) {
            (Decoded::Blocked, part) => {
                if let Some(stream) = self.streams.get_mut(&id.into()) {
                    stream.blocked = Some(Box::new((part, std::mem::take(bytes))));
                }
                Ok(())
            }
            (Decoded::Complete, RequestPart::Trailers(_)) => self.on_trailers(id),
            (Decoded::Complete, _) => {
                // Most requests end here, and need no pipe then.
                let next = bytes.is_empty().then(|| self.read_chunk(id));
                self.on_head(id, matches!(next, Some(Read::End)))?;
                match next {
                    Some(Read::Data(more)) => *bytes = more,
                    Some(Read::End) => return self.on_end(id),
                    Some(Read::Reset) => return self.on_reset(id),
                    Some(Read::Blocked) | None => {}
                }
                Ok(())
            }
        }
    }

    /// Processes a stream whose field section waits for insertions: it may be reset.
    fn read_blocked(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        match self.quic.transport().recv_stream(id).received_reset() {
            Ok(Some(_)) => self.on_reset(id),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Continues a stream whose field section no longer waits.
    pub(super) fn on_unblocked(&mut self, number: u64) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        let Some((part, mut bytes)) = stream.blocked.take().map(|blocked| *blocked) else {
            return Ok(());
        };
        if stream.receiving != Receiving::Open {
            return Ok(());
        }
        let id = stream_id(number);
        self.on_part(id, part, &mut bytes)?;
        self.on_bytes(id, bytes)?;
        self.read(id)
    }

    /// Decodes a field section.
    fn decode(
        &mut self,
        id: StreamId,
        section: &[u8],
        is_trailers: bool,
    ) -> Result<Decoded, ErrorCode> {
        self.field_block.clear(is_trailers);
        let Http3Connection { field_block, limits, decoder, .. } = self;
        match decoder.decode(id.into(), section, |field| field_block.on_field(field, limits)) {
            Ok(decoded) => Ok(decoded),
            Err(DecodeError::Malformed) => Err(ErrorCode::QPACK_DECOMPRESSION_FAILED),
            Err(DecodeError::Stopped) => Err(ErrorCode::EXCESSIVE_LOAD),
        }
    }

    /// Processes the head of a request, behind which the stream ends if `ends` is set.
    fn on_head(&mut self, id: StreamId, ends: bool) -> Result<(), ErrorCode> {
        if self.quic.is_handshaking() {
            self.field_block.mark_early();
        }
        let request = match self.field_block.request(ends) {
            Err(FieldBlockError::Malformed) => return self.on_malformed(id),
            Err(FieldBlockError::Respond(error)) => {
                Err(self.field_block.invalid_request(error, false))
            }
            Ok(request) => Ok(request),
        };
        self.prioritize_request(id, request.as_ref().ok());
        self.open(id, request, ends);
        Ok(())
    }

    /// Resets the stream of a malformed request (RFC 9114 §4.1.2). The request is returned so that
    /// it is recorded.
    fn on_malformed(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let error = Error::malformed("the request is malformed");
        let invalid = self.field_block.invalid_request(error, true);
        self.open(id, Err(invalid), false);
        self.fail_stream(id, ErrorCode::MESSAGE_ERROR)
    }

    fn open(
        &mut self,
        id: StreamId,
        request: Result<ParsedRequest, Box<InvalidRequest>>,
        ends: bool,
    ) {
        let number = id.into();
        let (is_tunnel, content_length) = match &request {
            // The bytes of a tunnel are not content (RFC 9110 §9.3.6).
            Ok(request) => (request.is_tunnel, request.length.filter(|_| !request.is_tunnel)),
            Err(_) => (false, None),
        };
        let pipe = (request.is_ok() && (!ends || is_tunnel))
            .then(|| Pipe::new(number, self.ready.get_or_insert_default().clone()));
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.on_head(content_length, pipe.clone());
        self.requests.push_back(StreamRequest { stream: number, request, pipe });
    }

    /// Passes data to its reader. Data without a reader is discarded.
    fn on_data(&mut self, id: StreamId, data: &[u8]) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
        if !stream.receive_content(data.len()) {
            return self.fail_stream(id, ErrorCode::MESSAGE_ERROR);
        }
        let Some(pipe) = &stream.pipe else { return Ok(()) };
        match pipe.push(data) {
            Pushed::Kept => stream.unread += data.len(),
            Pushed::Discarded => {}
            Pushed::TooSmall => return Err(ErrorCode::EXCESSIVE_LOAD),
        }
        Ok(())
    }

    /// Processes trailers, which end the content (RFC 9114 §4.1).
    fn on_trailers(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let trailers = self.field_block.trailers();
        let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
        match trailers {
            Ok(trailers) if stream.is_content_complete() => {
                let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                if let Some(pipe) = &stream.pipe {
                    pipe.end(RecvEnd::Complete(trailers.map(Box::new)));
                }
                Ok(())
            }
            _ => self.fail_stream(id, ErrorCode::MESSAGE_ERROR),
        }
    }

    /// Processes the end of a request.
    fn on_end(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
        stream.receiving = Receiving::Ended;
        match stream.reader.end() {
            Ok(()) if stream.is_content_complete() => {
                stream.end_received(RecvEnd::Complete(None));
                self.remove_if_done(id.into());
                Ok(())
            }
            Ok(()) => self.fail_stream(id, ErrorCode::MESSAGE_ERROR),
            Err(ErrorCode::REQUEST_INCOMPLETE) => {
                stream.owner = Owner::None;
                self.fail_stream(id, ErrorCode::REQUEST_INCOMPLETE)
            }
            Err(code) => Err(code),
        }
    }

    /// Processes a request that the client has reset.
    fn on_reset(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&id.into()) else { return Ok(()) };
        if !self.flood.on_reset() {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        stream.receiving = Receiving::Stopped;
        stream.blocked = None;
        self.decoder.cancel(id.into());
        if stream.owner == Owner::Reader {
            stream.owner = Owner::None;
            stream.sending = Sending::Reset;
            self.reject(id, ErrorCode::REQUEST_CANCELLED);
        } else if let Some(pipe) = &stream.pipe {
            // The response may still be wanted (RFC 9114 §4.1.1).
            pipe.end(RecvEnd::Reset);
        }
        self.remove_if_done(id.into());
        Ok(())
    }

    /// Processes a stream whose pipe has changed: the application has read or written data.
    pub(super) fn on_pipe_changed(&mut self, id: u64) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        let Some(pipe) = &stream.pipe else { return Ok(()) };
        let was_full = stream.unread >= MAX_UNREAD_BYTES;
        stream.unread -= pipe.take_read().min(stream.unread);
        if was_full && stream.unread < MAX_UNREAD_BYTES || pipe.is_reader_closed() {
            self.read(stream_id(id))?;
        }
        self.send_tunnel_data(id);
        self.remove_if_done(id);
        Ok(())
    }

    /// Stops the content of a request that nobody reads.
    pub(in crate::server::h3) fn stop_content(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.receiving == Receiving::Open
        {
            stream.receiving = Receiving::Stopped;
            stream.blocked = None;
            self.decoder.cancel(id);
            let code = varint(ErrorCode::NO_ERROR);
            let _ = self.quic.transport().recv_stream(stream_id(id)).stop(code);
        }
    }
}
