//! Connection-level state and the frames that apply to the whole connection (RFC 9113 §5, §6).
//!
//! The state is owned by the task of the connection; this module does no I/O. The exchanges, which
//! run in the same task, refer to their streams by identifier. `recv` processes requests and their
//! content, `send` frames the output of streams, `credit` returns flow-control credit, `close` ends
//! streams.

mod close;
mod credit;
mod header_block;
mod recv;
mod reset_history;
mod send;

use std::sync::Arc;
use std::task::Context;

use self::header_block::HeaderBlock;
use self::reset_history::ResetHistory;
use http::Version;

use crate::message::connection::RequestContext;
use crate::net::writer::Writer;
use crate::server::h2::streams::{SendQueue, Streams};
use crate::server::h2::turns::Turns;
use crate::server::multiplex::field_block::{FieldBlock, InvalidRequest, ParsedRequest};
use crate::server::multiplex::pipe::Pipe;
use crate::server::multiplex::ready_queue::ReadyQueue;
use crate::settings::Settings;
use weft_proto::http1::parse::Limits;
use weft_proto::http2::flood::FloodLimiter;
use weft_proto::http2::flow::{MAX_WINDOW, RecvWindow, SendWindow};
use weft_proto::http2::frame::{
    self, DEFAULT_INITIAL_WINDOW, ErrorCode, FrameHeader, MAX_FRAME_PAYLOAD,
};
use weft_proto::http2::frame::{flag, kind, setting};
use weft_proto::http2::hpack::{Decoder, Encoder};

/// The state of an open connection.
pub(super) struct Http2Connection {
    writer: Writer,
    encoder: Encoder,
    decoder: Decoder,
    field_block: FieldBlock,
    limits: Limits,
    /// A field block that continues in the next frame.
    block: Option<HeaderBlock>,
    streams: Streams,
    /// Highest stream identifier that the client has used.
    last_stream: u32,
    max_streams: usize,
    /// Total size of the heads of the open streams, without the first [`HEAD_BYTES`] of each.
    excess_head_bytes: usize,
    resets: ResetHistory,
    flood: FloodLimiter,
    queue: SendQueue,
    turns: Turns,
    /// The client's connection window, and the initial window of its streams.
    send: SendWindow,
    initial_send_window: i64,
    /// The server's connection window, and the initial window of its streams.
    recv: RecvWindow,
    initial_recv_window: i64,
    progress: SendProgress,
    /// Streams whose application has read or written data. Created with the first pipe.
    ready: Option<Arc<ReadyQueue>>,
    goaway: GoAway,
    has_settings: bool,
    /// Shared state of a completed exchange, for reuse by the next one.
    spare: Option<Arc<RequestContext>>,
}

/// The progress of GOAWAY (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoAway {
    None,
    /// Sent with the maximum stream identifier, followed by a PING.
    Announced,
    /// Sent with the last stream identifier, after the PING was acknowledged.
    Sent,
}

/// A request on a new stream.
pub(super) struct StreamRequest {
    pub(super) stream: u32,
    pub(super) request: Result<ParsedRequest, Box<InvalidRequest>>,
    pub(super) pipe: Option<Pipe>,
}

/// Number of bytes sent to the client, and the ends of streams in the unsent output.
#[derive(Default)]
struct SendProgress {
    sent: u64,
    /// Ends of removed streams, as positions in the output. For the client, these streams are still
    /// open.
    unsent_ends: std::collections::VecDeque<u64>,
}

impl SendProgress {
    fn advance(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        while self.unsent_ends.front().is_some_and(|end| *end <= self.sent) {
            self.unsent_ends.pop_front();
        }
    }

    /// Records that a stream ends with the last of the `buffered` bytes.
    fn end_stream(&mut self, buffered: usize) {
        if buffered > 0 {
            self.unsent_ends.push_back(self.sent + buffered as u64);
        }
    }
}

/// Valid values of SETTINGS_MAX_FRAME_SIZE (RFC 9113 §6.5.2).
const FRAME_SIZES: std::ops::Range<u32> = MAX_FRAME_PAYLOAD as u32..1 << 24;

/// Size of an ordinary request head. Heads of this size are bounded by the number of streams.
const HEAD_BYTES: usize = 1 << 10;

/// Maximum size of larger heads of concurrent requests, as a multiple of the maximum size of one
/// head. Further requests are refused like those over the limit of streams. References to the
/// dynamic table are expanded: without a limit, a client could occupy 2 MiB with 4 KB. 16: 256 KiB,
/// or 85 concurrent requests with 4 KiB of cookies.
const MAX_LARGE_HEADS: usize = 16;

/// Payload of the PING after the first GOAWAY.
const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

impl Http2Connection {
    /// Creates a connection and writes the server's SETTINGS.
    pub(super) fn new(writer: Writer, settings: &Settings, limits: Limits) -> Http2Connection {
        let window =
            i64::from(settings.body_window_bytes).clamp(DEFAULT_INITIAL_WINDOW, MAX_WINDOW);
        let mut connection = Http2Connection {
            writer,
            encoder: Encoder::new(),
            decoder: Decoder::new(),
            field_block: FieldBlock::new(Version::HTTP_2),
            limits,
            block: None,
            streams: Streams::default(),
            last_stream: 0,
            max_streams: settings.max_concurrent_streams as usize,
            excess_head_bytes: 0,
            resets: ResetHistory::default(),
            flood: FloodLimiter::new(),
            queue: SendQueue::default(),
            turns: Turns::default(),
            send: SendWindow::new(DEFAULT_INITIAL_WINDOW),
            initial_send_window: DEFAULT_INITIAL_WINDOW,
            recv: RecvWindow::new(DEFAULT_INITIAL_WINDOW),
            initial_recv_window: (window / 4).max(DEFAULT_INITIAL_WINDOW),
            progress: SendProgress::default(),
            ready: None,
            goaway: GoAway::None,
            has_settings: false,
            spare: None,
        };
        connection.send_settings(settings, window);
        connection
    }

    fn send_settings(&mut self, settings: &Settings, window: i64) {
        let parameters = [
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
            (setting::MAX_CONCURRENT_STREAMS, settings.max_concurrent_streams),
            (setting::INITIAL_WINDOW_SIZE, self.initial_recv_window as u32),
            (setting::MAX_HEADER_LIST_SIZE, self.limits.head as u32),
        ];
        frame::settings(self.writer.out(), &parameters);
        self.credit_connection((window - DEFAULT_INITIAL_WINDOW) as usize);
    }

    /// Processes a frame. Returns the request that it completes, if any. An error closes the
    /// connection.
    pub(super) fn on_frame(
        &mut self,
        head: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<StreamRequest>, ErrorCode> {
        // RFC 9113 §3.4 and §6.10
        let is_expected = match &self.block {
            Some(block) => head.kind == kind::CONTINUATION && head.stream == block.stream(),
            None => self.has_settings || head.kind == kind::SETTINGS,
        };
        if !is_expected {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        match head.kind {
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE if self.is_ignored(head) => {
                self.ignore(head)?;
            }
            kind::DATA => self.on_data(head, payload)?,
            kind::HEADERS => return self.on_headers(head, payload),
            kind::CONTINUATION => return self.on_continuation(head, payload),
            kind::PRIORITY => self.on_priority(head, payload)?,
            kind::RST_STREAM => self.on_rst_stream(head, payload)?,
            kind::SETTINGS => self.on_settings(head, payload)?,
            kind::PUSH_PROMISE => return Err(ErrorCode::PROTOCOL_ERROR),
            kind::PING => self.on_ping(head, payload)?,
            kind::GOAWAY if head.stream != 0 => return Err(ErrorCode::PROTOCOL_ERROR),
            kind::GOAWAY if payload.len() < 8 => return Err(ErrorCode::FRAME_SIZE_ERROR),
            kind::GOAWAY => self.announce_goaway(),
            kind::WINDOW_UPDATE => self.on_window_update(head, payload)?,
            // RFC 9113 §5.5
            _ => {}
        }
        Ok(None)
    }

    /// Returns true if a frame is for a stream after the last one that is processed
    /// (RFC 9113 §6.8).
    fn is_ignored(&self, head: FrameHeader) -> bool {
        self.goaway == GoAway::Sent && head.stream > self.last_stream
    }

    fn ignore(&mut self, head: FrameHeader) -> Result<(), ErrorCode> {
        if head.kind == kind::DATA {
            if !self.recv.receive(head.length) {
                return Err(ErrorCode::FLOW_CONTROL_ERROR);
            }
            self.credit_connection(head.length);
        }
        Ok(())
    }

    /// Validates a PRIORITY frame, which has no other effect (RFC 9113 §6.3).
    fn on_priority(&mut self, head: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let priority = payload.try_into().map_err(|_| ErrorCode::FRAME_SIZE_ERROR)?;
        if head.stream == 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if dependency(priority) != head.stream {
            return Ok(());
        }
        // RFC 7540 §5.3.1: a stream cannot depend on itself.
        let id = self.check_opened(head.stream)?;
        self.fail_stream(id, ErrorCode::PROTOCOL_ERROR)
    }

    /// Processes a SETTINGS frame (RFC 9113 §6.5).
    fn on_settings(&mut self, head: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let is_ack = head.has(flag::ACK);
        if head.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if !payload.len().is_multiple_of(6) || (is_ack && !payload.is_empty()) {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        self.has_settings = true;
        if is_ack {
            return Ok(());
        }
        // The windows of the streams are adjusted once, even if the parameter is repeated.
        let mut initial_window = self.initial_send_window;
        for parameter in payload.chunks_exact(6) {
            let &[a, b, c, d, e, f] = parameter else { continue };
            match (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])) {
                (setting::INITIAL_WINDOW_SIZE, value) if i64::from(value) > MAX_WINDOW => {
                    return Err(ErrorCode::FLOW_CONTROL_ERROR);
                }
                (setting::INITIAL_WINDOW_SIZE, value) => initial_window = value.into(),
                (id, value) => self.on_setting(id, value)?,
            }
        }
        if initial_window != self.initial_send_window {
            self.set_initial_send_window(initial_window)?;
        }
        frame::write(self.writer.out(), kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn on_setting(&mut self, id: u16, value: u32) -> Result<(), ErrorCode> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
            setting::ENABLE_PUSH if value > 1 => return Err(ErrorCode::PROTOCOL_ERROR),
            // Frames larger than the minimum are never sent.
            setting::MAX_FRAME_SIZE if !FRAME_SIZES.contains(&value) => {
                return Err(ErrorCode::PROTOCOL_ERROR);
            }
            // RFC 9113 §6.5.2: unknown parameters are ignored.
            _ => {}
        }
        Ok(())
    }

    /// Adjusts the send windows of all streams (RFC 9113 §6.9.2).
    fn set_initial_send_window(&mut self, window: i64) -> Result<(), ErrorCode> {
        let difference = window - std::mem::replace(&mut self.initial_send_window, window);
        for stream in self.streams.iter_mut() {
            stream.adjust_window(difference).map_err(|_| ErrorCode::FLOW_CONTROL_ERROR)?;
            self.turns.on_window_changed(stream);
            self.queue.push_ready(stream);
        }
        Ok(())
    }

    /// Processes a PING frame (RFC 9113 §6.7).
    fn on_ping(&mut self, head: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if payload.len() != 8 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        if !head.has(flag::ACK) {
            frame::write(self.writer.out(), kind::PING, flag::ACK, 0, payload);
        } else if payload == SHUTDOWN_PING && self.goaway == GoAway::Announced {
            self.send_goaway(ErrorCode::NO_ERROR);
        }
        Ok(())
    }

    /// Processes a WINDOW_UPDATE frame (RFC 9113 §6.9).
    fn on_window_update(&mut self, head: FrameHeader, payload: &[u8]) -> Result<(), ErrorCode> {
        let bytes = payload.try_into().map_err(|_| ErrorCode::FRAME_SIZE_ERROR)?;
        let increment = i64::from(frame::read_u31(bytes));
        if head.stream == 0 {
            return match increment {
                0 => Err(ErrorCode::PROTOCOL_ERROR),
                _ => self.send.increase(increment).map_err(|_| ErrorCode::FLOW_CONTROL_ERROR),
            };
        }
        let id = self.check_opened(head.stream)?;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.is_reset() {
            return Ok(());
        }
        if increment == 0 {
            return self.fail_stream(id, ErrorCode::PROTOCOL_ERROR);
        }
        if stream.increase_window(increment).is_err() {
            return self.fail_stream(id, ErrorCode::FLOW_CONTROL_ERROR);
        }
        self.turns.on_window_changed(stream);
        self.queue.push_ready(stream);
        Ok(())
    }

    /// Returns the identifier if the client has opened the stream. Frames for an idle stream are an
    /// error (RFC 9113 §5.1).
    fn check_opened(&self, id: u32) -> Result<u32, ErrorCode> {
        let is_opened = id % 2 == 1 && id <= self.last_stream;
        if is_opened { Ok(id) } else { Err(ErrorCode::PROTOCOL_ERROR) }
    }

    // -- GOAWAY

    /// Announces the end of the connection by a first GOAWAY and a PING. The final GOAWAY, with the
    /// last stream, is sent when the client has acknowledged the PING, so that no request that it
    /// sends in between is lost (RFC 9113 §6.8).
    pub(super) fn announce_goaway(&mut self) {
        if self.goaway == GoAway::None {
            self.goaway = GoAway::Announced;
            frame::goaway(self.writer.out(), u32::MAX >> 1, ErrorCode::NO_ERROR);
            frame::write(self.writer.out(), kind::PING, 0, 0, &SHUTDOWN_PING);
        }
    }

    pub(super) fn send_goaway(&mut self, code: ErrorCode) {
        self.goaway = GoAway::Sent;
        frame::goaway(self.writer.out(), self.last_stream, code);
    }

    /// Returns true if the end of the connection was announced.
    pub(super) fn is_going_away(&self) -> bool {
        self.goaway != GoAway::None
    }

    /// Returns true if the final GOAWAY is written and all streams are closed.
    pub(super) fn is_finished(&self) -> bool {
        self.goaway == GoAway::Sent && self.streams.is_empty()
    }

    // -- methods for the task of the connection

    pub(super) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    pub(super) fn flood(&mut self) -> &mut FloodLimiter {
        &mut self.flood
    }

    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Returns true if the application holds a tunnel or an unread body, possibly after the
    /// exchange of its stream.
    pub(super) fn has_open_pipes(&self) -> bool {
        let mut pipes = self.streams.iter().filter_map(|stream| stream.pipe.as_ref());
        pipes.any(|pipe| !pipe.is_reader_closed() && !pipe.is_fully_read())
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink();
        self.turns.shrink();
    }

    pub(super) fn take_spare_shared(&mut self) -> Option<Arc<RequestContext>> {
        self.spare.take()
    }

    /// Processes the streams whose application has read or written data.
    pub(super) fn poll_ready_streams(&mut self, cx: &Context<'_>) {
        let Some(ready) = &self.ready else { return };
        for id in ready.take(cx) {
            self.on_pipe_changed(id as u32);
        }
    }

    /// Counts bytes written to the socket.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.flood.on_bytes_sent(bytes);
        self.progress.advance(bytes);
    }

    /// Number of bytes sent on the connection.
    pub(super) fn total_sent(&self) -> u64 {
        self.progress.sent
    }
}

/// Returns the stream dependency of a priority (RFC 7540 §6.3).
fn dependency(priority: &[u8; 5]) -> u32 {
    let [a, b, c, d, _] = *priority;
    frame::read_u31([a, b, c, d])
}

#[cfg(test)]
mod tests;
