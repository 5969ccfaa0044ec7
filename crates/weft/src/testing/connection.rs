//! One exchange with the engine, over a connection in memory.

use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::FutureExt;
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf};
use tokio::task::LocalSet;
use weft_proto::http1::client::{BodyPiece, BodyReader, HeadReader, ResponseHead};

use crate::app::Application;
use crate::error::{Error, ErrorKind, Result};
use crate::hooks::Hooks;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::peer::Peer;
use crate::server::serve_stream;
use crate::settings::Settings;

/// Capacity of the connection in each direction.
const CAPACITY: usize = 64 << 10;

/// Maximum size of the head of a response.
const MAX_HEAD_BYTES: usize = 65_000;

/// Maximum time for the end of an exchange whose response is complete.
const MAX_CLOSING_TIME: Duration = Duration::from_secs(1);

/// A request as the engine receives it.
pub(super) struct Sent {
    pub(super) method: Method,
    /// Head and body.
    pub(super) bytes: Vec<u8>,
    pub(super) peer: Peer,
    pub(super) settings: Settings,
    /// Request that the application gets in place of the received one.
    pub(super) prepared: Option<Request>,
}

/// A connection with one request, and its engine, which runs while the response is read.
pub(super) struct TestConnection<'a> {
    engine: Pin<Box<dyn Future<Output = ()> + 'a>>,
    /// Sends the request; never ready, because it keeps the connection open.
    writer: Pin<Box<dyn Future<Output = ()>>>,
    reader: ReadHalf<DuplexStream>,
    /// Tasks of the application.
    tasks: LocalSet,
    input: BytesMut,
    method: Method,
    pub(super) errors: Errors,
}

impl<'a> TestConnection<'a> {
    pub(super) fn open(app: impl Application + 'a, sent: Sent) -> TestConnection<'a> {
        let Sent { method, bytes, peer, settings, prepared } = sent;
        let (client, server) = tokio::io::duplex(CAPACITY);
        let (reader, mut writer) = tokio::io::split(client);
        let errors = Errors::default();
        let app = ErasedApplication::new(app, prepared, errors.clone());
        let hooks: Rc<dyn Hooks> = Rc::new(errors.clone());
        let engine = serve_stream(Rc::new(app), settings, Some(hooks), (Box::new(server), peer));
        let writer = Box::pin(async move {
            // It fails if the engine closes the connection before it has read all of the body.
            let _ = writer.write_all(&bytes).await;
            pending().await
        });
        TestConnection {
            engine: Box::pin(engine.fuse()),
            writer,
            reader,
            tasks: LocalSet::new(),
            input: BytesMut::new(),
            method,
            errors,
        }
    }

    /// Reads the heads of the interim responses and of the response.
    pub(super) async fn read_heads(&mut self) -> Result<(Vec<ResponseHead>, ResponseHead)> {
        let (mut heads, mut interim) = (HeadReader::new(MAX_HEAD_BYTES), Vec::new());
        loop {
            while let Some(head) = heads.read(&mut self.input, &self.method)? {
                let is_final = head.status == StatusCode::SWITCHING_PROTOCOLS;
                if is_final || !head.status.is_informational() {
                    return Ok((interim, head));
                }
                interim.push(head);
            }
            if !self.fill().await {
                let reason = "the connection was closed without a response";
                return Err(self.errors.explain(reason));
            }
        }
    }

    /// Returns true if the response turns the connection into a tunnel.
    pub(super) fn is_tunnel(&self, head: &ResponseHead) -> bool {
        self.method == Method::CONNECT && head.status.is_success()
    }

    /// Reads the next piece of the body.
    pub(super) async fn read_piece(&mut self, body: &mut BodyReader) -> Result<BodyPiece> {
        loop {
            match body.read(&mut self.input)? {
                BodyPiece::Wait => {}
                piece => return Ok(piece),
            }
            if !self.fill().await {
                return match body.may_end_at_eof() {
                    true => Ok(BodyPiece::End),
                    false => Err(self.errors.explain("the response was cut short")),
                };
            }
        }
    }

    /// Receives more bytes while the engine runs. Returns false at the end of the connection.
    async fn fill(&mut self) -> bool {
        let TestConnection { engine, writer, reader, tasks, input, .. } = self;
        let received = tasks.run_until(async {
            let mut received = pin!(reader.read_buf(input));
            poll_fn(|cx| {
                let (_, _) = (writer.as_mut().poll(cx), engine.as_mut().poll(cx));
                received.as_mut().poll(cx)
            })
            .await
        });
        received.await.is_ok_and(|bytes| bytes > 0)
    }

    /// Closes the connection, so that the exchange ends in order: with its record, and with the
    /// destructors of the application.
    pub(super) async fn close(self) -> Errors {
        let TestConnection { engine, writer, reader, tasks, errors, .. } = self;
        drop((writer, reader));
        // A handler of an upgrade may continue without its client.
        let _ = tokio::time::timeout(MAX_CLOSING_TIME, tasks.run_until(engine)).await;
        errors
    }
}

/// An application without its type, so that the engine is compiled once for all tests. It gives
/// the application the prepared request in place of the received one.
struct ErasedApplication<'a> {
    call: Box<ErasedCall<'a>>,
    prepared: RefCell<Option<Request>>,
}

type ErasedCall<'a> = dyn Fn(Request) -> Pin<Box<dyn Future<Output = Response> + 'a>> + 'a;

impl<'a> ErasedApplication<'a> {
    fn new(
        app: impl Application + 'a,
        prepared: Option<Request>,
        errors: Errors,
    ) -> ErasedApplication<'a> {
        let app = Rc::new(app);
        let call = move |request| -> Pin<Box<dyn Future<Output = Response> + 'a>> {
            let (app, errors) = (app.clone(), errors.clone());
            Box::pin(async move {
                let response = app.call(request).await;
                errors.0.borrow_mut().attached = response.shared_error().cloned();
                response
            })
        };
        ErasedApplication { call: Box::new(call), prepared: RefCell::new(prepared) }
    }
}

impl Application for ErasedApplication<'_> {
    fn call(&self, received: Request) -> impl Future<Output = Response> {
        (self.call)(match self.prepared.take() {
            Some(prepared) => prepared.in_exchange_of(received),
            None => received,
        })
    }
}

/// The errors that the engine has reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors(Rc<RefCell<ReportedErrors>>);

#[derive(Debug, Default)]
struct ReportedErrors {
    texts: Vec<String>,
    /// Message of the first panic that the engine has caught.
    panic: Option<String>,
    /// Error that the application has attached to its response.
    attached: Option<Arc<Error>>,
}

impl Errors {
    /// Texts of the errors.
    pub(super) fn texts(&self) -> Vec<String> {
        self.0.borrow().texts.clone()
    }

    /// Panics with the message of the application's first panic, unless the application has
    /// caught it.
    pub(super) fn resume_panic(&self) {
        let message = self.0.borrow().panic.clone();
        if let Some(message) = message {
            panic!("{message}");
        }
    }

    /// Creates an error with the errors of the engine as its causes.
    fn explain(&self, reason: &str) -> Error {
        let reason = match self.texts().join("; ") {
            causes if causes.is_empty() => reason.to_owned(),
            causes => format!("{reason}: {causes}"),
        };
        Error::new(ErrorKind::BodyFailed, reason)
    }
}

impl Hooks for Errors {
    fn on_error(&self, _: &Peer, error: &Error) {
        let mut errors = self.0.borrow_mut();
        errors.texts.push(error.to_string());
        let is_attached =
            errors.attached.as_deref().is_some_and(|attached| std::ptr::eq(attached, error));
        if error.kind() == ErrorKind::Panicked && !is_attached && errors.panic.is_none() {
            errors.panic = Some(error.to_string());
        }
    }

    fn needs_records(&self) -> bool {
        false
    }
}
