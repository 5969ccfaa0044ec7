//! Warm connections: idle ones that keep their buffers and their future until the next sweep.
//!
//! A client that sends one request after the other would otherwise make the worker take and return
//! the buffers for each of them. Their number is limited, like that of the buffers in a pool.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::Poll;

use crate::app::Application;
use crate::clock::deadline::Awaited;
use crate::server::h1::ActiveConnection;

/// Maximum number of warm connections of a worker.
const MAX_WARM: usize = 128;

/// The end of a wait with buffers.
pub(super) enum WarmWait {
    /// There is input.
    Input,
    /// The client has closed the connection, or it failed.
    Closed,
    /// The connection has to return its buffers: there was no input until the next sweep, or the
    /// worker examines all connections, or there are too many warm ones.
    Over,
}

impl<A: Application> ActiveConnection<'_, A> {
    /// Waits for another request, with the buffers of the last one. Sets the deadline of an idle
    /// connection.
    pub(super) fn wait_warm(&mut self) -> impl Future<Output = WarmWait> {
        let (conn, worker) = (&mut *self.conn, self.worker);
        conn.deadline.set_awaiting(Awaited::NextRequest, worker.settings.idle_timeout);
        conn.deadline.await_sweep();
        let slot = WarmSlot::take(&worker.warm_connections);
        poll_fn(move |cx| {
            let (Some(reader), Some(_)) = (&mut conn.reader, &slot) else {
                return Poll::Ready(WarmWait::Over);
            };
            match reader.poll_first_read(cx, &worker.buffers) {
                Poll::Ready(Ok(true)) => return Poll::Ready(WarmWait::Input),
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(WarmWait::Closed),
                Poll::Pending => {}
            }
            let is_over = worker.is_last_response(&conn.shared.peer)
                || !conn.deadline.awaits_sweep()
                || conn.deadline.poll_expired(cx).is_ready();
            if is_over { Poll::Ready(WarmWait::Over) } else { Poll::Pending }
        })
    }
}

/// A place among the warm connections of a worker.
struct WarmSlot<'a>(&'a Cell<usize>);

impl WarmSlot<'_> {
    fn take(taken: &Cell<usize>) -> Option<WarmSlot<'_>> {
        let count = taken.get();
        (count < MAX_WARM).then(|| {
            taken.set(count + 1);
            WarmSlot(taken)
        })
    }
}

impl Drop for WarmSlot<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::watch;

    use super::*;
    use crate::message::request::Request;
    use crate::message::response::Response;
    use crate::net::reader::Transport;
    use crate::peer::Peer;
    use crate::server::worker::Worker;
    use crate::settings::Settings;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn send(client: &mut DuplexStream) {
        now(client.write_all(REQUEST)).unwrap().unwrap();
    }

    fn has_response(client: &mut DuplexStream) -> bool {
        let mut response = [0; 1_000];
        now(client.read(&mut response)).is_some_and(|read| {
            read.unwrap();
            response.starts_with(b"HTTP/1.1 200 OK\r\n")
        })
    }

    #[test]
    fn connections_keep_their_buffers_until_the_next_sweep() {
        let app = Rc::new(async |_: Request| Response::text("a"));
        let shutdown = Arc::new(watch::channel(None).1);
        let worker = Worker::new(app, Settings::default(), None, shutdown);
        let warm = || worker.warm_connections.get();
        let (mut clients, mut conns): (Vec<_>, Vec<_>) = (0..MAX_WARM + 2)
            .map(|_| {
                let (client, stream) = tokio::io::duplex(1_000);
                (client, worker.connection(Transport::Other(Box::new(stream)), Peer::default()))
            })
            .unzip();
        let mut serving: Vec<_> =
            conns.iter_mut().map(|conn| Box::pin(worker.serve(conn))).collect();
        for round in 0..3 {
            for (client, serving) in clients.iter_mut().zip(&mut serving) {
                send(client);
                assert!(now(serving.as_mut()).is_none());
                assert!(has_response(client), "{round}");
            }
            assert_eq!(warm(), MAX_WARM);
        }
        worker.deadlines.sweep();
        serving.iter_mut().for_each(|serving| assert!(now(serving.as_mut()).is_none()));
        assert_eq!(warm(), 0);
        // The connections are still open, and end as usual.
        send(&mut clients[0]);
        assert!(now(serving[0].as_mut()).is_none());
        assert!(has_response(&mut clients[0]));
        assert_eq!(warm(), 1);
        clients.clear();
        serving.iter_mut().for_each(|serving| assert!(now(serving.as_mut()).is_some()));
        assert_eq!(warm(), 0);
    }
}
