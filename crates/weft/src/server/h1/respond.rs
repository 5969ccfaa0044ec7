//! Response → connection: compose, gather, send.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version};
use http_body::Body as _;

use crate::app::Application;
use crate::disk::File;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Record;
use crate::message::body::{Body, wrong_length};
use crate::message::representation::{self, Moment};
use crate::message::request::Head;
use crate::message::response::{Part, Parts, Payload, Response};
use crate::message::upgrade;
use crate::panic::guarded;
use crate::proto::http1::compose;
use crate::proto::http1::framing::{self, Outgoing};
use crate::proto::semantics::range::random_boundary;
use crate::server::h1::{Busy, Fate, Input, Stage};

/// A response whose head is gathered, or that cannot be sent.
pub(super) struct Answered {
    status: StatusCode,
    rest: Result<Option<Rest>>,
}

/// What is left of a response when its head is gathered.
enum Rest {
    /// Bytes that are gathered too, and so many that they have to go.
    Gathered,
    Stream(Body, Outgoing),
    File(Arc<File>),
    Parts(Box<Parts>),
}

impl<A: Application> Busy<'_, A> {
    /// Gathers a response, as far as it need not be sent at once.
    pub(super) fn respond(&mut self, response: Response) -> Answered {
        let moment = Moment { now: self.worker.date.now(), boundary: random_boundary };
        let response = representation::answer(&self.desk.head, response, &moment);
        Answered { status: response.status, rest: self.gather_response(response) }
    }

    /// Sends what is left of a response, or what takes its place, and prepares the input for
    /// the next.
    pub(super) async fn finish(&mut self, Answered { mut status, rest }: Answered) -> Fate {
        let worker = self.worker;
        let mut sent = match rest {
            Ok(None) => Ok(()),
            // Boxed, for what is not done at once is large and rare.
            Ok(Some(rest)) => Box::pin(self.send_rest(rest)).await,
            Err(error) => Err(error),
        };
        if let (Err(error), Stage::Gathered(head)) = (&sent, self.exchange.response) {
            worker.report(&self.conn.shared.peer, error);
            self.conn.writer.out.truncate(head);
            self.exchange.keep_alive = false;
            let replacement = Response::from(error);
            status = replacement.status;
            sent = self.gather_response(replacement).map(|_| ());
        }
        self.exchange.response = Stage::Awaited;
        if let Some(watch) = self.exchange.watch {
            let error = sent.as_ref().err();
            self.record(Some(&self.desk.head), status, watch.elapsed(), error);
        }
        match sent {
            Ok(()) if self.conn.upgrade.is_some() => Fate::HandOver,
            Ok(()) if !self.exchange.keep_alive => self.closing(self.exchange.client_closes),
            Ok(()) if matches!(self.input, Input::Clear) => Fate::Rest,
            Ok(()) => Box::pin(self.clear_input()).await,
            Err(error) => {
                worker.report(&self.conn.shared.peer, &error);
                self.conn.writer.abandon();
                Fate::Close
            }
        }
    }

    /// Gathers the head of a response and, if it is small, the body; says what is left to
    /// be sent. Here it turns out whether the connection may go on.
    fn gather_response(&mut self, response: Response) -> Result<Option<Rest>> {
        self.look_for_reader();
        self.exchange.response = Stage::Gathered(self.conn.writer.out.len());
        self.exchange.body_bytes = 0;
        if let Payload::Upgrade(_) = response.payload {
            return self.gather_upgrade(response);
        }
        let head_only = *self.desk.head.method() == Method::HEAD;
        if *self.desk.head.method() == Method::CONNECT && response.status.is_success() {
            let reason = "no tunnels are made here";
            return Err(Error::new(ErrorKind::NotImplemented, reason));
        }
        let length = guarded(|| response.sound_length(head_only))??;
        let framing = framing::response(self.desk.head.version(), response.status, length);
        self.exchange.keep_alive &= framing != Outgoing::UntilClose
            && self.input_is_bounded()
            && !response.wants_close()
            && !self.worker.draining();
        let writer = &mut self.conn.writer;
        compose::head(
            &mut writer.out,
            &compose::Head {
                version: self.desk.head.version(),
                status: response.status,
                fields: response.headers.to_write(),
                framing,
                keep_alive: self.exchange.keep_alive,
                opening: &self.worker.date.opening(),
            },
        );
        if head_only || framing == Outgoing::Bodiless {
            return Ok(writer.must_flush().then_some(Rest::Gathered));
        }
        let bytes = match response.payload {
            Payload::Upgrade(_) => unreachable!("it was dealt with above"),
            Payload::Parts(parts) => return Ok(Some(Rest::Parts(parts))),
            Payload::File(file) if file.contents().is_some_and(|bytes| writer.copy(bytes)) => {
                self.exchange.body_bytes = file.length;
                return Ok(writer.must_flush().then_some(Rest::Gathered));
            }
            Payload::File(file) => match file.in_memory() {
                Some(bytes) => bytes,
                None => return Ok(Some(Rest::File(file))),
            },
            Payload::Body(body) => match body.into_bytes() {
                Ok(bytes) => bytes,
                Err(stream) => return Ok(Some(Rest::Stream(stream, framing))),
            },
        };
        self.exchange.body_bytes = bytes.len() as u64;
        writer.push(bytes);
        Ok(writer.must_flush().then_some(Rest::Gathered))
    }

    /// Gathers the head after which the connection is somebody else's.
    fn gather_upgrade(&mut self, response: Response) -> Result<Option<Rest>> {
        upgrade::check(&self.desk.head, &response)?;
        if !matches!(self.input, Input::Clear) {
            let reason = "a connection is handed over only when the request's body is read";
            return Err(Error::new(ErrorKind::InvalidResponse, reason));
        }
        let mut fields = response.headers.to_write();
        if response.status == StatusCode::SWITCHING_PROTOCOLS {
            fields.lines = b"connection: upgrade\r\n";
        }
        compose::head(
            &mut self.conn.writer.out,
            &compose::Head {
                version: Version::HTTP_11,
                status: response.status,
                fields,
                framing: Outgoing::Bodiless,
                keep_alive: true,
                opening: &self.worker.date.opening(),
            },
        );
        if let Payload::Upgrade(upgrade) = response.payload {
            self.conn.upgrade = Some(upgrade);
        }
        Ok(Some(Rest::Gathered))
    }

    /// Sends what is left of a response.
    async fn send_rest(&mut self, rest: Rest) -> Result<()> {
        match rest {
            Rest::Gathered => self.flush().await,
            Rest::Stream(body, framing) => self.send_stream(body, framing).await,
            Rest::File(file) => self.send_file(Arc::unwrap_or_clone(file)).await,
            Rest::Parts(parts) => {
                let Parts { parts, end, .. } = *parts;
                for Part { head, file } in parts {
                    self.exchange.body_bytes += head.len() as u64;
                    self.conn.writer.out.extend_from_slice(&head);
                    self.send_file(file).await?;
                }
                self.gather(end.into()).await
            }
        }
    }

    async fn send_file(&mut self, mut file: File) -> Result<()> {
        if let Some(bytes) = file.in_memory() {
            return self.gather(bytes).await;
        }
        self.exchange.response = Stage::Begun;
        let length = file.length;
        let conn = &mut *self.conn;
        let sent = conn.writer.send_file(&mut file, &conn.deadline, &mut self.pace).await;
        self.exchange.body_bytes += length - file.length;
        sent
    }

    /// Sends the body that a stream makes, flushing when the stream is pending.
    async fn send_stream(&mut self, mut body: Body, framing: Outgoing) -> Result<()> {
        let chunked = framing == Outgoing::Chunked;
        let mut left = match framing {
            Outgoing::Sized(length) => length,
            _ => u64::MAX,
        };
        let mut trailers = HeaderMap::new();
        loop {
            let next = poll_fn(|cx| match guarded(|| Pin::new(&mut body).poll_frame(cx)) {
                Ok(Poll::Ready(frame)) => Poll::Ready(frame.transpose()),
                Ok(Poll::Pending) => self.poll_attend(cx).map(Err),
                Err(panicked) => Poll::Ready(Err(panicked)),
            });
            let Some(frame) = next.await? else { break };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    left = left.checked_sub(data.len() as u64).ok_or_else(wrong_length)?;
                    if chunked {
                        compose::chunk_size(&mut self.conn.writer.out, data.len());
                    }
                    self.gather(data).await?;
                    if chunked {
                        self.conn.writer.out.extend_from_slice(b"\r\n");
                    }
                }
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        match framing {
            Outgoing::Sized(_) if left > 0 => return Err(wrong_length()),
            Outgoing::Chunked => compose::last_chunk(&mut self.conn.writer.out, &trailers),
            _ => {}
        }
        Ok(())
    }

    /// Gathers a part of a body, and sends it when that makes enough.
    async fn gather(&mut self, bytes: Bytes) -> Result<()> {
        self.exchange.body_bytes += bytes.len() as u64;
        self.conn.writer.push(bytes);
        if self.conn.writer.must_flush() {
            self.flush().await?;
        }
        Ok(())
    }

    /// Answers what cannot be understood, and closes.
    pub(super) fn refuse(&mut self, error: &Error, head_only: bool) -> Fate {
        self.worker.report(&self.conn.shared.peer, error);
        if error.kind().status().is_none() || self.conn.writer.is_closed() {
            return Fate::Close;
        }
        let response = Response::from(error);
        let Payload::Body(body) = response.payload else { unreachable!("it is a text") };
        let bytes = body.into_bytes().unwrap_or_default();
        let out = &mut self.conn.writer.out;
        compose::head(
            out,
            &compose::Head {
                version: Version::HTTP_11,
                status: response.status,
                fields: response.headers.to_write(),
                framing: Outgoing::Sized(bytes.len() as u64),
                keep_alive: false,
                opening: &self.worker.date.opening(),
            },
        );
        self.exchange.body_bytes = 0;
        if !head_only {
            out.extend_from_slice(&bytes);
            self.exchange.body_bytes = bytes.len() as u64;
        }
        self.record(None, response.status, Duration::ZERO, None);
        Fate::Linger
    }

    fn record(
        &self,
        head: Option<&Head>,
        status: StatusCode,
        duration: Duration,
        error: Option<&Error>,
    ) {
        if let Some(hooks) = self.worker.recorder() {
            let (peer, body_bytes) = (&self.conn.shared.peer, self.exchange.body_bytes);
            hooks.answered(&Record { peer, head, status, body_bytes, duration, error });
        }
    }
}
