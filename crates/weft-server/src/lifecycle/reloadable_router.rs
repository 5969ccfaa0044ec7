//! The router of a worker, which a reload replaces while the worker serves.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures_util::future::{Either, ready};
use weft::acme::Acme;
use weft::{Application, Request, Response};

use crate::open::active_plan::PlanReceiver;
use crate::router::RouteMetrics;
use crate::router::Router;

/// The application of a worker: its current router, behind the responses to a certificate authority.
pub(crate) struct ReloadableRouter(Rc<Reloader>);

struct Reloader {
    current: Rc<RefCell<Router>>,
    /// Validations of an authority, which precede all routes and redirects; `None` if no certificates
    /// are ordered.
    acme: RefCell<Option<Arc<Acme>>>,
    /// Knows if the plan has changed since the router was built.
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
        let acme = acme(&plans).into();
        let reloader = Reloader { current, acme, plans: plans.into(), route_metrics };
        let reloader = Rc::new(reloader);
        let shared = reloader.clone();
        tokio::task::spawn_local(async move {
            while changes.changed().await.is_ok() {
                shared.update();
            }
        });
        ReloadableRouter(reloader)
    }
}

impl Reloader {
    /// Replaces the router if the plan has changed.
    fn update(&self) {
        let mut plans = self.plans.borrow_mut();
        if plans.has_changed().unwrap_or(false) {
            let (metrics, current) = (self.route_metrics.as_deref(), Rc::downgrade(&self.current));
            let newer = router(&mut plans, Some(&self.current.borrow()), metrics, &current);
            self.current.replace(newer);
            self.acme.replace(acme(&plans));
        }
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

fn acme(plans: &PlanReceiver) -> Option<Arc<Acme>> {
    plans.borrow().opened.acme().cloned()
}

impl Application for ReloadableRouter {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        // A connection accepted after a reload may be served before the task that updates the router.
        self.0.update();
        if let Some(acme) = &*self.0.acme.borrow()
            && let Some(response) = acme.respond(&request)
        {
            return Either::Left(ready(response));
        }
        // A request in progress keeps the application with which it began.
        Either::Right(self.0.current.borrow().handle(request))
    }
}
