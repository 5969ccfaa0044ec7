//! Conditions that no request can meet, because an earlier route gets all of their requests. Pure.

use super::{Condition, ConditionSet, Conditions};

impl Conditions {
    /// Returns true if each request that meets `later` also meets these conditions, as far as
    /// that is known without trying values.
    pub(crate) fn cover(&self, later: &Conditions) -> bool {
        later.0.iter().all(|later| self.0.iter().any(|set| set.covers(later)))
    }
}

impl ConditionSet {
    /// Returns true if all conditions of this set are also conditions of `later`.
    fn covers(&self, later: &ConditionSet) -> bool {
        let has_condition = |condition: &Condition| later.tests.contains(condition);
        (self.methods.is_any() || self.methods == later.methods)
            && (self.clients.is_any() || self.clients == later.clients)
            && self.tests.iter().all(has_condition)
    }
}
