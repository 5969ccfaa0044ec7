//! The router of a worker, which a reload replaces while the worker serves.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures_util::future::FutureExt;
use weft::Request;
use weft::middleware::CleanPath;

use super::active_plan::PlanReceiver;
use crate::router::{RouteMetrics, RoutedResponse, Router};

/// The current router of a worker.
pub(crate) struct ReloadableRouter(Rc<Reloader>);

struct Reloader {
    current: Rc<RefCell<Router>>,
    /// Receiver of plans; detects a change since the router was built.
    plans: RefCell<PlanReceiver>,
    route_metrics: Option<Arc<RouteMetrics>>,
}

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
        let mut changes = plans.clone();
        let reloader = Reloader { current, plans: plans.into(), route_metrics };
        let reloader = Rc::new(reloader);
        let shared = reloader.clone();
        tokio::task::spawn_local(async move {
            while changes.changed().await.is_ok() {
                shared.update();
            }
        });
        ReloadableRouter(reloader)
    }

    /// Handles a request with the application of its route.
    pub(crate) fn handle(&self, mut request: Request) -> RoutedResponse {
        // The router matches normalized paths only. They are rewritten, without a redirect.
        let redirect = CleanPath::new().rewrite().apply(&mut request);
        debug_assert!(redirect.is_none());
        // A connection accepted after a reload may be served before the task that updates the
        // router.
        self.0.update();
        let current = self.0.current.borrow();
        if let Some(look_up) = current.look_up_validation(&request) {
            let current = self.0.current.clone();
            let response = async move {
                look_up.await;
                let routed = current.borrow().handle(request);
                routed.await
            };
            return RoutedResponse::without_route(response.boxed_local());
        }
        // A request in progress keeps the application with which it began.
        current.handle(request)
    }
}

impl Reloader {
    /// Replaces the router if the plan has changed.
    fn update(&self) {
        if self.plans.borrow().has_changed().unwrap_or(false) {
            self.replace();
        }
    }

    #[cold]
    fn replace(&self) {
        let (metrics, current) = (self.route_metrics.as_deref(), Rc::downgrade(&self.current));
        let former = self.current.borrow();
        let newer = router(&mut self.plans.borrow_mut(), Some(&former), metrics, &current);
        drop(former);
        self.current.replace(newer);
    }
}

fn router(
    plans: &mut PlanReceiver,
    former: Option<&Router>,
    route_metrics: Option<&RouteMetrics>,
    current: &Weak<RefCell<Router>>,
) -> Router {
    let active = plans.borrow_and_update().clone();
    let router = active.opened.routing.router(former, route_metrics, &active.logs, current);
    router.with_acme(active.opened.acme().cloned())
}
