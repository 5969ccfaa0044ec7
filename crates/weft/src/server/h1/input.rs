//! The receiving direction of an HTTP/1 connection: its reader, or the loan of the reader to a
//! body.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};

use crate::clock::deadline::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::connection::RequestContext;
use crate::net::buffers::{Buffers, INPUT_BYTES};
use crate::net::reader::Reader;
use crate::net::writer::Writer;
use crate::server::h1::lent_reader::{LentReader, ReturnedReader};
use crate::server::h1::loan::{BodyEvent, Loan};
use crate::server::inbound::{InboundBody, ReceiveClock};
use crate::server::worker_context::WorkerContext;
use weft_proto::http1::chunked::{BodyDecoder, Step};
use weft_proto::http1::framing::Length;

/// Minimum buffer space for a read of a head.
const MIN_READ_BYTES: usize = 1 << 10;

/// The input of a connection.
pub(super) struct Input<'a> {
    /// `None` while the reader is lent to a body.
    reader: &'a mut Option<Reader>,
    deadline: &'a Deadline,
    rest: RestOfRequest,
    /// Set if the client waits for a 100 that was not sent.
    pub(super) awaits_continue: bool,
    /// Ready when the connection of a client that has ended its input is broken.
    broken: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// The unread rest of the current request.
enum RestOfRequest {
    /// Nothing: the next request follows.
    Nothing,
    /// The body has the reader.
    Lent(Arc<Loan<ReturnedReader>>),
    /// Content that the application has not read.
    Unread(BodyDecoder),
    /// Input that cannot be parsed, or content that the client may not send: no request can follow.
    Unusable,
}

impl<'a> Input<'a> {
    #[inline]
    pub(super) fn new(reader: &'a mut Option<Reader>, deadline: &'a Deadline) -> Input<'a> {
        let rest = RestOfRequest::Nothing;
        Input { reader, deadline, rest, awaits_continue: false, broken: None }
    }

    #[inline]
    fn reader(&mut self) -> &mut Reader {
        self.reader.as_mut().expect("the reader is not lent between requests")
    }

    /// Returns the received bytes. Must not be called while the reader is lent.
    #[inline]
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.reader().buffer
    }

    /// Returns the received bytes, unless the reader is lent.
    #[inline]
    pub(super) fn received(&self) -> &[u8] {
        self.reader.as_ref().map_or(&[], |reader| &reader.buffer)
    }

    /// Reads once. Returns 0 at the end of the stream.
    pub(super) async fn fill<A>(&mut self, worker: &WorkerContext<A>) -> Result<usize> {
        let scratch = &worker.buffers.scratch;
        poll_fn(|cx| match self.reader().poll_fill_from_scratch(cx, scratch, MIN_READ_BYTES) {
            Poll::Ready(read) => Poll::Ready(read.map_err(Error::of_connection)),
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| Err(too_slow())),
        })
        .await
    }

    /// Takes a buffer from the worker, unless input was received already.
    #[inline]
    pub(super) fn take_buffer(&mut self, buffers: &Buffers) {
        if self.buffer().is_empty() {
            *self.buffer() = buffers.take_input();
        }
    }

    /// Returns the buffer to the worker. Received bytes are kept if `is_handed_over` is set.
    #[inline]
    pub(super) fn return_buffer(&mut self, buffers: &Buffers, is_handed_over: bool) {
        if let Some(reader) = self.reader
            && (reader.buffer.is_empty() || !is_handed_over)
        {
            let mut input = std::mem::take(&mut reader.buffer);
            input.clear();
            buffers.return_input(input);
        }
    }

    // -- the loan of the reader

    /// Creates the body of a request: its bytes if they were received, otherwise a loan of the
    /// reader.
    pub(super) fn request_body<A>(
        &mut self,
        length: Length,
        worker: &WorkerContext<A>,
        shared: &Arc<RequestContext>,
    ) -> Body {
        let max_body_bytes = worker.settings.max_body_bytes;
        match length {
            Length::Sized(0) => return Body::empty(),
            Length::Sized(n) if n <= max_body_bytes && n <= self.buffer().len() as u64 => {
                return Body::from(self.buffer().split_to(n as usize).freeze());
            }
            _ => {}
        }
        let loan = Loan::new();
        self.rest = RestOfRequest::Lent(loan.clone());
        let reader = self.reader.take().expect("the reader is not lent between requests");
        reader.half.register();
        let decoding = (BodyDecoder::new(length), worker.trailer_limits);
        let source = LentReader::new(reader, loan, decoding, self.awaits_continue);
        let clock = ReceiveClock::new(worker, shared);
        Body::inbound(InboundBody::new(source, max_body_bytes, clock))
    }

    /// Ready when the body requests a 100 (Continue). If the body has returned the reader, the
    /// reader is restored.
    #[inline]
    pub(super) fn poll_continue_requested(&mut self, cx: &Context<'_>) -> Poll<()> {
        while let RestOfRequest::Lent(loan) = &self.rest {
            match ready!(loan.poll_event(cx)) {
                BodyEvent::WantsContinue => return Poll::Ready(()),
                BodyEvent::ReaderReturned(returned) => self.restore_reader(returned),
            }
        }
        Poll::Pending
    }

    /// Waits until the reader is returned. Returns false if the deadline expires before.
    pub(super) async fn await_reader(&mut self) -> bool {
        poll_fn(|cx| {
            // A 100 after the response has no effect.
            while self.poll_continue_requested(cx).is_ready() {}
            match self.rest {
                RestOfRequest::Lent(_) => self.deadline.poll_expired(cx).map(|()| false),
                _ => Poll::Ready(true),
            }
        })
        .await
    }

    /// Restores the reader, if the body has returned it.
    #[inline]
    pub(super) fn restore_returned_reader(&mut self) {
        if let RestOfRequest::Lent(loan) = &self.rest
            && let Some(returned) = loan.take_returned()
        {
            self.restore_reader(returned);
        }
    }

    fn restore_reader(&mut self, returned: ReturnedReader) {
        *self.reader = Some(returned.reader);
        self.rest = match returned {
            ReturnedReader { failed: true, .. } => RestOfRequest::Unusable,
            ReturnedReader { decoder: BodyDecoder::Done, .. } => RestOfRequest::Nothing,
            // RFC 9110 §10.1.1: without a 100 the client may or may not send its body.
            _ if self.awaits_continue => RestOfRequest::Unusable,
            ReturnedReader { decoder, .. } => RestOfRequest::Unread(decoder),
        };
    }

    /// Returns true if a body has the reader.
    #[inline]
    pub(super) fn is_lent(&self) -> bool {
        self.reader.is_none()
    }

    // -- the rest of a request

    /// Returns true if the request was read completely.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        matches!(self.rest, RestOfRequest::Nothing)
    }

    /// Returns true if the rest of the request is small enough to be discarded.
    #[inline]
    pub(super) fn is_bounded(&self, max_discarded_bytes: u64) -> bool {
        match &self.rest {
            RestOfRequest::Nothing | RestOfRequest::Lent(_) => true,
            RestOfRequest::Unread(body) => {
                body.remaining().is_none_or(|length| length <= max_discarded_bytes)
            }
            RestOfRequest::Unusable => false,
        }
    }

    /// Reads and discards the rest of the request.
    pub(super) async fn discard_rest<A>(&mut self, worker: &WorkerContext<A>) {
        if let RestOfRequest::Unread(body) = self.rest {
            self.rest = match self.discard_body(body, worker).await {
                Ok(()) => RestOfRequest::Nothing,
                Err(_) => RestOfRequest::Unusable,
            };
        }
    }

    async fn discard_body<A>(
        &mut self,
        mut body: BodyDecoder,
        worker: &WorkerContext<A>,
    ) -> Result<()> {
        let mut allowed = worker.settings.max_discarded_bytes as usize;
        loop {
            let used = match body.step(self.buffer(), &worker.trailer_limits)? {
                Step::Skip(bytes) | Step::Data(bytes) | Step::Trailers(_, bytes) => bytes,
                Step::Wait if self.fill(worker).await? == 0 => return Err(Error::disconnected()),
                Step::Wait => continue,
                Step::End => return Ok(()),
            };
            self.buffer().advance(used);
            allowed = allowed.checked_sub(used).ok_or_else(Error::disconnected)?;
        }
    }

    // -- input during the response

    /// Reads ahead until the buffer is full. Ready at the end of the input, or with an error.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        while reader.buffer.len() < INPUT_BYTES {
            ready!(reader.poll_readable(cx))?;
            if ready!(reader.poll_fill(cx, MIN_READ_BYTES))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Ready when the client has disconnected, which can be detected only by reading ahead.
    pub(super) fn poll_disconnected(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        match ready!(self.poll_read_ahead(cx)) {
            Ok(()) => Poll::Ready(Error::disconnected()),
            Err(error) => Poll::Ready(Error::of_connection(error)),
        }
    }

    /// Ready when the connection is broken. The end of the input alone does not break it: the
    /// client may have shut down its sending direction only (RFC 9112 §9.6).
    pub(super) fn poll_broken(
        &mut self,
        cx: &mut Context<'_>,
        writer: &Writer,
        shared: &RequestContext,
    ) -> Poll<Error> {
        if self.broken.is_none() {
            if let Err(error) = ready!(self.poll_read_ahead(cx)) {
                return Poll::Ready(Error::of_connection(error));
            }
            shared.set_half_closed();
            self.broken = Some(Box::pin(writer.broken()));
        }
        let broken = self.broken.as_mut().map(|broken| broken.as_mut().poll(cx));
        broken.unwrap_or(Poll::Pending).map(|()| Error::disconnected())
    }

    /// Returns true if a read fails because of the client. The task is registered for the next
    /// read.
    pub(super) fn is_broken(&mut self, cx: &mut Context<'_>) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut};
        match self.poll_read_ahead(cx) {
            Poll::Ready(Err(error)) => {
                matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut)
            }
            Poll::Ready(Ok(())) | Poll::Pending => false,
        }
    }

    /// Releases the socket, unless a body has the reader.
    pub(super) fn close(&mut self) {
        if let Some(reader) = self.reader {
            reader.close();
        }
    }

    /// Returns the reader, unless it is lent.
    pub(super) fn reader_mut(&mut self) -> Option<&mut Reader> {
        self.reader.as_mut()
    }
}

/// Revokes the loan of the reader: a body that outlives its connection must not read.
impl Drop for Input<'_> {
    #[inline]
    fn drop(&mut self) {
        if let RestOfRequest::Lent(loan) = &self.rest {
            loan.revoke();
        }
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the request was received too slowly").with_limit("head_timeout")
}
