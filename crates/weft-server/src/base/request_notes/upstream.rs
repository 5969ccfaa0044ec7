//! An attempt to get a response from an upstream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft::StatusCode;
use weft::log::LogValue;

/// An attempt to get a response from an upstream, with its times.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Host and port as configured, or the path of a socket.
    name: Arc<str>,
    address: Option<SocketAddr>,
    status: Option<StatusCode>,
    begun: Instant,
    /// Time of the wait for a connection in use by others.
    queue_time: Duration,
    /// Time until there was a connection, also one of the pool.
    connect_time: Option<Duration>,
    /// Time until the head of the response was received.
    header_time: Option<Duration>,
    /// Time until the body of the response was received, too.
    response_time: Option<Duration>,
}

impl Attempt {
    pub(super) fn begin(name: Arc<str>, now: Instant) -> Attempt {
        Attempt {
            name,
            address: None,
            status: None,
            begun: now,
            queue_time: Duration::ZERO,
            connect_time: None,
            header_time: None,
            response_time: None,
        }
    }

    pub(super) fn set_queue_time(&mut self, time: Duration) {
        self.queue_time = time;
    }

    pub(super) fn set_connection(&mut self, address: Option<SocketAddr>, now: Instant) {
        self.address = address;
        self.connect_time = Some(now - self.begun);
    }

    pub(super) fn set_status(&mut self, status: StatusCode, now: Instant) {
        self.status = Some(status);
        self.header_time = Some(now - self.begun);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.response_time = Some(now - self.begun);
    }

    /// Returns a value by its name. The time of a response that has not ended is that until now.
    pub(super) fn value(&self, name: &str) -> Option<LogValue<'_>> {
        match name {
            "address" => Some(LogValue::Text(match self.address {
                Some(address) => address.to_string().into_bytes().into(),
                None => self.name.as_bytes().into(),
            })),
            "status" => self.status.map(|status| LogValue::Number(status.as_u16().into())),
            "queue_time" => Some(LogValue::Seconds(self.queue_time)),
            "connect_time" => self.connect_time.map(LogValue::Seconds),
            "header_time" => self.header_time.map(LogValue::Seconds),
            "response_time" => {
                let time = self.response_time.unwrap_or_else(|| self.begun.elapsed());
                Some(LogValue::Seconds(time))
            }
            _ => None,
        }
    }
}
