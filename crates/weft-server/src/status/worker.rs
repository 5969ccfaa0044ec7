//! Metrics of a worker's connections and responses, counted by engine hooks.

use std::sync::Arc;

use weft::error::Fault;
use weft::hooks::Record;
use weft::net::Peer;
use weft::{Error, Hooks};
use weft_upstream::metrics::Counter;

use crate::router::Outcomes;

/// Counters of one worker. Only that worker writes them.
// The alignment keeps the counters of two workers in separate pairs of cache lines, because
// processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct WorkerCounts {
    /// Name of the worker's thread.
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

/// Wraps hooks and counts the events of their worker.
pub(crate) struct MetricsHooks<H> {
    pub(super) hooks: H,
    pub(super) counts: Arc<WorkerCounts>,
}

impl<H: Hooks> Hooks for MetricsHooks<H> {
    fn on_open(&self, peer: &Peer) -> bool {
        // `on_close` is not called for a connection that is refused here.
        let is_accepted = self.hooks.on_open(peer);
        self.counts.accepted.add(is_accepted.into());
        is_accepted
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

    fn on_certificates_reloaded(&self) {
        self.hooks.on_certificates_reloaded();
    }

    fn on_response(&self, record: &Record<'_>) {
        self.counts.responses.add(record.has_response.then_some(record.status));
        self.counts.body_bytes.add(record.body_bytes);
        self.hooks.on_response(record);
    }

    fn on_tunnel_end(&self, record: &Record<'_>) {
        self.hooks.on_tunnel_end(record);
    }
}
