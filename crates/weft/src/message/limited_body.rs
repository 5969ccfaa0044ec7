//! The limit on the bandwidth of a response: a body that is ready only as often as the limit
//! permits.
//!
//! The limit is on the side of the content, so that it is the same for all HTTP versions, and so
//! that the clocks for slow clients do not run while the server waits for itself. A response has
//! one timer, which is set at most `PIECES_PER_SECOND` times a second.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use crate::clock::deadline::Stopwatch;
use crate::error::{Error, Result};
use crate::message::bandwidth::Bandwidth;
use crate::message::body::Body;
use crate::message::payload::{Payload, to_body_in_pieces};
use crate::message::response::Response;

/// If the client or the source of the content has delayed the response, the bytes of this time at
/// most are sent at once.
const MAX_BURST: Duration = Duration::from_secs(1);

/// Minimum size of a read from a file. A response with a low bandwidth holds as much memory.
const MIN_READ_BYTES: usize = 4 << 10;

/// Limits the content of a response to its bandwidth, if it has one.
#[inline]
pub(crate) fn limit(response: &mut Response) {
    // Inlined, because it runs for each response, and few have a limit.
    if let Some(&bandwidth) = response.extensions.get::<Bandwidth>() {
        limit_to(bandwidth, response);
    }
}

#[cold]
fn limit_to(bandwidth: Bandwidth, response: &mut Response) {
    if response.length().is_some_and(|length| length <= bandwidth.after) {
        return;
    }
    let payload = std::mem::replace(&mut response.payload, Payload::empty());
    response.payload = match payload {
        Payload::Upgrade(upgrade) => Payload::Upgrade(upgrade),
        content => Payload::Body(Body::boxed(LimitedBody::new(content, bandwidth))),
    };
}

/// A body with a limit on its bandwidth.
struct LimitedBody {
    source: Body,
    bandwidth: Bandwidth,
    /// Content that the limit does not permit yet.
    held: Bytes,
    /// Number of bytes that may be sent, as of `refilled`.
    permitted: u64,
    /// Time of the last refill. `None` before the first piece.
    refilled: Option<Stopwatch>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LimitedBody {
    fn new(content: Payload, bandwidth: Bandwidth) -> LimitedBody {
        let max_piece = usize::try_from(bandwidth.piece()).unwrap_or(usize::MAX);
        let (source, _) = to_body_in_pieces(content, max_piece.max(MIN_READ_BYTES));
        let permitted = bandwidth.after.saturating_add(bandwidth.piece());
        LimitedBody {
            source,
            bandwidth,
            held: Bytes::new(),
            permitted,
            refilled: None,
            sleep: None,
        }
    }

    /// Adds the bytes that the time since the last refill permits.
    fn refill(&mut self) {
        let now = Stopwatch::start();
        let passed = self.refilled.map_or(Duration::ZERO, |before| now.since(before));
        // A time without a byte counts for the next refill.
        if self.permit(passed) || self.refilled.is_none() {
            self.refilled = Some(now);
        }
    }

    /// Adds the bytes that a time permits. Returns false if there are none.
    fn permit(&mut self, time: Duration) -> bool {
        let added = self.bandwidth.bytes_in(time);
        let max = self.permitted.max(self.bandwidth.bytes_in(MAX_BURST));
        self.permitted = self.permitted.saturating_add(added).min(max);
        added > 0
    }

    /// Ready when the limit permits `wanted` bytes, at most a [piece](Bandwidth::piece).
    fn poll_permitted(&mut self, wanted: u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.refill();
            if self.permitted >= wanted {
                return Poll::Ready(());
            }
            let wait = self.bandwidth.time_of(wanted - self.permitted);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(Duration::MAX)));
            sleep.as_mut().reset(Instant::now() + wait);
            ready!(sleep.as_mut().poll(cx));
        }
    }

    /// Ready when the rest of the content, or a piece of it, may be sent. Smaller pieces would cost
    /// more than they are worth. Content is obtained afterwards, so that little of it is held.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let rest = self.size_hint().upper().unwrap_or(u64::MAX);
        self.poll_permitted(self.bandwidth.piece().min(rest), cx)
    }
}

impl http_body::Body for LimitedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        ready!(self.poll_turn(cx));
        while self.held.is_empty() {
            match ready!(Pin::new(&mut self.source).poll_frame(cx)?) {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(data) => self.held = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
        let length = self.permitted.min(self.held.len() as u64);
        self.permitted -= length;
        Poll::Ready(Some(Ok(Frame::data(self.held.split_to(length as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.len() as u64;
        let of_source = self.source.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(of_source.lower().saturating_add(held));
        if let Some(upper) = of_source.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::File;
    use std::num::NonZeroU64;
    use std::sync::Arc;
    use std::task::Waker;

    fn bandwidth(bytes_per_second: u64) -> Bandwidth {
        Bandwidth::new(NonZeroU64::new(bytes_per_second).unwrap())
    }

    /// Polls a body, and returns the length of its frame; `None` if it has to wait.
    fn next(body: &mut LimitedBody) -> Option<usize> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => Some(frame?.unwrap().into_data().unwrap().len()),
            Poll::Pending => None,
        }
    }

    /// Each row: the bandwidth, and the number of bytes that are read for the first frame.
    #[tokio::test]
    async fn reads_little_of_a_file_ahead() {
        for (bytes_per_second, read) in
            [(1_000, MIN_READ_BYTES), (64_000, 16_000), (100 << 20, 65_536)]
        {
            let file = tempfile::tempfile().unwrap();
            file.set_len(1 << 20).unwrap();
            let content = Payload::File(Arc::new(File::new(file, 0, 1 << 20)));
            let mut body = LimitedBody::new(content, bandwidth(bytes_per_second));
            let length = loop {
                match next(&mut body) {
                    Some(length) => break length,
                    None => tokio::task::yield_now().await,
                }
            };
            assert_eq!(length + body.held.len(), read, "{bytes_per_second}");
            assert_eq!(body.size_hint().exact(), Some((1 << 20) - length as u64));
        }
    }

    #[tokio::test]
    async fn permits_the_bytes_of_a_second_after_a_pause() {
        let content = Payload::Body(Body::from(vec![0; 100_000]));
        let mut body = LimitedBody::new(content, bandwidth(1).after(5_000));
        assert_eq!(next(&mut body), Some(5_001));
        body.bandwidth = bandwidth(1_000);
        assert!(body.permit(Duration::from_secs(60)) && !body.permit(Duration::ZERO));
        assert_eq!(next(&mut body), Some(1_000));
    }
}
