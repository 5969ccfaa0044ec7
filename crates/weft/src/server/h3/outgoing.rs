//! Output of a stream that the transport has not accepted.

use bytes::Bytes;
use quinn_proto::{StreamId, WriteError};

use crate::error::{Error, Result};
use crate::net::quic::Connection;
use weft_proto::http3::frame::{self, kind};

/// A frame, or a part of one: its head and its payload.
#[derive(Default)]
pub(super) struct Outgoing {
    chunks: [Bytes; 2],
    /// Set if the stream ends behind it.
    pub(super) ends: bool,
}

impl Outgoing {
    /// Complete frames.
    pub(super) fn frames(frames: Vec<u8>, ends: bool) -> Outgoing {
        Outgoing { chunks: [frames.into(), Bytes::new()], ends }
    }

    /// A complete frame.
    pub(super) fn complete(frame: Bytes) -> Outgoing {
        Outgoing { chunks: [frame, Bytes::new()], ends: false }
    }

    /// A DATA frame. Empty content has no frame.
    pub(super) fn data(content: Bytes, ends: bool) -> Outgoing {
        let mut head = Vec::new();
        if !content.is_empty() {
            frame::head(&mut head, kind::DATA, content.len() as u64);
        }
        Outgoing { chunks: [head.into(), content], ends }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.ends && self.bytes() == 0
    }

    /// Number of bytes that are not written.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }

    /// Number of bytes of the payload that are not written.
    pub(super) fn content_bytes(&self) -> usize {
        self.chunks[1].len()
    }

    /// Writes as much as the transport accepts. Returns the number of bytes; the rest stays.
    ///
    /// # Errors
    /// [`Disconnected`](crate::ErrorKind::Disconnected) if the client has stopped the stream.
    pub(super) fn write(&mut self, quic: &mut Connection, stream: StreamId) -> Result<usize> {
        let mut written = 0;
        let mut send = quic.transport().send_stream(stream);
        while self.chunks.iter().any(|chunk| !chunk.is_empty()) {
            match send.write_chunks(&mut self.chunks) {
                Ok(accepted) => written += accepted.bytes,
                Err(WriteError::Blocked) => return Ok(written),
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                    return Err(Error::disconnected());
                }
            }
        }
        if std::mem::take(&mut self.ends) {
            send.finish().map_err(|_| Error::disconnected())?;
        }
        Ok(written)
    }
}
