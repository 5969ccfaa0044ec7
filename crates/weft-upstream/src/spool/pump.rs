//! The receiving side of a spool: reads the source within the available memory.
//!
//! A read needs a reservation of memory. After the read, the reservation is reduced to the received
//! bytes, so that a spool whose source has no data occupies none. If there is no memory for some
//! turns of the event loop, a spool still reads [`SHORT_BYTES`], so that each body makes progress.
//! If no reader waits for these bytes, they are written to the file together with further bytes.
//! The permit for writes bounds the number of spools that write at the same time. Only a spool
//! without space in its file waits for its reader.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use tokio::task::yield_now;
use tokio::time::timeout;
use weft::{Body, Error, ErrorKind};

use super::buffer_space::Memory;
use super::byte_queue::Queue;

/// Maximum size of one read, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Minimum reservation for a read, in bytes: fewer are not worth a system call.
const MIN_READ_BYTES: usize = 4 << 10;

/// Size of a read without a reservation, in bytes. Each body may occupy as much beyond the limits.
const SHORT_BYTES: usize = 1 << 10;

/// Size of a read of bytes that are written to the file at once, in bytes.
const SPILL_BYTES: usize = 16 << 10;

/// Turns of the event loop for which a read waits for memory. Readers that keep up release theirs
/// within a turn, and several downloads of one client share its memory. Further turns would delay
/// the bodies of a client whose readers do not keep up.
const MAX_TURNS_WITHOUT_MEMORY: u32 = 8;

/// Interval at which a body without space in its file tries again to write.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A body that can be received ahead of its reader.
pub trait BodySource: HttpBody<Data = Bytes, Error = Error> + Send + Unpin + 'static {
    /// Limits the next read. A source whose data is in memory already may ignore it.
    fn limit_read(&mut self, _bytes: usize) {}

    /// Returns the number of received bytes that no frame has returned yet.
    fn buffered_bytes(&self) -> usize {
        0
    }

    /// Frees memory that is not needed before the next read.
    fn free_memory(&mut self) {}
}

/// The content of a request, which the engine receives in small pieces.
impl BodySource for Body {}

/// The state that the pump and the reader share. They run in the same thread, as a rule.
pub(crate) struct Shared(Mutex<State>);

pub(crate) struct State {
    pub(crate) queue: Queue,
    pub(crate) memory: Memory,
    pub(crate) end: Option<End>,
    /// Number of bytes received.
    pub(crate) received: u64,
    /// Number of bytes that the source has received and not returned.
    in_source: usize,
    /// Number of bytes that are being read from the file.
    pub(crate) reading: usize,
    /// Waits for data.
    pub(crate) reader: Option<Waker>,
    /// Waits for space.
    pub(crate) writer: Option<Waker>,
}

/// The end of the source.
pub(crate) enum End {
    /// The end with the trailers; boxed, because few bodies have any.
    Complete(Option<Box<HeaderMap>>),
    /// Boxed, because few bodies fail.
    Failed(Box<Error>),
}

/// Reads the source to its end.
///
/// Without `async`, the future contains the source once.
pub(crate) fn run<S: BodySource>(
    first: Bytes,
    source: S,
    shared: Arc<Shared>,
) -> impl Future<Output = ()> {
    let mut pump = Pump::new(source, shared);
    pump.accept(Some(Ok(Frame::data(first))));
    async move {
        loop {
            pump.make_room().await;
            if pump.reader.end.is_some() {
                return;
            }
            let next = poll_fn(|cx| pump.poll_read(cx)).await;
            pump.accept(next);
        }
    }
}

/// A frame, `None` at the end, or an error.
type Received = Option<Result<Frame<Bytes>, Error>>;

struct Pump<S> {
    source: S,
    trailers: Option<Box<HeaderMap>>,
    /// Number of turns for which the next read has waited for memory.
    turns_without_memory: u32,
    /// Dropped last: the reader gets the end when the source is free.
    reader: ReaderGuard,
}

/// Ends the body when it is dropped, so that the reader does not wait forever. Without an `end`,
/// the pump has panicked, for example because no thread could be started for a write.
struct ReaderGuard {
    shared: Arc<Shared>,
    /// The end, once it was received.
    end: Option<End>,
}

impl<S: BodySource> Pump<S> {
    fn new(source: S, shared: Arc<Shared>) -> Pump<S> {
        let reader = ReaderGuard { shared, end: None };
        Pump { source, trailers: None, turns_without_memory: 0, reader }
    }

    /// Reads as much as there is memory for.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        let granted = self.reserve_read();
        if granted == 0 && self.turns_without_memory < MAX_TURNS_WITHOUT_MEMORY {
            self.turns_without_memory += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.turns_without_memory = 0;
        self.source.limit_read(if granted > 0 { granted } else { SHORT_BYTES });
        let polled = Pin::new(&mut self.source).poll_frame(cx);
        let mut state = self.reader.shared.state();
        match polled.is_ready() {
            true => state.set_short(granted == 0),
            false => state.settle(),
        }
        polled
    }

    /// Reserves memory for a read, and records if there is none.
    fn reserve_read(&self) -> usize {
        let memory = &mut self.reader.shared.state().memory;
        let granted = memory.grow(READ_BYTES, MIN_READ_BYTES);
        memory.set_starved(granted == 0);
        granted
    }

    fn accept(&mut self, received: Received) {
        match received.map(|frame| frame.map(Frame::into_data)) {
            None => return self.reader.end = Some(self.complete()),
            Some(Err(error)) => return self.reader.end = Some(End::Failed(Box::new(error))),
            Some(Ok(Ok(data))) => {
                let in_source = self.source.buffered_bytes();
                self.reader.shared.change(|state| {
                    state.received += data.len() as u64;
                    state.in_source = in_source;
                    state.queue.push(data);
                });
            }
            Some(Ok(Err(frame))) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                self.trailers.get_or_insert_default().extend(trailers);
            }
        }
        if self.source.is_end_stream() {
            self.reader.end = Some(self.complete());
        }
    }

    fn complete(&mut self) -> End {
        End::Complete(self.trailers.take().filter(|trailers| !trailers.is_empty()))
    }

    /// Reads further bytes that are available now and written to the file at once, if there was no
    /// memory to read more before.
    async fn read_more_for_file(&mut self) {
        let is_worth_it = || {
            let state = self.reader.shared.state();
            state.memory.is_short() && state.queue.may_write(SPILL_BYTES)
        };
        if self.reader.end.is_some() || !is_worth_it() {
            return;
        }
        self.source.limit_read(SPILL_BYTES);
        let more = poll_fn(|cx| Poll::Ready(Pin::new(&mut self.source).poll_frame(cx))).await;
        if let Poll::Ready(more) = more {
            self.accept(more);
        }
        self.source.free_memory();
    }

    /// Makes room for more data.
    async fn make_room(&mut self) {
        if !self.reader.shared.state().queue.is_full() {
            return;
        }
        // A reader that keeps up takes the data now, and nothing is written to the file.
        yield_now().await;
        if self.reader.shared.state().queue.is_full() {
            // Boxed: clients may keep many bodies waiting, and few of them are being written.
            Box::pin(self.write_or_wait()).await;
        }
    }

    /// Writes to the file, or waits for the reader, until there is room for more data.
    async fn write_or_wait(&mut self) {
        self.source.free_memory();
        let share = self.reader.shared.state().memory.share().clone();
        let mut permit = share.permit_write().await;
        self.read_more_for_file().await;
        while self.reader.shared.state().queue.is_full() {
            let write = self.reader.shared.state().queue.start_write();
            let Some(write) = write else {
                drop(permit.take());
                // Other readers and the time make space as well.
                let has_space = poll_fn(|cx| self.reader.shared.poll_space(cx));
                if timeout(RETRY_INTERVAL, has_space).await.is_err() {
                    permit = share.permit_write().await;
                }
                continue;
            };
            let Some(written) = share.space.writers.run(write).await else {
                let reason = "the thread that wrote has panicked";
                return self.reader.end =
                    Some(End::Failed(Box::new(failed("cannot be stored", reason))));
            };
            self.reader.shared.change(|state| state.queue.finish_write(written));
        }
        drop(permit);
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let aborted = || End::Failed(Box::new(failed("is incomplete", "its task has ended")));
        let end = self.end.take().unwrap_or_else(aborted);
        self.shared.change(|state| state.end = Some(end));
    }
}

impl Shared {
    pub(crate) fn new(queue: Queue, memory: Memory) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(State {
            queue,
            memory,
            end: None,
            received: 0,
            in_source: 0,
            reading: 0,
            reader: None,
            writer: None,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the reader.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.settle();
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn poll_space(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if !state.queue.is_full() {
            return Poll::Ready(());
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl State {
    fn set_short(&mut self, is_short: bool) {
        self.memory.set_short(is_short);
        self.queue.set_short(is_short);
    }

    /// Reduces the reserved memory to that in use.
    pub(crate) fn settle(&mut self) {
        self.memory.set(self.queue.memory_bytes() + self.in_source + self.reading);
    }
}

pub(crate) fn failed(
    what: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::new(ErrorKind::ServiceFailed, format!("a buffered body {what}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use http_body::SizeHint;

    use super::super::buffer_space::{BufferSpace, BufferSpaceLimits};
    use super::*;
    use crate::spool::{Spool, SpoolLimits};
    use weft::client_limit::Client;

    /// A source that returns as much as is read, in every second turn of the event loop.
    struct Steady {
        remaining: usize,
        max_bytes: usize,
        is_ready: bool,
        short_reads: Arc<AtomicUsize>,
    }

    impl HttpBody for Steady {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Received> {
            self.is_ready = !self.is_ready;
            if !self.is_ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let length = self.max_bytes.min(self.remaining);
            if length == SHORT_BYTES {
                self.short_reads.fetch_add(1, Relaxed);
            }
            self.remaining -= length;
            let data = Bytes::from(vec![b'x'; length]);
            Poll::Ready((length > 0).then_some(Ok(Frame::data(data))))
        }

        fn is_end_stream(&self) -> bool {
            self.remaining == 0
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.remaining as u64)
        }
    }

    impl BodySource for Steady {
        fn limit_read(&mut self, bytes: usize) {
            self.max_bytes = bytes;
        }
    }

    /// Receives eight bodies of one client, which has memory for two reads, and returns the number
    /// of reads without memory.
    fn short_reads(are_taken: bool) -> usize {
        const BODY_BYTES: usize = 512 << 10;
        let space = Arc::<BufferSpace>::default();
        let (memory_bytes, per_client) = (1 << 20, 2 * READ_BYTES as u64);
        space.set_limits(BufferSpaceLimits {
            memory_bytes,
            memory_bytes_per_client: per_client,
            disk_bytes: 0,
            unread_bytes_per_client: 0,
        });
        let limits = Arc::new(SpoolLimits { memory_bytes: BODY_BYTES, max_file_bytes: 0, space });
        let short_reads = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let bodies: Vec<Body> = (0..8)
                .map(|_| {
                    let short_reads = short_reads.clone();
                    let source = Steady {
                        remaining: BODY_BYTES,
                        max_bytes: 0,
                        is_ready: false,
                        short_reads,
                    };
                    let client = Client::new([192, 0, 2, 1].into());
                    Spool::new(Bytes::new(), source, &limits, Some(client)).into_body()
                })
                .collect();
            if !are_taken {
                // Every body makes progress without its reader.
                while short_reads.load(Relaxed) < 6 {
                    yield_now().await;
                }
                return;
            }
            let readers: Vec<_> =
                bodies.into_iter().map(|body| tokio::spawn(body.collect(BODY_BYTES))).collect();
            for reader in readers {
                assert_eq!(reader.await.unwrap().unwrap().len(), BODY_BYTES);
            }
        });
        short_reads.load(Relaxed)
    }

    #[test]
    fn readers_that_keep_up_share_the_memory_of_a_client() {
        assert_eq!(short_reads(true), 0);
        assert!(short_reads(false) >= 6);
    }
}
