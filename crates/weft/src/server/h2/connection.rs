//! What is known of a connection, and what comes that is about all of it, or about a stream's
//! state and windows (RFC 9113 §5 and §6).
//!
//! All of it lives in the connection's task. The exchanges, which run in the same task, find
//! their streams here by number. Requests and their bodies come by `receiving`, what is sent goes
//! by `sending`, and a stream's end is in `ending`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::message::request::Shared;
use crate::net::writer::Writer;
use crate::proto::http1::parse::Limits;
use crate::proto::http2::frame::{self, Code, FIRST_WINDOW, Head, MOST_PAYLOAD_BYTES, MOST_WINDOW};
use crate::proto::http2::frame::{flag, kind, setting};
use crate::proto::http2::hpack::{Decoder, Encoder};
use crate::server::h2::pipe::{Bell, Pipe};
use crate::server::h2::request::{Asked, Fieldset};
use crate::server::h2::streams::{By, Stream, Streams, Window};
use crate::settings::Settings;

/// A connection while it is open.
pub(super) struct Connection {
    pub(super) writer: Writer,
    pub(super) encoder: Encoder,
    pub(super) streams: Streams,
    /// Those that have something to send and may do so, in turns.
    pub(super) queue: VecDeque<u32>,
    /// How much the client takes on all streams together.
    pub(super) window: i64,
    /// Somebody was woken who is to be asked for more.
    pub(super) is_stirred: bool,
    /// Of the streams that are over, those whose end was not sent yet: where that is, in all
    /// that is sent. To the client they are still open.
    pub(super) unsent: VecDeque<u64>,
    /// How much was sent.
    pub(super) sent: u64,
    pub(super) decoder: Decoder,
    pub(super) fieldset: Fieldset,
    pub(super) limits: Limits,
    pub(super) most_streams: usize,
    /// The window that each stream begins with, for us and for the client.
    pub(super) first_window: i64,
    pub(super) first_came: i64,
    pub(super) came: Window,
    /// A block that has not come to its end.
    pub(super) block: Option<Block>,
    /// The last stream that the client has begun.
    pub(super) last: u32,
    /// Those that we have reset lately: a client that has not heard of it sends on.
    pub(super) was_reset: VecDeque<u32>,
    /// How many streams were reset because of errors of the client.
    pub(super) faults: usize,
    /// How many were one too many, less those that were taken since.
    pub(super) turned_away: usize,
    pub(super) bell: Option<Arc<Bell>>,
    pub(super) goodbye: Goodbye,
    pub(super) has_settings: bool,
    /// What a request knew of its connection, for the next.
    pub(super) spare: Option<Arc<Shared>>,
}

/// How far the end of a connection is (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goodbye {
    Unsaid,
    /// The client was told that it will come, and is to confirm that.
    Announced,
    /// It was told which stream is the last.
    Said,
}

/// A head in several frames.
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) ends: bool,
    pub(super) depends_on_itself: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) pieces: usize,
}

/// A request that has come.
pub(super) struct Request {
    pub(super) stream: u32,
    /// What is asked for, or what the client is to be told instead.
    pub(super) asked: Result<Asked, Error>,
    pub(super) pipe: Option<Pipe>,
}

/// What a client may say of the frames that it takes (RFC 9113 §6.5.2).
const FRAME_SIZES: std::ops::Range<u32> = MOST_PAYLOAD_BYTES as u32..1 << 24;

/// What the ping says that a goodbye is confirmed with.
const GOODBYE: [u8; 8] = *b"goodbye?";

impl Connection {
    pub(super) fn new(writer: Writer, settings: &Settings, limits: Limits) -> Connection {
        let whole = i64::from(settings.body_window_bytes).clamp(FIRST_WINDOW, MOST_WINDOW);
        let first_came = (whole / 4).max(FIRST_WINDOW);
        let mut connection = Connection {
            writer,
            encoder: Encoder::new(),
            streams: Streams::default(),
            queue: VecDeque::new(),
            window: FIRST_WINDOW,
            is_stirred: false,
            unsent: VecDeque::new(),
            sent: 0,
            decoder: Decoder::new(),
            fieldset: Fieldset::default(),
            limits,
            most_streams: settings.max_concurrent_streams as usize,
            first_window: FIRST_WINDOW,
            first_came,
            came: Window::new(FIRST_WINDOW),
            block: None,
            last: 0,
            was_reset: VecDeque::new(),
            faults: 0,
            turned_away: 0,
            bell: None,
            goodbye: Goodbye::Unsaid,
            has_settings: false,
            spare: None,
        };
        connection.say_hello(settings, whole);
        connection
    }

    /// Tells the client of our limits.
    fn say_hello(&mut self, settings: &Settings, window: i64) {
        let parameters = [
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
            (setting::MAX_CONCURRENT_STREAMS, settings.max_concurrent_streams),
            (setting::INITIAL_WINDOW_SIZE, self.first_came as u32),
            (setting::MAX_HEADER_LIST_SIZE, self.limits.head as u32),
        ];
        frame::settings(&mut self.writer.out, &parameters);
        self.came.give((window - FIRST_WINDOW) as usize);
        self.open_window();
    }

    /// Takes a frame in; a request, if it completes one. The error is the connection's end.
    pub(super) fn take(&mut self, head: Head, payload: &[u8]) -> Result<Option<Request>, Code> {
        // RFC 9113 §3.4 and §6.10
        let is_expected = match &self.block {
            Some(block) => head.kind == kind::CONTINUATION && head.stream == block.stream,
            None => self.has_settings || head.kind == kind::SETTINGS,
        };
        if !is_expected {
            return Err(Code::PROTOCOL_ERROR);
        }
        match head.kind {
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE if self.is_behind_end(head) => {
                self.pass_over(head)?;
            }
            kind::DATA => self.take_data(head, payload)?,
            kind::HEADERS => return self.take_headers(head, payload),
            kind::CONTINUATION => return self.take_continuation(head, payload),
            kind::PRIORITY => self.take_priority(head, payload)?,
            kind::RST_STREAM => self.take_reset(head, payload)?,
            kind::SETTINGS => self.take_settings(head, payload)?,
            kind::PUSH_PROMISE => return Err(Code::PROTOCOL_ERROR),
            kind::PING => self.take_ping(head, payload)?,
            kind::GOAWAY if head.stream != 0 => return Err(Code::PROTOCOL_ERROR),
            kind::GOAWAY if payload.len() < 8 => return Err(Code::FRAME_SIZE_ERROR),
            kind::GOAWAY => self.announce_goodbye(),
            kind::WINDOW_UPDATE => self.take_window_update(head, payload)?,
            // RFC 9113 §5.5
            _ => {}
        }
        Ok(None)
    }

    /// RFC 9113 §6.8: whether it is about a stream that the client knows is not answered.
    fn is_behind_end(&self, head: Head) -> bool {
        self.goodbye == Goodbye::Said && head.stream > self.last
    }

    fn pass_over(&mut self, head: Head) -> Result<(), Code> {
        if head.kind == kind::DATA {
            if !self.came.take(head.length) {
                return Err(Code::FLOW_CONTROL_ERROR);
            }
            self.give_back(head.length);
        }
        Ok(())
    }

    /// RFC 9113 §6.3: it means nothing any more, but has to be sound.
    fn take_priority(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        let priority = payload.try_into().map_err(|_| Code::FRAME_SIZE_ERROR)?;
        if head.stream == 0 {
            return Err(Code::PROTOCOL_ERROR);
        }
        if dependency(priority) != head.stream {
            return Ok(());
        }
        // RFC 7540 §5.3.1
        let id = self.begun(head.stream)?;
        self.fail(id, Code::PROTOCOL_ERROR)
    }

    /// RFC 9113 §6.4
    fn take_reset(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        if payload.len() != 4 {
            return Err(Code::FRAME_SIZE_ERROR);
        }
        let id = self.begun(head.stream)?;
        self.cut(id, By::Client);
        Ok(())
    }

    /// RFC 9113 §6.5
    fn take_settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        let is_ack = head.has(flag::ACK);
        if head.stream != 0 {
            return Err(Code::PROTOCOL_ERROR);
        }
        if !payload.len().is_multiple_of(6) || (is_ack && !payload.is_empty()) {
            return Err(Code::FRAME_SIZE_ERROR);
        }
        self.has_settings = true;
        if is_ack {
            return Ok(());
        }
        // However many parameters there are, the streams are looked through once.
        let mut first_window = self.first_window;
        for parameter in payload.chunks_exact(6) {
            let &[a, b, c, d, e, f] = parameter else { continue };
            match (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])) {
                (setting::INITIAL_WINDOW_SIZE, value) if i64::from(value) > MOST_WINDOW => {
                    return Err(Code::FLOW_CONTROL_ERROR);
                }
                (setting::INITIAL_WINDOW_SIZE, value) => first_window = value.into(),
                (id, value) => self.take_setting(id, value)?,
            }
        }
        if first_window != self.first_window {
            self.move_windows(first_window)?;
        }
        frame::write(&mut self.writer.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn take_setting(&mut self, id: u16, value: u32) -> Result<(), Code> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
            setting::ENABLE_PUSH if value > 1 => return Err(Code::PROTOCOL_ERROR),
            // More than the least is never sent.
            setting::MAX_FRAME_SIZE if !FRAME_SIZES.contains(&value) => {
                return Err(Code::PROTOCOL_ERROR);
            }
            // RFC 9113 §6.5.2: others are not for us, or not known.
            _ => {}
        }
        Ok(())
    }

    /// RFC 9113 §6.9.2
    fn move_windows(&mut self, first: i64) -> Result<(), Code> {
        let by = first - std::mem::replace(&mut self.first_window, first);
        for stream in self.streams.iter_mut() {
            stream.window += by;
            if stream.window > MOST_WINDOW {
                return Err(Code::FLOW_CONTROL_ERROR);
            }
            enqueue(&mut self.queue, stream);
        }
        Ok(())
    }

    /// RFC 9113 §6.7
    fn take_ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        if head.stream != 0 {
            return Err(Code::PROTOCOL_ERROR);
        }
        if payload.len() != 8 {
            return Err(Code::FRAME_SIZE_ERROR);
        }
        if !head.has(flag::ACK) {
            frame::write(&mut self.writer.out, kind::PING, flag::ACK, 0, payload);
        } else if payload == GOODBYE && self.goodbye == Goodbye::Announced {
            self.say_goodbye(Code::NO_ERROR);
        }
        Ok(())
    }

    /// RFC 9113 §6.9
    fn take_window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        let bytes = payload.try_into().map_err(|_| Code::FRAME_SIZE_ERROR)?;
        let more = i64::from(frame::number(bytes));
        if more == 0 {
            return Err(Code::PROTOCOL_ERROR);
        }
        if head.stream == 0 {
            self.window += more;
            let is_sound = self.window <= MOST_WINDOW;
            return if is_sound { Ok(()) } else { Err(Code::FLOW_CONTROL_ERROR) };
        }
        let id = self.begun(head.stream)?;
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        if stream.reset.is_some() {
            return Ok(());
        }
        stream.window += more;
        if stream.window > MOST_WINDOW {
            return self.fail(id, Code::FLOW_CONTROL_ERROR);
        }
        enqueue(&mut self.queue, stream);
        Ok(())
    }

    /// The stream, if the client has begun it; to say something of another is an error
    /// (RFC 9113 §5.1).
    pub(super) fn begun(&self, id: u32) -> Result<u32, Code> {
        let is_begun = id % 2 == 1 && id <= self.last;
        if is_begun { Ok(id) } else { Err(Code::PROTOCOL_ERROR) }
    }

    // -- the end

    /// Tells the client that there is an end, without losing what it has sent meanwhile: the
    /// last stream is named when it has heard of it.
    pub(super) fn announce_goodbye(&mut self) {
        if self.goodbye == Goodbye::Unsaid {
            self.goodbye = Goodbye::Announced;
            frame::goaway(&mut self.writer.out, u32::MAX >> 1, Code::NO_ERROR);
            frame::write(&mut self.writer.out, kind::PING, 0, 0, &GOODBYE);
        }
    }

    pub(super) fn say_goodbye(&mut self, code: Code) {
        self.goodbye = Goodbye::Said;
        frame::goaway(&mut self.writer.out, self.last, code);
    }

    /// How much of a response's body is on its way.
    pub(super) fn bytes_sent(&mut self, id: u32) -> u64 {
        self.streams.get(id).map_or(0, |stream| stream.sent)
    }
}

/// Lets a stream have its turn, if it has something to send and its window allows that.
pub(super) fn enqueue(queue: &mut VecDeque<u32>, stream: &mut Stream) {
    let may_send = stream.window > 0 || stream.outbox.bytes.is_empty();
    if may_send && !stream.is_queued && !stream.outbox.is_empty() {
        stream.is_queued = true;
        queue.push_back(stream.id);
    }
}

/// On which stream another depends (RFC 7540 §6.3).
pub(super) fn dependency(priority: &[u8; 5]) -> u32 {
    let [a, b, c, d, _] = *priority;
    frame::number([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::writer::WriteHalf;

    const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

    fn connection() -> Connection {
        let settings = Settings { head_timeout: Duration::MAX, ..Settings::default() };
        let mut connection =
            Connection::new(Writer::new(WriteHalf::Closed, 1 << 15), &settings, LIMITS);
        let head = Head { length: 0, kind: kind::SETTINGS, flags: 0, stream: 0 };
        assert!(connection.take(head, &[]).is_ok());
        connection.writer.out.clear();
        connection
    }

    fn take(
        connection: &mut Connection,
        (kind, flags, stream): (u8, u8, u32),
        payload: &[u8],
    ) -> Result<Option<Request>, Code> {
        connection.take(Head { length: payload.len(), kind, flags, stream }, payload)
    }

    /// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: a`
    const GET: &[u8] = &[0x82, 0x86, 0x84, 1, 1, b'a'];
    const POST: &[u8] = &[0x83, 0x86, 0x84, 1, 1, b'a'];

    #[test]
    fn a_stream_that_is_over_leaves_nothing() {
        let mut connection = connection();
        for id in (1..10_000).step_by(2) {
            let request = take(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().unwrap();
            assert!(request.asked.is_ok() && request.pipe.is_none());
            connection.send_fields(id, false, |_, _| {}).unwrap();
            connection.send(id, "ok".into(), true).unwrap();
            connection.release(id);
            assert_eq!(connection.streams.len(), 0);
            connection.has_sent(connection.writer.waiting());
            connection.writer.out.clear();
        }
        assert!(connection.unsent.is_empty() && connection.was_reset.is_empty());
    }

    /// RFC 9113 §5.1.2: what the client cannot have seen the end of is still open to it.
    #[test]
    fn a_response_that_was_not_sent_counts_as_a_stream() {
        let mut connection = connection();
        for id in (1..).step_by(2).take(128) {
            assert!(take(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().is_some());
            connection.send_fields(id, true, |_, _| {}).unwrap();
            connection.release(id);
        }
        assert!(take(&mut connection, (kind::HEADERS, 5, 257), GET).unwrap().is_none());
        // The settings' acknowledgement and the first response.
        connection.has_sent(9);
        assert!(take(&mut connection, (kind::HEADERS, 5, 259), GET).unwrap().is_some());
    }

    #[test]
    fn what_the_client_takes_back_does_not_count() {
        let mut connection = connection();
        for id in (1..2_000).step_by(2) {
            assert!(take(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().is_some());
            take(&mut connection, (kind::RST_STREAM, 0, id), &[0, 0, 0, 8]).unwrap();
            connection.release(id);
        }
        assert!(connection.unsent.is_empty() && connection.writer.out.is_empty());
    }

    #[test]
    fn what_was_not_read_is_given_back_to_the_connection() {
        let mut connection = connection();
        for id in (1..1_000).step_by(2) {
            take(&mut connection, (kind::HEADERS, 4, id), POST)
                .unwrap()
                .unwrap()
                .pipe
                .unwrap()
                .leave();
            take(&mut connection, (kind::DATA, 1, id), &[0; 10_000]).unwrap();
            connection.send_fields(id, true, |_, _| {}).unwrap();
            connection.release(id);
            assert_eq!(connection.streams.len(), 0);
            connection.has_sent(connection.writer.waiting());
            connection.writer.out.clear();
        }
    }

    /// Who has nothing to send but the end waits for no window, whoever else does.
    #[test]
    fn an_end_needs_no_window() {
        let mut connection = connection();
        let wide = [0, 4, 0, 3, 13, 0x40];
        take(&mut connection, (kind::SETTINGS, 0, 0), &wide).unwrap();
        for id in [1, 3, 5] {
            take(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().unwrap();
            connection.send_fields(id, false, |_, _| {}).unwrap();
        }
        for id in [1, 3] {
            connection.send(id, vec![b'x'; 100_000].into(), true).unwrap();
        }
        let send_all = |connection: &mut Connection| {
            while connection.has_more() {
                connection.has_sent(connection.writer.waiting());
                connection.writer.out.clear();
                connection.pump();
            }
        };
        send_all(&mut connection);
        assert_eq!((connection.window, connection.queue.len()), (0, 2));
        connection.send(5, Default::default(), true).unwrap();
        send_all(&mut connection);
        assert!(!connection.streams.get(5).unwrap().is_outgoing);
        assert_eq!(connection.queue.len(), 2);
    }

    /// Whatever comes, it is taken or refused, and what is kept stays bounded.
    #[test]
    fn frames_at_random() {
        let mut number = 1u64;
        let mut next = move |most: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) % most
        };
        let (mut whole, mut broken) = (0, 0);
        for _ in 0..3_000 {
            let mut connection = connection();
            // The next stream, and where a body may come.
            let (mut begun, mut open) = (1, Vec::new());
            for _ in 0..100 {
                let old = 1 + 2 * next(u64::from(begun / 2).max(1)) as u32;
                let kind = if open.is_empty() { 2 } else { next(7) };
                let ((mut kind, mut flags, mut stream), mut payload) = match kind {
                    0 => {
                        let place = next(open.len() as u64) as usize;
                        let ends = next(2) as u8;
                        let stream = if ends == 1 { open.remove(place) } else { open[place] };
                        ((0, ends, stream), vec![b'x'; next(2_000) as usize])
                    }
                    1 => ((1, 5, begun), GET.to_vec()),
                    2 => {
                        open.push(begun);
                        ((1, 4, begun), POST.to_vec())
                    }
                    3 => ((3, 0, old), vec![0, 0, 0, 8]),
                    4 => ((4, 0, 0), vec![0, 4, 0, 0, next(256) as u8, 1]),
                    5 => ((8, 0, 0), vec![0, 0, next(256) as u8, 1]),
                    _ => ((8, 0, old), vec![0, 0, next(256) as u8, 1]),
                };
                match next(200) {
                    0 => kind = next(11) as u8,
                    1 => flags = next(64) as u8,
                    2 => stream = next(100) as u32,
                    3 => payload.truncate(next(4) as usize),
                    4 => payload.extend((0..next(9)).map(|_| next(256) as u8).collect::<Vec<_>>()),
                    _ => {}
                }
                match take(&mut connection, (kind, flags, stream), &payload) {
                    Err(_) => {
                        broken += 1;
                        break;
                    }
                    Ok(None) => {}
                    Ok(Some(request)) => {
                        whole += 1;
                        begun = request.stream + 2;
                        let pipe = request.pipe;
                        if next(4) > 0 {
                            let _ = connection.send_fields(request.stream, false, |_, _| {});
                            let body = vec![b'x'; next(100_000) as usize];
                            let _ = connection.send(request.stream, body.into(), true);
                            if let Some(pipe) = pipe {
                                pipe.leave();
                            }
                            connection.release(request.stream);
                        }
                    }
                }
                connection.pump();
                if next(2) == 0 {
                    connection.has_sent(connection.writer.waiting());
                    connection.writer.out.clear();
                }
                assert!(connection.streams.len() <= 128);
                assert!(connection.queue.len() <= 128 && connection.was_reset.len() <= 512);
            }
            connection.cut_all();
        }
        assert!(whole > 9_000 && broken > 1_000, "{whole} requests, {broken} connections broken");
    }
}
