//! Tower layers as middleware.
//!
//! A layer requires its inner service once, when it is constructed, and futures that are `Send`.
//! The application behind a Weft middleware exists only for one call, and its futures stay on their
//! thread. So the service that the layer gets, [`InnerService`], only pushes a [`PendingCall`] to a
//! [`CallQueue`]. The queue belongs to one call of the middleware, which polls the layer's future
//! and the futures of its pending calls together. The request carries a reference to its queue in
//! its extensions.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::sync::oneshot;
use tower_layer::Layer;
use tower_service::Service;

use crate::app::{Application, Middleware};
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::tower::maps::HeaderMapCache;
use crate::tower::{BoxError, call_service, convert, error_response};

/// Converts a tower layer to middleware. The layer may respond by itself, call its inner service
/// more than once, stop waiting for it, and change requests and responses, including bodies.
///
/// The preconditions and ranges for a file are evaluated before the layer sees the response. If the
/// layer passes the body through unchanged, it is sent as a file; if it wraps the body, as a
/// stream.
///
/// ```
/// use tower_http::set_header::SetResponseHeaderLayer;
/// use weft::header::{self, HeaderValue};
/// use weft::{Application, Request, Response, testing, tower};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let value = HeaderValue::from_static("max-age=60");
/// let layer = SetResponseHeaderLayer::overriding(header::CACHE_CONTROL, value);
/// let app = hello.wrap(tower::layer(layer));
/// assert_eq!(testing::get(app, "/").header("cache-control"), Some("max-age=60"));
/// ```
pub fn layer<L, B>(layer: L) -> Layered<L::Service>
where
    L: Layer<InnerService>,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
    <L::Service as Service<http::Request<Body>>>::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Layered { service: layer.layer(InnerService(())), maps: HeaderMapCache::new() }
}

/// A tower layer as middleware; returned by [`layer`].
#[derive(Clone)]
pub struct Layered<S> {
    service: S,
    maps: HeaderMapCache,
}

impl<S, B> Middleware for Layered<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let queue = Arc::new(CallQueue::default());
        let context = CallContext { head: request.head().clone(), queue: queue.clone() };
        let convert = |request, converted: &mut http::Request<Body>| {
            convert::to_http_request(&self.maps, request, converted, |body| body)?;
            converted.extensions_mut().insert(context);
            Ok(())
        };
        let service = |_: &_| self.service.clone();
        let mut outer = pin!(call_service(service, request, convert, convert::from_http_body));
        let mut inner = Vec::new();
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(response) = outer.as_mut().poll(cx) {
                    return Poll::Ready(response);
                }
                inner.extend(queue.take(cx).into_iter().map(|call| Box::pin(run(call, next))));
                let before = inner.len();
                inner.retain_mut(|call| call.as_mut().poll(cx).is_pending());
                if inner.len() == before {
                    return Poll::Pending;
                }
                // A call has completed, so the layer's future can make progress.
            }
        })
        .await
    }
}

impl<S: fmt::Debug> fmt::Debug for Layered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layered").field(&self.service).finish()
    }
}

/// The inner service of a [`layer`]; it represents the application behind the middleware.
#[derive(Clone, Debug)]
pub struct InnerService(());

/// Context that a request carries through a layer.
#[derive(Clone)]
struct CallContext {
    head: RequestHead,
    queue: Arc<CallQueue>,
}

/// Queue of the layer's calls to the application during one call of the middleware.
#[derive(Default)]
struct CallQueue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    new: Vec<PendingCall>,
    /// Task of the middleware; the layer may call from another task.
    waker: Option<Waker>,
}

struct PendingCall {
    request: Request,
    response: oneshot::Sender<CallResult>,
}

/// A response, or the payload of the application's panic.
type CallResult = std::thread::Result<http::Response<Body>>;

impl CallQueue {
    fn push(&self, call: PendingCall) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.new.push(call);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the new calls, and registers the task for the next one.
    fn take(&self, cx: &Context<'_>) -> Vec<PendingCall> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waker = Some(cx.waker().clone());
        std::mem::take(&mut state.new)
    }
}

/// Calls the application for a layer, until the layer drops its future. A panic is resumed in the
/// layer's future.
async fn run(call: PendingCall, next: &impl Application) {
    let PendingCall { request, response: mut sender } = call;
    let head = request.head().clone();
    let mut future = pin!(next.call(request));
    let result = poll_fn(|cx| {
        if sender.poll_closed(cx).is_ready() {
            return Poll::Ready(None);
        }
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(response) => {
                response.map(|response| Some(Ok(convert::to_http_response(&head, response))))
            }
            Err(panic) => Poll::Ready(Some(Err(panic))),
        }
    });
    if let Some(result) = result.await {
        // Sending fails only if the layer has dropped its future.
        let _ = sender.send(result);
    }
}

impl<B> Service<http::Request<B>> for InnerService
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> ResponseFuture {
        let Some(CallContext { head, queue }) = request.extensions_mut().remove() else {
            let reason = "the tower layer removed the extensions of the request";
            return ResponseFuture::failed(Error::new(ErrorKind::ServiceFailed, reason));
        };
        match convert::from_http_request(request, Some(head)) {
            Ok(request) => {
                let (response, receiver) = oneshot::channel();
                queue.push(PendingCall { request, response });
                ResponseFuture(Ok(receiver))
            }
            Err(error) => ResponseFuture::failed(error),
        }
    }
}

/// Future of [`InnerService`].
#[derive(Debug)]
pub struct ResponseFuture(Result<oneshot::Receiver<CallResult>, Option<Error>>);

impl ResponseFuture {
    fn failed(error: Error) -> ResponseFuture {
        ResponseFuture(Err(Some(error)))
    }
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answered =
            || Error::new(ErrorKind::ServiceFailed, "the request has already been answered");
        let error = match &mut self.0 {
            Ok(receiver) => match ready!(Pin::new(receiver).poll(cx)) {
                Ok(Ok(response)) => return Poll::Ready(Ok(response)),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(_) => answered(),
            },
            Err(error) => error.take().unwrap_or_else(answered),
        };
        Poll::Ready(Ok(convert::to_http_response_as_is(error_response(error))))
    }
}
