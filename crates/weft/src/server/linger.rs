//! The lingering close (RFC 9112 §9.6): the sending direction ends first, and input is discarded
//! until the peer closes too. A reset would destroy bytes that the peer has not read yet.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::clock::deadline::Deadline;
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::Reader;
use crate::net::writer::Writer;

/// Number of reads after which the task yields.
const BUDGET: usize = 64;

/// Shuts down the sending direction, then discards input, for at most `timeout`.
pub(super) async fn close(
    writer: &mut Writer,
    reader: &mut Reader,
    deadline: &Deadline,
    timeout: Duration,
) {
    deadline.set(timeout);
    if shut_down(writer, deadline).await {
        discard(reader, deadline).await;
    }
}

/// Shuts down the sending direction before `deadline` expires. Returns false if that fails.
pub(super) async fn shut_down(writer: &mut Writer, deadline: &Deadline) -> bool {
    poll_fn(|cx| match writer.poll_shutdown(cx) {
        Poll::Ready(shut_down) => Poll::Ready(shut_down.is_ok()),
        Poll::Pending => deadline.poll_expired(cx).map(|()| false),
    })
    .await
}

/// Reads and discards input until the peer closes or `deadline` expires.
pub(super) async fn discard(reader: &mut Reader, deadline: &Deadline) {
    poll_fn(|cx| {
        for _ in 0..BUDGET {
            reader.buffer.clear();
            match reader.poll_fill(cx, INPUT_BYTES) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return deadline.poll_expired(cx),
            }
        }
        cx.waker().wake_by_ref();
        deadline.poll_expired(cx)
    })
    .await;
}
