//! The router of a worker, which a reload replaces while the worker serves.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use weft::{Application, Request, Response};

use crate::route::{Router, Routing};
use crate::status::RouteMetrics;

/// Sends the current routes to all workers.
pub(crate) struct RouteSender(watch::Sender<Arc<Mutex<Routing>>>);

/// Receives the current routes in one worker.
pub(crate) type RouteReceiver = watch::Receiver<Arc<Mutex<Routing>>>;

impl RouteSender {
    pub(crate) fn new(routing: Routing) -> (RouteSender, RouteReceiver) {
        let (sender, receiver) = watch::channel(Arc::new(Mutex::new(routing)));
        (RouteSender(sender), receiver)
    }

    /// Replaces the routes of all workers, for requests from now on.
    pub(crate) fn replace(&self, routing: Routing) {
        self.0.send_replace(Arc::new(Mutex::new(routing)));
    }

    /// Calls `f` with the current routes.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Routing) -> T) -> T {
        f(&self.0.borrow().lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The application of a worker: its current router.
pub(crate) struct ReloadableRouter(Rc<RefCell<Rc<Router>>>);

impl ReloadableRouter {
    /// Builds the router of a worker, and spawns a local task that replaces it after each change.
    /// Must be called on the worker's event loop. Requests are counted in `route_metrics`, if there
    /// is one.
    pub(crate) fn new(
        mut routes: RouteReceiver,
        route_metrics: Option<Arc<RouteMetrics>>,
    ) -> ReloadableRouter {
        let current =
            Rc::new(RefCell::new(Rc::new(router(&mut routes, None, route_metrics.as_deref()))));
        let shared = current.clone();
        tokio::task::spawn_local(async move {
            while routes.changed().await.is_ok() {
                let former = shared.borrow().clone();
                let newer = router(&mut routes, Some(&former), route_metrics.as_deref());
                *shared.borrow_mut() = Rc::new(newer);
            }
        });
        ReloadableRouter(current)
    }
}

fn router(
    routes: &mut RouteReceiver,
    former: Option<&Router>,
    route_metrics: Option<&RouteMetrics>,
) -> Router {
    let routing = routes.borrow_and_update().clone();
    let routing = routing.lock().unwrap_or_else(PoisonError::into_inner);
    routing.router(former, route_metrics)
}

impl Application for ReloadableRouter {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        // A request in progress keeps the router with which it began.
        let router = self.0.borrow().clone();
        router.handle(request)
    }
}
