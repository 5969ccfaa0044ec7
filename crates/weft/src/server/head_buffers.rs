//! The memory in which request heads are read, reused by the connections of a worker.

use std::cell::RefCell;

use crate::message::request::RequestHead;
use weft_proto::http1::parse;

/// How many idle buffers are kept; a burst's surplus is freed.
const MAX_KEPT: usize = 128;

/// The spare head buffers of a worker.
#[derive(Default)]
pub(crate) struct HeadBufferPool(
    #[expect(clippy::vec_box, reason = "to take one is to move a pointer")]
    RefCell<Vec<Box<HeadBuffers>>>,
);

/// Where the heads of a connection's requests are read and kept, one after the other. Large,
/// and the same memory for many requests.
#[derive(Default)]
pub(crate) struct HeadBuffers {
    /// The head that is being read.
    pub(crate) parsed: parse::ParsedHead,
    /// The current request's, or the last one's, unless an application keeps it.
    pub(crate) head: RequestHead,
}

impl HeadBuffers {
    /// Lets go of the current request, whose text would keep an input buffer from being used
    /// again.
    pub(crate) fn clear(&mut self) {
        if !self.head.forget() {
            self.head = RequestHead::default();
        }
    }
}

impl HeadBufferPool {
    pub(crate) fn take(&self) -> Box<HeadBuffers> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a cleared buffer.
    pub(crate) fn give(&self, desk: Box<HeadBuffers>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(desk);
        }
    }
}
