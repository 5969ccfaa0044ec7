//! The end of streams, and what the client gets back for what they brought.

use std::task::Context;

use crate::proto::http2::frame::{self, Code};
use crate::server::h2::connection::Connection;
use crate::server::h2::pipe::End;
use crate::server::h2::streams::{By, Outbox};

/// So many streams may be reset because of errors of the client, in the whole life of a
/// connection, until it is taken for an attack.
const MOST_ERRORS: usize = 1_000;

/// So many streams are remembered after they were reset by us. What comes on one that is
/// forgotten is an error.
const MOST_REMEMBERED: usize = 512;

impl Connection {
    /// Resets a stream because of an error of the client's.
    pub(super) fn fail(&mut self, id: u32, code: Code) -> Result<(), Code> {
        self.cut(id, By::Us);
        self.refuse(id, code)
    }

    /// Resets a stream that is none of ours.
    pub(super) fn refuse(&mut self, id: u32, code: Code) -> Result<(), Code> {
        self.say_reset(id, code);
        self.faults += 1;
        if self.faults > MOST_ERRORS { Err(Code::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    /// Resets a stream that is one too many. That may be no fault of the client's, for what it
    /// has reset itself may still count here; but then others of its requests are taken.
    pub(super) fn turn_away(&mut self, id: u32) -> Result<(), Code> {
        self.say_reset(id, Code::REFUSED_STREAM);
        self.turned_away += 1;
        if self.turned_away > MOST_ERRORS { Err(Code::ENHANCE_YOUR_CALM) } else { Ok(()) }
    }

    fn say_reset(&mut self, id: u32, code: Code) {
        frame::reset(&mut self.writer.out, id, code);
        if self.was_reset.len() == MOST_REMEMBERED {
            self.was_reset.pop_front();
        }
        self.was_reset.push_back(id);
    }

    /// Gives up a response that cannot be completed, so that the client can tell.
    pub(super) fn abandon(&mut self, id: u32, code: Code) {
        if self.streams.get(id).is_some_and(|stream| stream.reset.is_none()) {
            self.cut(id, By::Us);
            self.say_reset(id, code);
        }
    }

    /// Nothing is sent or taken on a stream any more.
    pub(super) fn cut(&mut self, id: u32, by: By) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.reset.get_or_insert(by);
        stream.outbox = Outbox::default();
        stream.is_incoming = false;
        stream.is_outgoing = false;
        let mut unread = 0;
        if let Some(pipe) = &stream.pipe {
            unread = pipe.clear();
            pipe.end(End::Cut);
        }
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
        self.is_stirred = true;
        self.give_back(unread);
        self.settle(id);
    }

    /// The connection is over: so are all streams.
    pub(super) fn cut_all(&mut self) {
        let all: Vec<u32> = self.streams.iter_mut().map(|stream| stream.id).collect();
        all.into_iter().for_each(|id| self.cut(id, By::Client));
    }

    /// The exchange is over.
    pub(super) fn release(&mut self, id: u32) {
        if let Some(stream) = self.streams.get(id) {
            stream.is_held = false;
            self.settle(id);
        }
    }

    /// Forgets a stream, if nothing is left to be done for it.
    pub(super) fn settle(&mut self, id: u32) {
        let Some(place) = self.streams.place(id) else { return };
        let stream = self.streams.at(place);
        let waits_for_tunnel = stream.is_tunnel && stream.is_outgoing;
        if stream.is_held || waits_for_tunnel || !stream.outbox.is_empty() {
            return;
        }
        if stream.pipe.as_ref().is_some_and(|pipe| !pipe.is_over()) {
            return;
        }
        let mut stream = self.streams.remove(place);
        if stream.is_queued {
            self.queue.retain(|queued| *queued != id);
        }
        if stream.reset != Some(By::Client) && self.writer.waiting() > 0 {
            self.unsent.push_back(self.sent + self.writer.waiting() as u64);
        }
        if let Some(pipe) = stream.pipe.take() {
            pipe.end(End::Cut);
            self.give_back(pipe.clear());
        }
        if stream.is_outgoing {
            self.say_reset(id, Code::CANCEL);
        } else if stream.is_incoming {
            // RFC 9113 §8.1: the response is whole, the rest of the request not wanted.
            self.say_reset(id, Code::NO_ERROR);
        }
    }

    /// Whether an application has something of a stream whose exchange is over: a tunnel, or a
    /// body.
    pub(super) fn is_held_elsewhere(&mut self) -> bool {
        let mut pipes = self.streams.iter_mut().filter_map(|stream| stream.pipe.as_ref());
        pipes.any(|pipe| !pipe.is_left() && !pipe.is_read())
    }

    // -- windows for what comes

    /// So much of a stream was passed over, and more of it is wanted now.
    pub(super) fn open_again(&mut self, id: u32, bytes: usize) {
        if let Some(stream) = self.streams.get(id) {
            stream.came.give(bytes);
            self.open_window_of(id);
        }
    }

    /// So much of what came on any stream was taken in.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.came.give(bytes);
        self.open_window();
    }

    pub(super) fn open_window(&mut self) {
        if let Some(more) = self.came.due() {
            frame::window_update(&mut self.writer.out, 0, more);
        }
    }

    pub(super) fn open_window_of(&mut self, id: u32) {
        if let Some(stream) = self.streams.get(id)
            && stream.is_incoming
            && let Some(more) = stream.came.due()
        {
            frame::window_update(&mut self.writer.out, id, more);
        }
    }

    /// Sees to the streams whose application has read, or has something to send.
    pub(super) fn answer_bell(&mut self, cx: &Context<'_>) {
        let Some(bell) = &self.bell else { return };
        for id in bell.answer(cx) {
            self.see_to(id);
        }
    }

    fn see_to(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let Some(pipe) = &stream.pipe else { return };
        let read = pipe.take_read();
        stream.came.give(read);
        self.give_back(read);
        self.open_window_of(id);
        self.fetch(id);
        self.settle(id);
    }

    /// So many bytes were sent: those streams whose end they were are over for the client, too.
    pub(super) fn has_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        while self.unsent.front().is_some_and(|end| *end <= self.sent) {
            self.unsent.pop_front();
        }
    }
}
