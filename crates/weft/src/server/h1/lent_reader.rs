//! The content of a request whose body has the connection's reader on loan.
//!
//! The body reads and decodes in the task or thread in which it is polled, and returns the reader
//! when it ends or is dropped. There is no task and no channel between the application and the
//! socket, so backpressure reaches the client directly.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;

use crate::error::{Error, ErrorKind, Result};
use crate::exclusive::Exclusive;
use crate::net::reader::{ReadBudget, Reader};
use crate::server::h1::loan::Loan;
use crate::server::inbound::{ContentEvent, ContentSource, ReceiveClock};
use weft_proto::headers::Headers;
use weft_proto::http1::chunked::{BodyDecoder, Step};
use weft_proto::http1::parse::Limits;

/// Buffer space requested for one read of a body.
const READ_BYTES: u64 = 64 << 10;
const MIN_READ_BYTES: u64 = 1 << 10;

/// The same after a read that has received [`READ_BYTES`] or more: the client is faster than the
/// reader of the body, and fewer system calls move the same bytes.
const LARGE_READ_BYTES: u64 = 128 << 10;

/// The returned reader, and its position in the body.
pub(super) struct ReturnedReader {
    pub(super) reader: Reader,
    pub(super) decoder: BodyDecoder,
    /// Set if the rest of the input cannot be parsed, so that no request can follow.
    pub(super) failed: bool,
}

/// The content of a request, decoded from a reader on loan.
pub(super) struct LentReader {
    /// `None` once it was returned.
    reader: Exclusive<Option<Reader>>,
    decoder: BodyDecoder,
    trailer_limits: Limits,
    /// Set while the client waits for a 100 before it sends the body.
    expects_continue: bool,
    budget: ReadBudget,
    /// Buffer space requested for the next read, at most.
    max_read_bytes: u64,
    loan: Arc<Loan<ReturnedReader>>,
}

impl LentReader {
    pub(super) fn new(
        reader: Reader,
        loan: Arc<Loan<ReturnedReader>>,
        (decoder, trailer_limits): (BodyDecoder, Limits),
        expects_continue: bool,
    ) -> LentReader {
        let reader = Exclusive::new(Some(reader));
        LentReader {
            reader,
            decoder,
            trailer_limits,
            expects_continue,
            budget: ReadBudget::default(),
            max_read_bytes: READ_BYTES,
            loan,
        }
    }

    /// Receives more of the body into the reader's buffer.
    fn poll_receive(&mut self, cx: &mut Context<'_>, clock: &mut ReceiveClock) -> Poll<Result<()>> {
        if std::mem::take(&mut self.expects_continue) {
            self.loan.request_continue();
        }
        let rest = self.decoder.remaining().unwrap_or(READ_BYTES);
        let room = rest.clamp(MIN_READ_BYTES, self.max_read_bytes);
        let Some(reader) = self.reader.get_mut() else { return Poll::Ready(Err(incomplete())) };
        match self.budget.poll_fill(reader, cx, room as usize) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(incomplete())),
            // A reset also ends the body; so does, over TLS, an end without close_notify.
            Poll::Ready(Err(error)) if matches!(error.kind(), ConnectionReset | UnexpectedEof) => {
                Poll::Ready(Err(incomplete()))
            }
            Poll::Ready(Ok(bytes)) => {
                let is_fast = bytes as u64 >= READ_BYTES;
                self.max_read_bytes = if is_fast { LARGE_READ_BYTES } else { READ_BYTES };
                clock.received(bytes);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Error::of_connection(error))),
            Poll::Pending if self.loan.poll_revoked(cx).is_ready() => {
                Poll::Ready(Err(Error::disconnected()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl ContentSource for LentReader {
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        clock: &mut ReceiveClock,
    ) -> Poll<Result<ContentEvent>> {
        if self.loan.is_revoked() {
            return Poll::Ready(Err(Error::disconnected()));
        }
        let mut trailers = None;
        loop {
            let Some(reader) = self.reader.get_mut() else {
                return Poll::Ready(Ok(ContentEvent::End(None)));
            };
            match self.decoder.step(&reader.buffer, &self.trailer_limits)? {
                Step::Skip(bytes) => reader.buffer.advance(bytes),
                Step::Data(bytes) => {
                    let data = reader.buffer.split_to(bytes).freeze();
                    return Poll::Ready(Ok(ContentEvent::Data(data)));
                }
                Step::Trailers(fields, bytes) => {
                    let text = reader.buffer.split_to(bytes).freeze();
                    trailers = Some(Box::new(Headers::new(text, fields)));
                }
                Step::End => return Poll::Ready(Ok(ContentEvent::End(trailers))),
                Step::Wait => match self.poll_receive(cx, clock) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.decoder.remaining()
    }

    /// The reader is returned with the last piece of a body with a declared length, so that the
    /// next request can be read even if the application does not poll for the end.
    fn is_complete(&self) -> bool {
        self.decoder == BodyDecoder::Done
    }

    fn release(&mut self, failed: bool) {
        if let Some(reader) = self.reader.get_mut().take() {
            let returned = ReturnedReader { reader, decoder: self.decoder, failed };
            self.loan.give_back(returned);
        }
    }
}

fn incomplete() -> Error {
    Error::new(ErrorKind::BodyIncomplete, "the connection was closed in the middle of the body")
}
