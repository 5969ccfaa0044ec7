//! Bodies that are received ahead of their reader: into memory, then into a temporary file.
//!
//! A proxy connection or a CGI process is occupied while it sends a response, and would be occupied
//! while it receives a request. A spool separates it from the pace of the client: a pump reads the
//! source as fast as it sends, and the `SpooledBody` is read as fast as its reader takes it. Data
//! that is received passes at once to a reader that waits for it.
//!
//! All bodies share a [`BufferSpace`], and each client has a part of it. If the memory is used up,
//! bodies are written to the file at once. If there is no space in the file either, or if the
//! client has left too many bytes of responses unread, the pump stops reading until the reader has
//! taken data: a spool delays, but it never fails.

mod body_kind;
pub(crate) mod buffer_space;
mod byte_queue;
mod file_io;
pub(crate) mod pump;
pub(crate) mod spooled_body;
mod temp_file;
mod unread_bytes;
mod writers;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use weft::client_limit::Client;
use weft::{Body, Error};

use crate::spool::body_kind::BodyKind;
use crate::spool::buffer_space::Memory;
pub use crate::spool::buffer_space::{BufferSpace, BufferSpaceLimits};
use crate::spool::byte_queue::Queue;
pub use crate::spool::pump::BodySource;
use crate::spool::pump::{End, Shared};
use crate::spool::spooled_body::SpooledBody;
use crate::spool::temp_file::TempFile;

/// Limits of the spools of a route.
#[derive(Clone)]
pub struct SpoolLimits {
    /// Memory that is used before the file.
    pub memory_bytes: usize,
    /// Maximum size of the file.
    pub max_file_bytes: u64,
    /// Space that all bodies share.
    pub space: Arc<BufferSpace>,
}

/// A body that is being received.
pub struct Spool {
    body: SpooledBody,
    /// `None` once it has completed.
    pump: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Spool {
    /// Starts to receive `source`, the body of a response, after its `first` piece, within the
    /// share of `client`. `None` is a proxy that forwards the requests of many clients.
    pub fn new<S: BodySource>(
        first: Bytes,
        source: S,
        limits: &Arc<SpoolLimits>,
        client: Option<Client>,
    ) -> Spool {
        Spool::start(first, source, limits, client, BodyKind::Response)
    }

    fn start<S: BodySource>(
        first: Bytes,
        source: S,
        limits: &Arc<SpoolLimits>,
        client: Option<Client>,
        kind: BodyKind,
    ) -> Spool {
        let share = limits.space.share(client);
        let file = TempFile::new(limits.clone(), share.clone(), kind);
        let shared = Shared::new(Queue::new(limits.memory_bytes, file), Memory::new(share));
        let length = source.size_hint().exact().map(|rest| rest + first.len() as u64);
        let pump = Box::pin(pump::run(first, source, shared.clone()));
        Spool { body: SpooledBody::new(shared, length), pump: Some(pump) }
    }

    /// Receives data. Ready when the body is complete, or when there is no space for more of it.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pump) = &mut self.pump else { return Poll::Ready(()) };
        if pump.as_mut().poll(cx).is_ready() {
            self.pump = None;
            return Poll::Ready(());
        }
        match self.body.shared.state().writer {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        }
    }

    /// Receives the data that is available now.
    pub fn receive_available(mut self) -> Spool {
        // The task that continues registers its own waker.
        let _ = self.poll_receive(&mut Context::from_waker(Waker::noop()));
        self
    }

    /// Returns the body. Its rest is received in a task.
    pub fn into_body(mut self) -> Body {
        if let Some(pump) = self.pump.take() {
            self.body.receive_in_task(pump);
        }
        Body::from_http_body(self.body)
    }
}

/// Memory for a body of a response that has been received as a whole. Such a body needs no spool.
pub struct MemoryReservation(Memory);

impl MemoryReservation {
    /// Reserves memory within the share of `client` for a body, which occupies `held_bytes` with
    /// the rest of its buffer. `None` if there is too little, or if the body is larger than the
    /// limit of one.
    pub fn new(
        body_bytes: usize,
        held_bytes: usize,
        limits: &SpoolLimits,
        client: Option<Client>,
    ) -> Option<MemoryReservation> {
        if body_bytes > limits.memory_bytes {
            return None;
        }
        let mut memory = Memory::new(limits.space.share(client));
        (memory.grow(held_bytes, held_bytes) > 0).then_some(MemoryReservation(memory))
    }

    /// Returns the body. The memory is released when the last part of it is dropped.
    pub fn hold(self, body: Bytes) -> Bytes {
        Bytes::from_owner(HeldBody { body, _memory: self.0 })
    }
}

/// A body in memory that counts for a client.
struct HeldBody {
    body: Bytes,
    _memory: Memory,
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// The body of a request, received as far as the limits permit.
#[non_exhaustive]
pub struct ReceivedBody {
    /// The body.
    pub body: Body,
    /// Length of the whole body, if it is known or the body is complete.
    pub length: Option<u64>,
    /// The body ends with a trailer section, as far as is known.
    pub has_trailers: bool,
    /// Copy of the content, if one was requested, and all of it fits into the memory for one body.
    pub copy: Option<Bytes>,
}

impl ReceivedBody {
    /// Creates a body without content.
    fn empty(body: Body, has_trailers: bool, copies: bool) -> ReceivedBody {
        ReceivedBody { body, length: Some(0), has_trailers, copy: copies.then(Bytes::new) }
    }
}

/// Receives the body of a request, and copies it if `copies` is set. A body that has been received
/// already costs nothing.
///
/// Clients may keep many bodies waiting. Without `async`, the future contains the body or the
/// spool.
pub fn receive(
    body: Body,
    limits: &Arc<SpoolLimits>,
    client: Option<Client>,
    copies: bool,
) -> impl Future<Output = Result<ReceivedBody, Error>> {
    let declared_length = body.length();
    let mut stage = Stage::First(body);
    poll_fn(move |cx| {
        loop {
            stage = match &mut stage {
                Stage::First(body) => {
                    let Some(frame) = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose()?
                    else {
                        return Poll::Ready(Ok(ReceivedBody::empty(Body::empty(), false, copies)));
                    };
                    let first = match frame.into_data() {
                        Ok(first) => first,
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap_or_default();
                            let body = Body::from_http_body(OnlyTrailers(Some(trailers)));
                            return Poll::Ready(Ok(ReceivedBody::empty(body, true, copies)));
                        }
                    };
                    if first.is_empty() {
                        continue;
                    }
                    if declared_length.is_some() && body.is_end_stream() {
                        let may_copy = copies && first.len() <= limits.memory_bytes;
                        let copy = may_copy.then(|| Bytes::copy_from_slice(&first));
                        let (body, length) = (first.into(), declared_length);
                        let has_trailers = false;
                        return Poll::Ready(Ok(ReceivedBody { body, length, has_trailers, copy }));
                    }
                    let body = std::mem::take(body);
                    Stage::Rest(Spool::start(first, body, limits, client, BodyKind::Request))
                }
                Stage::Rest(spool) => {
                    ready!(spool.poll_receive(cx));
                    let spool = std::mem::replace(&mut stage, Stage::First(Body::empty()));
                    let Stage::Rest(spool) = spool else { unreachable!("it is the spool") };
                    return Poll::Ready(spool.into_received_body(declared_length, copies));
                }
            }
        }
    })
}

/// A body without content, which ends with a trailer section.
struct OnlyTrailers(Option<HeaderMap>);

impl http_body::Body for OnlyTrailers {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}

/// The part of a body that is being received.
enum Stage {
    First(Body),
    Rest(Spool),
}

impl Spool {
    fn into_received_body(
        self,
        declared_length: Option<u64>,
        copies: bool,
    ) -> Result<ReceivedBody, Error> {
        let (length, has_trailers, copy) = {
            let mut state = self.body.shared.state();
            match state.end.take() {
                Some(End::Failed(error)) => return Err(*error),
                end => state.end = end,
            }
            let is_complete = state.end.is_some();
            let copy = if copies && is_complete { state.queue.copy() } else { None };
            let has_trailers = matches!(state.end, Some(End::Complete(Some(_))));
            let length = is_complete.then_some(state.received).or(declared_length);
            (length, has_trailers, copy)
        };
        Ok(ReceivedBody { body: self.into_body(), length, has_trailers, copy })
    }
}
