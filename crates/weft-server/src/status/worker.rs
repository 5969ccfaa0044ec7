//! What a worker counts of its connections, as the engine tells of them.

use std::sync::Arc;

use weft::{Error, Fault, Hooks, Peer, Record};

use super::register::Register;
use super::routes::Outcomes;
use crate::counter::Counter;

/// The numbers of one worker, which it alone writes.
// Those of two workers never share a cache line, or a pair of them, which processors fetch together.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkerCounts {
    /// That of its thread.
    pub(super) name: String,
    pub(super) accepted: Counter,
    pub(super) closed: Counter,
    pub(super) responses: Outcomes,
    pub(super) body_bytes: Counter,
    pub(super) peer_errors: Counter,
    pub(super) application_errors: Counter,
    pub(super) system_errors: Counter,
}

impl WorkerCounts {
    pub(super) fn of_this_thread() -> WorkerCounts {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        WorkerCounts { name, ..WorkerCounts::default() }
    }
}

/// Hooks, and beside them the counts of their worker.
pub(crate) struct Counted<H> {
    hooks: H,
    counts: Arc<WorkerCounts>,
}

impl<H> Counted<H> {
    /// To be called in the thread of the worker.
    pub(crate) fn new(hooks: H, register: &Register) -> Counted<H> {
        Counted { hooks, counts: register.worker() }
    }
}

impl<H: Hooks> Hooks for Counted<H> {
    fn on_open(&self, peer: &Peer) -> bool {
        // The end of one that is refused is not told.
        let is_welcome = self.hooks.on_open(peer);
        self.counts.accepted.add(is_welcome.into());
        is_welcome
    }

    fn on_close(&self, peer: &Peer) {
        self.counts.closed.add(1);
        self.hooks.on_close(peer);
    }

    fn on_error(&self, peer: &Peer, error: &Error) {
        let counter = match error.kind().fault() {
            Fault::Peer => &self.counts.peer_errors,
            Fault::Application => &self.counts.application_errors,
            Fault::System => &self.counts.system_errors,
        };
        counter.add(1);
        self.hooks.on_error(peer, error);
    }

    fn on_response(&self, record: &Record<'_>) {
        self.counts.responses.add(Some(record.status));
        self.counts.body_bytes.add(record.body_bytes);
        self.hooks.on_response(record);
    }
}
