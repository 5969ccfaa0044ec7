//! Middleware functions with a state.

use crate::app::{Application, Middleware, Next};
use crate::message::into_response::IntoResponse;
use crate::message::request::Request;
use crate::message::response::Response;

/// Creates middleware from a state and an async function, which gets a reference to the state.
/// Each worker has its own clone of the state, so that state that workers share is an
/// [`Arc`](std::sync::Arc).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use weft::middleware::from_fn;
/// use weft::{Next, Request, Response, StatusCode, stack};
///
/// #[derive(Clone)]
/// struct Access {
///     token: Arc<str>,
///     denials: Arc<AtomicU64>,
/// }
///
/// async fn require_token(access: &Access, request: Request, next: Next<'_>) -> Response {
///     if request.headers().get("x-token") == Some(&access.token) {
///         return next.call(request).await;
///     }
///     access.denials.fetch_add(1, Ordering::Relaxed);
///     StatusCode::UNAUTHORIZED.into()
/// }
///
/// async fn hello(_: Request) -> &'static str { "Hello\n" }
///
/// let access = Access { token: "s3cret".into(), denials: Arc::default() };
/// let app = stack(hello).with(from_fn(access.clone(), require_token));
/// assert_eq!(weft::testing::get(app, "/").status, 401);
/// assert_eq!(access.denials.load(Ordering::Relaxed), 1);
/// ```
///
/// A closure that owns its state is middleware without this function:
/// `async move |request: Request, next: Next<'_>| …`.
pub fn from_fn<S, F, T>(state: S, function: F) -> FromFn<S, F>
where
    F: AsyncFn(&S, Request, Next<'_>) -> T,
    T: IntoResponse,
{
    FromFn { state, function }
}

/// Middleware created by [`from_fn`].
#[derive(Clone, Debug)]
pub struct FromFn<S, F> {
    state: S,
    function: F,
}

impl<S, F, T> Middleware for FromFn<S, F>
where
    F: AsyncFn(&S, Request, Next<'_>) -> T,
    T: IntoResponse,
{
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        (self.function)(&self.state, request, Next::new(next)).await.into_response()
    }
}
