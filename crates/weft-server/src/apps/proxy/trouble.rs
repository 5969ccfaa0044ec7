//! What would be told for each of many requests is told seldom.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long what would be told for each of many requests is not told again.
const PAUSE: Duration = Duration::from_secs(10);

/// Tells something at once, and then at most every ten seconds, with how often it was.
#[derive(Default)]
pub(super) struct Seldom(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<Instant>,
    untold: u64,
}

impl Seldom {
    pub(super) fn tell(&self, what: &str) {
        if let Some(text) = self.text(what, Instant::now()) {
            log::warn!("{text}");
        }
    }

    /// What is to be told of it, if anything.
    fn text(&self, what: &str, now: Instant) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            state.untold += 1;
            return None;
        }
        state.last = Some(now);
        Some(match std::mem::take(&mut state.untold) {
            0 => what.to_owned(),
            untold => format!("{what} ({untold} more since the last such line)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_every_ten_seconds() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        for (second, expected) in [
            (0, Some("x")),
            (1, None),
            (9, None),
            (10, Some("x (2 more since the last such line)")),
            (11, None),
            (40, Some("x (1 more since the last such line)")),
            (50, Some("x")),
        ] {
            let text = seldom.text("x", start + Duration::from_secs(second));
            assert_eq!(text.as_deref(), expected, "{second}");
        }
    }
}
