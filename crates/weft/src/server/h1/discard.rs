//! Discard of unread input after a response.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Buf;

use crate::app::Application;
use crate::error::{Error, Result};
use crate::server::h1::loan::BodyEvent;
use crate::server::h1::{ActiveConnection, Input, NextState};
use weft_proto::http1::chunked::{BodyDecoder, Step};

impl<A: Application> ActiveConnection<'_, A> {
    /// Returns `true` if the rest of the request's input is small enough to be discarded.
    pub(super) fn input_is_bounded(&self) -> bool {
        match &self.input {
            Input::Clear | Input::Lent(_) => true,
            Input::Unread(body) => body
                .remaining()
                .is_none_or(|length| length <= self.worker.settings.max_discarded_bytes),
            Input::Unusable => false,
        }
    }

    /// Discards the rest of the request's input.
    pub(super) async fn discard_input(&mut self) -> NextState {
        // The client may wait for the response before it sends the rest.
        if self.flush_output().await.is_err() {
            return NextState::Close;
        }
        self.conn.deadline.set(self.worker.settings.stall_timeout);
        if !self.await_reader().await {
            return NextState::Close;
        }
        if let Input::Unread(body) = self.input
            && self.discard_body(body).await.is_err()
        {
            self.input = Input::Unusable;
        }
        self.conn.deadline.clear();
        if let Input::Clear = self.input { NextState::Idle } else { NextState::Linger }
    }

    /// Reads and discards the rest of a body.
    async fn discard_body(&mut self, mut body: BodyDecoder) -> Result<()> {
        let limits = self.worker.trailer_limits;
        let mut allowed = self.worker.settings.max_discarded_bytes as usize;
        loop {
            let used = match body.step(&self.reader().buffer, &limits)? {
                Step::Skip(bytes) | Step::Data(bytes) | Step::Trailers(_, bytes) => bytes,
                Step::Wait if self.fill().await? == 0 => return Err(Error::disconnected()),
                Step::Wait => continue,
                Step::End => break,
            };
            self.reader().buffer.advance(used);
            allowed = allowed.checked_sub(used).ok_or_else(Error::disconnected)?;
        }
        self.input = Input::Clear;
        Ok(())
    }

    /// Restores the reader, if the body has returned it.
    pub(super) fn restore_returned_reader(&mut self) {
        if let Input::Lent(loan) = &self.input
            && let Some(returned) = loan.take_returned()
        {
            self.restore_reader(returned);
        }
    }

    /// Waits until the reader is returned. Returns `false` if the deadline expires before.
    pub(super) async fn await_reader(&mut self) -> bool {
        poll_fn(|cx| {
            while let Input::Lent(loan) = &self.input {
                match loan.poll_event(cx) {
                    Poll::Ready(BodyEvent::ReaderReturned(returned)) => {
                        self.restore_reader(returned)
                    }
                    // A 100 after the response has no effect.
                    Poll::Ready(BodyEvent::WantsContinue) => {}
                    Poll::Pending => return self.conn.deadline.poll_expired(cx).map(|()| false),
                }
            }
            Poll::Ready(true)
        })
        .await
    }
}
