//! Routers, and the values that `into_make_service` returns.

use std::convert::Infallible;

use ::axum::Router;
use ::axum::extract::Request;
use ::axum::extract::connect_info::{Connected, IntoMakeServiceWithConnectInfo};
use ::axum::response::Response;
use ::axum::routing::{IntoMakeService, MethodRouter};
use futures_util::FutureExt;
use tower_service::Service;

use crate::axum::incoming::IncomingStream;

/// A type that [`serve`](super::serve()) and [`app`](super::app) accept: `Router`, `MethodRouter`,
/// or the result of `into_make_service` or `into_make_service_with_connect_info` of a router,
/// handler or service.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a router of axum, or its state is missing",
    label = "expected a router, or the result of `into_make_service`",
    note = "call `with_state` on a router with a state, and `into_make_service()` of \
            `axum::ServiceExt` on another service; types of `ConnectInfo` implement \
            `axum::extract::connect_info::Connected<weft::axum::IncomingStream<'_>>`"
)]
pub trait MakeService: sealed::Sealed + Clone + Send + 'static {
    /// The service of a connection.
    type Service: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static;

    /// Does the work that would otherwise be repeated at each request.
    fn complete(self) -> Self {
        self
    }

    /// Creates a service for a connection. It is called at each request.
    fn make(&self, stream: IncomingStream<'_>) -> Self::Service;
}

impl MakeService for Router {
    type Service = Router;

    fn complete(self) -> Router {
        self.with_state(())
    }

    fn make(&self, _: IncomingStream<'_>) -> Router {
        self.clone()
    }
}

impl MakeService for MethodRouter {
    type Service = MethodRouter;

    fn complete(self) -> MethodRouter {
        self.with_state(())
    }

    fn make(&self, _: IncomingStream<'_>) -> MethodRouter {
        self.clone()
    }
}

impl<S> MakeService for IntoMakeService<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
{
    type Service = S;

    fn make(&self, stream: IncomingStream<'_>) -> S {
        call(self.clone(), stream)
    }
}

impl<S, C> MakeService for IntoMakeServiceWithConnectInfo<S, C>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    C: for<'a> Connected<IncomingStream<'a>>,
{
    type Service = ::axum::middleware::AddExtension<S, ::axum::extract::ConnectInfo<C>>;

    fn make(&self, stream: IncomingStream<'_>) -> Self::Service {
        call(self.clone(), stream)
    }
}

/// Calls one of axum's make services, which are always ready and return a service at once: they
/// have the form of a service only for the sake of tower.
fn call<M, T>(mut make_service: M, target: T) -> M::Response
where
    M: Service<T, Error = Infallible>,
{
    match make_service.call(target).now_or_never() {
        Some(Ok(service)) => service,
        None => unreachable!("the make services of axum do not wait"),
    }
}

/// The types that implement [`MakeService`].
mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Router {}
    impl Sealed for super::MethodRouter {}
    impl<S> Sealed for super::IntoMakeService<S> {}
    impl<S, C> Sealed for super::IntoMakeServiceWithConnectInfo<S, C> {}
}
