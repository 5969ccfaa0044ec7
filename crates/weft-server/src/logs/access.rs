//! Access logs of a worker: lines of requests that meet the conditions of their log.

use std::str;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use weft::hooks::Record;
use weft::log::LogFormat;

use super::request_values::RequestValues;
use super::sink::LineSender;
use crate::base::request_notes::{AccessLogs, RequestNotes};
use crate::base::share::Share;
use crate::options::AccessLogSettings;

/// An access log of a worker.
pub(super) struct AccessLog {
    sender: Arc<LineSender>,
    format: LogFormat,
    conditions: Option<Conditions>,
}

impl AccessLog {
    pub(super) fn new(sender: Arc<LineSender>, format: LogFormat) -> AccessLog {
        AccessLog { sender, format, conditions: None }
    }

    /// Logs only the requests that meet the conditions in `config`.
    pub(super) fn with_conditions(self, config: &AccessLogSettings) -> AccessLog {
        let none = AccessLogSettings::default();
        let has_any = AccessLogSettings { to: None, format: None, ..config.clone() } != none;
        AccessLog { conditions: has_any.then(|| Conditions::new(config)), ..self }
    }

    /// Appends the line of a request.
    pub(super) fn write(&self, record: &Record<'_>, notes: Option<&RequestNotes>) {
        if self.conditions.as_ref().is_some_and(|conditions| !conditions.are_met(record)) {
            return;
        }
        let (format, now) = (&self.format, SystemTime::now());
        self.sender.append(|text| match notes {
            Some(notes) => {
                notes.with_values(|notes| {
                    let privacy = format.privacy();
                    let values = RequestValues { record, notes, privacy };
                    format.append_record_with(text, record, &values, now);
                });
            }
            None => format.append_record(text, record, now),
        });
    }
}

/// The access logs of a route.
pub(super) struct RouteLogs(pub(super) Box<[AccessLog]>);

impl AccessLogs for RouteLogs {
    fn write(&self, record: &Record<'_>, notes: &RequestNotes) {
        self.0.iter().for_each(|log| log.write(record, Some(notes)));
    }
}

/// Conditions for the requests that are logged.
struct Conditions {
    config: AccessLogSettings,
    sampler: Option<Sampler>,
}

impl Conditions {
    fn new(config: &AccessLogSettings) -> Conditions {
        Conditions { config: config.clone(), sampler: config.sample.map(Sampler::new) }
    }

    fn are_met(&self, record: &Record<'_>) -> bool {
        let AccessLogSettings { status, min_duration, skip_agents, keep_status, .. } = &self.config;
        let number = record.status.as_u16();
        let has_status = status.is_empty() || status.iter().any(|range| range.contains(number));
        let is_skipped = !skip_agents.is_empty()
            && user_agent(record)
                .is_some_and(|agent| skip_agents.iter().any(|part| agent.contains(&**part)));
        if !has_status || record.duration < *min_duration || is_skipped {
            return false;
        }
        let is_kept = keep_status.iter().any(|range| range.contains(number));
        is_kept || self.sampler.as_ref().is_none_or(Sampler::next)
    }
}

fn user_agent<'a>(record: &Record<'a>) -> Option<&'a str> {
    str::from_utf8(record.head?.headers().get_bytes("user-agent")?).ok()
}

/// Chooses a share of a sequence of requests: the same ones at each start, evenly distributed, and
/// independent of any period in the sequence.
struct Sampler {
    /// Multiples of the golden ratio modulo 1, as a fraction of 2⁶⁴: a Weyl sequence. Only one
    /// thread changes it.
    position: AtomicU64,
    /// Positions below are chosen.
    end: u64,
}

/// The golden ratio minus 1, as a fraction of 2⁶⁴.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Sampler {
    fn new(Share(millionths): Share) -> Sampler {
        let end = (u128::from(millionths) << 64) / 1_000_000;
        Sampler { position: AtomicU64::new(0), end: u64::try_from(end).unwrap_or(u64::MAX) }
    }

    /// Returns true if the next request is chosen. The first one always is, unless the share is 0.
    fn next(&self) -> bool {
        let position = self.position.load(Relaxed);
        self.position.store(position.wrapping_add(GOLDEN), Relaxed);
        position < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_even_and_without_a_period() {
        for millionths in [0, 1_000, 10_000, 250_000, 999_000, 1_000_000] {
            let sampler = Sampler::new(Share(millionths));
            let chosen: Vec<bool> = (0..100_000).map(|_| sampler.next()).collect();
            let share = f64::from(millionths) / 1e6;
            // Every part of the sequence, and every second, third and tenth request.
            for (begin, step) in [(0, 1), (50_000, 1), (0, 2), (1, 2), (0, 3), (7, 10)] {
                let part: Vec<_> = chosen[begin..].iter().step_by(step).collect();
                let count = part.iter().filter(|chosen| ***chosen).count() as f64;
                let expected = part.len() as f64 * share;
                assert!((count - expected).abs() < 10.0, "{millionths} {begin} {step}: {count}");
            }
        }
    }
}
