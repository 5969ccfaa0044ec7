//! An output, and what becomes of lines that it does not take.
//!
//! If it fails, as on a disk that is full, lines are kept in memory up to a bound and written
//! as soon as it takes them again. Beyond the bound whole lines are dropped and counted: nobody
//! waits for a disk that somebody has to clean up.

use std::io;
use std::time::{Duration, Instant};

use super::file::LogFile;

/// The most that is kept of what the output does not take.
const KEPT_BYTES: usize = 1 << 20;

/// How long it is silent after a complaint.
const SILENCE: Duration = Duration::from_secs(60);

/// How long it waits for whoever reads a pipe that does not wait by itself.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Output {
    name: String,
    file: LogFile,
    /// What it did not take, from where it left off. That may be within a line.
    kept: Vec<u8>,
    /// Lines that were dropped, and nobody was told of yet.
    lost: u64,
    /// Somebody was told that it fails, and not yet that this is over.
    has_complained: bool,
    complaints: Complaints,
    /// Complaints of rotation, after which all goes on in the same file.
    rotation_complaints: Complaints,
}

/// Whom to tell that something is wrong, and when that was done.
struct Complaints {
    tell: fn(&str),
    last: Option<Instant>,
}

impl Complaints {
    fn may_complain(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= SILENCE)
    }

    fn complain(&mut self, problem: &str) {
        self.last = Some(Instant::now());
        (self.tell)(problem);
    }
}

impl Output {
    pub(super) fn new(name: &str, file: LogFile, tell: fn(&str)) -> Output {
        let name = match file.path() {
            Some(path) => format!("the {name} {}", path.display()),
            None => format!("the {name}"),
        };
        Output {
            name,
            file,
            kept: Vec::new(),
            lost: 0,
            has_complained: false,
            complaints: Complaints { tell, last: None },
            rotation_complaints: Complaints { tell, last: None },
        }
    }

    /// Whether it has lines that were not written.
    pub(super) fn is_behind(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Writes lines, or keeps them as long as there is room.
    pub(super) fn write(&mut self, lines: &[u8]) {
        let written = if self.is_behind() { 0 } else { self.pour(lines) };
        let rest = &lines[written..];
        let room = KEPT_BYTES.saturating_sub(self.kept.len());
        let within_line = written > 0 && lines[written - 1] != b'\n';
        let kept = match line_ends(&rest[..room.min(rest.len())]).last() {
            Some(end) => end,
            // The rest of a line that has begun is kept, however long it is.
            None if within_line => line_ends(rest).next().unwrap_or(rest.len()),
            None => 0,
        };
        self.kept.extend_from_slice(&rest[..kept]);
        self.lost += line_ends(&rest[kept..]).count() as u64;
    }

    /// Tries again to write what was kept.
    pub(super) fn catch_up(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        let written = self.pour(&kept);
        self.kept = kept;
        self.kept.drain(..written);
        if !self.is_behind() {
            self.recovered();
        }
    }

    /// Lines that did not come this far.
    pub(super) fn count_lost(&mut self, lines: u64) {
        self.lost += lines;
        if self.lost > 0 && !self.is_behind() {
            self.recovered();
        }
    }

    /// Writes to the file that has its name now.
    pub(super) fn reopen(&mut self) {
        self.catch_up();
        let was_within_line = self.file.is_within_line();
        if let Err(error) = self.file.reopen() {
            let name = &self.name;
            let problem = format!("{name} cannot be opened anew, and goes on as it was: {error}");
            (self.complaints.tell)(&problem);
        }
        if was_within_line && !self.file.is_within_line() {
            // That line cannot be ended any more.
            let end = line_ends(&self.kept).next().unwrap_or(0);
            self.kept.drain(..end);
            self.lost += 1;
        }
    }

    /// Tells what became of all that is left.
    pub(super) fn end(&mut self) {
        self.lost += line_ends(&self.kept).count() as u64;
        self.recovered();
    }

    /// How much was written. What is left would fail again.
    fn pour(&mut self, lines: &[u8]) -> usize {
        let mut written = 0;
        while written < lines.len() {
            match self.file.write(&lines[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    self.failed(&error);
                    break;
                }
            }
            if let Some(error) = self.file.take_problem()
                && self.rotation_complaints.may_complain()
            {
                let problem = format!("{} cannot be rotated, and grows: {error}", self.name);
                self.rotation_complaints.complain(&problem);
            }
        }
        written
    }

    fn failed(&mut self, error: &io::Error) {
        if self.complaints.may_complain() {
            self.has_complained = true;
            let lost = match self.lost {
                0 => String::new(),
                lost => format!("; {lost} lines are lost"),
            };
            let problem = format!("{} cannot be written: {error}{lost}", self.name);
            self.complaints.complain(&problem);
        }
    }

    /// Nothing is left to be written.
    fn recovered(&mut self) {
        let Output { name, complaints, .. } = self;
        let had_complained = std::mem::take(&mut self.has_complained);
        match std::mem::take(&mut self.lost) {
            0 if had_complained => (complaints.tell)(&format!("{name} is written again")),
            0 => {}
            lost => (complaints.tell)(&format!("{name}: {lost} lines were lost")),
        }
    }
}

/// The places behind the line ends.
fn line_ends(lines: &[u8]) -> impl DoubleEndedIterator<Item = usize> {
    lines.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1)
}
