//! The logs: a line for each request, and what whoever runs the server should know.
//!
//! Each of the two has its output and a thread that writes there, so that one that nobody takes
//! does not hold up the other. Workers only ever append to buffers in memory. Rotation and
//! reopening are that thread's work, between two whole lines.

mod sink; // lines on their way to an output
mod output; // an output, and what becomes of lines that it does not take
mod file; // a file that lines are appended to
mod rotation; // when it is full: its older parts
mod worker; // what a worker tells
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

pub(crate) use error::one_line;
pub(crate) use worker::WorkerLog;

/// Both logs.
pub(crate) struct Logs {
    access: Option<Arc<Sink>>,
    format: LogFormat,
    error: Arc<Sink>,
}

impl Logs {
    /// Opens them. From now on the macros of the crate log lead to the error log.
    pub(crate) fn open(config: &LogConfig) -> Result<Logs, String> {
        let rotation = Rotation {
            max_bytes: if config.max_bytes == 0 { u64::MAX } else { config.max_bytes },
            max_files: config.max_files,
        };
        let (access_place, error_place) = (&config.access.value, &config.error.value);
        let error_file = open("error log", error_place, rotation)?;
        let access_file = match access_place {
            WordOrPath::Word("none") => None,
            place => Some(open("access log", place, rotation)?),
        };
        let is_shared = access_file.as_ref().is_some_and(|file| file.is_same(&error_file));
        let error = start("error log", Output::new("error log", error_file, crate::tell))?;
        let access = match access_file {
            // With one writer for both neither cuts into the other's lines.
            Some(_) if is_shared => Some(error.clone()),
            Some(file) => {
                let tell = |problem: &str| log::error!("{problem}");
                Some(start("access log", Output::new("access log", file, tell))?)
            }
            None => None,
        };
        error::begin(error.buffer(), matches!(error_place, WordOrPath::Path(_)), config.level);
        Ok(Logs { access, format: config.format.format.clone(), error })
    }

    /// What a worker tells them.
    pub(crate) fn worker(&self) -> WorkerLog {
        let access_log = |sink: &Arc<Sink>| AccessLog::new(sink.buffer(), self.format.clone());
        WorkerLog::new(self.access.as_ref().map(access_log))
    }

    /// Files are opened anew, since somebody has moved them away.
    pub(crate) fn reopen(&self) {
        self.sinks().for_each(|sink| sink.reopen());
    }

    /// From now on nobody waits for an output: the program ends, and the buffers need no bound
    /// any more.
    pub(crate) fn release(&self) {
        self.sinks().for_each(|sink| sink.release());
    }

    /// Writes what is left and ends; gives up on an output that takes nothing for so long.
    pub(crate) fn close(&self, patience: Duration) {
        // The error log comes last, for the other may have something to say. If nobody takes
        // that, nobody would hear of it.
        for sink in self.sinks() {
            if !sink.close(patience) {
                log::error!("the end of the {} is lost: nobody takes it", sink.name());
            }
        }
    }

    /// The error log last.
    fn sinks(&self) -> impl Iterator<Item = &Arc<Sink>> {
        let access = self.access.iter().filter(|access| !Arc::ptr_eq(access, &self.error));
        access.chain([&self.error])
    }
}

fn open(name: &str, place: &WordOrPath, rotation: Rotation) -> Result<LogFile, String> {
    // Not as Rust's own streams, which keep a part of what they could not write.
    let stream = |owned: io::Result<OwnedFd>| owned.map(|fd| LogFile::stream(fd.into()));
    let (opened, shown) = match place {
        WordOrPath::Path(path) => (LogFile::open(path, rotation), path.display().to_string()),
        WordOrPath::Word("stdout") => {
            (stream(stdout().as_fd().try_clone_to_owned()), "on stdout".to_owned())
        }
        WordOrPath::Word(_) => {
            (stream(stderr().as_fd().try_clone_to_owned()), "on stderr".to_owned())
        }
    };
    opened.map_err(|error| format!("cannot open the {name} {shown}: {error}"))
}

fn start(name: &'static str, output: Output) -> Result<Arc<Sink>, String> {
    let started = Sink::start(name, output);
    started.map(Arc::new).map_err(|error| format!("cannot write the {name}: {error}"))
}
