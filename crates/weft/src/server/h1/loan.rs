//! The loan of a connection's reader to the body of a request.
//!
//! The connection lends its reader to the body, which may be polled in another thread. The body
//! returns it when it ends or is dropped, unless the connection has ended before.

use std::task::{Context, Poll, Waker};

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state that a connection and a body share while the body has the reader. `T` is the reader
/// as it is returned.
pub(super) struct Loan<T>(Mutex<LoanState<T>>);

struct LoanState<T> {
    returned: Option<T>,
    wants_continue: bool,
    /// Set when the connection has ended: no more data can be read.
    is_revoked: bool,
    /// The task of the connection.
    connection: Option<Waker>,
    /// The task that reads the body.
    body: Option<Waker>,
}

/// A notification from the body to its connection.
pub(super) enum BodyEvent<T> {
    WantsContinue,
    ReaderReturned(T),
}

impl<T> Loan<T> {
    pub(super) fn new() -> Arc<Loan<T>> {
        Arc::new(Loan(Mutex::new(LoanState {
            returned: None,
            wants_continue: false,
            is_revoked: false,
            connection: None,
            body: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, LoanState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // -- connection side

    /// Polls for the next event; registers the task of the connection.
    pub(super) fn poll_event(&self, cx: &Context<'_>) -> Poll<BodyEvent<T>> {
        let mut state = self.state();
        if std::mem::take(&mut state.wants_continue) {
            return Poll::Ready(BodyEvent::WantsContinue);
        }
        if let Some(returned) = state.returned.take() {
            return Poll::Ready(BodyEvent::ReaderReturned(returned));
        }
        state.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Takes the reader, if it was returned.
    pub(super) fn take_returned(&self) -> Option<T> {
        self.state().returned.take()
    }

    /// Ends the loan because the connection has ended. Further reads of the body fail.
    pub(super) fn revoke(&self) {
        let mut state = self.state();
        state.is_revoked = true;
        let body = state.body.take();
        drop(state);
        if let Some(body) = body {
            body.wake();
        }
    }

    // -- body side

    /// Requests a 100 response from the connection.
    pub(super) fn request_continue(&self) {
        self.notify(|state| state.wants_continue = true);
    }

    /// Returns the reader.
    pub(super) fn give_back(&self, returned: T) {
        self.notify(|state| state.returned = Some(returned));
    }

    /// Returns true if the connection has ended.
    pub(super) fn is_revoked(&self) -> bool {
        self.state().is_revoked
    }

    /// Ready when the connection has ended; registers the task of the body.
    pub(super) fn poll_revoked(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_revoked {
            return Poll::Ready(());
        }
        state.body = Some(cx.waker().clone());
        Poll::Pending
    }

    fn notify(&self, change: impl FnOnce(&mut LoanState<T>)) {
        let mut state = self.state();
        change(&mut state);
        let connection = state.connection.take();
        drop(state);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}
