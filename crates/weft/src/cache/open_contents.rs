//! Responses in memory whose contents are open files.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cache::stored_response::StoredResponse;

/// Maximum number of open files, besides those that are being sent.
const MAX_OPEN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct OpenContents(Mutex<VecDeque<Weak<StoredResponse>>>);

impl OpenContents {
    /// Adds a response. Returns the first one if there are too many.
    pub(super) fn add(&self, response: &Arc<StoredResponse>) -> Option<Arc<StoredResponse>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::downgrade(response));
        if open.len() <= MAX_OPEN {
            return None;
        }
        open.retain(|response| response.strong_count() > 0);
        if open.len() <= MAX_OPEN {
            return None;
        }
        open.pop_front()?.upgrade()
    }
}
