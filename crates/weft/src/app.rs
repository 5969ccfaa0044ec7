//! Application and Middleware, and how plain functions become them.

use std::future::Future;
use std::pin::Pin;

use crate::message::request::Request;
use crate::message::response::Response;

/// A function from a request to a response.
///
/// Asynchronous functions and closures are applications. What they return becomes a
/// response: a [`Response`] as it is, a `Result` by its side, so that `?` works on
/// [`Error`](crate::Error).
///
/// Each worker has its own clone of the application, on one thread, so its futures need
/// not be `Send`. [`Request`] and [`Response`] are, and may go elsewhere.
///
/// ```
/// use weft::{Request, Response};
///
/// async fn length(request: Request) -> weft::Result<Response> {
///     let body = request.into_body().collect(1 << 20).await?;
///     Ok(Response::text(format!("{} bytes\n", body.len())))
/// }
/// # let _ = || weft::serve("127.0.0.1:0", length);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an application",
    label = "expected an application here",
    note = "an application is an async function or closure from `weft::Request` to \
            `weft::Response` (or to a `Result` of it whose error is `Into<Response>`), \
            or a type that implements `weft::Application`"
)]
pub trait Application {
    /// Answers one request.
    fn call(&self, request: Request) -> impl Future<Output = Response>;

    /// This application behind a middleware. A request meets middleware in the order in
    /// which it is written down, and a response in the opposite order:
    ///
    /// ```
    /// use weft::{Application, Next, Request, Response};
    ///
    /// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
    ///
    /// async fn outer(request: Request, next: Next<'_>) -> Response {
    ///     next.call(request).await.with_header(weft::header::VIA, "outer")
    /// }
    ///
    /// async fn inner(request: Request, next: Next<'_>) -> Response {
    ///     next.call(request).await.with_header(weft::header::VIA, "inner")
    /// }
    ///
    /// let app = hello.with(outer).with(inner);
    /// let reply = weft::testing::get(app, "/");
    /// assert_eq!(reply.headers[1].1, "inner");
    /// assert_eq!(reply.headers[2].1, "outer");
    /// ```
    fn with<M: Middleware>(self, middleware: M) -> With<M, Innermost<Self>>
    where
        Self: Sized,
    {
        With { middleware, app: Innermost(self) }
    }
}

impl<F, T> Application for F
where
    F: AsyncFn(Request) -> T,
    T: Into<Response>,
{
    async fn call(&self, request: Request) -> Response {
        self(request).await.into()
    }
}

/// What stands before an application: it sees each request first and each response last.
///
/// It may answer by itself, change the request, or change the response. Asynchronous
/// functions and closures from a [`Request`] and a [`Next`] to a [`Response`] are middleware;
/// a type that implements this trait is called without the allocation that `Next` costs.
///
/// ```
/// use weft::{Application, Middleware, Request, Response, StatusCode};
///
/// #[derive(Clone)]
/// struct Closed;
///
/// impl Middleware for Closed {
///     async fn call(&self, request: Request, next: &impl Application) -> Response {
///         match request.path() {
///             "/admin" => Response::new(StatusCode::FORBIDDEN),
///             _ => next.call(request).await,
///         }
///     }
/// }
/// # async fn hello(_: Request) -> Response { Response::text("Hello\n") }
/// # assert_eq!(weft::testing::get(hello.with(Closed), "/admin").status, 403);
/// # weft::testing::get(hello.with(Closed), "/").assert_text("Hello\n");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not middleware",
    label = "expected middleware here",
    note = "middleware is an async function or closure from `(weft::Request, weft::Next<'_>)` \
            to `weft::Response`, or a type that implements `weft::Middleware`"
)]
pub trait Middleware {
    /// Answers a request, with the help of the application behind this or without it.
    fn call(&self, request: Request, next: &impl Application) -> impl Future<Output = Response>;
}

impl<F> Middleware for F
where
    F: AsyncFn(Request, Next<'_>) -> Response,
{
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        self(request, Next(next)).await
    }
}

/// The application behind a middleware that is a function.
#[derive(Clone, Copy)]
pub struct Next<'a>(&'a dyn Boxed);

impl Application for Next<'_> {
    async fn call(&self, request: Request) -> Response {
        self.0.call_boxed(request).await
    }
}

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Next")
    }
}

/// An application of any type, whose futures are boxed for that.
trait Boxed {
    fn call_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Response> + '_>>;
}

impl<A: Application> Boxed for A {
    fn call_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Response> + '_>> {
        Box::pin(self.call(request))
    }
}

/// An application of any type, so that several can stand in one list
/// ([`VirtualHosts`](crate::middleware::VirtualHosts)) or be chosen while the program runs.
/// Each of its calls makes one small allocation.
///
/// ```
/// use weft::{BoxApplication, Request, Response};
///
/// async fn closed(_: Request) -> Response { Response::text("We will be back\n") }
/// async fn open(_: Request) -> Response { Response::text("Welcome\n") }
///
/// let is_open = true;
/// let app = if is_open { BoxApplication::new(open) } else { BoxApplication::new(closed) };
/// weft::testing::get(app, "/").assert_text("Welcome\n");
/// ```
pub struct BoxApplication(Box<dyn Duplicate>);

impl BoxApplication {
    /// The application, boxed.
    pub fn new(app: impl Application + Clone + Send + 'static) -> BoxApplication {
        BoxApplication(Box::new(app))
    }
}

impl Application for BoxApplication {
    async fn call(&self, request: Request) -> Response {
        self.0.call_boxed(request).await
    }
}

impl Clone for BoxApplication {
    fn clone(&self) -> BoxApplication {
        BoxApplication(self.0.duplicate())
    }
}

impl std::fmt::Debug for BoxApplication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxApplication")
    }
}

/// An application of any type that each worker can have its clone of.
trait Duplicate: Boxed + Send {
    fn duplicate(&self) -> Box<dyn Duplicate>;
}

impl<A: Application + Clone + Send + 'static> Duplicate for A {
    fn duplicate(&self) -> Box<dyn Duplicate> {
        Box::new(self.clone())
    }
}

/// An application behind middleware: what [`Application::with`] makes.
///
/// Each middleware's application is all that stands behind it, so that its future holds that
/// of the next, with nothing between them that the compiler would have to look through.
#[derive(Clone, Debug)]
pub struct With<M, A> {
    middleware: M,
    app: A,
}

/// The application itself, behind all middleware.
#[derive(Clone, Debug)]
pub struct Innermost<A>(A);

impl<M, A> With<M, A> {
    /// The application behind one more middleware, which a request meets after those that
    /// are there.
    pub fn with<N: Middleware>(self, next: N) -> With<M, A::Behind>
    where
        A: Put<N>,
    {
        With { middleware: self.middleware, app: self.app.put(next) }
    }
}

impl<M: Middleware, A: Application> Application for With<M, A> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.middleware.call(request, &self.app)
    }
}

impl<A: Application> Application for Innermost<A> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.0.call(request)
    }
}

/// What a further middleware can be put into, before the innermost application.
pub trait Put<N> {
    /// What that makes of it.
    type Behind: Application;

    /// Puts it there.
    fn put(self, middleware: N) -> Self::Behind;
}

impl<A: Application, N: Middleware> Put<N> for Innermost<A> {
    type Behind = With<N, Innermost<A>>;

    fn put(self, middleware: N) -> Self::Behind {
        With { middleware, app: self }
    }
}

impl<M: Middleware, A: Put<N>, N> Put<N> for With<M, A> {
    type Behind = With<M, A::Behind>;

    fn put(self, middleware: N) -> Self::Behind {
        With { middleware: self.middleware, app: self.app.put(middleware) }
    }
}
