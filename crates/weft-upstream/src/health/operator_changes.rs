//! Changes that operators have made to servers of services. They are kept by the URL: after the DNS
//! has left out a server for a while, and after a reload, the server is another upstream with the
//! same URL.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::operator_control::{ControlChange, UpstreamMode};
use crate::url::upstream_url::UpstreamUrl;

/// Maximum number of servers whose changes are kept. Beyond it, the oldest change is dropped.
const MAX_CHANGED: usize = 1_024;

/// Modes and weights that differ from the configuration or from the DNS, in the order of the
/// changes.
#[derive(Default)]
pub(crate) struct OperatorChanges(Mutex<VecDeque<(UpstreamUrl, ControlChange)>>);

impl OperatorChanges {
    pub(crate) fn add(&self, url: &UpstreamUrl, change: ControlChange) {
        let mut changes = self.lock();
        let former = changes.iter().position(|(known, _)| known == url);
        let former = former.and_then(|index| changes.remove(index));
        let former = former.map(|(_, change)| change).unwrap_or_default();
        let mode = change.mode.or(former.mode).filter(|mode| *mode != UpstreamMode::Up);
        let weight = change.weight.or(former.weight);
        if mode.is_none() && weight.is_none() {
            return;
        }
        if changes.len() == MAX_CHANGED {
            changes.pop_front();
        }
        changes.push_back((url.clone(), ControlChange { mode, weight }));
    }

    /// Returns the changes of a server.
    pub(crate) fn of(&self, url: &UpstreamUrl) -> Option<ControlChange> {
        self.lock().iter().find(|(known, _)| known == url).map(|(_, change)| *change)
    }

    /// Takes over the changes of a former configuration.
    pub(crate) fn take_over(&self, former: &OperatorChanges) {
        if !std::ptr::eq(self, former) {
            let changes = former.lock().clone();
            *self.lock() = changes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(UpstreamUrl, ControlChange)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_merged_and_limited() {
        let changes = OperatorChanges::default();
        let url = |port: usize| format!("http://127.0.0.1:{port}/").parse().unwrap();
        let change = |mode, weight| ControlChange { mode, weight };
        for (made, expected) in [
            (
                change(Some(UpstreamMode::Draining), None),
                Some((Some(UpstreamMode::Draining), None)),
            ),
            (change(None, Some(3)), Some((Some(UpstreamMode::Draining), Some(3)))),
            (change(Some(UpstreamMode::Up), None), Some((None, Some(3)))),
        ] {
            changes.add(&url(1), made);
            assert_eq!(changes.of(&url(1)).map(|it| (it.mode, it.weight)), expected);
        }
        changes.add(&url(2), change(Some(UpstreamMode::Up), None));
        assert_eq!(changes.of(&url(2)), None, "it is as the DNS has it");
        for port in 0..MAX_CHANGED {
            changes.add(&url(1_000 + port), change(None, Some(5)));
        }
        assert_eq!(changes.lock().len(), MAX_CHANGED);
        let next = OperatorChanges::default();
        next.take_over(&changes);
        let last = 1_000 + MAX_CHANGED - 1;
        assert_eq!((next.of(&url(1)), next.of(&url(last))), (None, Some(change(None, Some(5)))));
    }
}
