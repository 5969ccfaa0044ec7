//! State of an upstream that operators set while the server runs: its mode and its weight.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use serde::Deserialize;

/// Use of an upstream, as operators have set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum UpstreamMode {
    /// Gets requests, if its health permits.
    #[default]
    Up,
    /// Gets only requests of its sessions.
    Draining,
    /// Gets no requests. Those in progress complete.
    Disabled,
}

/// A change that an operator requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlChange {
    /// `None`: no change.
    pub mode: Option<UpstreamMode>,
    /// `None`: no change.
    pub weight: Option<u32>,
}

/// Mode and weight of an upstream. All workers share it, and read it with two atomic loads.
#[derive(Debug)]
pub(crate) struct Control {
    mode: AtomicU8,
    weight: AtomicU32,
    configured_weight: u32,
}

impl UpstreamMode {
    const ALL: [UpstreamMode; 3] =
        [UpstreamMode::Up, UpstreamMode::Draining, UpstreamMode::Disabled];

    fn name(self) -> &'static str {
        match self {
            UpstreamMode::Up => "up",
            UpstreamMode::Draining => "draining",
            UpstreamMode::Disabled => "disabled",
        }
    }
}

impl fmt::Display for ControlChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = self.mode.map(|mode| format!("state {}", mode.name()));
        let weight = self.weight.map(|weight| format!("weight {weight}"));
        f.write_str(&mode.into_iter().chain(weight).collect::<Vec<_>>().join(", "))
    }
}

impl Control {
    pub(crate) fn new(configured_weight: u32) -> Control {
        let (mode, weight) = (AtomicU8::new(0), AtomicU32::new(configured_weight));
        Control { mode, weight, configured_weight }
    }

    pub(crate) fn mode(&self) -> UpstreamMode {
        UpstreamMode::ALL[usize::from(self.mode.load(Relaxed))]
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    pub(crate) fn apply(&self, change: ControlChange) {
        if let Some(mode) = change.mode {
            self.mode.store(mode as u8, Relaxed);
        }
        if let Some(weight) = change.weight {
            self.weight.store(weight, Relaxed);
        }
    }

    /// Takes over the state of the same upstream in a former configuration. Another weight in the
    /// configuration replaces a weight that was set while the server ran.
    pub(crate) fn take_over(&self, former: &Control) {
        let is_same = self.configured_weight == former.configured_weight;
        let weight = is_same.then(|| former.weight());
        self.apply(ControlChange { mode: Some(former.mode()), weight });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_over_the_weight_unless_another_is_configured() {
        let former = Control::new(3);
        former.apply(ControlChange { mode: Some(UpstreamMode::Draining), weight: Some(7) });
        former.apply(ControlChange::default());
        for (configured, expected) in [(3, 7), (4, 4)] {
            let control = Control::new(configured);
            control.take_over(&former);
            assert_eq!((control.mode(), control.weight()), (UpstreamMode::Draining, expected));
        }
    }
}
