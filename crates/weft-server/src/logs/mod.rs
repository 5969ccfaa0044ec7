//! The access log and the error log.
//!
//! Each log has its own output and writer thread, so that a blocked output does not delay the
//! other log. Workers only append to buffers in memory. The writer thread rotates and reopens
//! files, always between two lines.

mod sink; // buffers and the writer thread
mod output; // an output with retries and a bounded backlog
mod file; // a file or stream that lines are appended to
mod rotation; // rotation of full files
mod worker; // hooks of a worker
mod check; // checks that the files can be written
mod error; // the error log

use std::io::{self, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use weft::LogFormat;

use crate::config::{LogConfig, WordOrPath};
use file::LogFile;
use output::Output;
use rotation::Rotation;
use sink::Sink;
use worker::AccessLog;

pub(crate) use check::check;
pub(crate) use error::one_line;
pub(crate) use worker::WorkerLog;

/// Both logs.
pub(crate) struct Logs {
    access: Option<Arc<Sink>>,
    format: LogFormat,
    error: Arc<Sink>,
}

impl Logs {
    /// Opens both logs. The macros of the crate `log` write to the error log from now on.
    pub(crate) fn open(config: &LogConfig) -> Result<Logs, String> {
        let rotation = Rotation {
            max_bytes: if config.max_bytes == 0 { u64::MAX } else { config.max_bytes },
            max_files: config.max_files,
        };
        let (access_target, error_target) = (&config.access.value, &config.error.value);
        let error_file = open("error log", error_target, rotation)?;
        let access_file = match access_target {
            WordOrPath::Word("none") => None,
            target => Some(open("access log", target, rotation)?),
        };
        let is_shared = access_file.as_ref().is_some_and(|file| file.is_same(&error_file));
        let error = start("error log", Output::new("error log", error_file, crate::print_error))?;
        let access = match access_file {
            // One writer for both, so that their lines do not interleave.
            Some(_) if is_shared => Some(error.clone()),
            Some(file) => {
                let report = |problem: &str| log::error!("{problem}");
                Some(start("access log", Output::new("access log", file, report))?)
            }
            None => None,
        };
        error::install(
            error.line_sender(),
            matches!(error_target, WordOrPath::Path(_)),
            config.level,
        );
        Ok(Logs { access, format: config.format.format.clone(), error })
    }

    /// Creates the hooks that log the requests and errors of a worker.
    pub(crate) fn worker(&self) -> WorkerLog {
        let access_log = |sink: &Arc<Sink>| AccessLog::new(sink.line_sender(), self.format.clone());
        WorkerLog::new(self.access.as_ref().map(access_log))
    }

    /// Reopens the files, for example after another program has moved them.
    pub(crate) fn reopen(&self) {
        self.sinks().for_each(|sink| sink.reopen());
    }

    /// Stops workers from waiting for a blocked output. For shutdown, when the buffers no longer
    /// need a bound.
    pub(crate) fn release(&self) {
        self.sinks().for_each(|sink| sink.stop_blocking());
    }

    /// Writes the remaining lines and stops the writer threads. Gives up on an output that takes
    /// longer than `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        // The error log is closed last, because closing the access log may log errors. If the error
        // log itself is blocked, its message below is lost too.
        for sink in self.sinks() {
            if !sink.close(limit) {
                log::error!(
                    "the remaining lines of the {} are lost: its output is blocked",
                    sink.name()
                );
            }
        }
    }

    /// Returns the distinct sinks, the error log last.
    fn sinks(&self) -> impl Iterator<Item = &Arc<Sink>> {
        let access = self.access.iter().filter(|access| !Arc::ptr_eq(access, &self.error));
        access.chain([&self.error])
    }
}

fn open(name: &str, target: &WordOrPath, rotation: Rotation) -> Result<LogFile, String> {
    // Not Rust's own stream types, which buffer a partial line after a failed write.
    let stream = |owned: io::Result<OwnedFd>| owned.map(|fd| LogFile::stream(fd.into()));
    let (opened, description) = match target {
        WordOrPath::Path(path) => (LogFile::open(path, rotation), path.display().to_string()),
        WordOrPath::Word("stdout") => {
            (stream(stdout().as_fd().try_clone_to_owned()), "on stdout".to_owned())
        }
        WordOrPath::Word(_) => {
            (stream(stderr().as_fd().try_clone_to_owned()), "on stderr".to_owned())
        }
    };
    opened.map_err(|error| format!("cannot open the {name} {description}: {error}"))
}

fn start(name: &'static str, output: Output) -> Result<Arc<Sink>, String> {
    let started = Sink::start(name, output);
    started.map(Arc::new).map_err(|error| format!("cannot start the thread of the {name}: {error}"))
}
