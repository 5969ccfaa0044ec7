//! The queue of spans, which are exported to a collector by the OpenTelemetry protocol (OTLP/HTTP).
//!
//! A worker puts the span of a sampled request into a bounded queue when its exchange has ended; it
//! never waits. A thread of its own takes batches from the queue and sends them as JSON. Spans for
//! which the queue has no room, and batches that the collector does not accept, are lost and
//! counted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::TracingSettings;
use super::exporter::{Exporter, Message, SpanCounters};
use super::span::Span;

/// Exports spans. The thread sends the rest of them after the last reference is dropped.
pub(crate) struct Tracer {
    pub(crate) config: TracingSettings,
    queue: SyncSender<Message>,
    counts: Arc<SpanCounters>,
}

/// Numbers of spans since the exporter was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SpanCounts {
    pub(crate) exported: u64,
    /// Not accepted by the collector.
    pub(crate) failed: u64,
    /// Not exported, because the queue was full.
    pub(crate) dropped: u64,
}

/// Time between attempts to put a message into a full queue.
const QUEUE_RETRY_DELAY: Duration = Duration::from_millis(5);

impl Tracer {
    /// Starts the thread that exports spans; `None` without a collector.
    ///
    /// # Errors
    /// If the certificates of the collector cannot be read, or if the thread cannot be started.
    pub(crate) fn start(config: &TracingSettings) -> Result<Option<Tracer>, String> {
        let (queue, receiver) = sync_channel(config.max_queued_spans);
        let counts = Arc::<SpanCounters>::default();
        let Some(exporter) = Exporter::new(config, receiver, counts.clone())? else {
            return Ok(None);
        };
        let thread = std::thread::Builder::new().name("weft-traces".to_owned());
        let started = thread.spawn(move || exporter.run());
        started.map_err(|error| format!("cannot start the thread for traces: {error}"))?;
        Ok(Some(Tracer { config: config.clone(), queue, counts }))
    }

    /// Checks that spans could be exported.
    pub(crate) fn check(config: &TracingSettings) -> Result<(), String> {
        let (_, receiver) = sync_channel(1);
        Exporter::new(config, receiver, Arc::default()).map(drop)
    }

    /// Exports a span, unless the queue is full.
    pub(crate) fn record(&self, span: Span) {
        if self.queue.try_send(Message::Span(Box::new(span))).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Waits until the spans before were exported, or for `limit`.
    pub(crate) fn flush(&self, limit: Duration) {
        let start = Instant::now();
        let (done, is_done) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(error) = self.queue.try_send(message) {
            match error {
                TrySendError::Full(rejected) if start.elapsed() < limit => message = rejected,
                _ => return,
            }
            std::thread::sleep(QUEUE_RETRY_DELAY);
        }
        // After the limit the rest is lost.
        let _ = is_done.recv_timeout(limit.saturating_sub(start.elapsed()));
    }

    pub(crate) fn counts(&self) -> SpanCounts {
        let SpanCounters { exported, failed, dropped } = &*self.counts;
        SpanCounts {
            exported: exported.load(Relaxed),
            failed: failed.load(Relaxed),
            dropped: dropped.load(Relaxed),
        }
    }
}
