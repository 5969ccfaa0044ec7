//! The input that a request leaves behind, and the end of a connection.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Buf;

use crate::app::Application;
use crate::error::{Error, Result};
use crate::server::h1::loan::BodyEvent;
use crate::server::h1::{ActiveConnection, Input, NextState};
use crate::server::linger;
use weft_proto::http1::chunked::{BodyDecoder, Step};

impl<A: Application> ActiveConnection<'_, A> {
    /// Whether the rest of this request's input is small enough to be discarded.
    pub(super) fn input_is_bounded(&self) -> bool {
        match &self.input {
            Input::Clear | Input::Lent(_) => true,
            Input::Unread(body) => {
                body.remaining().is_none_or(|length| length <= self.worker.settings.max_drain_bytes)
            }
            Input::Unusable => false,
        }
    }

    /// Discards the rest of this request's input.
    pub(super) async fn clear_input(&mut self) -> NextState {
        // The client may wait for the response before it sends the rest.
        if self.flush_output().await.is_err() {
            return NextState::Close;
        }
        self.conn.deadline.set(self.worker.settings.stall_timeout);
        if !self.reader_returned().await {
            return NextState::Close;
        }
        if let Input::Unread(body) = self.input
            && self.drain(body).await.is_err()
        {
            self.input = Input::Unusable;
        }
        self.conn.deadline.clear();
        if let Input::Clear = self.input { NextState::Idle } else { NextState::Linger }
    }

    /// Reads and discards the rest of a body.
    async fn drain(&mut self, mut body: BodyDecoder) -> Result<()> {
        let limits = self.worker.trailer_limits;
        let mut allowed = self.worker.settings.max_drain_bytes as usize;
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

    /// The way to close after a response: at once, if the peer has nothing in flight.
    pub(super) fn closing(&mut self, client_closes: bool) -> NextState {
        self.take_back_returned();
        let drained = self.conn.reader.as_ref().is_some_and(|reader| reader.buffer.is_empty());
        let clear = drained && matches!(self.input, Input::Clear);
        if client_closes && clear { NextState::Close } else { NextState::Linger }
    }

    /// Takes the reader back, if the body has returned it.
    pub(super) fn take_back_returned(&mut self) {
        if let Input::Lent(loan) = &self.input
            && let Some(returned) = loan.take_returned()
        {
            self.take_back(returned);
        }
    }

    /// Waits for the reader to be returned; `false` if the deadline is over before.
    async fn reader_returned(&mut self) -> bool {
        poll_fn(|cx| {
            while let Input::Lent(loan) = &self.input {
                match loan.poll_event(cx) {
                    Poll::Ready(BodyEvent::Returned(returned)) => self.take_back(returned),
                    // A 100 is of no use after the response.
                    Poll::Ready(BodyEvent::WantsContinue) => {}
                    Poll::Pending => return self.conn.deadline.poll_expired(cx).map(|()| false),
                }
            }
            Poll::Ready(true)
        })
        .await
    }

    /// Closes after the last response has been received, or `linger_timeout` is over.
    pub(super) async fn linger(&mut self) {
        self.conn.deadline.set(self.worker.settings.linger_timeout);
        if linger::shut_down(&mut self.conn.writer, &self.conn.deadline).await
            && self.reader_returned().await
            && let Some(reader) = &mut self.conn.reader
        {
            linger::discard(reader, &self.conn.deadline).await;
        }
    }
}
