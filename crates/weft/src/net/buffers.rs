//! A worker's pool of buffers and desks: a connection has them only while it is busy.

use std::cell::RefCell;

use bytes::BytesMut;

/// The room for one read of a head. Most requests with their cookies fit.
pub(crate) const INPUT_BYTES: usize = 8 << 10;

/// An output buffer that grew beyond this is not kept.
const MAX_KEPT_OUTPUT_BYTES: usize = 64 << 10;

/// How many idle buffers of each kind are kept; a burst's surplus is freed.
const MAX_KEPT: usize = 128;

pub(crate) struct Buffers {
    /// What is received is here until it is known how much it is.
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

    /// Keeps an empty buffer, unless somebody still holds a slice of it.
    pub(crate) fn give_input(&self, mut buffer: BytesMut) {
        debug_assert!(buffer.is_empty());
        let mut kept = self.input.borrow_mut();
        let usual = buffer.capacity() <= 2 * INPUT_BYTES;
        if kept.len() < MAX_KEPT && usual && buffer.try_reclaim(INPUT_BYTES) {
            kept.push(buffer);
        }
    }

    pub(crate) fn take_output(&self) -> Vec<u8> {
        self.output.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_output(&self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty());
        let mut kept = self.output.borrow_mut();
        if kept.len() < MAX_KEPT && buffer.capacity() <= MAX_KEPT_OUTPUT_BYTES {
            kept.push(buffer);
        }
    }
}
