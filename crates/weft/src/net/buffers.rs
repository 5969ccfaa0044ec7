//! A worker's pool of buffers. A connection holds buffers only while it is busy.

use std::cell::RefCell;

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

/// Capacity for one read of a request head. Most requests with cookies fit.
pub(crate) const INPUT_BYTES: usize = 8 << 10;

/// Largest capacity of a pooled output buffer; larger ones are freed.
const MAX_POOLED_OUTPUT_BYTES: usize = 64 << 10;

/// Maximum number of pooled buffers of each kind; the surplus after a burst is freed.
const MAX_POOLED: usize = 128;

pub(crate) struct Buffers {
    /// Receive buffer shared by all connections; received bytes are copied from here to a buffer of
    /// the right size.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    input: RefCell<Vec<BytesMut>>,
    output: RefCell<Vec<Vec<u8>>>,
}

impl Default for Buffers {
    fn default() -> Buffers {
        let scratch = RefCell::new(vec![0; INPUT_BYTES].into());
        let (input, output) = Default::default();
        Buffers { scratch, input, output }
    }
}

impl Buffers {
    pub(crate) fn take_input(&self) -> BytesMut {
        self.input.borrow_mut().pop().unwrap_or_else(|| BytesMut::with_capacity(INPUT_BYTES))
    }

    /// Returns an empty buffer to the pool, unless a slice of it is still in use.
    pub(crate) fn return_input(&self, mut buffer: BytesMut) {
        debug_assert!(buffer.is_empty());
        let mut pool = self.input.borrow_mut();
        let is_small = buffer.capacity() <= 2 * INPUT_BYTES;
        if pool.len() < MAX_POOLED && is_small && buffer.try_reclaim(INPUT_BYTES) {
            pool.push(buffer);
        }
    }

    pub(crate) fn take_output(&self) -> Vec<u8> {
        self.output.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn return_output(&self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty());
        let mut pool = self.output.borrow_mut();
        if pool.len() < MAX_POOLED && buffer.capacity() <= MAX_POOLED_OUTPUT_BYTES {
            pool.push(buffer);
        }
    }
}

/// Moves bytes that were received before to `target`, as many as there is space for.
pub(crate) fn move_bytes(received: &mut impl Buf, target: &mut ReadBuf<'_>) {
    let length = received.chunk().len().min(target.remaining());
    target.put_slice(&received.chunk()[..length]);
    received.advance(length);
}
