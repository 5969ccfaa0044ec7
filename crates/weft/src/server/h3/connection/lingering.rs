//! Streams whose exchange has ended before the client has received their output: the client must
//! make progress, and a reset waits until earlier output is delivered.
//!
//! The reset of a QUIC stream discards the data that the client has not received (RFC 9000 §3.1). A
//! response that fails behind data ends as over TCP: the data, then the reset.

use std::time::Duration;

use crate::server::h3::connection::Http3Connection;
use crate::server::h3::outgoing::Outgoing;
use crate::server::h3::pending_reset::PendingReset;
use crate::settings::Settings;
use weft_proto::http3::ErrorCode;

/// A stream with undelivered output.
pub(super) struct LingeringStream {
    id: u64,
    /// Number of bytes that the connection had written, and the time in milliseconds since which it
    /// is the same: output may wait for the responses of other streams.
    written: u64,
    since: Option<u64>,
}

impl Http3Connection {
    /// Resets the stream of a response that cannot be completed, behind its complete frames. The
    /// client has [`linger_timeout`](Settings::linger_timeout) to receive them.
    pub(in crate::server::h3) fn abandon_behind_output(&mut self, id: u64, code: ErrorCode) {
        let (reset, frame) = PendingReset::new(code);
        if self.send(id, Outgoing::complete(frame), 0).is_err() {
            return self.abandon(id, code);
        }
        self.stop_content(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.pending_reset = Some(Box::new(reset));
        }
    }

    /// Records a stream whose exchange has ended, unless it is done.
    pub(super) fn record_lingering(&mut self, id: u64) {
        if self.streams.contains_key(&id) {
            self.lingering.push(LingeringStream { id, written: self.written, since: None });
        }
    }

    /// Resets the streams whose output is delivered, if they wait for it, or makes no progress.
    /// Returns the time until the next one expires, if there is one. `now` is in milliseconds.
    pub(in crate::server::h3) fn expire_lingering(
        &mut self,
        now: u64,
        settings: &Settings,
    ) -> Option<Duration> {
        if self.lingering.is_empty() {
            return None;
        }
        let mut lingering = std::mem::take(&mut self.lingering);
        let mut next: Option<u64> = None;
        lingering.retain_mut(|stream| match self.check_lingering(stream, now, settings) {
            Lingering::Until(due) => {
                next = Some(next.map_or(due, |next| next.min(due)));
                true
            }
            Lingering::Waits => true,
            Lingering::Ended => false,
        });
        // Nothing ends an exchange in between.
        self.lingering = lingering;
        next.map(|due| Duration::from_millis(due.saturating_sub(now)))
    }

    fn check_lingering(
        &mut self,
        lingering: &mut LingeringStream,
        now: u64,
        settings: &Settings,
    ) -> Lingering {
        let Some(stream) = self.streams.get(&lingering.id) else { return Lingering::Ended };
        let (code, timeout) = match &stream.pending_reset {
            Some(reset) if reset.is_due() => {
                self.abandon(lingering.id, reset.code);
                return Lingering::Ended;
            }
            Some(reset) => (reset.code, settings.linger_timeout),
            None if self.written != lingering.written => {
                (lingering.written, lingering.since) = (self.written, None);
                (ErrorCode::REQUEST_CANCELLED, settings.stall_timeout)
            }
            // The application has the rest of the stream.
            None if stream.queued.is_empty() => {
                lingering.since = None;
                return Lingering::Waits;
            }
            None => (ErrorCode::REQUEST_CANCELLED, settings.stall_timeout),
        };
        let since = *lingering.since.get_or_insert(now);
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let due = since.saturating_add(timeout);
        if now < due {
            return Lingering::Until(due);
        }
        self.abandon(lingering.id, code);
        Lingering::Ended
    }
}

/// The state of a lingering stream.
enum Lingering {
    /// It is reset at this time, unless the client makes progress.
    Until(u64),
    /// It waits for its application.
    Waits,
    Ended,
}
