//! Unidirectional streams: the control streams of both sides, and the streams of QPACK (RFC 9114
//! §6.2, RFC 9204 §4.2).

use bytes::Bytes;
use quinn_proto::{Dir, ReadError, StreamId};

use crate::net::quic::Connection;
use crate::server::h3::connection::{Http3Connection, priority, varint};
use weft_proto::http3::ErrorCode;
use weft_proto::http3::control::{ControlFrame, ControlReader};
use weft_proto::http3::frame;
use weft_proto::http3::qpack::{Decoder, DecoderInstructions, TableWork};
use weft_proto::semantics::priority::Priority;

/// The unidirectional streams of a connection.
#[derive(Default)]
pub(super) struct UnidirectionalStreams {
    /// The server's control stream.
    control: Option<StreamId>,
    /// Output of the control stream that the transport has not accepted.
    unsent: Vec<u8>,
    /// Streams of the client whose type is not known, with the bytes of the type.
    untyped: Vec<(StreamId, Vec<u8>)>,
    client_control: Option<(StreamId, ControlReader)>,
    /// The client's encoder stream.
    encoder: Option<StreamId>,
    /// The client's decoder stream.
    decoder: Option<(StreamId, DecoderInstructions)>,
    /// The server's decoder stream, opened with its first output, and true once its type was sent.
    feedback: Option<(StreamId, bool)>,
    unaccounted: Unaccounted,
    frames: Vec<ControlFrame>,
}

/// Input of the client that the flood limit does not know yet.
#[derive(Default)]
struct Unaccounted {
    bytes: usize,
    /// Frames of the control stream, and streams of unknown types.
    frames: usize,
    work: TableWork,
}

/// Maximum size of unsent output: GOAWAY frames.
const MAX_UNSENT_BYTES: usize = 1 << 10;

impl UnidirectionalStreams {
    /// Opens the server's control stream.
    pub(super) fn begin(&mut self, quic: &mut Connection, out: Vec<u8>) {
        self.control = quic.transport().streams().open(Dir::Uni);
        if let Some(control) = self.control {
            priority::precede_requests(quic, control);
        }
        self.send(quic, &out);
    }

    /// Sends frames on the control stream.
    pub(super) fn send(&mut self, quic: &mut Connection, out: &[u8]) {
        if self.unsent.len() < MAX_UNSENT_BYTES {
            self.unsent.extend_from_slice(out);
        }
        self.flush(quic);
    }

    pub(super) fn flush(&mut self, quic: &mut Connection) {
        if let Some(control) = self.control
            && !self.unsent.is_empty()
            && let Ok(written) = quic.transport().send_stream(control).write(&self.unsent)
        {
            self.unsent.drain(..written);
        }
    }

    /// Number of streams that the server has opened.
    pub(super) fn sending_count(&self) -> usize {
        usize::from(self.control.is_some()) + usize::from(self.feedback.is_some())
    }

    /// Adds a stream that the client has opened.
    pub(super) fn open(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        self.untyped.push((id, Vec::new()));
        Ok(())
    }

    /// Sends what the decoder reports to the client's encoder. The transport may accept a part only.
    fn send_feedback(
        &mut self,
        quic: &mut Connection,
        decoder: &mut Decoder,
    ) -> Result<(), ErrorCode> {
        let feedback = decoder.feedback()?;
        if feedback.is_empty() {
            return Ok(());
        }
        if self.feedback.is_none()
            && let Some(stream) = quic.transport().streams().open(Dir::Uni)
        {
            priority::precede_requests(quic, stream);
            self.feedback = Some((stream, false));
        }
        // Without a stream, the client permits none.
        let Some((stream, has_type)) = &mut self.feedback else { return Ok(()) };
        let transport = quic.transport();
        let mut stream = transport.send_stream(*stream);
        *has_type = *has_type || stream.write(&[frame::stream::QPACK_DECODER as u8]) == Ok(1);
        if *has_type && let Ok(written) = stream.write(feedback) {
            decoder.on_feedback_sent(written);
        }
        Ok(())
    }

    /// Reads a stream of the client.
    pub(super) fn read(
        &mut self,
        quic: &mut Connection,
        decoder: &mut Decoder,
        id: StreamId,
    ) -> Result<(), ErrorCode> {
        let transport = quic.transport();
        let mut stream = transport.recv_stream(id);
        // An error means that the stream was stopped.
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.unaccounted.bytes += chunk.bytes.len();
                    match self.on_bytes(decoder, id, chunk.bytes) {
                        Ok(Accept::Keep) => {}
                        other => break other,
                    }
                }
                Ok(None) | Err(ReadError::Reset(_)) => break self.on_end(id),
                Err(ReadError::Blocked) => break Ok(Accept::Keep),
            }
        };
        // The driver sends the credit.
        let _ = chunks.finalize();
        if let Accept::Stop = result? {
            let code = varint(ErrorCode::STREAM_CREATION_ERROR);
            let _ = quic.transport().recv_stream(id).stop(code);
        }
        Ok(())
    }

    fn on_bytes(
        &mut self,
        decoder: &mut Decoder,
        id: StreamId,
        mut bytes: Bytes,
    ) -> Result<Accept, ErrorCode> {
        if let Some(index) = self.untyped.iter().position(|(other, _)| *other == id) {
            let buffer = &mut self.untyped[index].1;
            let before = buffer.len();
            buffer.extend_from_slice(&bytes[..bytes.len().min(8 - before)]);
            let Some((kind, length)) = frame::varint(buffer) else { return Ok(Accept::Keep) };
            self.untyped.swap_remove(index);
            let _ = bytes.split_to(length - before);
            if let Accept::Stop = self.on_type(id, kind)? {
                return Ok(Accept::Stop);
            }
        }
        if let Some((control, reader)) = &mut self.client_control
            && *control == id
        {
            let result = loop {
                match reader.next(&mut bytes) {
                    Ok(Some(frame)) => self.frames.push(frame),
                    Ok(None) => break Ok(Accept::Keep),
                    Err(code) => break Err(code),
                }
            };
            self.unaccounted.frames += reader.take_frame_count();
            return result;
        }
        match &mut self.decoder {
            _ if self.encoder == Some(id) => {
                self.unaccounted.work += decoder.read_encoder_stream(&bytes)?;
            }
            Some((_, instructions)) => instructions.read(&bytes)?,
            None => {}
        }
        Ok(Accept::Keep)
    }

    fn on_type(&mut self, id: StreamId, kind: u64) -> Result<Accept, ErrorCode> {
        let is_first = match kind {
            frame::stream::CONTROL => {
                self.client_control.replace((id, ControlReader::default())).is_none()
            }
            frame::stream::QPACK_ENCODER => self.encoder.replace(id).is_none(),
            frame::stream::QPACK_DECODER => {
                self.decoder.replace((id, DecoderInstructions::default())).is_none()
            }
            // Only servers push.
            frame::stream::PUSH => false,
            _ => {
                self.unaccounted.frames += 1;
                return Ok(Accept::Stop);
            }
        };
        if is_first { Ok(Accept::Keep) } else { Err(ErrorCode::STREAM_CREATION_ERROR) }
    }

    fn on_end(&mut self, id: StreamId) -> Result<Accept, ErrorCode> {
        let untyped = self.untyped.len();
        self.untyped.retain(|(other, _)| *other != id);
        self.unaccounted.frames += untyped - self.untyped.len();
        let is_critical = self.client_control.as_ref().is_some_and(|(control, _)| *control == id)
            || self.encoder == Some(id)
            || self.decoder.as_ref().is_some_and(|(decoder, _)| *decoder == id);
        if is_critical { Err(ErrorCode::CLOSED_CRITICAL_STREAM) } else { Ok(Accept::Keep) }
    }
}

/// Whether a stream is read on.
enum Accept {
    Keep,
    /// The type is unknown.
    Stop,
}

impl Http3Connection {
    /// Reads a unidirectional stream of the client.
    pub(super) fn read_unidirectional(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        let Http3Connection { quic, decoder, unidirectional, .. } = self;
        unidirectional.read(quic, decoder, id)?;
        let Unaccounted { bytes, frames, work } = std::mem::take(&mut unidirectional.unaccounted);
        self.flood.on_bytes_received(bytes);
        if !self.flood.on_idle_frames(frames as u64) || !self.flood.on_table_work(work) {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        self.on_control_frames()?;
        while let Some(stream) = self.decoder.next_unblocked() {
            self.on_unblocked(stream)?;
        }
        Ok(())
    }

    /// Reports decoded sections and received insertions to the client's encoder (RFC 9204 §4.4).
    pub(in crate::server::h3) fn send_feedback(&mut self) -> Result<(), ErrorCode> {
        let Http3Connection { quic, decoder, unidirectional, .. } = self;
        unidirectional.send_feedback(quic, decoder)
    }

    /// Processes the frames of the client's control stream.
    pub(super) fn on_control_frames(&mut self) -> Result<(), ErrorCode> {
        for frame in std::mem::take(&mut self.unidirectional.frames) {
            match frame {
                // Nothing depends on them: no push, no dynamic table.
                ControlFrame::Settings(_) => {}
                ControlFrame::GoAway => self.announce_goaway(),
                ControlFrame::PriorityUpdate(stream, value) => {
                    self.on_priority_update(stream, Priority::parse(&value));
                }
            }
        }
        Ok(())
    }
}
