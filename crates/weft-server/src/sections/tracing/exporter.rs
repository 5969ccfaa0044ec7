//! The thread that sends batches of spans to a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use weft::Method;
use weft::header::{HeaderName, HeaderValue};
use weft_upstream::ThrottledWarning;
use weft_upstream::{OwnRequest, RemoteServer};

use super::{Span, TracingSettings, otlp};

/// Maximum number of spans in one request.
const MAX_BATCH: usize = 512;

/// Maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Number of attempts to send a batch, and the delay after the first one, which doubles each time.
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) struct Exporter {
    receiver: Receiver<Message>,
    collector: RemoteServer,
    /// Path and query of the URL of the collector.
    target: String,
    service: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    interval: Duration,
    timeout: Duration,
    counts: Arc<SpanCounters>,
    warning: ThrottledWarning,
}

/// Input of the exporter.
pub(super) enum Message {
    // Boxed, because the queue has memory for all of its entries.
    Span(Box<Span>),
    /// Sends a notification after the spans before it were exported.
    Flush(SyncSender<()>),
}

#[derive(Default)]
pub(super) struct SpanCounters {
    pub(super) exported: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// The event after which a batch is sent.
enum BatchEnd {
    /// The batch is large or old enough.
    Due,
    Flush(SyncSender<()>),
    /// No more spans follow.
    Closed,
}

/// Failure of an attempt to send a batch.
enum Failure {
    /// The collector may accept it later.
    Transient(String),
    Permanent(String),
}

impl Exporter {
    /// Returns `None` without a collector.
    ///
    /// # Errors
    /// If the certificates of the collector cannot be read.
    pub(super) fn new(
        config: &TracingSettings,
        receiver: Receiver<Message>,
        counts: Arc<SpanCounters>,
    ) -> Result<Option<Exporter>, String> {
        let Some(endpoint) = &config.endpoint else { return Ok(None) };
        let collector = RemoteServer::new(endpoint.upstream.clone(), config.ca.as_deref());
        Ok(Some(Exporter {
            receiver,
            collector: collector.map_err(|reason| format!("[tracing]: {reason}"))?,
            target: endpoint.target.clone(),
            service: config.service.clone(),
            fields: config.headers.clone(),
            interval: config.interval,
            timeout: config.timeout,
            counts,
            warning: ThrottledWarning::default(),
        }))
    }

    /// Exports spans until the queue is closed.
    pub(super) fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return log::error!("no traces are exported: {error}"),
        };
        loop {
            let (batch, end) = self.next_batch();
            if !batch.is_empty() {
                runtime.block_on(self.export(&batch));
            }
            match end {
                BatchEnd::Due => {}
                // The other side may have given up.
                BatchEnd::Flush(done) => drop(done.send(())),
                BatchEnd::Closed => return,
            }
        }
    }

    /// Waits for spans: for the interval after the first one, or until the batch is full.
    fn next_batch(&self) -> (Vec<Span>, BatchEnd) {
        let (mut batch, mut due) = (Vec::new(), None::<Instant>);
        while batch.len() < MAX_BATCH {
            let message = match due {
                None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => {
                    self.receiver.recv_timeout(due.saturating_duration_since(Instant::now()))
                }
            };
            match message {
                Ok(Message::Span(span)) => {
                    batch.push(*span);
                    due = due.or_else(|| Instant::now().checked_add(self.interval));
                }
                Ok(Message::Flush(done)) => return (batch, BatchEnd::Flush(done)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return (batch, BatchEnd::Closed),
            }
        }
        (batch, BatchEnd::Due)
    }

    /// Sends a batch, with retries.
    async fn export(&self, batch: &[Span]) {
        let (body, count) = (otlp::request(&self.service, batch), batch.len() as u64);
        let mut delay = RETRY_DELAY;
        let mut attempt = 1;
        let reason = loop {
            match self.send(&body).await {
                Ok((rejected, reason)) => {
                    let rejected = rejected.min(count);
                    self.counts.exported.fetch_add(count - rejected, Relaxed);
                    self.counts.failed.fetch_add(rejected, Relaxed);
                    if rejected > 0 {
                        self.warning
                            .warn(&format!("the collector rejects {rejected} spans: {reason}"));
                    }
                    return;
                }
                Err(Failure::Transient(_)) if attempt < MAX_ATTEMPTS => {}
                Err(Failure::Transient(reason) | Failure::Permanent(reason)) => break reason,
            }
            sleep(delay).await;
            attempt += 1;
            delay *= 2;
        };
        self.counts.failed.fetch_add(count, Relaxed);
        self.warning.warn(&format!("{count} spans are lost: the collector: {reason}"));
    }

    /// Sends a request once. Returns the number of spans that the collector has rejected, and its
    /// reason.
    async fn send(&self, body: &[u8]) -> Result<(u64, String), Failure> {
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fields: Vec<_> =
            [("content-type", &b"application/json"[..])].into_iter().chain(own).collect();
        let (method, target) = (&Method::POST, &*self.target);
        let request = OwnRequest { method, target, host: None, fields: &fields, body };
        let sent = self.collector.send(&request, MAX_RESPONSE_BYTES, self.timeout).await;
        let response = sent.map_err(Failure::Transient)?;
        let status = response.status();
        match status.as_u16() {
            200..=299 => Ok(otlp::rejected(response.body())),
            // The statuses for which the protocol requires retries.
            429 | 502 | 503 | 504 => Err(Failure::Transient(format!("the status is {status}"))),
            _ => Err(Failure::Permanent(format!("the status is {status}"))),
        }
    }
}
