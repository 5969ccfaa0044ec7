//! The trait of a store that passes messages on.

use crate::store_error::StoreError;

/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Input of a reader of the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    /// A message of any process, also of this one.
    Message(Vec<u8>),
    /// Messages were lost before the next one.
    Gap,
}

/// A reader of the messages of all processes, in one order.
pub trait Bus {
    /// Waits for the next events: those after the last call, or at the first call those from now
    /// on. May return none.
    ///
    /// # Errors
    /// If the store is away, refuses the call, or answers nonsense. The next call continues behind
    /// the last event.
    fn receive(&mut self) -> impl Future<Output = Result<Vec<BusEvent>, StoreError>>;
}

/// A writer of messages to all processes.
pub trait Publisher {
    /// Publishes a message of at most [`MAX_MESSAGE_BYTES`].
    ///
    /// # Errors
    /// As for [`Bus::receive`]. The message may have been published.
    fn publish(&mut self, message: &[u8]) -> impl Future<Output = Result<(), StoreError>>;
}
