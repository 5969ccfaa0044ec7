//! Output of a log, with retries after write errors.
//!
//! After a write error, for example on a full disk, lines are kept in memory up to a bound and
//! written as soon as writes succeed again. Beyond the bound whole lines are dropped and counted:
//! workers do not wait for an error that needs operator action.

use std::io;
use std::time::{Duration, Instant};

use super::lost_lines::LostLines;
use super::target::Target;

/// Maximum size of the backlog after write errors.
const MAX_BACKLOG_BYTES: usize = 1 << 20;

/// Minimum time between two reports of the same problem.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Delay before a write to a full non-blocking pipe is retried.
const RETRY_DELAY: Duration = Duration::from_millis(5);

pub(super) struct Output {
    name: String,
    target: Target,
    /// Bytes that could not be written. May start within a line.
    backlog: Vec<u8>,
    /// Lines dropped since the last report.
    lost: u64,
    /// All lines that were dropped.
    all_lost: LostLines,
    /// Set if a write error was reported, but not yet the recovery from it.
    has_reported_failure: bool,
    failures: ThrottledReporter,
    /// Rotation errors; writing continues in the same file.
    rotation_failures: ThrottledReporter,
}

/// Reports a repeated problem at most once per `REPORT_INTERVAL`.
struct ThrottledReporter {
    report: fn(&str),
    last: Option<Instant>,
}

impl ThrottledReporter {
    fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL)
    }

    fn report(&mut self, problem: &str) {
        self.last = Some(Instant::now());
        (self.report)(problem);
    }
}

impl Output {
    pub(super) fn new(name: &str, target: Target, report: fn(&str)) -> Output {
        let name = match target.name() {
            Some(target) => format!("{name} {target}"),
            None => name.to_owned(),
        };
        Output {
            all_lost: LostLines::of(&name),
            name: format!("the {name}"),
            target,
            backlog: Vec::new(),
            lost: 0,
            has_reported_failure: false,
            failures: ThrottledReporter { report, last: None },
            rotation_failures: ThrottledReporter { report, last: None },
        }
    }

    /// Returns true if a source without room for a line drops it. For a file it waits, so that no
    /// line is lost; a daemon must not delay requests.
    pub(super) fn is_lossy(&self) -> bool {
        matches!(self.target, Target::Daemon(_))
    }

    /// Returns true if bytes are waiting to be written again.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Writes lines. Those that cannot be written are added to the backlog while there is room.
    pub(super) fn write(&mut self, lines: &[u8]) {
        let written = if self.has_backlog() { 0 } else { self.write_all(lines) };
        let rest = &lines[written..];
        let room = MAX_BACKLOG_BYTES.saturating_sub(self.backlog.len());
        let within_line = written > 0 && lines[written - 1] != b'\n';
        let accepted = match line_ends(&rest[..room.min(rest.len())]).last() {
            Some(end) => end,
            // The rest of a partially written line is kept regardless of its length.
            None if within_line => line_ends(rest).next().unwrap_or(rest.len()),
            None => 0,
        };
        self.backlog.extend_from_slice(&rest[..accepted]);
        self.count_lost(line_ends(&rest[accepted..]).count() as u64);
    }

    /// Tries again to write the backlog.
    pub(super) fn write_backlog(&mut self) {
        let backlog = std::mem::take(&mut self.backlog);
        let written = self.write_all(&backlog);
        self.backlog = backlog;
        self.backlog.drain(..written);
        if !self.has_backlog() {
            self.report_recovery();
        }
    }

    /// Counts lines that were dropped before they reached this output.
    pub(super) fn add_lost(&mut self, lines: u64) {
        self.count_lost(lines);
        if self.lost > 0 && !self.has_backlog() {
            self.report_recovery();
        }
    }

    /// Reopens the file by its path.
    pub(super) fn reopen(&mut self) {
        self.write_backlog();
        let was_within_line = self.target.is_within_line();
        if let Err(error) = self.target.reopen() {
            let name = &self.name;
            let problem = format!("{name} cannot be opened anew, and goes on as it was: {error}");
            (self.failures.report)(&problem);
        }
        if was_within_line && !self.target.is_within_line() {
            // The start of this line is in the former file, so its rest is dropped.
            let end = line_ends(&self.backlog).next().unwrap_or(0);
            self.backlog.drain(..end);
            self.count_lost(1);
        }
    }

    /// Counts the backlog as lost and reports it. For the end of the program.
    pub(super) fn finish(&mut self) {
        self.count_lost(line_ends(&self.backlog).count() as u64);
        self.report_recovery();
    }

    /// Writes until the end of `lines` or an error. Returns the number of bytes written.
    fn write_all(&mut self, lines: &[u8]) -> usize {
        let mut written = 0;
        while written < lines.len() {
            match self.target.write(&lines[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(RETRY_DELAY);
                }
                Err(error) => {
                    self.report_failure(&error);
                    break;
                }
            }
            let torn = self.target.take_torn();
            self.count_lost(torn);
            if let Some(error) = self.target.take_rotation_error()
                && self.rotation_failures.is_due()
            {
                let problem = format!("cannot rotate {}, which keeps growing: {error}", self.name);
                self.rotation_failures.report(&problem);
            }
        }
        written
    }

    fn count_lost(&mut self, lines: u64) {
        self.lost += lines;
        self.all_lost.add(lines);
    }

    fn report_failure(&mut self, error: &io::Error) {
        if self.failures.is_due() {
            self.has_reported_failure = true;
            let lost = match self.lost {
                0 => String::new(),
                lost => format!("; {lost} lines were lost"),
            };
            let problem = format!("{} cannot be written: {error}{lost}", self.name);
            self.failures.report(&problem);
        }
    }

    /// Reports lost lines or the recovery from a write error, once the backlog is written.
    fn report_recovery(&mut self) {
        let Output { name, failures, .. } = self;
        let had_reported = std::mem::take(&mut self.has_reported_failure);
        match std::mem::take(&mut self.lost) {
            0 if had_reported => (failures.report)(&format!("{name} is writable again")),
            0 => {}
            lost => (failures.report)(&format!("{name}: {lost} lines were lost")),
        }
    }
}

/// Returns the offsets after each line end.
fn line_ends(lines: &[u8]) -> impl DoubleEndedIterator<Item = usize> {
    lines.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1)
}
