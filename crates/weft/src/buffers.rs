//! A worker's pool of buffers and desks: a connection has them only while it is busy.

use std::cell::RefCell;

use bytes::BytesMut;

use crate::h1::parse;
use crate::request::Head;

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
    #[expect(clippy::vec_box, reason = "to take one is to move a pointer")]
    desks: RefCell<Vec<Box<Desk>>>,
}

/// Where the heads of a connection's requests are read and kept, one after the other. Large,
/// and the same memory for many requests.
#[derive(Default)]
pub(crate) struct Desk {
    /// The head that is being read.
    pub(crate) parsed: parse::Head,
    /// The current request's, or the last one's, unless an application keeps it.
    pub(crate) head: Head,
}

impl Desk {
    /// Lets go of the current request, whose text would keep an input buffer from being used
    /// again.
    pub(crate) fn clear(&mut self) {
        if !self.head.forget() {
            self.head = Head::default();
        }
    }
}

impl Default for Buffers {
    fn default() -> Buffers {
        let scratch = RefCell::new(vec![0; INPUT_BYTES].into());
        let (input, output, desks) = Default::default();
        Buffers { scratch, input, output, desks }
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

    pub(crate) fn take_desk(&self) -> Box<Desk> {
        self.desks.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a desk that was cleared.
    pub(crate) fn give_desk(&self, desk: Box<Desk>) {
        let mut kept = self.desks.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(desk);
        }
    }
}
