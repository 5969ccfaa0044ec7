//! The record of a connection: its metrics, and its line in the access log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Instant, SystemTime};

use serde_json::json;
use weft::date;
use weft_upstream::copy::{CopySide, CountBytes};

use super::Stream;
use super::end::End;
use super::metrics::{TargetMetrics, Traffic};
use crate::logs::StreamLog;
use crate::sections::streams::LineFormat;

/// Transport protocol of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProtocol {
    Tcp,
    Udp,
}

impl StreamProtocol {
    fn name(self) -> &'static str {
        match self {
            StreamProtocol::Tcp => "tcp",
            StreamProtocol::Udp => "udp",
        }
    }
}

/// A connection, or a session of UDP. It is counted and logged when this is dropped, once, also if
/// its task is cancelled.
pub(crate) struct ConnectionRecord {
    pub(crate) stream: Arc<Stream>,
    log: Option<StreamLog>,
    protocol: StreamProtocol,
    start: Instant,
    /// Address of the client, which its proxy may have sent.
    pub(crate) client: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) server_name: Option<String>,
    pub(crate) upstream: Option<String>,
    pub(crate) traffic: Traffic,
    /// Reason of the end; by default, the server has stopped.
    pub(crate) end: End,
}

impl ConnectionRecord {
    pub(crate) fn new(
        stream: Arc<Stream>,
        log: Option<StreamLog>,
        protocol: StreamProtocol,
        (client, local): (SocketAddr, SocketAddr),
    ) -> ConnectionRecord {
        ConnectionRecord {
            stream,
            log,
            protocol,
            start: Instant::now(),
            client,
            local,
            server_name: None,
            upstream: None,
            traffic: Traffic::default(),
            end: End::Stopped,
        }
    }

    fn append_line(&self, lines: &mut Vec<u8>, client: SocketAddr) {
        let time = date::rfc3339(SystemTime::now());
        let received = self.traffic.received.load(Relaxed);
        let sent = self.traffic.sent.load(Relaxed);
        let seconds = self.start.elapsed().as_micros() as f64 / 1e6;
        let ConnectionRecord { local, server_name, upstream, end, .. } = self;
        let line = match self.stream.settings().log_format {
            LineFormat::Json => json!({
                "time": time,
                "protocol": self.protocol.name(),
                "client": client.to_string(),
                "local": local.to_string(),
                "server_name": server_name,
                "upstream": upstream,
                "bytes_received": received,
                "bytes_sent": sent,
                "seconds": seconds,
                "end": end.name(),
            })
            .to_string(),
            LineFormat::Text => {
                let name = server_name.as_deref().unwrap_or("-");
                let upstream = upstream.as_deref().unwrap_or("-");
                let (protocol, end) = (self.protocol.name(), end.name());
                format!(
                    "{time} {protocol} {client} {local} {upstream} {received} {sent} {seconds:.6} {end} {name}"
                )
            }
        };
        lines.extend_from_slice(line.as_bytes());
        lines.push(b'\n');
    }
}

impl Drop for ConnectionRecord {
    fn drop(&mut self) {
        self.stream.ends.add(self.end);
        if let Some(log) = &self.log {
            log.append(|lines| self.append_line(lines, log.shown_client(self.client)));
        }
    }
}

/// Counts the bytes of a connection, for the connection and for its upstream.
pub(crate) struct ByteCounts<'a> {
    pub(crate) connection: &'a Traffic,
    pub(crate) upstream: &'a TargetMetrics,
}

/// Side A is the client.
impl CountBytes for ByteCounts<'_> {
    fn add(&self, from: CopySide, bytes: u64) {
        for traffic in [self.connection, &self.upstream.traffic] {
            match from {
                CopySide::A => traffic.received.fetch_add(bytes, Relaxed),
                CopySide::B => traffic.sent.fetch_add(bytes, Relaxed),
            };
        }
    }
}
