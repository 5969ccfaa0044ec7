//! Runs tower services and axum routers, and uses tower layers as middleware.
//!
//! [`app`] converts a tower service to an [`Application`], so that an axum router runs unchanged:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//!
//! fn main() -> weft::Result<()> {
//!     let router = Router::new().route("/", get(async || "Hello, world!\n"));
//!     weft::serve("127.0.0.1:8080", weft::tower::app(router))
//! }
//! ```

mod upgrade_extension;
pub(crate) mod convert; // requests and responses, to and from the types of `http`
mod body_limits; // limits of request bodies
mod head; // request heads, from the types of `http`
mod hyper_upgrade; // upgrades by `hyper::upgrade::on`
mod maps; // a cache of header maps
mod names; // a cache of field names
mod layer; // layers as middleware
mod on_runtime; // services on another runtime
mod runtime_body; // response bodies of these services
mod runtime_call; // calls on another runtime
mod service; // applications as services

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Extensions, Method};
use tower_service::Service;

use self::body_limits::BodyLimits;
pub(crate) use self::body_limits::lift_grpc_limits;
use self::hyper_upgrade::PendingUpgrade;
pub use self::layer::{InnerService, Layered, ResponseFuture, layer};
pub(crate) use self::maps::HeaderMapCache;
pub use self::on_runtime::{OnRuntime, on_runtime};
pub use self::runtime_body::RuntimeBody;
pub use self::runtime_call::RuntimeCall;
pub use self::service::{AppService, CallFuture, service};
use crate::app::Application;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
pub use crate::message::connection::Connection;
use crate::message::request::Request;
use crate::message::response::Response;

/// Error type of any service.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Converts a tower service to an application.
///
/// The body of a request is a [`Body`]. Its extensions contain those set by middleware, and the
/// [`Connection`], with the peer and the shutdown state of the server. Those of a request for an
/// upgrade or a tunnel also contain the `OnUpgrade` of hyper, so that axum's `WebSocketUpgrade` and
/// `hyper::upgrade::on` work. A WebSocket over HTTP/2 is presented in the form of HTTP/1.1, `GET`
/// with `Upgrade`.
///
/// The service runs on the workers. [`on_runtime`] makes it run on another runtime.
///
/// Each request is passed to a clone of the service, after waiting until that clone is ready. An
/// error of the service becomes a 500, is reported to the [hooks](crate::Hooks), and closes the
/// connection.
///
/// ```
/// use axum::{Extension, Router, extract::Path, routing::get};
/// use weft::testing;
/// use weft::tower::Connection;
///
/// let router = Router::new()
///     .route("/hello/{name}", get(async |Path(name): Path<String>| format!("Hello, {name}!\n")))
///     .route("/peer", get(async |Extension(c): Extension<Connection>| format!("{:?}", c.peer())));
/// testing::get(weft::tower::app(router), "/hello/d%C3%ADas").assert_text("Hello, días!\n");
/// ```
pub fn app<S, B>(service: S) -> App<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    App { service, maps: HeaderMapCache::new(), connect_info: None }
}

/// A tower service as an application; returned by [`app`].
#[derive(Clone)]
pub struct App<S> {
    service: S,
    maps: HeaderMapCache,
    connect_info: Option<Arc<AddInfo>>,
}

type AddInfo = dyn Fn(SocketAddr, &mut Extensions) + Send + Sync;

impl<S> App<S> {
    /// Inserts the result of `f` for the peer's address into the extensions of each request. With
    /// axum's `ConnectInfo` as `f`, its extractor of the same name works. A peer on a Unix socket
    /// has no address, and nothing is inserted.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::{Router, extract::ConnectInfo, routing::get};
    ///
    /// let peer = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("You are {peer}\n");
    /// let router = Router::new().route("/", get(peer));
    /// let app = weft::tower::app(router).connect_info(ConnectInfo);
    ///
    /// let mut request = weft::testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    /// request.set_peer(SocketAddr::from(([192, 0, 2, 1], 80)));
    /// weft::testing::call(app, request).assert_text("You are 192.0.2.1:80\n");
    /// ```
    pub fn connect_info<T>(self, f: impl Fn(SocketAddr) -> T + Send + Sync + 'static) -> App<S>
    where
        T: Clone + Send + Sync + 'static,
    {
        let add = move |address, extensions: &mut Extensions| {
            extensions.insert(f(address));
        };
        App { connect_info: Some(Arc::new(add)), ..self }
    }
}

impl<S, B> Application for App<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn call(&self, mut request: Request) -> impl Future<Output = Response> {
        lift_grpc_limits(&mut request);
        let convert = |request, converted: &mut http::Request<Body>| {
            convert::to_http_request(&self.maps, request, converted, |body| body)?;
            if let Some(add) = &self.connect_info {
                let connection = converted.extensions().get::<Connection>();
                if let Some(address) = connection.and_then(|connection| connection.peer().address())
                {
                    add(address, converted.extensions_mut());
                }
            }
            Ok(())
        };
        let service = |_: &_| self.service.clone();
        call_service(service, request, convert, convert::from_http_body)
    }
}

impl<S: fmt::Debug> fmt::Debug for App<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("App").field(&self.service).finish()
    }
}

/// Calls a service and converts its response. `call` follows `poll_ready` on the same instance, as
/// tower requires. The request is large, so it is built only then, and moved only into the call.
///
/// The future of a call is a large part of the memory of a request in progress. It is created
/// without code that may panic, so that it is not moved: `service` makes the service when it is
/// polled.
#[expect(clippy::manual_async_fn, reason = "the future of an `async fn` has its arguments twice")]
pub(crate) fn call_service<S, R, B>(
    service: impl FnOnce(&Request) -> S,
    mut request: Request,
    convert: impl FnOnce(Request, &mut http::Request<R>) -> Result<()>,
    into_body: impl FnOnce(B) -> Body,
) -> impl Future<Output = Response>
where
    S: Service<http::Request<R>, Response = http::Response<B>, Error: Into<BoxError>>,
    R: Default,
{
    async move {
        // Declared here, so that the future of the service is not moved together with them.
        let is_head;
        let mut pending_upgrade = None;
        let limits = BodyLimits::of(&mut request);
        let call = {
            let mut service = service(&request);
            if let Err(error) = poll_fn(|cx| service.poll_ready(cx)).await {
                return error_response(error);
            }
            is_head = *request.method() == Method::HEAD;
            let asks_for_upgrade = hyper_upgrade::is_requested(request.head());
            let mut converted = http::Request::default();
            if let Err(error) = convert(request, &mut converted) {
                return error.into();
            }
            if asks_for_upgrade {
                pending_upgrade = PendingUpgrade::offer(&mut converted).map(Box::new);
            }
            service.call(converted)
        };
        let response = match call.await {
            Ok(response) => {
                let response = convert::from_http_response(is_head, response, into_body);
                match pending_upgrade {
                    Some(pending) => pending.accept(response),
                    None => response,
                }
            }
            Err(error) => error_response(error),
        };
        match limits {
            Some(limits) => limits.explain(response),
            None => response,
        }
    }
}

/// Returns a response whose body fails, so that the engine reports the error to the hooks.
fn error_response(error: impl Into<BoxError>) -> Response {
    let error = match error.into().downcast::<Error>() {
        Ok(error) => *error,
        Err(source) => {
            Error::new(ErrorKind::ServiceFailed, "the tower service failed").with_source(source)
        }
    };
    let status = Response::from(&error).status();
    Response::from_body(Body::stream(stream::iter([Err::<Bytes, _>(error)]))).with_status(status)
}
