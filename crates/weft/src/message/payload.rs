//! The payload of a response, and its conversion into one body.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::disk::File;
use crate::disk::PIECE_BYTES;
use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::upgrade::Upgrade;

/// The payload of a response, which follows its head.
#[derive(Debug)]
pub(crate) enum Payload {
    Body(Body),
    /// Behind a pointer, like all large variants, because responses are moved often. A cached file
    /// is shared by many responses.
    File(Arc<File>),
    Parts(Box<Parts>),
    /// The connection itself.
    Upgrade(Upgrade),
}

impl Payload {
    #[inline]
    pub(crate) fn empty() -> Payload {
        Payload::Body(Body::empty())
    }

    /// Returns the content if it is in memory, otherwise the payload unchanged.
    #[inline]
    pub(crate) fn into_bytes(self) -> std::result::Result<Bytes, Payload> {
        match self {
            Payload::Body(body) => body.into_bytes().map_err(Payload::Body),
            Payload::File(file) => file.in_memory().ok_or(Payload::File(file)),
            other => Err(other),
        }
    }
}

/// Several parts of a file, for a multipart response.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) parts: Vec<Part>,
    /// Bytes after the last part.
    pub(crate) end: Vec<u8>,
    /// Total length of the payload.
    pub(crate) length: u64,
}

/// A part of a file, and the bytes before it.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) head: Vec<u8>,
    pub(crate) file: File,
}

/// Converts a payload into a body, or an upgrade with an empty body.
///
/// The preconditions of the request were already evaluated against the file, so its version is not
/// needed any more.
pub(crate) fn to_body(payload: Payload) -> (Body, Option<Upgrade>) {
    to_body_in_pieces(payload, PIECE_BYTES)
}

/// As [`to_body`], with files that are read in pieces of at most `max_piece` bytes.
pub(crate) fn to_body_in_pieces(payload: Payload, max_piece: usize) -> (Body, Option<Upgrade>) {
    let file_body = |file: File| Body::file_in_pieces(File { version: None, ..file }, max_piece);
    let body = match payload {
        Payload::Body(body) => body,
        Payload::File(file) => file_body(Arc::unwrap_or_clone(file)),
        Payload::Upgrade(upgrade) => return (Body::empty(), Some(upgrade)),
        Payload::Parts(parts) => {
            let Parts { parts, end, length } = *parts;
            let bodies =
                parts.into_iter().flat_map(|Part { head, file }| [head.into(), file_body(file)]);
            Body::boxed(Chain { bodies: bodies.chain([end.into()]).collect(), length })
        }
    };
    (body, None)
}

/// Concatenation of bodies.
struct Chain {
    bodies: VecDeque<Body>,
    /// Remaining length of all bodies.
    length: u64,
}

impl http_body::Body for Chain {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        while let Some(body) = self.bodies.front_mut() {
            if let Some(chunk) = ready!(body.poll_chunk(cx)?) {
                self.length -= chunk.len() as u64;
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            self.bodies.pop_front();
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
