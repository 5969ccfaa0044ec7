//! The router of a worker, which a reload replaces while the worker serves.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use weft::{Application, Request, Response};

use crate::active_plan::PlanReceiver;
use crate::route::Router;
use crate::status::RouteMetrics;

/// The application of a worker: its current router.
pub(crate) struct ReloadableRouter(Rc<RefCell<Router>>);

impl ReloadableRouter {
    /// Builds the router of a worker, and spawns a local task that replaces it after each reload.
    /// Must be called on the worker's event loop. Requests are counted in `route_metrics`, if there
    /// is one.
    pub(crate) fn new(
        mut plans: PlanReceiver,
        route_metrics: Option<Arc<RouteMetrics>>,
    ) -> ReloadableRouter {
        let current = Rc::new_cyclic(|current| {
            RefCell::new(router(&mut plans, None, route_metrics.as_deref(), current))
        });
        let shared = current.clone();
        tokio::task::spawn_local(async move {
            while plans.changed().await.is_ok() {
                let (metrics, current) = (route_metrics.as_deref(), Rc::downgrade(&shared));
                let newer = router(&mut plans, Some(&shared.borrow()), metrics, &current);
                shared.replace(newer);
            }
        });
        ReloadableRouter(current)
    }
}

fn router(
    plans: &mut PlanReceiver,
    former: Option<&Router>,
    route_metrics: Option<&RouteMetrics>,
    current: &Weak<RefCell<Router>>,
) -> Router {
    let active = plans.borrow_and_update().clone();
    active.opened.routing.router(former, route_metrics, &active.logs, current)
}

impl Application for ReloadableRouter {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        // A request in progress keeps the application with which it began.
        self.0.borrow().handle(request)
    }
}
