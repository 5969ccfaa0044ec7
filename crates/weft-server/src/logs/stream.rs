//! The access log of a stream.

use std::sync::Arc;

use super::sink::LineSender;

/// The access log of one or more streams, whose threads share its buffer.
#[derive(Clone)]
pub(crate) struct StreamLog(pub(super) Arc<LineSender>);

impl StreamLog {
    /// Appends a line, under the lock of the buffer.
    pub(crate) fn append(&self, compose: impl FnOnce(&mut Vec<u8>)) {
        self.0.append(compose);
    }
}
