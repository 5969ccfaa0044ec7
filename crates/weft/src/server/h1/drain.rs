//! What is left in the input of a request, and the end of a connection.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Buf;

use crate::app::Application;
use crate::error::{Error, Result};
use crate::proto::http1::chunked::{Decoder, Step};
use crate::server::h1::incoming::News;
use crate::server::h1::{Busy, Fate, Input};

impl<A: Application> Busy<'_, A> {
    /// Whether what is left in the input of this request can be got out of the way.
    pub(super) fn input_is_bounded(&self) -> bool {
        match &self.input {
            Input::Clear | Input::Lent(_) => true,
            Input::Unread(body) => {
                body.length().is_none_or(|length| length <= self.worker.settings.max_drain_bytes)
            }
            Input::Spoiled => false,
        }
    }

    /// Gets what is left in the input of this request out of the way.
    pub(super) async fn clear_input(&mut self) -> Fate {
        // The client may wait for the response before it sends the rest.
        if self.flush().await.is_err() {
            return Fate::Close;
        }
        self.conn.deadline.set(self.worker.settings.stall_timeout);
        if !self.reader_comes_back().await {
            return Fate::Close;
        }
        if let Input::Unread(body) = self.input
            && self.drain(body).await.is_err()
        {
            self.input = Input::Spoiled;
        }
        self.conn.deadline.clear();
        if let Input::Clear = self.input { Fate::Rest } else { Fate::Linger }
    }

    /// Reads the rest of a body and throws it away.
    async fn drain(&mut self, mut body: Decoder) -> Result<()> {
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

    /// How to close after a response: at once, if the peer has nothing under way.
    pub(super) fn closing(&mut self, client_closes: bool) -> Fate {
        self.look_for_reader();
        let drained = self.conn.reader.as_ref().is_some_and(|reader| reader.buffer.is_empty());
        let clear = drained && matches!(self.input, Input::Clear);
        if client_closes && clear { Fate::Close } else { Fate::Linger }
    }

    /// Takes the reader back, if the body has given it back unseen.
    pub(super) fn look_for_reader(&mut self) {
        if let Input::Lent(loan) = &self.input
            && let Some(returned) = loan.returned()
        {
            self.take_back(returned);
        }
    }

    /// Waits for a body that has the reader, under the deadline that is set.
    async fn reader_comes_back(&mut self) -> bool {
        poll_fn(|cx| {
            while let Input::Lent(loan) = &self.input {
                match loan.poll_news(cx) {
                    Poll::Ready(News::Returned(returned)) => self.take_back(returned),
                    // The response is out: it is too late for a 100.
                    Poll::Ready(News::WantsContinue) => {}
                    Poll::Pending => return self.conn.deadline.poll_over(cx).map(|()| false),
                }
            }
            Poll::Ready(true)
        })
        .await
    }

    /// Reads on for a while after the last response, and throws it away.
    pub(super) async fn linger(&mut self) {
        self.conn.deadline.set(self.worker.settings.linger_timeout);
        let told = poll_fn(|cx| match self.conn.writer.poll_shutdown(cx) {
            Poll::Ready(told) => Poll::Ready(told.is_ok()),
            Poll::Pending => self.conn.deadline.poll_over(cx).map(|()| false),
        });
        if !told.await || !self.reader_comes_back().await {
            return;
        }
        loop {
            self.reader().buffer.clear();
            match self.fill().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}
