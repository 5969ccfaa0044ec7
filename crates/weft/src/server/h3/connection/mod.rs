//! The state of a connection: its streams, its field coding and its GOAWAY (RFC 9114 §5, §6).
//!
//! The state is owned by the task of the connection. The exchanges, which run in the same task,
//! refer to their streams by identifier. `recv` reads requests and their content, `send` writes
//! responses, `control` handles the unidirectional streams, `priority` the order of responses.

mod control;
mod incomplete;
mod lingering;
mod priority;
mod recv;
mod send;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use http::Version;
use quinn_proto::{Dir, Side, StreamEvent, StreamId, VarInt};

use self::control::UnidirectionalStreams;
use self::incomplete::IncompleteHeads;
use self::lingering::LingeringStream;
use self::priority::PriorityUpdates;
pub(super) use self::send::MAX_SMALL_CONTENT_BYTES;
use crate::message::connection::RequestContext;
use crate::net::quic::{Connection, TransportFrames};
use crate::server::h3::stream::{Owner, Receiving, Sending, Stream};
use crate::server::multiplex::field_block::{FieldBlock, InvalidRequest, ParsedRequest};
use crate::server::multiplex::pipe::Pipe;
use crate::server::multiplex::ready_queue::ReadyQueue;
use crate::settings::Settings;
use weft_proto::http1::parse::Limits;
use weft_proto::http2::flood::FloodLimiter;
use weft_proto::http3::ErrorCode;
use weft_proto::http3::frame::{self, setting};
use weft_proto::http3::qpack::Decoder;

/// The state of an open connection.
pub(super) struct Http3Connection {
    quic: Connection,
    decoder: Decoder,
    field_block: FieldBlock,
    limits: Limits,
    streams: HashMap<u64, Stream, foldhash::fast::RandomState>,
    incomplete: IncompleteHeads,
    /// Streams whose exchange has ended, and whose output is not delivered.
    lingering: Vec<LingeringStream>,
    /// Requests that the driver has not started.
    requests: VecDeque<StreamRequest>,
    unidirectional: UnidirectionalStreams,
    priority_updates: PriorityUpdates,
    /// Streams with output that the transport accepts again.
    writable: Vec<u64>,
    max_streams: u32,
    flood: FloodLimiter,
    goaway: GoAway,
    /// Identifier behind the last request that was accepted.
    next_stream: u64,
    /// Number of content bytes that exchanges hold until the transport accepts them.
    held: usize,
    /// Exchanges that wait until less content is held.
    waiting: Vec<Waker>,
    /// Number of bytes that were written to streams, and the part for which `flood` was credited.
    written: u64,
    credited: u64,
    /// Streams whose application has read or written data. Created with the first pipe.
    ready: Option<Arc<ReadyQueue>>,
    /// Shared state of a completed exchange, for reuse by the next one.
    spare: Option<Arc<RequestContext>>,
}

/// The progress of GOAWAY (RFC 9114 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoAway {
    None,
    /// Sent with the maximum identifier: further requests are still accepted.
    Announced,
    /// Sent with the identifier behind the last accepted request.
    Sent,
}

/// A request on a new stream.
pub(super) struct StreamRequest {
    pub(super) stream: u64,
    pub(super) request: Result<ParsedRequest, Box<InvalidRequest>>,
    pub(super) pipe: Option<Pipe>,
}

/// Size of the dynamic table for the fields of requests, as in HTTP/2.
const QPACK_TABLE_BYTES: usize = 4 << 10;

/// Maximum number of streams whose field sections wait for the client's encoder stream.
const MAX_BLOCKED_STREAMS: usize = 16;

/// The largest identifier of a client's request stream.
const MAX_REQUEST_STREAM: u64 = (1 << 62) - 4;

/// Compressed field sections may be a little larger than the fields: each field has a prefix.
const SECTION_OVERHEAD_BYTES: usize = 1 << 10;

impl Http3Connection {
    pub(super) fn new(quic: Connection, settings: &Settings, limits: Limits) -> Http3Connection {
        Http3Connection {
            quic,
            decoder: Decoder::new(QPACK_TABLE_BYTES, MAX_BLOCKED_STREAMS),
            field_block: FieldBlock::new(Version::HTTP_3),
            limits,
            streams: HashMap::default(),
            incomplete: IncompleteHeads::default(),
            lingering: Vec::new(),
            requests: VecDeque::new(),
            unidirectional: UnidirectionalStreams::default(),
            priority_updates: PriorityUpdates::default(),
            writable: Vec::new(),
            max_streams: settings.max_concurrent_streams,
            flood: FloodLimiter::new(),
            goaway: GoAway::None,
            next_stream: 0,
            held: 0,
            waiting: Vec::new(),
            written: 0,
            credited: 0,
            ready: None,
            spare: None,
        }
    }

    /// Opens the control stream and sends SETTINGS (RFC 9114 §6.2.1), when the handshake is
    /// complete.
    pub(super) fn begin(&mut self) {
        let mut out = Vec::new();
        frame::write_varint(&mut out, frame::stream::CONTROL);
        let parameters = [
            (setting::MAX_FIELD_SECTION_SIZE, self.limits.head as u64),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
            (setting::QPACK_MAX_TABLE_CAPACITY, QPACK_TABLE_BYTES as u64),
            (setting::QPACK_BLOCKED_STREAMS, MAX_BLOCKED_STREAMS as u64),
        ];
        frame::settings(&mut out, &parameters);
        self.unidirectional.begin(&mut self.quic, out);
    }

    // -- events of the transport

    /// Processes a change of a stream.
    ///
    /// # Errors
    /// The code with which the connection must be closed.
    pub(super) fn on_stream_event(&mut self, event: StreamEvent) -> Result<(), ErrorCode> {
        match event {
            StreamEvent::Opened { dir: Dir::Bi } => self.accept_requests(),
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(id) = self.quic.transport().streams().accept(Dir::Uni) {
                    self.unidirectional.open(id)?;
                    self.read_unidirectional(id)?;
                }
                Ok(())
            }
            StreamEvent::Readable { id } if id.dir() == Dir::Uni => self.read_unidirectional(id),
            StreamEvent::Readable { id } => self.read(id),
            StreamEvent::Writable { id } if id.initiator() == Side::Server => {
                self.unidirectional.flush(&mut self.quic);
                Ok(())
            }
            StreamEvent::Writable { id } => {
                self.writable.push(id.into());
                Ok(())
            }
            StreamEvent::Stopped { id, .. } if id.dir() == Dir::Uni => {
                Err(ErrorCode::CLOSED_CRITICAL_STREAM)
            }
            StreamEvent::Stopped { id, .. } => self.on_stopped(id.into()),
            StreamEvent::Finished { .. } | StreamEvent::Available { .. } => Ok(()),
        }
    }

    /// Accepts the request streams that the client has opened.
    fn accept_requests(&mut self) -> Result<(), ErrorCode> {
        while let Some(id) = self.quic.transport().streams().accept(Dir::Bi) {
            if self.goaway == GoAway::Sent {
                // By the GOAWAY, the request is not processed.
                self.reject(id, ErrorCode::REQUEST_REJECTED);
                continue;
            }
            self.next_stream = u64::from(id) + 4;
            let max_section_bytes = self.limits.head + SECTION_OVERHEAD_BYTES;
            self.streams.insert(id.into(), Stream::new(max_section_bytes));
            self.read(id)?;
            self.record_incomplete(id.into());
        }
        self.permit_streams();
        Ok(())
    }

    /// Permits more streams to a client that uses half of the permitted ones.
    fn permit_streams(&mut self) {
        let max = self.max_streams;
        let transport = self.quic.transport();
        let permitted = transport.max_concurrent_streams(Dir::Bi);
        let open = transport.streams().remote_open_streams(Dir::Bi);
        if permitted < u64::from(max) && open * 2 >= permitted {
            transport.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(max));
        }
    }

    // -- GOAWAY

    /// Announces the end of the connection. Requests that the client sends before it receives this
    /// are processed.
    pub(super) fn announce_goaway(&mut self) {
        if self.goaway == GoAway::None {
            self.goaway = GoAway::Announced;
            self.send_goaway(MAX_REQUEST_STREAM);
        }
    }

    /// Accepts no more requests.
    pub(super) fn end_requests(&mut self) {
        if self.goaway != GoAway::Sent {
            self.goaway = GoAway::Sent;
            self.send_goaway(self.next_stream);
        }
    }

    fn send_goaway(&mut self, stream: u64) {
        let mut out = Vec::new();
        frame::goaway(&mut out, stream);
        self.unidirectional.send(&mut self.quic, &out);
    }

    // -- the end of streams

    /// Resets both directions of a stream that has no state.
    fn reject(&mut self, id: StreamId, code: ErrorCode) {
        self.decoder.cancel(id.into());
        let transport = self.quic.transport();
        // An error means that the direction has ended already.
        let _ = transport.recv_stream(id).stop(varint(code));
        let _ = transport.send_stream(id).reset(varint(code));
    }

    /// Resets a stream because of an error of the client.
    fn fail_stream(&mut self, id: StreamId, code: ErrorCode) -> Result<(), ErrorCode> {
        self.reject(id, code);
        self.reset(id.into());
        match self.flood.on_stream_error() {
            true => Ok(()),
            false => Err(ErrorCode::EXCESSIVE_LOAD),
        }
    }

    /// Processes a stream that the client does not want any more.
    fn on_stopped(&mut self, id: u64) -> Result<(), ErrorCode> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.owner != Owner::None && !self.flood.on_reset() {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        self.reject(stream_id(id), ErrorCode::REQUEST_CANCELLED);
        self.reset(id);
        Ok(())
    }

    /// Resets the stream of a response that cannot be completed. Output that was written is lost.
    pub(super) fn abandon(&mut self, id: u64, code: ErrorCode) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.sending != Sending::Reset {
            self.reject(stream_id(id), code);
            self.reset(id);
        }
    }

    /// Ends both directions of a stream.
    fn reset(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let discarded = stream.reset();
            self.release(discarded);
            self.remove_if_done(id);
        }
    }

    /// Ends an exchange. Its shared state is reused for the next one, unless the application still
    /// holds it.
    pub(super) fn end_exchange(&mut self, id: u64, mut shared: Arc<RequestContext>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.end_exchange();
            self.remove_if_done(id);
            self.record_lingering(id);
        }
        if shared.try_reset() {
            self.spare = Some(shared);
        }
    }

    /// Removes a stream if it is done.
    fn remove_if_done(&mut self, id: u64) {
        if self.streams.get(&id).is_some_and(Stream::is_done)
            && let Some(stream) = self.streams.remove(&id)
        {
            let transport = self.quic.transport();
            if stream.receiving == Receiving::Open {
                self.decoder.cancel(id);
                // RFC 9114 §4.1: the response is complete, and the rest is not needed.
                let code = varint(ErrorCode::NO_ERROR);
                let _ = transport.recv_stream(stream_id(id)).stop(code);
            }
            if stream.sending == Sending::Open {
                let code = varint(ErrorCode::REQUEST_CANCELLED);
                let _ = transport.send_stream(stream_id(id)).reset(code);
            }
        }
    }

    /// Resets all streams at the end of the connection.
    pub(super) fn reset_all(&mut self) {
        let all: Vec<u64> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|id| self.reset(id));
    }

    // -- methods for the task of the connection

    pub(super) fn quic(&mut self) -> &mut Connection {
        &mut self.quic
    }

    /// Adds the credit for the elapsed time, and for the bytes written since the last call, to the
    /// flood budget. Deducts the frames of the transport.
    pub(super) fn refill_flood(&mut self, elapsed: Duration) -> Result<(), ErrorCode> {
        self.flood.on_time_elapsed(elapsed);
        let credited = std::mem::replace(&mut self.credited, self.written);
        self.flood.on_bytes_sent(usize::try_from(self.written - credited).unwrap_or(usize::MAX));
        let Some(frames) = self.quic.take_frame_count() else { return Ok(()) };
        let TransportFrames { idle, window_updates, stream } = frames;
        let is_within = self.flood.on_idle_frames(idle)
            && self.flood.on_window_updates(window_updates)
            && self.flood.on_stream_frames(stream);
        if is_within { Ok(()) } else { Err(ErrorCode::EXCESSIVE_LOAD) }
    }

    /// Takes the next request that is to be started.
    pub(super) fn next_request(&mut self) -> Option<StreamRequest> {
        self.requests.pop_front()
    }

    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Returns true if the client has acknowledged all output of requests that were accepted.
    pub(super) fn is_delivered(&mut self) -> bool {
        let own = self.unidirectional.sending_count();
        self.quic.transport().streams().send_streams() <= own
    }

    pub(super) fn is_going_away(&self) -> bool {
        self.goaway != GoAway::None
    }

    /// Number of bytes written to streams.
    pub(super) fn total_written(&self) -> u64 {
        self.written
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        self.streams.shrink_to(0);
        self.requests.shrink_to(0);
        self.writable.shrink_to(0);
    }

    pub(super) fn take_spare_shared(&mut self) -> Option<Arc<RequestContext>> {
        self.spare.take()
    }

    /// Processes the streams whose application has read or written data.
    pub(super) fn poll_ready_streams(&mut self, cx: &Context<'_>) -> Result<(), ErrorCode> {
        let Some(ready) = &self.ready else { return Ok(()) };
        for id in ready.take(cx) {
            self.on_pipe_changed(id)?;
        }
        Ok(())
    }
}

/// Returns the identifier as the transport has it. All identifiers come from there.
fn stream_id(id: u64) -> StreamId {
    VarInt::from_u64(id).unwrap_or(VarInt::MAX).into()
}

fn varint(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}
