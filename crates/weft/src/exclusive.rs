//! Values that threads may share although only their owner can use them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that is `Sync` if it is `Send`. The owner uses it without locking. A reader with a
/// shared reference locks it, which never waits in practice: nobody holds the lock between two
/// calls.
#[derive(Debug)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Exclusive<T> {
        Exclusive(Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
