//! Buffers for request heads, reused by the connections of a worker.

use std::cell::RefCell;

use crate::message::request_head::RequestHead;
use weft_proto::http1::parse;

/// Maximum number of pooled buffers; the surplus after a burst is freed.
const MAX_POOLED: usize = 128;

/// A worker's pool of head buffers.
#[derive(Default)]
pub(crate) struct HeadBufferPool(
    #[expect(clippy::vec_box, reason = "taking a buffer moves only a pointer")]
    RefCell<Vec<Box<HeadBuffers>>>,
);

/// The buffers in which the request heads of a connection are parsed and stored. They are large,
/// and are reused for many requests.
#[derive(Default)]
pub(crate) struct HeadBuffers {
    /// The head that is being parsed.
    pub(crate) parsed: parse::ParsedHead,
    /// Head of the current request, or of the last one, unless the application still holds it.
    pub(crate) head: RequestHead,
}

impl HeadBuffers {
    /// Releases the head of the current request.
    #[inline]
    pub(crate) fn clear(&mut self) {
        release(&mut self.head);
    }
}

/// Releases a head, whose text would prevent the reuse of an input buffer.
#[inline]
pub(crate) fn release(head: &mut RequestHead) {
    if !head.release_text() {
        *head = RequestHead::default();
    }
}

impl HeadBufferPool {
    #[inline]
    pub(crate) fn take(&self) -> Box<HeadBuffers> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a cleared buffer to the pool.
    #[inline]
    pub(crate) fn put(&self, buffers: Box<HeadBuffers>) {
        let mut pool = self.0.borrow_mut();
        if pool.len() < MAX_POOLED {
            pool.push(buffers);
        }
    }
}
