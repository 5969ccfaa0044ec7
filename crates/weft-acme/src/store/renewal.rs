//! Times of renewals, and of attempts after failures. Pure.

use std::time::{Duration, SystemTime};

/// Longest delay after failures.
const MAX_DELAY: Duration = Duration::from_secs(6 * 3600);

/// Longest time from an attempt to the next attempt or question to the authority. An authority can
/// require a delay of a day; one hour is tolerance.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(25 * 3600);

/// Validity of a certificate, and the window in which the authority suggests its renewal (ARI, RFC
/// 9773 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) window: Option<(SystemTime, SystemTime)>,
}

impl Lifetime {
    pub(crate) fn length(&self) -> Duration {
        length(self.not_before, self.not_after)
    }

    /// Returns the time of the renewal: in the authority's window, or else after two thirds of the
    /// validity. `jitter`, from 0 to 1, differs between certificates, so that certificates of the
    /// same age are not all renewed at once.
    pub(crate) fn renewal_time(&self, jitter: f64) -> SystemTime {
        let Lifetime { not_before, not_after, window } = *self;
        match window {
            Some((start, end)) if start < end && start < not_after => {
                start + length(start, end.min(not_after)).mul_f64(jitter)
            }
            _ => {
                let validity = length(not_before, not_after);
                not_before + validity.mul_f64(2.0 / 3.0 + jitter / 20.0)
            }
        }
    }
}

fn length(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

/// Returns the delay after a number of failures. After the first failure it is `first`; each
/// further failure makes it four times as long, up to 6 hours. Authorities limit the number of
/// failures per hour.
pub(crate) fn retry_delay(first: Duration, failures: u32, jitter: f64) -> Duration {
    let factor = 4_u32.saturating_pow(failures.saturating_sub(1));
    let delay = first.saturating_mul(factor).min(MAX_DELAY.max(first));
    delay.mul_f64(1.0 - jitter / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn renews_in_the_window_of_the_authority_or_after_two_thirds() {
        for (not_before, not_after, window, jitter, expected) in [
            (0, 3000, None, 0.0, 2000),
            (0, 3000, None, 1.0, 2150),
            (1000, 4000, None, 0.5, 3075),
            (0, 3000, Some((1000, 1100)), 0.0, 1000),
            (0, 3000, Some((1000, 1100)), 0.5, 1050),
            // A window in the past: at once.
            (1000, 3000, Some((100, 200)), 0.5, 150),
            // Not after the certificate has expired.
            (0, 3000, Some((2000, 9000)), 1.0, 3000),
            // Invalid windows.
            (0, 3000, Some((1100, 1000)), 0.0, 2000),
            (0, 3000, Some((4000, 5000)), 0.0, 2000),
            // An invalid validity: at once.
            (3000, 0, None, 1.0, 3000),
        ] {
            let window = window.map(|(start, end)| (at(start), at(end)));
            let lifetime =
                Lifetime { not_before: at(not_before), not_after: at(not_after), window };
            assert_eq!(lifetime.renewal_time(jitter), at(expected), "{lifetime:?} {jitter}");
        }
    }

    #[test]
    fn delays_grow_up_to_a_limit() {
        let minute = Duration::from_secs(60);
        let delays = [1, 2, 3, 4, 5, 6, 100, u32::MAX].map(|failures| {
            let delay = retry_delay(minute, failures, 0.0);
            assert_eq!(retry_delay(minute, failures, 1.0), delay.mul_f64(0.75));
            delay.as_secs() / 60
        });
        assert_eq!(delays, [1, 4, 16, 64, 256, 360, 360, 360]);
    }
}
