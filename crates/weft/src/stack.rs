//! Applications within middleware.

use std::future::Future;

use crate::app::{Application, Middleware, Wrapped};
use crate::message::request::Request;
use crate::message::response::Response;

/// Begins a list of middleware around an application, in the order in which a request meets it.
///
/// ```
/// use weft::{Application, Next, Request, Response, stack};
///
/// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
///
/// async fn first(request: Request, next: Next<'_>) -> Response {
///     next.call(request).await.with_appended_header("via", "first")
/// }
///
/// async fn second(request: Request, next: Next<'_>) -> Response {
///     next.call(request).await.with_appended_header("via", "second")
/// }
///
/// // Responses pass through the list from its end.
/// let reply = weft::testing::get(stack(hello).with(first).with(second), "/");
/// assert_eq!(reply.headers[1].1, "second");
/// assert_eq!(reply.headers[2].1, "first");
/// ```
pub fn stack<A: Application>(app: A) -> Stack<Endpoint<A>> {
    Stack(Endpoint(app))
}

/// A list of middleware around an application, made by [`stack`].
#[derive(Clone, Debug)]
pub struct Stack<A>(A);

impl<A> Stack<A> {
    /// Adds a middleware behind the others: it is the one next to the application.
    pub fn with<M: Middleware>(self, middleware: M) -> Stack<A::Output>
    where
        A: InsertMiddleware<M>,
    {
        Stack(self.0.insert_middleware(middleware))
    }
}

impl<A: Application> Application for Stack<A> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.0.call(request)
    }
}

/// The application of a [`Stack`], inside all middleware.
#[derive(Clone, Debug)]
pub struct Endpoint<A>(A);

impl<A: Application> Application for Endpoint<A> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.0.call(request)
    }
}

/// The contents of a [`Stack`], into which a middleware can be inserted next to the application.
pub trait InsertMiddleware<M>: sealed::Contents {
    /// The contents with the middleware.
    type Output: Application;

    /// Inserts the middleware.
    fn insert_middleware(self, middleware: M) -> Self::Output;
}

impl<A: Application, M: Middleware> InsertMiddleware<M> for Endpoint<A> {
    type Output = Wrapped<M, Endpoint<A>>;

    fn insert_middleware(self, middleware: M) -> Self::Output {
        Wrapped::new(middleware, self)
    }
}

impl<N: Middleware, A: InsertMiddleware<M>, M> InsertMiddleware<M> for Wrapped<N, A> {
    type Output = Wrapped<N, A::Output>;

    fn insert_middleware(self, middleware: M) -> Self::Output {
        self.map_app(|app| app.insert_middleware(middleware))
    }
}

mod sealed {
    /// Supertrait that only the contents of stacks implement.
    pub trait Contents {}
    impl<A> Contents for super::Endpoint<A> {}
    impl<M, A> Contents for super::Wrapped<M, A> {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Next;
    use crate::testing::get;

    async fn app(_: Request) -> Response {
        Response::new(http::StatusCode::OK)
    }

    fn mark(name: &'static str) -> impl Middleware {
        async move |request: Request, next: Next<'_>| {
            next.call(request).await.with_appended_header("x-mark", name)
        }
    }

    fn marks(app: impl Application) -> Vec<String> {
        let marks = get(app, "/").headers.into_iter().filter(|(name, _)| name == "x-mark");
        marks.map(|(_, value)| value).map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    fn wrapped(app: impl Application) -> impl Application {
        app.wrap(mark("c"))
    }

    /// The order does not depend on the functions through which an application passes.
    #[test]
    fn the_last_wrapper_is_the_outermost_whatever_it_wraps() {
        let expected = ["a", "b", "c"];
        assert_eq!(marks(app.wrap(mark("a")).wrap(mark("b")).wrap(mark("c"))), expected);
        assert_eq!(marks(wrapped(app.wrap(mark("a")).wrap(mark("b")))), expected);
        assert_eq!(marks(wrapped(stack(app).with(mark("b")).with(mark("a")))), expected);
        assert_eq!(marks(stack(app).with(mark("b")).with(mark("a")).wrap(mark("c"))), expected);
        assert_eq!(marks(stack(app).with(mark("c")).with(mark("b")).with(mark("a"))), expected);
        assert_eq!(marks(stack(app.wrap(mark("a"))).with(mark("c")).with(mark("b"))), expected);
    }
}
