//! The exchanges in progress on a connection, which are polled in its task.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// The futures of exchanges.
pub(in crate::server) struct Exchanges<F> {
    pending: FuturesUnordered<Pin<Box<F>>>,
    /// Allocation of an exchange that completed at its first poll, for reuse by the next one.
    spare: Option<Pin<Box<F>>>,
}

impl<F> Default for Exchanges<F> {
    fn default() -> Exchanges<F> {
        Exchanges { pending: FuturesUnordered::new(), spare: None }
    }
}

impl<F: Future<Output = ()>> Exchanges<F> {
    /// Starts an exchange. Returns true if it completes at once, as most do.
    pub(in crate::server) fn start(&mut self, future: F, cx: &mut Context<'_>) -> bool {
        let mut exchange = match self.spare.take() {
            Some(mut spare) => {
                spare.set(future);
                spare
            }
            None => Box::pin(future),
        };
        let is_done = exchange.as_mut().poll(cx).is_ready();
        if is_done {
            self.spare = Some(exchange);
        } else {
            self.pending.push(exchange);
        }
        is_done
    }

    /// Polls the exchanges that were woken.
    pub(in crate::server) fn poll(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.pending.poll_next_unpin(cx) {}
    }

    pub(in crate::server) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Waits until all exchanges have ended.
    pub(in crate::server) async fn ended(&mut self) {
        while self.pending.next().await.is_some() {}
    }
}
