//! Serves axum routers: a replacement for `axum::serve`, and applications for a
//! [`Server`](crate::Server).
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
use crate::message::body::LiftedLimits;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::tower::{HeaderMapCache, call_service, convert, lift_grpc_limits, on_runtime};

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
    App { make_service, maps: HeaderMapCache::new(), handlers: Handlers::OnWorkers }
}

/// A router as an application; returned by [`app`].
#[derive(Clone)]
pub struct App<M> {
    make_service: M,
    maps: HeaderMapCache,
    handlers: Handlers,
}

/// The threads and the runtime of the handlers.
#[derive(Clone, Debug)]
enum Handlers {
    OnWorkers,
    OnRuntime(Handle),
    AsTasks(Handle),
}

impl<M> App<M> {
    /// Runs the handlers on a runtime, which must continue to run, by
    /// [`tower::on_runtime`](on_runtime).
    pub fn handlers_on(self, runtime: Handle) -> App<M> {
        App { handlers: Handlers::OnRuntime(runtime), ..self }
    }

    /// Runs each handler as a task of a runtime from its start, by
    /// [`OnRuntime::as_tasks`](crate::tower::OnRuntime::as_tasks).
    pub fn handlers_as_tasks(self, runtime: Handle) -> App<M> {
        App { handlers: Handlers::AsTasks(runtime), ..self }
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
    fn call(&self, mut request: Request) -> impl Future<Output = Response> {
        lift_grpc_limits(&mut request);
        request.body().lift_limits(LiftedLimits::DefaultSize);
        let (runtime, as_tasks) = match &self.handlers {
            Handlers::OnWorkers => {
                let service = |request: &Request| self.make_service(request);
                let convert = |request, converted: &mut _| self.convert(request, converted);
                let into_body = convert::from_unpin_body;
                return Either::Left(call_service(service, request, convert, into_body));
            }
            Handlers::OnRuntime(runtime) => (runtime, false),
            Handlers::AsTasks(runtime) => (runtime, true),
        };
        let service = move |request: &Request| {
            let service = on_runtime(self.make_service(request), runtime.clone());
            if as_tasks { service.as_tasks() } else { service }
        };
        let convert = |request, converted: &mut _| self.convert(request, converted);
        Either::Right(call_service(service, request, convert, convert::from_unpin_body))
    }
}

impl<M> fmt::Debug for App<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
