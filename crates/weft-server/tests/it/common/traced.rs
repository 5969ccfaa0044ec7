//! The program under strace.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{Weft, until};

/// The program under strace.
pub struct Traced {
    pub server: Weft,
    trace: PathBuf,
    _folder: TempDir,
}

impl Traced {
    /// Starts the program with one worker, and traces these system calls.
    pub fn start(calls: &[&str], arguments: &[&str]) -> Traced {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let mut strace = Command::new("strace");
        // With -D our child process is the program instead of strace.
        // `?` permits names that the architecture does not have.
        let calls: Vec<String> = calls.iter().map(|call| format!("?{call}")).collect();
        let calls = format!("trace={}", calls.join(","));
        strace.args(["-D", "-f", "-y", "-e", &calls, "-o"]).arg(&trace);
        strace.arg(env!("CARGO_BIN_EXE_weft")).args(arguments);
        let server = Weft::start(strace.args(["--workers", "1", "--no-log"]));
        Traced { server, trace, _folder: folder }
    }

    /// Returns the lines of the trace without those for the timer of the worker.
    pub fn trace(&self) -> String {
        let trace = String::from_utf8_lossy(&fs::read(&self.trace).unwrap()).into_owned();
        let others = trace.split_inclusive('\n').filter(|line| !line.contains("[timerfd]"));
        others.collect()
    }

    pub fn count(&self, call: &str) -> usize {
        self.trace().matches(&format!(" {call}(")).count()
    }

    /// Returns the number of calls of each kind during `load`, which ends with the call that makes
    /// `sends` of the first kind.
    pub fn during<const N: usize>(
        &self,
        calls: [&str; N],
        sends: usize,
        load: impl FnOnce(),
    ) -> [usize; N] {
        let before = calls.map(|call| self.count(call));
        load();
        until("the trace is complete", || self.count(calls[0]) >= before[0] + sends);
        let mut during = calls.map(|call| self.count(call));
        during.iter_mut().zip(before).for_each(|(count, before)| *count -= before);
        during
    }
}
