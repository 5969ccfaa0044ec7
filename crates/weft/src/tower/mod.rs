//! Run tower services and axum routers, and use tower layers.
//!
//! [`app`] makes an [`Application`] of a tower service, so that an axum router runs as it is:
//!
//! ```no_run
//! use axum::{Router, routing::get};
//!
//! fn main() -> weft::Result<()> {
//!     let router = Router::new().route("/", get(async || "Hello, world!\n"));
//!     weft::serve("127.0.0.1:8080", weft::tower::app(router))
//! }
//! ```

mod convert; // requests and responses between weft and http
mod head; // the head of a request that comes back from there
mod maps; // header maps whose names were seen before
mod names; // field names that were seen before
mod layer; // a layer as middleware
mod service; // an application as a service

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Extensions;
use http_body::Frame;
use tower_service::Service;

pub use self::layer::{Inside, Layered, Reply, layer};
use self::maps::Maps;
pub use self::service::{AppService, Call, service};
use crate::app::Application;
use crate::error::{Error, ErrorKind, Result};
use crate::message::body::Body;
pub use crate::message::request::Connection;
use crate::message::request::Request;
use crate::message::response::Response;

/// The error of any service.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A tower service as an application.
///
/// The service gets requests whose body is a [`Body`]. Their extensions have what middleware
/// put there, and the [`Connection`]: its peer, and whether the server is to stop.
///
/// Each request goes to a clone of the service, once that clone is ready; the request waits
/// until then. An error of the service becomes a 500, is told to the
/// [hooks](crate::Hooks), and closes the connection.
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
    App { service, maps: Maps::new(), connect_info: None }
}

/// A tower service as an application: what [`app`] makes.
#[derive(Clone)]
pub struct App<S> {
    service: S,
    maps: Maps,
    connect_info: Option<Arc<AddInfo>>,
}

type AddInfo = dyn Fn(SocketAddr, &mut Extensions) + Send + Sync;

impl<S> App<S> {
    /// Puts into each request's extensions what a function makes of the peer's address. That
    /// is how axum's extractor `ConnectInfo` comes to its address. The peer of a Unix socket
    /// has none, and gets nothing.
    ///
    /// ```
    /// use std::net::SocketAddr;
    ///
    /// use axum::{Router, extract::ConnectInfo, routing::get};
    ///
    /// let who = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("You are {peer}\n");
    /// let router = Router::new().route("/", get(who));
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
    async fn call(&self, request: Request) -> Response {
        let make = || {
            let mut request = convert::to_http_request(&self.maps, request)?;
            if let Some(add) = &self.connect_info {
                let connection = request.extensions().get::<Connection>();
                if let Some(address) = connection.and_then(|known| known.peer().address()) {
                    add(address, request.extensions_mut());
                }
            }
            Ok(request)
        };
        answer(self.service.clone(), make).await
    }
}

impl<S: fmt::Debug> fmt::Debug for App<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("App").field(&self.service).finish()
    }
}

/// What a service answers. It is called only when it says that it is ready, and it is the
/// same instance that said so. The request is made then, and moved no further than to the call:
/// it is large.
async fn answer<S, B>(
    mut service: S,
    make_request: impl FnOnce() -> Result<http::Request<Body>>,
) -> Response
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<BoxError>>,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if let Err(error) = poll_fn(|cx| service.poll_ready(cx)).await {
        return failed(error);
    }
    let call = match make_request() {
        Ok(request) => service.call(request),
        Err(error) => return error.into(),
    };
    match call.await {
        Ok(response) => convert::from_http_response(response),
        Err(error) => failed(error),
    }
}

/// A response that fails when it is sent: so the engine tells the hooks why.
fn failed(error: impl Into<BoxError>) -> Response {
    let error = match error.into().downcast::<Error>() {
        Ok(own) => *own,
        Err(other) => Error::new(ErrorKind::ServiceFailed, "the service failed").because(other),
    };
    let status = Response::from(&error).status();
    Response::body(Body::own(Fails(Some(error)))).with_status(status)
}

/// A body that fails at once.
struct Fails(Option<Error>);

impl http_body::Body for Fails {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}
