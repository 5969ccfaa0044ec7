//! Deadlines of gRPC calls, and their failures as a status of gRPC.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::app::{Application, Middleware};
use crate::error::{Error, Result};
use crate::message::body::Body;
use crate::message::grpc::{status_of, status_response};
use crate::message::payload::Payload;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::panic::catch_panic;
use weft_proto::semantics::grpc::{self, Code, Status};

/// Ends gRPC calls at their deadline, and gives failed calls a status of gRPC. Requests without
/// `Content-Type: application/grpc` pass unchanged, so that other applications can share the port.
///
/// ```
/// use weft::middleware::Grpc;
/// use weft::{Application, Request, Response, testing};
///
/// async fn stuck(_: Request) -> Response { std::future::pending().await }
///
/// let call = "POST /shop.Orders/Get HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\
///     Content-Type: application/grpc\r\ngrpc-timeout: 10m\r\n\r\n";
/// let reply = testing::call(stuck.wrap(Grpc::new()), testing::request(call));
/// assert_eq!((reply.status.as_u16(), reply.header("grpc-status")), (200, Some("4")));
/// ```
///
/// | event | status |
/// | --- | --- |
/// | `grpc-timeout`, or the [time limit](Grpc::timeout), is over, before the response or in it | 4 `DEADLINE_EXCEEDED` |
/// | the application panics | 13 `INTERNAL` |
/// | a tower service fails, or the body before its first byte | by [`status_of`](Grpc::status_of); or the code of the error |
/// | a response with an HTTP error: 401, 403, 404, 413 or 429, 502 to 504, others | 16 `UNAUTHENTICATED`, 7 `PERMISSION_DENIED`, 12 `UNIMPLEMENTED`, 8 `RESOURCE_EXHAUSTED`, 14 `UNAVAILABLE`, 2 `UNKNOWN` |
///
/// At the deadline, the future of the application is dropped, or the body of its response.
/// [`Hooks::on_error`](crate::Hooks::on_error) is called with panics and errors. Middleware that
/// responds with HTTP errors, such as [`Timeout`](crate::middleware::Timeout),
/// [`ConcurrencyLimit`](crate::middleware::ConcurrencyLimit) and [`BasicAuth`](super::BasicAuth),
/// belongs behind this one.
#[derive(Clone, Default)]
pub struct Grpc {
    max_time: Option<Duration>,
    status_of: Option<Arc<StatusOf>>,
}

type StatusOf = dyn Fn(&Error) -> Option<Status> + Send + Sync;

impl Grpc {
    /// Ends calls at the deadline of their client.
    pub fn new() -> Grpc {
        Grpc::default()
    }

    /// Limits the time of each call, including the stream of its response. The deadline of the
    /// client applies if it is earlier.
    pub fn timeout(self, max_time: Duration) -> Grpc {
        Grpc { max_time: Some(max_time), ..self }
    }

    /// Determines the status for errors. If the function returns `None`, errors of the client have
    /// their reason as the message, and others are `INTERNAL` without one.
    ///
    /// With tonic, layers return a status as an error. The source of an [`Error`] is the error of
    /// the service:
    ///
    /// ```
    /// use std::error::Error as _;
    ///
    /// use weft::grpc::{Code, Status};
    /// use weft::middleware::Grpc;
    ///
    /// # #[derive(Debug)] struct QuotaExceeded;
    /// # impl std::fmt::Display for QuotaExceeded {
    /// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("quota") }
    /// # }
    /// # impl std::error::Error for QuotaExceeded {}
    /// let grpc = Grpc::new().status_of(|error| {
    ///     let quota = error.source()?.downcast_ref::<QuotaExceeded>()?;
    ///     Some(Status::new(Code::ResourceExhausted, quota.to_string()))
    /// });
    /// # let _ = grpc;
    /// ```
    pub fn status_of(
        self,
        status_of: impl Fn(&Error) -> Option<Status> + Send + Sync + 'static,
    ) -> Grpc {
        Grpc { status_of: Some(Arc::new(status_of)), ..self }
    }

    fn deadline(&self, request: &Request) -> Option<Instant> {
        let time = [grpc::timeout(request.headers()), self.max_time].into_iter().flatten().min();
        // A deadline that the clock cannot represent never comes.
        Instant::now().checked_add(time?)
    }

    fn failure(&self, error: Error) -> Response {
        let own = self.status_of.as_ref().and_then(|own| own(&error));
        status_response(&own.unwrap_or_else(|| status_of(&error))).with_error(error)
    }

    /// Converts an HTTP error into a status. Other fields, such as `Retry-After`, are kept.
    fn complete(&self, mut response: Response, deadline: Option<Instant>) -> Response {
        let media_type = response.header(CONTENT_TYPE.as_str());
        if media_type.is_some_and(|value| grpc::is_grpc_media_type(value.as_bytes())) {
            return match deadline {
                Some(deadline) => limit_time(response, deadline),
                None => response,
            };
        }
        if !response.status.is_client_error() && !response.status.is_server_error() {
            return response;
        }
        // A body that has failed already has the error of a service. The wait for an incomplete
        // body could take any time.
        if let Payload::Body(body) = &mut response.payload
            && !body.is_in_memory()
            && let Poll::Ready(Err(error)) =
                body.poll_chunk(&mut Context::from_waker(Waker::noop()))
        {
            return self.failure(error);
        }
        let error = response.error();
        let own = error.zip(self.status_of.as_ref()).and_then(|(error, of)| of(error));
        let of_http = || Status::new(Code::from_http(response.status), response.status.to_string());
        let status = own.unwrap_or_else(of_http);
        let mut converted = status_response(&status);
        converted.extensions = response.extensions;
        for (name, value) in response.headers.into_vec() {
            if ![CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING].contains(&name) {
                converted = converted.with_appended_header(name, value);
            }
        }
        converted
    }
}

impl Middleware for Grpc {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        if !grpc::is_grpc(request.headers()) {
            return next.call(request).await;
        }
        let deadline = self.deadline(&request);
        let call = async {
            // The call is inside the block, so that a panic before the future exists is caught too.
            match catch_panic(async { next.call(request).await }).await {
                Ok(response) => self.complete(response, deadline),
                Err(error) => self.failure(error),
            }
        };
        match deadline {
            None => call.await,
            Some(deadline) => {
                let result = timeout_at(deadline, call).await;
                result.unwrap_or_else(|_| status_response(&deadline_exceeded()))
            }
        }
    }
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc").field("max_time", &self.max_time).finish_non_exhaustive()
    }
}

fn deadline_exceeded() -> Status {
    Status::new(Code::DeadlineExceeded, "the deadline is over")
}

/// Ends the body of a response at the deadline of its call.
fn limit_time(mut response: Response, deadline: Instant) -> Response {
    response.payload = match response.payload {
        Payload::Body(body) if !body.is_in_memory() => {
            let deadline = Some(Box::pin(sleep_until(deadline)));
            Payload::Body(Body::boxed(TimedBody { body, deadline }))
        }
        complete => complete,
    };
    response
}

/// A body that ends at a deadline, with the status `DEADLINE_EXCEEDED` in its trailers.
struct TimedBody {
    body: Body,
    /// `None` once it is over.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Some(deadline) = &mut self.deadline else { return Poll::Ready(None) };
        if deadline.as_mut().poll(cx).is_ready() {
            self.deadline = None;
            self.body = Body::empty();
            let trailers = deadline_exceeded().fields().collect();
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
