//! Close of a connection after a response.

use crate::app::Application;
use crate::server::h1::{ActiveConnection, Input, NextState, Persistence};
use crate::server::linger;

impl<A: Application> ActiveConnection<'_, A> {
    /// Returns the state for closing after a response: immediately, if the peer has nothing in
    /// flight, otherwise with a lingering close.
    pub(super) fn closing_state(&mut self) -> NextState {
        self.restore_returned_reader();
        let is_empty = self.conn.reader.as_ref().is_some_and(|reader| reader.buffer.is_empty());
        let is_clear = is_empty && matches!(self.input, Input::Clear);
        let client_closes = self.exchange.persistence == Persistence::ClientCloses;
        if client_closes && is_clear { NextState::Close } else { NextState::Linger }
    }

    /// Shuts down the sending direction and discards input until the peer closes, or until
    /// `linger_timeout` expires.
    pub(super) async fn linger(&mut self) {
        self.conn.deadline.set(self.worker.settings.linger_timeout);
        if linger::shut_down(&mut self.conn.writer, &self.conn.deadline).await
            && self.await_reader().await
            && let Some(reader) = &mut self.conn.reader
        {
            linger::discard(reader, &self.conn.deadline).await;
        }
    }
}
