//! Applications that are functions with a state.

use super::Application;
use crate::message::into_response::IntoResponse;
use crate::message::request::Request;
use crate::message::response::Response;

/// Creates an application from a state and an async function or method, which gets a reference to
/// the state. Each worker has its own clone of the state, so that state that workers share is an
/// [`Arc`](std::sync::Arc).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use weft::{Request, with_state};
///
/// #[derive(Clone, Default)]
/// struct Counter { requests: Arc<AtomicU64> }
///
/// impl Counter {
///     async fn count(&self, _: Request) -> String {
///         format!("{}\n", 1 + self.requests.fetch_add(1, Ordering::Relaxed))
///     }
/// }
///
/// let app = with_state(Counter::default(), Counter::count);
/// weft::testing::get(app.clone(), "/").assert_text("1\n");
/// weft::testing::get(app, "/").assert_text("2\n");
/// ```
///
/// An `async move |request| …` closure that owns its state is an application without this function.
/// [`from_fn`](crate::middleware::from_fn) gives a state to middleware, and
/// [`Server::per_worker`](crate::Server::per_worker) creates a state for each worker.
pub fn with_state<S, F, T>(state: S, function: F) -> WithState<S, F>
where
    F: AsyncFn(&S, Request) -> T,
    T: IntoResponse,
{
    WithState { state, function }
}

/// An application created by [`with_state`].
#[derive(Clone, Debug)]
pub struct WithState<S, F> {
    state: S,
    function: F,
}

impl<S, F, T> Application for WithState<S, F>
where
    F: AsyncFn(&S, Request) -> T,
    T: IntoResponse,
{
    async fn call(&self, mut request: Request) -> Response {
        request.handle_head_as_get();
        (self.function)(&self.state, request).await.into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::testing::{call, request};

    /// The state need be neither `Sync` nor `Send` for a caller on one thread.
    #[test]
    fn functions_get_the_state_and_get_for_head() {
        async fn count(seen: &Rc<Cell<u8>>, request: Request) -> String {
            seen.set(seen.get() + 1);
            format!("{} {}", request.method(), seen.get())
        }
        let app = with_state(Rc::default(), count);
        let send = |line: &str| {
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
            call(app.clone(), request(head))
        };
        send("GET /").assert_text("GET 1");
        let head = send("HEAD /");
        assert_eq!((head.header("content-length"), head.body.len()), (Some("5"), 0));
        send("PUT /").assert_text("PUT 3");
    }
}
