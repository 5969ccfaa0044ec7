//! The application of a server of the program: the routes, or the status endpoint.
//!
//! Both servers have the same type of application, so that the engine, which is generic, is
//! compiled once.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::{Application, Request, Response};

use super::active_plan::PlanReceiver;
use super::reloadable_router::ReloadableRouter;
use crate::router::{RouteMetrics, RoutedResponse};

/// The application of a worker.
pub(crate) enum ServedApplication {
    Routes(ReloadableRouter),
    Other(Box<dyn Fn(Request) -> LocalBoxFuture<'static, Response>>),
}

impl ServedApplication {
    /// Creates the application that routes requests by the current plan. Must be called on the
    /// event loop of the worker. Requests are counted in `metrics`, if there are any.
    pub(crate) fn routes(
        plans: PlanReceiver,
        metrics: Option<Arc<RouteMetrics>>,
    ) -> ServedApplication {
        ServedApplication::Routes(ReloadableRouter::new(plans, metrics))
    }

    /// Creates an application from one of another type.
    pub(crate) fn other(app: impl Application + 'static) -> ServedApplication {
        let app = Rc::new(app);
        ServedApplication::Other(Box::new(move |request| {
            let app = app.clone();
            async move { app.call(request).await }.boxed_local()
        }))
    }
}

impl Application for ServedApplication {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        match self {
            ServedApplication::Routes(router) => router.handle(request),
            ServedApplication::Other(app) => RoutedResponse::without_route(app(request)),
        }
    }
}
