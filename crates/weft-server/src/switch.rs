//! A worker's routes, which can be changed while it serves.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use weft::{Application, Request, Response};

use crate::route::{Router, Routing};
use crate::status::Tally;

/// Where all workers get their routes from.
pub(crate) struct Switchboard(watch::Sender<Arc<Mutex<Routing>>>);

/// The other end of it, for one worker.
pub(crate) type Line = watch::Receiver<Arc<Mutex<Routing>>>;

impl Switchboard {
    pub(crate) fn new(routing: Routing) -> (Switchboard, Line) {
        let (sender, line) = watch::channel(Arc::new(Mutex::new(routing)));
        (Switchboard(sender), line)
    }

    /// Has all workers take other routes for requests from now on.
    pub(crate) fn change(&self, routing: Routing) {
        self.0.send_replace(Arc::new(Mutex::new(routing)));
    }

    /// Does something with the routes as they are.
    pub(crate) fn with<T>(&self, use_them: impl FnOnce(&Routing) -> T) -> T {
        use_them(&self.0.borrow().lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The application of a worker.
pub(crate) struct Switch(Rc<RefCell<Rc<Router>>>);

impl Switch {
    /// To be called on the worker's event loop, where changes are waited for. What becomes of
    /// requests is counted in the tally, if there is one.
    pub(crate) fn new(mut line: Line, tally: Option<Arc<Tally>>) -> Switch {
        let current = Rc::new(RefCell::new(Rc::new(router(&mut line, None, tally.as_deref()))));
        let changing = current.clone();
        tokio::task::spawn_local(async move {
            while line.changed().await.is_ok() {
                let former = changing.borrow().clone();
                let newer = router(&mut line, Some(&former), tally.as_deref());
                *changing.borrow_mut() = Rc::new(newer);
            }
        });
        Switch(current)
    }
}

fn router(line: &mut Line, former: Option<&Router>, tally: Option<&Tally>) -> Router {
    let routing = line.borrow_and_update().clone();
    let routing = routing.lock().unwrap_or_else(PoisonError::into_inner);
    routing.router(former, tally)
}

impl Application for Switch {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        // What has begun ends with the routes that it began with.
        let router = self.0.borrow().clone();
        router.answer(request)
    }
}
