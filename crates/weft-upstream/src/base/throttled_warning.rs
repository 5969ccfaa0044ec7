//! Rate-limited warnings, for conditions that could repeat on every request or
//! connection.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two warnings.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Logs a warning at once, then at most one every ten seconds, with the number suppressed in
/// between.
#[derive(Default)]
pub struct ThrottledWarning(Mutex<State>);

#[derive(Default)]
struct State {
    last_logged: Option<Instant>,
    suppressed: u64,
}

impl ThrottledWarning {
    /// Logs a warning, unless one was logged a short time ago.
    pub fn warn(&self, message: &str) {
        if let Some(line) = self.line(message, Instant::now()) {
            log::warn!("{line}");
        }
    }

    /// Returns the line to log, or `None` if it is suppressed.
    fn line(&self, message: &str, now: Instant) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last_logged.is_some_and(|last| now.saturating_duration_since(last) < MIN_INTERVAL)
        {
            state.suppressed += 1;
            return None;
        }
        state.last_logged = Some(now);
        Some(match std::mem::take(&mut state.suppressed) {
            0 => message.to_owned(),
            suppressed => format!("{message} ({suppressed} more suppressed)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_at_most_every_ten_seconds() {
        let (warning, start) = (ThrottledWarning::default(), Instant::now());
        for (second, expected) in [
            (0, Some("x")),
            (1, None),
            (9, None),
            (10, Some("x (2 more suppressed)")),
            (11, None),
            (40, Some("x (1 more suppressed)")),
            (50, Some("x")),
        ] {
            let line = warning.line("x", start + Duration::from_secs(second));
            assert_eq!(line.as_deref(), expected, "{second}");
        }
    }
}
