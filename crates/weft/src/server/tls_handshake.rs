//! TLS handshakes.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::sync::SemaphorePermit;

use crate::app::Application;
use crate::clock::deadline::{Awaited, Pace};
use crate::error::{Error, ErrorKind, Result};
use crate::net::buffers::INPUT_BYTES;
use crate::net::reader::{ReadHalf, Reader};
use crate::net::secure::{SecureAcceptor, SecureHandshake};
use crate::net::writer::WriteHalf;
use crate::server::connection::ServerConnection;
use crate::server::linger;
use crate::server::worker_context::WorkerContext;

/// Negotiates TLS; from then on the connection carries plaintext on our side. `false` if the
/// handshake failed. The deadline for the first head applies.
pub(super) async fn handshake<A: Application>(
    tls: &dyn SecureAcceptor,
    conn: &mut ServerConnection,
    worker: &WorkerContext<A>,
) -> bool {
    let _in_progress = worker.handshake_semaphore.begin();
    let client = conn.shared.peer.address().map(|address| address.ip());
    let tls = tls.start_handshake(worker.settings.http2, client);
    let handshake = Handshake { tls, conn, worker, has_input: false, is_draining: false };
    handshake.run().await.unwrap_or_else(|error| {
        worker.report(&conn.shared.peer, &error);
        false
    })
}

struct Handshake<'a, A> {
    tls: Box<dyn SecureHandshake>,
    conn: &'a mut ServerConnection,
    worker: &'a WorkerContext<A>,
    /// Set once the client has sent anything.
    has_input: bool,
    /// Set once a shutdown has shortened the deadline.
    is_draining: bool,
}

impl<'a, A: Application> Handshake<'a, A> {
    async fn run(mut self) -> Result<bool> {
        while self.tls.is_handshaking() {
            if self.reader().buffer.is_empty() && self.receive().await? == 0 {
                // A connection closed without input is a port check, not an error.
                return if self.has_input { Err(Error::disconnected()) } else { Ok(false) };
            }
            if !self.has_input && self.is_http() {
                self.send_https_hint().await;
                return Err(Error::new(ErrorKind::TlsFailed, "the peer sent HTTP without TLS"));
            }
            self.has_input = true;
            let mut stepped = self.step().await?;
            if stepped.is_ok() && self.tls.is_obtaining() {
                stepped = self.obtain().await?;
            }
            if self.tls.must_flush() || stepped.is_err() {
                self.flush().await?;
            }
            if let Err(error) = stepped {
                // The alert is sent; a reset must not discard it.
                self.linger().await;
                return Err(error);
            }
        }
        Ok(self.finish())
    }

    /// Reads once. Returns 0 at the end of the input, or if the deadline expires before the client
    /// has sent anything.
    async fn receive(&mut self) -> Result<usize> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = self.reader().poll_fill(cx, INPUT_BYTES) {
                return Poll::Ready(read.map_err(Error::of_connection));
            }
            if self.worker.is_draining() && !std::mem::replace(&mut self.is_draining, true) {
                self.conn.deadline.set(self.worker.settings.linger_timeout);
            }
            ready!(self.conn.deadline.poll_expired(cx));
            Poll::Ready(if self.has_input { Err(timed_out()) } else { Ok(0) })
        })
        .await
    }

    /// Acquires the worker's handshake semaphore and processes the received records. The outer
    /// error ends the connection at once; after the inner one, the pending alert is sent first.
    async fn step(&mut self) -> Result<Result<()>> {
        let _permit = self.acquire_permit().await?;
        let ciphertext = &mut self.conn.reader.as_mut().expect(HAS_READER).buffer;
        let mut result = Ok(());
        while result.is_ok()
            && !ciphertext.is_empty()
            && self.tls.is_handshaking()
            && !self.tls.is_obtaining()
        {
            result = self.tls.process(ciphertext);
        }
        if self.tls.must_flush() {
            // The client can compute its part while other connections take their steps.
            poll_fn(|cx| Poll::Ready(self.poll_flush(cx).is_ready())).await;
        }
        if self.worker.handshake_semaphore.is_contended() {
            tokio::task::yield_now().await;
        }
        Ok(result)
    }

    /// Waits for the certificate of the client's server name without the semaphore, and takes the
    /// step with it. The client then has the whole time for its part again. If it leaves, it waits
    /// no longer. Errors as in [`step`](Handshake::step).
    async fn obtain(&mut self) -> Result<Result<()>> {
        let obtained = poll_fn(|cx| match self.tls.poll_obtain(cx) {
            Poll::Ready(obtained) => Poll::Ready(Ok(obtained)),
            Poll::Pending => match self.poll_left(cx) {
                Poll::Ready(error) => Poll::Ready(Err(error)),
                Poll::Pending => self.conn.deadline.poll_expired(cx).map(|()| Err(not_obtained())),
            },
        });
        if let Err(error) = obtained.await? {
            return Ok(Err(error));
        }
        self.conn.deadline.set_awaiting(Awaited::Head, self.worker.settings.head_timeout);
        let _permit = self.acquire_permit().await?;
        Ok(self.tls.continue_with_obtained())
    }

    /// Ready when the client has closed the connection. Before its turn it sends little, and what
    /// is more than [`INPUT_BYTES`] stays in the kernel.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        while self.reader().buffer.len() < INPUT_BYTES {
            match ready!(self.reader().poll_fill(cx, INPUT_BYTES)) {
                Ok(0) => return Poll::Ready(Error::disconnected()),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Error::of_connection(error)),
            }
        }
        Poll::Pending
    }

    /// Waits for the handshake semaphore, under the connection's deadline.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'a>> {
        let worker: &'a WorkerContext<A> = self.worker;
        let mut permit = pin!(worker.handshake_semaphore.acquire());
        poll_fn(|cx| match permit.as_mut().poll(cx) {
            Poll::Ready(permit) => Poll::Ready(Ok(permit)),
            Poll::Pending => self.conn.deadline.poll_expired(cx).map(|()| Err(timed_out())),
        })
        .await
    }

    async fn flush(&mut self) -> Result<()> {
        poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Ready(sent) => Poll::Ready(sent.map_err(Error::of_connection)),
            Poll::Pending => self.conn.deadline.poll_expired(cx).map(|()| Err(timed_out())),
        })
        .await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let half = &mut self.conn.writer.half;
        while ready!(self.tls.poll_send(half, cx))? > 0 {}
        half.poll_flush(cx)
    }

    /// Returns true if the first byte is an uppercase letter, as in the method of a plain request.
    /// No TLS record begins with one.
    fn is_http(&mut self) -> bool {
        self.reader().buffer.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Sends a 400 response to a client that uses plain HTTP.
    async fn send_https_hint(&mut self) {
        let mut pace = Pace::new(&self.worker.settings);
        let ServerConnection { writer, deadline, .. } = &mut *self.conn;
        writer.out().extend_from_slice(HTTPS_HINT);
        if poll_fn(|cx| writer.poll_flush(cx, deadline, &mut pace)).await.is_ok() {
            self.linger().await;
        }
        self.conn.writer.buffer.take_storage();
    }

    /// Shuts down the sending direction and continues to read for a while, so that the peer
    /// receives the last bytes.
    async fn linger(&mut self) {
        let ServerConnection { writer, deadline, reader, .. } = &mut *self.conn;
        let reader = reader.as_mut().expect(HAS_READER);
        linger::close(writer, reader, deadline, self.worker.settings.linger_timeout).await;
    }

    /// Wraps the connection's transport in the negotiated TLS session. Returns false if no request
    /// may follow: another client authentication has taken effect during the handshake, or it was
    /// the validation of a name by a certificate authority (RFC 8737 §3).
    fn finish(self) -> bool {
        let Handshake { tls, conn, worker, .. } = self;
        let session = tls.session();
        worker.watch_policy(&session.policy);
        let reader = conn.reader.as_mut().expect(HAS_READER);
        reader.half.register();
        let read = std::mem::replace(&mut reader.half, ReadHalf::Detached);
        let write = std::mem::replace(&mut conn.writer.half, WriteHalf::Closed);
        let (read, write) = tls.split(std::mem::take(&mut reader.buffer), read, write);
        reader.half = ReadHalf::Secure(read);
        conn.writer.half = WriteHalf::Secure(write);
        conn.http2 = session.alpn() == Some("h2");
        let is_validation = session.alpn() == Some("acme-tls/1");
        conn.shared = conn.shared.with_tls(session);
        !is_validation && !conn.shared.peer.is_superseded()
    }

    fn reader(&mut self) -> &mut Reader {
        self.conn.reader.as_mut().expect(HAS_READER)
    }
}

const HAS_READER: &str = "no body has borrowed the reader yet";

const HTTPS_HINT: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 38\r\nconnection: close\r\n\r\n\
    This port requires TLS: use https://.\n";

fn not_obtained() -> Error {
    Error::new(ErrorKind::NoCertificate, "the certificate was not obtained within `head_timeout`")
}

fn timed_out() -> Error {
    Error::new(ErrorKind::TooSlow, "the TLS handshake timed out")
}
