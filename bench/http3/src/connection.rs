//! A connection with its requests.

use std::collections::VecDeque;
use std::time::Instant;

use quinn_proto::{Dir, Event, ReadError, StreamEvent, StreamId, VarInt};

use crate::request::RequestTemplate;
use crate::response::{Expected, Response};

/// A connection, and the requests in progress in the order of their streams.
pub struct Connection {
    pub quic: quinn_proto::Connection,
    template: RequestTemplate,
    requests: VecDeque<Request>,
    /// Number of requests in progress.
    in_progress: usize,
    pub is_connected: bool,
    pub is_lost: bool,
    pub completed: u64,
    /// Time of the next timer of the transport.
    pub deadline: Option<Instant>,
}

struct Request {
    stream: StreamId,
    response: Response,
    start: Instant,
    is_complete: bool,
}

/// The results of all connections.
pub struct Totals {
    pub requests: u64,
    pub bytes: u64,
    /// Latencies in microseconds.
    pub latencies: Vec<f32>,
    pub first_error: Option<String>,
    pub errors: u64,
}

/// The control stream: its type, and SETTINGS without parameters (RFC 9114 §6.2.1).
const CONTROL: &[u8] = &[0, 4, 0];

impl Connection {
    pub fn new(quic: quinn_proto::Connection, template: RequestTemplate) -> Connection {
        Connection {
            quic,
            template,
            requests: VecDeque::new(),
            in_progress: 0,
            is_connected: false,
            is_lost: false,
            completed: 0,
            deadline: None,
        }
    }

    /// Processes the events of the transport.
    pub fn process(&mut self, now: Instant, expected: &mut Expected, totals: &mut Totals) {
        while let Some(event) = self.quic.poll() {
            match event {
                Event::Connected => {
                    self.is_connected = true;
                    if let Some(control) = self.quic.streams().open(Dir::Uni) {
                        let _ = self.quic.send_stream(control).write(CONTROL);
                    }
                }
                Event::ConnectionLost { reason } => {
                    self.is_lost = true;
                    totals.fail(1, format!("a connection was lost: {reason}"));
                }
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(stream) = self.quic.streams().accept(dir) {
                        self.discard(stream);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.discard(id);
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    if let Err(error) = self.read(now, id, expected, totals) {
                        totals.fail(1, error);
                        self.quic.close(now, VarInt::from_u32(0x101), Default::default());
                        self.is_lost = true;
                    }
                }
                _ => {}
            }
        }
    }

    /// Discards the data of a stream of the server: control and QPACK.
    fn discard(&mut self, stream: StreamId) {
        let mut stream = self.quic.recv_stream(stream);
        let Ok(mut chunks) = stream.read(true) else { return };
        while let Ok(Some(_)) = chunks.next(usize::MAX) {}
        let _ = chunks.finalize();
    }

    fn read(
        &mut self,
        now: Instant,
        id: StreamId,
        expected: &mut Expected,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let first = self.requests.front().map_or(0, |request| request.stream.index());
        let index = id.index().wrapping_sub(first) as usize;
        let Some(request) = self.requests.get_mut(index) else { return Ok(()) };
        let mut stream = self.quic.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let ends = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    totals.bytes += chunk.bytes.len() as u64;
                    request.response.receive(chunk.bytes, expected)?;
                }
                Ok(None) => break true,
                Err(ReadError::Blocked) => break false,
                Err(ReadError::Reset(code)) => return Err(format!("a stream was reset: {code}")),
            }
        };
        let _ = chunks.finalize();
        if ends {
            request.response.end(expected)?;
            request.is_complete = true;
            totals.requests += 1;
            totals.latencies.push(now.duration_since(request.start).as_secs_f32() * 1e6);
            self.completed += 1;
            self.in_progress -= 1;
            while self.requests.front().is_some_and(|request| request.is_complete) {
                self.requests.pop_front();
            }
        }
        Ok(())
    }

    /// Opens streams until `count` requests are in progress, `max` were sent, or the server permits
    /// no more. Returns the number of requests.
    pub fn send_requests(&mut self, now: Instant, count: usize, max: u64) -> u64 {
        let mut sent = 0;
        while self.in_progress < count && sent < max {
            let Some(stream) = self.quic.streams().open(Dir::Bi) else { return sent };
            let mut sender = self.quic.send_stream(stream);
            // A request is smaller than any window.
            let _ = sender.write(self.template.next());
            let _ = sender.finish();
            self.in_progress += 1;
            sent += 1;
            let response = Response::default();
            self.requests.push_back(Request { stream, response, start: now, is_complete: false });
        }
        sent
    }

    pub fn is_idle(&self) -> bool {
        self.in_progress == 0
    }

    /// Closes the connection without an error.
    pub fn close(&mut self, now: Instant) {
        self.quic.close(now, VarInt::from_u32(0x100), Default::default());
    }
}

impl Totals {
    pub fn new() -> Totals {
        Totals { requests: 0, bytes: 0, latencies: Vec::new(), first_error: None, errors: 0 }
    }

    pub fn fail(&mut self, count: u64, reason: String) {
        self.errors += count;
        self.first_error.get_or_insert(reason);
    }
}
