//! Requests and their bodies, as they come.

use crate::error::Error;
use crate::proto::http2::frame::{Code, Head, flag};
use crate::proto::http2::hpack::Failure;
use crate::server::h2::connection::{Block, Connection, Goodbye, Request, dependency};
use crate::server::h2::pipe::{End, Pipe, Pushed};
use crate::server::h2::request::{Asked, Fault};
use crate::server::h2::streams::{By, Outbox, Stream, Window};

/// In so many pieces a head may come, besides the first.
const MOST_CONTINUATIONS: usize = 5;

/// What becomes of data.
enum Verdict {
    Taken,
    /// We have reset the stream, and the client had not heard of it.
    Late,
    Failed(Code),
}

impl Connection {
    /// RFC 9113 §6.1
    pub(super) fn take_data(&mut self, head: Head, payload: &[u8]) -> Result<(), Code> {
        let id = self.begun(head.stream)?;
        let data = head.unpadded(payload).ok_or(Code::PROTOCOL_ERROR)?;
        if !self.came.take(payload.len()) {
            return Err(Code::FLOW_CONTROL_ERROR);
        }
        match self.judge_data(id, head, data.len())? {
            Verdict::Taken => self.deliver(id, head, data),
            Verdict::Late => {
                self.give_back(payload.len());
                Ok(())
            }
            Verdict::Failed(code) => {
                self.give_back(payload.len());
                self.fail(id, code)
            }
        }
    }

    fn judge_data(&mut self, id: u32, head: Head, length: usize) -> Result<Verdict, Code> {
        let Some(stream) = self.streams.get(id) else {
            let is_late = self.was_reset.contains(&id);
            return Ok(if is_late { Verdict::Late } else { Verdict::Failed(Code::STREAM_CLOSED) });
        };
        match stream.reset {
            Some(By::Us) => return Ok(Verdict::Late),
            Some(By::Client) => return Ok(Verdict::Failed(Code::STREAM_CLOSED)),
            None if !stream.is_incoming => return Err(Code::STREAM_CLOSED),
            None => {}
        }
        if !stream.came.take(head.length) {
            return Ok(Verdict::Failed(Code::FLOW_CONTROL_ERROR));
        }
        if let Some(left) = &mut stream.left {
            // RFC 9113 §8.1.1
            match left.checked_sub(length as u64) {
                Some(0) => *left = 0,
                Some(rest) if !head.has(flag::END_STREAM) => *left = rest,
                _ => return Ok(Verdict::Failed(Code::PROTOCOL_ERROR)),
            }
        }
        Ok(Verdict::Taken)
    }

    /// Hands data on to who reads it. What nobody will read is taken in at once, as padding is.
    fn deliver(&mut self, id: u32, head: Head, data: &[u8]) -> Result<(), Code> {
        let ends = head.has(flag::END_STREAM);
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        let (mut taken, mut passed_over) = (head.length, 0);
        if let Some(pipe) = &stream.pipe {
            taken -= data.len();
            if !data.is_empty() || !ends {
                match pipe.push(data) {
                    Pushed::Kept => {}
                    // Other streams are not to suffer from it; the window of its own stays shut.
                    Pushed::PassedOver => passed_over = data.len(),
                    Pushed::TooTiny => return Err(Code::ENHANCE_YOUR_CALM),
                }
            }
        }
        stream.came.give(taken);
        self.give_back(taken + passed_over);
        if ends {
            self.end(id, End::Whole(None));
        } else {
            self.open_window_of(id);
        }
        Ok(())
    }

    /// The client has said all that it will.
    fn end(&mut self, id: u32, end: End) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.is_incoming = false;
        if let Some(pipe) = &stream.pipe {
            pipe.end(end);
        }
        self.settle(id);
    }

    /// RFC 9113 §6.2
    pub(super) fn take_headers(
        &mut self,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Request>, Code> {
        if head.stream.is_multiple_of(2) {
            return Err(Code::PROTOCOL_ERROR);
        }
        let mut block = head.unpadded(payload).ok_or(Code::PROTOCOL_ERROR)?;
        let mut depends_on_itself = false;
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(Code::FRAME_SIZE_ERROR)?;
            depends_on_itself = dependency(priority) == head.stream;
            block = rest;
        }
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.take_block(head.stream, ends, depends_on_itself, block);
        }
        let (stream, bytes) = (head.stream, block.to_vec());
        self.block = Some(Block { stream, ends, depends_on_itself, bytes, pieces: 0 });
        Ok(None)
    }

    /// RFC 9113 §6.10
    pub(super) fn take_continuation(
        &mut self,
        head: Head,
        payload: &[u8],
    ) -> Result<Option<Request>, Code> {
        let Some(mut block) = self.block.take() else { return Err(Code::PROTOCOL_ERROR) };
        block.pieces += 1;
        block.bytes.extend_from_slice(payload);
        if block.pieces > MOST_CONTINUATIONS {
            return Err(Code::ENHANCE_YOUR_CALM);
        }
        if head.has(flag::END_HEADERS) {
            return self.take_block(
                block.stream,
                block.ends,
                block.depends_on_itself,
                &block.bytes,
            );
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Takes a whole block of fields. Whatever becomes of it, it is read, for what the client
    /// says later may hang on it (RFC 9113 §4.3).
    fn take_block(
        &mut self,
        id: u32,
        ends: bool,
        depends_on_itself: bool,
        block: &[u8],
    ) -> Result<Option<Request>, Code> {
        let place = self.streams.place(id);
        self.fieldset.clear(place.is_some());
        let Connection { fieldset, limits, decoder, .. } = self;
        match decoder.decode(block, |field| fieldset.take(field, limits)) {
            Ok(()) => {}
            Err(Failure::Malformed) => return Err(Code::COMPRESSION_ERROR),
            Err(Failure::Stopped) => return Err(Code::ENHANCE_YOUR_CALM),
        }
        if let Some(place) = place {
            return self.take_trailers(place, ends).map(|()| None);
        }
        if id <= self.last {
            let is_late = self.was_reset.contains(&id);
            return if is_late { Ok(None) } else { Err(Code::STREAM_CLOSED) };
        }
        if self.goodbye == Goodbye::Said {
            // RFC 9113 §6.8: the client knows that it is not answered.
            return Ok(None);
        }
        self.last = id;
        let asked = match self.fieldset.request(ends) {
            Err(Fault::Connection(code)) => return Err(code),
            Err(Fault::Stream(code)) => return self.refuse(id, code).map(|()| None),
            _ if depends_on_itself => {
                return self.refuse(id, Code::PROTOCOL_ERROR).map(|()| None);
            }
            _ if self.streams.len() + self.unsent.len() >= self.most_streams => {
                return self.turn_away(id).map(|()| None);
            }
            Err(Fault::Refused(error)) => Err(error),
            Ok(asked) => Ok(asked),
        };
        Ok(Some(self.begin(id, asked, ends)))
    }

    fn begin(&mut self, id: u32, asked: Result<Asked, Error>, ends: bool) -> Request {
        self.turned_away = self.turned_away.saturating_sub(1);
        let (is_tunnel, left) = match &asked {
            // What comes through a tunnel is no body.
            Ok(asked) => (asked.is_tunnel, asked.length.filter(|_| !asked.is_tunnel)),
            Err(_) => (false, None),
        };
        let pipe = (asked.is_ok() && (!ends || is_tunnel)).then(|| {
            let pipe = Pipe::new(id, self.bell.get_or_insert_default().clone());
            if ends {
                pipe.end(End::Whole(None));
            }
            pipe
        });
        // The bell wakes only who has listened to it since it is there.
        self.is_stirred |= pipe.is_some();
        self.streams.push(Stream {
            id,
            is_held: true,
            is_incoming: !ends,
            is_outgoing: true,
            reset: None,
            is_tunnel: false,
            left,
            came: Window::new(self.first_came),
            pipe: pipe.clone(),
            window: self.first_window,
            outbox: Outbox::default(),
            is_queued: false,
            sent: 0,
            waker: None,
        });
        Request { stream: id, asked, pipe }
    }

    /// RFC 9113 §8.1: they end the stream.
    fn take_trailers(&mut self, place: usize, ends: bool) -> Result<(), Code> {
        let stream = self.streams.at(place);
        let id = stream.id;
        match stream.reset {
            Some(By::Us) => return Ok(()),
            Some(By::Client) => return Err(Code::STREAM_CLOSED),
            None if !stream.is_incoming => return Err(Code::STREAM_CLOSED),
            None => {}
        }
        let is_whole = ends && stream.left.is_none_or(|left| left == 0);
        match self.fieldset.trailers() {
            Err(Fault::Connection(code)) => Err(code),
            Ok(trailers) if is_whole => {
                let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                self.end(id, End::Whole(trailers));
                Ok(())
            }
            _ => self.fail(id, Code::PROTOCOL_ERROR),
        }
    }
}
