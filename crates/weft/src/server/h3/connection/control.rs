//! Unidirectional streams: the control streams of both sides, and the streams of QPACK (RFC 9114
//! §6.2, RFC 9204 §4.2).

use bytes::Bytes;
use quinn_proto::{Dir, ReadError, StreamId};

use crate::net::quic::Connection;
use crate::server::h3::connection::{Http3Connection, varint};
use weft_proto::http3::ErrorCode;
use weft_proto::http3::control::{ControlFrame, ControlReader};
use weft_proto::http3::frame;
use weft_proto::http3::qpack::{DecoderInstructions, EncoderInstructions};

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
    encoder: Option<(StreamId, EncoderInstructions)>,
    decoder: Option<(StreamId, DecoderInstructions)>,
    frames: Vec<ControlFrame>,
}

/// Maximum size of unsent output: GOAWAY frames.
const MAX_UNSENT_BYTES: usize = 1 << 10;

impl UnidirectionalStreams {
    /// Opens the server's control stream.
    pub(super) fn begin(&mut self, quic: &mut Connection, out: Vec<u8>) {
        self.control = quic.transport().streams().open(Dir::Uni);
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

    /// Adds a stream that the client has opened.
    pub(super) fn open(&mut self, id: StreamId) -> Result<(), ErrorCode> {
        self.untyped.push((id, Vec::new()));
        Ok(())
    }

    /// Reads a stream of the client.
    pub(super) fn read(&mut self, quic: &mut Connection, id: StreamId) -> Result<(), ErrorCode> {
        let transport = quic.transport();
        let mut stream = transport.recv_stream(id);
        // An error means that the stream was stopped.
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let result = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => match self.on_bytes(id, chunk.bytes) {
                    Ok(Accept::Keep) => {}
                    other => break other,
                },
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

    fn on_bytes(&mut self, id: StreamId, mut bytes: Bytes) -> Result<Accept, ErrorCode> {
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
            while let Some(frame) = reader.next(&mut bytes)? {
                self.frames.push(frame);
            }
            return Ok(Accept::Keep);
        }
        match (&mut self.encoder, &mut self.decoder) {
            (Some((encoder, instructions)), _) if *encoder == id => instructions.read(&bytes)?,
            (_, Some((_, instructions))) => instructions.read(&bytes)?,
            _ => {}
        }
        Ok(Accept::Keep)
    }

    fn on_type(&mut self, id: StreamId, kind: u64) -> Result<Accept, ErrorCode> {
        let is_first = match kind {
            frame::stream::CONTROL => {
                self.client_control.replace((id, ControlReader::default())).is_none()
            }
            frame::stream::QPACK_ENCODER => {
                self.encoder.replace((id, EncoderInstructions)).is_none()
            }
            frame::stream::QPACK_DECODER => {
                self.decoder.replace((id, DecoderInstructions::default())).is_none()
            }
            // Only servers push.
            frame::stream::PUSH => false,
            _ => return Ok(Accept::Stop),
        };
        if is_first { Ok(Accept::Keep) } else { Err(ErrorCode::STREAM_CREATION_ERROR) }
    }

    fn on_end(&mut self, id: StreamId) -> Result<Accept, ErrorCode> {
        self.untyped.retain(|(other, _)| *other != id);
        let is_critical = self.client_control.as_ref().is_some_and(|(control, _)| *control == id)
            || self.encoder.as_ref().is_some_and(|(encoder, _)| *encoder == id)
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
    /// Processes the frames of the client's control stream.
    pub(super) fn on_control_frames(&mut self) -> Result<(), ErrorCode> {
        for frame in std::mem::take(&mut self.unidirectional.frames) {
            match frame {
                // Nothing depends on them: no push, no dynamic table.
                ControlFrame::Settings(_) => {}
                ControlFrame::GoAway => self.announce_goaway(),
                ControlFrame::PriorityUpdate(..) => {
                    if !self.flood.on_stream_error() {
                        return Err(ErrorCode::EXCESSIVE_LOAD);
                    }
                }
            }
        }
        Ok(())
    }
}
