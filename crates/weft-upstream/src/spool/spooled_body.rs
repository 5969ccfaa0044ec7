//! The received part of a body, followed by the rest as it is received.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};
use weft::Error;

use super::byte_queue::Next;
use super::file_io::FileRead;
use super::pump::{End, Shared, State, failed};
use super::temp_file::READ_BYTES;
use crate::base::task::AbortOnDrop;

/// Maximum size of a read from the file that waits for the disk while no memory is available, in
/// bytes.
const SHORT_READ_BYTES: usize = 4 << 10;

/// The received part of a body, followed by the rest as it is received. Dropping it frees its
/// memory and its file, and drops the source.
pub(crate) struct SpooledBody {
    pub(crate) shared: Arc<Shared>,
    /// Number of bytes that remain to be read, if known.
    remaining: Option<u64>,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    pump: Option<AbortOnDrop>,
}

/// The next event for the reader.
enum Event {
    Data(Bytes),
    Reading(JoinHandle<io::Result<Bytes>>),
    Trailers(HeaderMap),
    End,
    Failed(Box<Error>),
}

impl SpooledBody {
    pub(crate) fn new(shared: Arc<Shared>, length: Option<u64>) -> SpooledBody {
        SpooledBody { shared, remaining: length, reading: None, pump: None }
    }

    /// Receives the rest of the body in a task.
    pub(crate) fn receive_in_task(&mut self, rest: impl Future<Output = ()> + Send + 'static) {
        self.pump = Some(AbortOnDrop::spawn(rest));
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let mut state = self.shared.state();
        let event = match state.queue.next() {
            Next::Data(data) => Event::Data(data),
            Next::Read(read) => match read.try_now() {
                Ok(Some(data)) => {
                    state.queue.finish_read(data.len());
                    Event::Data(data)
                }
                Ok(None) => Event::Reading(start_read(&mut state, read)),
                Err(error) => Event::Failed(Box::new(failed("cannot be read", error))),
            },
            // If bytes are being written at the end, the pump has panicked, and the write does not
            // end.
            Next::BeingWritten | Next::Empty if state.end.is_some() => match state.end.take() {
                Some(End::Failed(error)) => Event::Failed(error),
                Some(End::Complete(Some(trailers))) => {
                    state.end = Some(End::Complete(None));
                    Event::Trailers(*trailers)
                }
                end => {
                    state.end = end;
                    Event::End
                }
            },
            Next::BeingWritten | Next::Empty => {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        state.settle();
        let writer = if state.queue.is_full() { None } else { state.writer.take() };
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(event)
    }

    fn on_data(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(remaining) = &mut self.remaining {
            *remaining = remaining.saturating_sub(data.len() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

/// Returns the error of a body after the data that it has returned so far.
fn fail(error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
    Poll::Ready(Some(Err(error.after_data())))
}

/// Starts a read that waits for the disk.
fn start_read(state: &mut State, read: FileRead) -> JoinHandle<io::Result<Bytes>> {
    state.reading = match state.memory.grow(READ_BYTES, READ_BYTES) {
        0 => SHORT_READ_BYTES,
        granted => granted,
    };
    let read = read.limit(state.reading);
    spawn_blocking(move || read.run())
}

impl HttpBody for SpooledBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(cx));
                self.reading = None;
                return match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
                    Ok(data) => {
                        let mut state = self.shared.state();
                        state.queue.finish_read(data.len());
                        state.reading = 0;
                        state.settle();
                        drop(state);
                        self.on_data(data)
                    }
                    Err(error) => fail(failed("cannot be read", error)),
                };
            }
            match ready!(self.poll_event(cx)) {
                Event::Data(data) => return self.on_data(data),
                Event::Reading(reading) => self.reading = Some(reading),
                Event::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Event::End => return Poll::Ready(None),
                Event::Failed(error) => return fail(*error),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.shared.state();
        let is_complete = || matches!(&state.end, Some(End::Complete(None)));
        state.queue.is_empty() && is_complete()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
