//! The body of a request on its way to an upstream.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep};
use weft::Body;
use weft::header::HeaderMap;

use super::failure::Failure;
use super::fields::{may_be_trailer, push_field};
use super::wire::Wire;

/// How long an upstream may think about `Expect: 100-continue`. Many do not know it and wait for
/// the body (RFC 9110 §10.1.1).
const GO_AHEAD: Duration = Duration::from_secs(1);

pub(super) struct Upload {
    body: Body,
    is_chunked: bool,
    stage: Stage,
    turn: Turn,
    /// Whether something of it was taken from the client since somebody asked.
    has_moved: bool,
}

enum Stage {
    /// The upstream has not said whether it wants it (RFC 9110 §10.1.1), and has so long for it.
    Held(Pin<Box<Sleep>>),
    Sending,
    /// All of it is gathered or sent, or nobody wants the rest.
    Over {
        is_whole: bool,
    },
}

/// Whose turn it is while a response is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    Upstream,
}

impl Upload {
    /// A body to be sent, or to be held until the upstream wants it.
    pub(super) fn new(body: Body, is_held: bool) -> Upload {
        let is_chunked = body.length().is_none();
        let stage = if is_held { Stage::Held(Box::pin(sleep(GO_AHEAD))) } else { Stage::Sending };
        Upload { body, is_chunked, stage, turn: Turn::Upstream, has_moved: false }
    }

    /// The upstream wants it.
    pub(super) fn release(&mut self) {
        if let Stage::Held(_) = self.stage {
            self.stage = Stage::Sending;
        }
    }

    /// No more of it is wanted.
    pub(super) fn stop(&mut self) {
        if !self.is_whole() {
            self.stage = Stage::Over { is_whole: false };
        }
    }

    /// Whether all of it was taken from the client.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Over { is_whole: true })
    }

    /// Whose turn it is, and whether something has moved since this was asked last.
    pub(super) fn turn(&mut self) -> (Turn, bool) {
        (self.turn, std::mem::take(&mut self.has_moved))
    }

    /// Sends what there is. Ready when there is no more of it.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wire: &mut Wire,
    ) -> Poll<Result<(), Failure>> {
        loop {
            self.turn = Turn::Upstream;
            // What is at hand leaves together, the first of it with the head.
            let mut is_drained = false;
            while !is_drained && !wire.is_full() {
                is_drained = self.poll_gather(cx, wire)?.is_pending();
            }
            ready!(wire.poll_send(cx)).map_err(Failure::Broken)?;
            match self.stage {
                Stage::Over { .. } => return Poll::Ready(Ok(())),
                Stage::Held(_) if is_drained => return Poll::Pending,
                Stage::Sending if is_drained => {
                    self.turn = Turn::Client;
                    return Poll::Pending;
                }
                _ => {}
            }
        }
    }

    /// Gathers one piece; pending if there is none now, or no more.
    fn poll_gather(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<Result<(), Failure>> {
        match &mut self.stage {
            Stage::Over { .. } => return Poll::Pending,
            Stage::Held(patience) => {
                ready!(patience.as_mut().poll(cx));
                self.stage = Stage::Sending;
            }
            Stage::Sending => {}
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.has_moved = true;
        let frame = frame.transpose().map_err(|error| {
            self.stop();
            Failure::Client(error)
        })?;
        let is_last = |frame: &Frame<Bytes>| frame.is_trailers() || self.body.is_end_stream();
        if frame.as_ref().is_none_or(is_last) {
            self.stage = Stage::Over { is_whole: true };
        }
        let trailers = match frame.map(Frame::into_data) {
            Some(Ok(piece)) if self.is_chunked => {
                push_chunk(wire, piece);
                None
            }
            Some(Ok(piece)) => {
                wire.push(piece);
                None
            }
            Some(Err(frame)) => frame.into_trailers().ok(),
            None => None,
        };
        if self.is_chunked && self.is_whole() {
            push_last_chunk(wire, &trailers.unwrap_or_default());
        }
        Poll::Ready(Ok(()))
    }
}

/// RFC 9112 §7.1. An empty chunk would be the last.
fn push_chunk(wire: &mut Wire, piece: Bytes) {
    if !piece.is_empty() {
        // Writing to a vector cannot fail.
        let _ = write!(wire.gathered(), "{:x}\r\n", piece.len());
        wire.push(piece);
        wire.gathered().extend_from_slice(b"\r\n");
    }
}

/// RFC 9112 §7.1.2, without what may only stand in a head.
fn push_last_chunk(wire: &mut Wire, trailers: &HeaderMap) {
    let out = wire.gathered();
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        let name = name.as_str().as_bytes();
        if may_be_trailer(name) {
            push_field(out, name, value.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
}
