//! A tower layer as middleware.
//!
//! A layer wants the service behind it once, when it is set up, and a future that can be sent
//! to other threads. What is behind a Weft middleware is there only for a call, and its
//! futures stay where they are. So the service that the layer gets, [`Inside`], does nothing
//! but leave an [`Order`] on a [`Desk`]. The desk belongs to one call of the middleware, which
//! runs the layer's future and those of its orders side by side. The request carries the way
//! to its desk in its extensions.

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
use crate::message::request::{Head, Request};
use crate::message::response::Response;
use crate::tower::maps::Maps;
use crate::tower::{BoxError, answer, convert};

/// A tower layer as middleware. It may answer by itself, call what is behind it more than
/// once, give up waiting for it, and change requests and responses, bodies included.
///
/// A file behind a layer is judged for preconditions and ranges before the layer sees it. If
/// the layer hands its body through untouched, it leaves as a file; if it wraps it, as a
/// stream.
///
/// ```
/// use tower_http::set_header::SetResponseHeaderLayer;
/// use weft::{Application, HeaderValue, Request, Response, header, testing, tower};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// let value = HeaderValue::from_static("max-age=60");
/// let layer = SetResponseHeaderLayer::overriding(header::CACHE_CONTROL, value);
/// let app = hello.with(tower::layer(layer));
/// assert_eq!(testing::get(app, "/").header("cache-control"), Some("max-age=60"));
/// ```
pub fn layer<L, B>(layer: L) -> Layered<L::Service>
where
    L: Layer<Inside>,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone,
    <L::Service as Service<http::Request<Body>>>::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    Layered { service: layer.layer(Inside(())), maps: Maps::new() }
}

/// A tower layer as middleware: what [`layer`] makes.
#[derive(Clone)]
pub struct Layered<S> {
    service: S,
    maps: Maps,
}

impl<S, B> Middleware for Layered<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let desk = Arc::new(Desk::default());
        let ticket = Ticket { head: request.head().clone(), desk: desk.clone() };
        let make = || {
            let mut request = convert::to_http_request(&self.maps, request)?;
            request.extensions_mut().insert(ticket);
            Ok(request)
        };
        let mut outside = pin!(answer(self.service.clone(), make));
        let mut inside = Vec::new();
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(response) = outside.as_mut().poll(cx) {
                    return Poll::Ready(response);
                }
                inside.extend(desk.take(cx).into_iter().map(|order| Box::pin(fill(order, next))));
                let open = inside.len();
                inside.retain_mut(|order| order.as_mut().poll(cx).is_pending());
                if inside.len() == open {
                    return Poll::Pending;
                }
                // Something was answered, which the layer waits for.
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

/// The service behind a [`layer`]: it stands for the application behind the middleware.
#[derive(Clone, Debug)]
pub struct Inside(());

/// What goes through a layer with its request.
#[derive(Clone)]
struct Ticket {
    head: Head,
    desk: Arc<Desk>,
}

/// What the layer asks of the application during one call of the middleware.
#[derive(Default)]
struct Desk(Mutex<Orders>);

#[derive(Default)]
struct Orders {
    new: Vec<Order>,
    /// Who fills them: the layer may have called from another task.
    filler: Option<Waker>,
}

struct Order {
    request: Request,
    reply: oneshot::Sender<Answer>,
}

/// A response, or what the application panicked with.
type Answer = std::thread::Result<http::Response<Body>>;

impl Desk {
    fn put(&self, order: Order) {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.new.push(order);
        let filler = orders.filler.take();
        drop(orders);
        if let Some(filler) = filler {
            filler.wake();
        }
    }

    /// What is new; whoever asks is woken when there is more.
    fn take(&self, cx: &Context<'_>) -> Vec<Order> {
        let mut orders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orders.filler = Some(cx.waker().clone());
        std::mem::take(&mut orders.new)
    }
}

/// Calls the application for a layer, as long as the layer waits for it. A panic is the
/// layer's to see first.
async fn fill(Order { request, mut reply }: Order, next: &impl Application) {
    let head = request.head().clone();
    let mut response = pin!(next.call(request));
    let answer = poll_fn(|cx| {
        if reply.poll_closed(cx).is_ready() {
            return Poll::Ready(None);
        }
        match catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(cx))) {
            Ok(response) => {
                response.map(|response| Some(Ok(convert::to_http_response(&head, response))))
            }
            Err(panic) => Poll::Ready(Some(Err(panic))),
        }
    });
    if let Some(answer) = answer.await {
        // If nobody waits any more, nobody misses it.
        let _ = reply.send(answer);
    }
}

impl<B> Service<http::Request<B>> for Inside
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<B>) -> Reply {
        let Some(Ticket { head, desk }) = request.extensions_mut().remove() else {
            let reason = "the layer has lost the extensions of the request";
            return Reply::refused(Error::new(ErrorKind::ServiceFailed, reason));
        };
        match convert::from_http_request(request, Some(head)) {
            Ok(request) => {
                let (reply, answer) = oneshot::channel();
                desk.put(Order { request, reply });
                Reply(Ok(answer))
            }
            Err(error) => Reply::refused(error),
        }
    }
}

/// The future of [`Inside`].
#[derive(Debug)]
pub struct Reply(Result<oneshot::Receiver<Answer>, Option<Error>>);

impl Reply {
    fn refused(error: Error) -> Reply {
        Reply(Err(Some(error)))
    }
}

impl Future for Reply {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = || Error::new(ErrorKind::ServiceFailed, "the request was answered before");
        let error = match &mut self.0 {
            Ok(answer) => match ready!(Pin::new(answer).poll(cx)) {
                Ok(Ok(response)) => return Poll::Ready(Ok(response)),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(_) => gone(),
            },
            Err(error) => error.take().unwrap_or_else(gone),
        };
        Poll::Ready(Ok(convert::plain(super::failed(error))))
    }
}
