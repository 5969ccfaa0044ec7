//! Serves axum routers: a replacement for `axum::serve`, and applications for a [`Server`](crate::Server).
//!
//! ```no_run
//! use axum::{Router, routing::get};
//!
//! #[tokio::main]
//! async fn main() {
//!     let router = Router::new().route("/", get(async || "Hello, world!\n"));
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await.unwrap();
//!     weft::axum::serve(listener, router).await.unwrap();
//! }
//! ```

mod incoming; // connections, as the types of `ConnectInfo` see them
mod listeners; // sockets and addresses to listen on
mod make_service; // routers, and what `into_make_service` returns
mod serve; // the replacement for `axum::serve`

use std::fmt;
use std::future::Future;

use futures_util::future::Either;
use tokio::runtime::Handle;

pub use self::incoming::IncomingStream;
pub use self::listeners::IntoListeners;
pub use self::make_service::MakeService;
pub use self::serve::{Serve, ServeFuture, serve};
use crate::app::Application;
use crate::error::Result;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::tower::{HeaderMapCache, call_service, convert, on_runtime};

/// Converts a router, or the result of `into_make_service` or
/// `into_make_service_with_connect_info`, to an application.
///
/// In contrast to [`tower::app`](crate::tower::app), it completes a router once instead of at each
/// request, which saves time.
///
/// ```no_run
/// use std::net::SocketAddr;
///
/// use axum::{Router, extract::ConnectInfo, routing::get};
///
/// fn main() -> weft::Result<()> {
///     let peer = async |ConnectInfo(peer): ConnectInfo<SocketAddr>| format!("You are {peer}\n");
///     let router = Router::new().route("/", get(peer));
///     let service = router.into_make_service_with_connect_info::<SocketAddr>();
///     weft::serve("127.0.0.1:8080", weft::axum::app(service))
/// }
/// ```
pub fn app<M: MakeService>(make_service: M) -> App<M> {
    let make_service = make_service.complete();
    App { make_service, maps: HeaderMapCache::new(), runtime: None }
}

/// A router as an application; returned by [`app`].
#[derive(Clone)]
pub struct App<M> {
    make_service: M,
    maps: HeaderMapCache,
    /// The runtime of the handlers, unless they run on the workers.
    runtime: Option<Handle>,
}

impl<M> App<M> {
    /// Runs the handlers as tasks of a runtime, which must continue to run. Each request then wakes a
    /// thread of the runtime, and each response the worker.
    pub fn handlers_on(self, runtime: Handle) -> App<M> {
        App { runtime: Some(runtime), ..self }
    }
}

impl<M: MakeService> App<M> {
    fn make_service(&self, request: &Request) -> M::Service {
        self.make_service.make(IncomingStream::new(request.connection()))
    }

    // Inlined, because its result would be moved otherwise.
    #[inline(always)]
    fn convert(&self, request: Request, converted: &mut ::axum::extract::Request) -> Result<()> {
        convert::to_http_request(&self.maps, request, converted, ::axum::body::Body::new)
    }
}

impl<M: MakeService> Application for App<M> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        match &self.runtime {
            None => {
                let service = |request: &Request| self.make_service(request);
                let convert = |request, converted: &mut _| self.convert(request, converted);
                let into_body = convert::from_unpin_body;
                Either::Left(call_service(service, request, convert, into_body))
            }
            Some(runtime) => Either::Right(async move {
                let service =
                    |request: &Request| on_runtime(self.make_service(request), runtime.clone());
                let convert = |request, converted: &mut _| self.convert(request, converted);
                let into_body = convert::from_unpin_body;
                // Boxed, so that it adds nothing to the size of the other form.
                Box::pin(call_service(service, request, convert, into_body)).await
            }),
        }
    }
}

impl<M> fmt::Debug for App<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
