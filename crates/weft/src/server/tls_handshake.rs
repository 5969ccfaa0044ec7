//! The beginning of a connection that speaks TLS.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use rustls::{ProtocolVersion, ServerConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::app::Application;
use crate::clock::deadline::Pace;
use crate::error::{Error, ErrorKind, Result};
use crate::net::buffers::INPUT_BYTES;
use crate::net::conn::{ReadHalf, Reader};
use crate::net::tls::{Tls, feed, poll_send, session, split};
use crate::net::writer::WriteHalf;
use crate::server::connection::Connection;
use crate::server::linger;
use crate::server::worker::Worker;

/// Who of a worker's connections may take the next step of a handshake.
///
/// A step is up to a millisecond of cryptography, a hundred times that of a request. Of a burst
/// of them, one is taken between two looks for what else has happened, so that the other
/// connections go on meanwhile.
pub(super) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Semaphore::new(1))
    }
}

/// Negotiates TLS; from then on the connection carries plaintext on our side. `false` if the
/// handshake failed. The deadline for the first head applies.
pub(super) async fn handshake<A: Application>(
    tls: &Tls,
    conn: &mut Connection,
    worker: &Worker<A>,
) -> bool {
    let outcome = match ServerConnection::new(tls.config(worker.settings.http2)) {
        Ok(tls) => Handshake { tls, conn, worker, has_begun: false, hurried: false }.run().await,
        Err(error) => Err(failed(error)),
    };
    outcome.unwrap_or_else(|error| {
        worker.report(&conn.shared.peer, &error);
        false
    })
}

struct Handshake<'a, A> {
    tls: ServerConnection,
    conn: &'a mut Connection,
    worker: &'a Worker<A>,
    /// Whether the client has said anything.
    has_begun: bool,
    /// Whether the server stops and the client has been given less time.
    hurried: bool,
}

impl<'a, A: Application> Handshake<'a, A> {
    async fn run(mut self) -> Result<bool> {
        while self.tls.is_handshaking() {
            if self.reader().buffer.is_empty() && self.receive().await? == 0 {
                // Who connects and says nothing looks whether somebody is there.
                return if self.has_begun { Err(Error::disconnected()) } else { Ok(false) };
            }
            if !self.has_begun && self.is_http() {
                self.explain().await;
                return Err(Error::new(ErrorKind::TlsFailed, "the peer speaks HTTP without TLS"));
            }
            self.has_begun = true;
            let stepped = self.step().await?;
            if self.must_flush() || stepped.is_err() {
                self.flush().await?;
            }
            if let Err(error) = stepped {
                // The alert is out; it must not be lost to a reset.
                self.linger().await;
                return Err(failed(error));
            }
        }
        self.secure();
        Ok(true)
    }

    /// Reads once; 0 is the end, or that a client that has said nothing takes too long for it.
    async fn receive(&mut self) -> Result<usize> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = self.reader().poll_fill(cx, INPUT_BYTES) {
                return Poll::Ready(read.map_err(Error::from));
            }
            if self.worker.draining() && !std::mem::replace(&mut self.hurried, true) {
                self.conn.deadline.set(self.worker.settings.linger_timeout);
            }
            ready!(self.conn.deadline.poll_over(cx));
            Poll::Ready(if self.has_begun { Err(too_slow()) } else { Ok(0) })
        })
        .await
    }

    /// When it is this connection's turn, does the cryptography of what was received.
    async fn step(&mut self) -> Result<Result<(), rustls::Error>> {
        let _turn = self.turn().await?;
        let ciphertext = &mut self.conn.reader.as_mut().expect(HAS_READER).buffer;
        let mut fed = Ok(());
        while fed.is_ok() && !ciphertext.is_empty() && self.tls.is_handshaking() {
            fed = feed(&mut self.tls, ciphertext).map(|_| ());
        }
        if self.must_flush() {
            // The client can do its part while others have their turn.
            poll_fn(|cx| Poll::Ready(self.poll_flush(cx).is_ready())).await;
        }
        tokio::task::yield_now().await;
        Ok(fed)
    }

    /// Waits for this connection's turn, under its deadline.
    async fn turn(&self) -> Result<SemaphorePermit<'a>> {
        let worker: &'a Worker<A> = self.worker;
        let mut turn = pin!(worker.turns.0.acquire());
        poll_fn(|cx| match turn.as_mut().poll(cx) {
            Poll::Ready(turn) => Poll::Ready(Ok(turn.expect("nobody closes it"))),
            Poll::Pending => self.conn.deadline.poll_over(cx).map(|()| Err(too_slow())),
        })
        .await
    }

    /// Whether the client waits for what we have to say. What TLS 1.3 says behind a handshake,
    /// tickets, can go with the first response.
    fn must_flush(&self) -> bool {
        self.tls.is_handshaking() || self.tls.protocol_version() != Some(ProtocolVersion::TLSv1_3)
    }

    async fn flush(&mut self) -> Result<()> {
        poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Ready(sent) => Poll::Ready(sent.map_err(Error::from)),
            Poll::Pending => self.conn.deadline.poll_over(cx).map(|()| Err(too_slow())),
        })
        .await
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let half = &mut self.conn.writer.half;
        while ready!(poll_send(&mut self.tls, half, cx))? > 0 {}
        half.poll_flush(cx)
    }

    /// Whether the first byte is a letter, which no record of TLS begins with.
    fn is_http(&mut self) -> bool {
        self.reader().buffer.first().is_some_and(u8::is_ascii_uppercase)
    }

    /// Tells a client that speaks plain HTTP what to do.
    async fn explain(&mut self) {
        let mut pace = Pace::new(&self.worker.settings);
        let Connection { writer, deadline, .. } = &mut *self.conn;
        writer.out.extend_from_slice(EXPLANATION);
        if poll_fn(|cx| writer.poll_flush(cx, deadline, &mut pace)).await.is_ok() {
            self.linger().await;
        }
        self.conn.writer.out = Vec::new();
    }

    /// Closes after the peer has received what was sent last.
    async fn linger(&mut self) {
        let Connection { writer, deadline, reader, .. } = &mut *self.conn;
        let reader = reader.as_mut().expect(HAS_READER);
        deadline.set(self.worker.settings.linger_timeout);
        if linger::shut_down(writer, deadline).await {
            linger::discard(reader, deadline).await;
        }
    }

    /// Puts what was agreed on between the connection and its transport.
    fn secure(self) {
        let Handshake { tls, conn, .. } = self;
        let session = session(&tls);
        let reader = conn.reader.as_mut().expect(HAS_READER);
        let read = std::mem::replace(&mut reader.half, ReadHalf::Nothing);
        let write = std::mem::replace(&mut conn.writer.half, WriteHalf::Closed);
        let (read, write) = split(tls, std::mem::take(&mut reader.buffer), read, write);
        reader.half = ReadHalf::Tls(Box::new(read));
        conn.writer.half = WriteHalf::Tls(Box::new(write));
        conn.http2 = session.alpn() == Some("h2");
        conn.shared = conn.shared.secured(session);
    }

    fn reader(&mut self) -> &mut Reader {
        self.conn.reader.as_mut().expect(HAS_READER)
    }
}

const HAS_READER: &str = "no body has the reader yet";

const EXPLANATION: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\
    content-length: 36\r\nconnection: close\r\n\r\n\
    This port speaks TLS: use https://.\n";

fn failed(error: rustls::Error) -> Error {
    Error::new(ErrorKind::TlsFailed, "the TLS handshake failed").because(error)
}

fn too_slow() -> Error {
    Error::new(ErrorKind::TooSlow, "the TLS handshake came too slowly")
}
