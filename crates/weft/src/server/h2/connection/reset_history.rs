//! The streams that the server has reset.

use std::collections::VecDeque;

/// Number of streams that may be refused, in excess of the accepted ones, before it is treated as
/// an attack.
const MAX_REFUSED: usize = 1_000;

/// Number of reset streams that are recorded. Frames for an older reset stream are an error.
const MAX_RECENT: usize = 512;

/// Streams reset by the server. The client may send frames on them until it receives the
/// RST_STREAM.
#[derive(Default)]
pub(super) struct ResetHistory {
    recent: VecDeque<u32>,
    /// Number of streams refused because of the limit, minus the number accepted since.
    refused: usize,
}

impl ResetHistory {
    pub(super) fn contains(&self, id: u32) -> bool {
        self.recent.contains(&id)
    }

    pub(super) fn on_accepted(&mut self) {
        self.refused = self.refused.saturating_sub(1);
    }

    /// Records a stream that is refused. Returns false if too many are.
    pub(super) fn on_refused(&mut self) -> bool {
        self.refused += 1;
        self.refused <= MAX_REFUSED
    }

    pub(super) fn record(&mut self, id: u32) {
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.recent.len()
    }
}
