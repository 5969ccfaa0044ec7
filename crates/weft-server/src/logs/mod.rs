//! The access logs and the error log.
//!
//! Each daemon, pipe and stream has its own writer thread, so that a blocked one does not delay the
//! others; the files of a file system share one. Workers only append to buffers in memory. A writer
//! thread rotates and reopens files, always between two lines.
//!
//! A plan is opened as [`OpenLogs`], which keeps the outputs that the plan before has, too. A route
//! with access logs of its own has them in the notes of its requests ([`AccessLogs`]), so that a
//! request in progress during a reload still has its line in the log of its route. All other
//! requests are logged by the hooks of their worker ([`WorkerLog`]).
//!
//! [`AccessLogs`]: crate::base::request_notes::AccessLogs

mod request_values; // values of the request for lines
mod sink; // buffers and the writer thread
mod output; // an output with retries and a bounded backlog
mod target; // a file, a stream or a daemon
mod file; // a file or stream that lines are appended to
mod daemon; // connections to logging daemons
mod message; // syslog and journald messages
mod rotation; // rotation of full files
mod compression; // compression of rotated files
mod lost_lines; // numbers of lost lines, for the metrics
mod open; // the logs of a plan
mod access; // access logs of a worker, with their conditions
mod route; // the logs of a route
mod stream; // the log of a stream
mod worker; // hooks of a worker
mod check; // checks that the files can be written
mod error; // the error log

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sink::Writer;

pub(crate) use check::check;
pub(crate) use error::print_error;
pub(crate) use lost_lines::lost_lines;
pub(crate) use open::{LogPlan, OpenLogs};
pub(crate) use route::RouteLogPlan;
pub(crate) use stream::StreamLog;
pub(crate) use worker::WorkerLog;

/// The logs of the process.
pub(crate) struct Logs {
    state: Mutex<State>,
    /// Number of times that the logs were replaced.
    generation: AtomicU64,
}

struct State {
    current: Arc<OpenLogs>,
    /// Writers of former logs, which end when no request needs them any more.
    former: Vec<Arc<Writer>>,
}

impl Logs {
    /// Takes the logs of the first plan. The macros of the crate `log` write to the error log from
    /// now on.
    pub(crate) fn new(logs: Arc<OpenLogs>) -> Logs {
        logs.install_error_log();
        let state = State { current: logs, former: Vec::new() };
        Logs { state: Mutex::new(state), generation: AtomicU64::new(0) }
    }

    /// Replaces the logs by the logs of another plan. Lines that were appended before are written.
    pub(crate) fn replace(&self, logs: Arc<OpenLogs>) {
        logs.install_error_log();
        let mut state = self.state();
        let replaced = std::mem::replace(&mut state.current, logs);
        state.former.retain(|writer| !writer.is_finished());
        state.former.extend(replaced.writers());
        drop(state);
        self.generation.fetch_add(1, Relaxed);
    }

    /// Creates the hooks that log the requests and errors of a worker.
    pub(crate) fn worker(self: &Arc<Logs>) -> WorkerLog {
        WorkerLog::new(self.clone())
    }

    /// Reopens the files, for example after another program has moved them.
    pub(crate) fn reopen(&self) {
        self.writers().iter().for_each(|writer| writer.reopen());
    }

    /// Stops workers from waiting for a blocked output. For shutdown, when the buffers no longer
    /// need a bound.
    pub(crate) fn release(&self) {
        self.writers().iter().for_each(|writer| writer.stop_blocking());
    }

    /// Writes the remaining lines and stops the writer threads. Gives up on an output that takes
    /// longer than `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        // The error log is closed last, because closing the others may log errors. If the error log
        // itself is blocked, its message below is lost too.
        // So may the export of spans.
        if let Some(tracer) = self.current().tracer() {
            tracer.flush(limit);
        }
        for writer in self.writers() {
            if !writer.close(limit) {
                log::error!(
                    "the remaining lines of the {} are lost: its output is blocked",
                    writer.name()
                );
            }
        }
    }

    /// Returns the writers of distinct outputs. The writer of the error log is the last.
    fn writers(&self) -> Vec<Arc<Writer>> {
        let State { current, former } = &*self.state();
        let current = current.writers();
        let is_former =
            |writer: &&Arc<Writer>| !current.iter().any(|known| Arc::ptr_eq(known, writer));
        let mut all: Vec<_> = former.iter().filter(is_former).cloned().collect();
        all.extend(current);
        all
    }

    fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    fn current(&self) -> Arc<OpenLogs> {
        self.state().current.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
