//! The traits `Application` and `Middleware`, and their implementations for plain functions.

mod with_state;

use std::future::Future;
use std::pin::Pin;

pub use self::with_state::with_state;
use crate::message::into_response::IntoResponse;
use crate::message::request::Request;
use crate::message::response::Response;

/// A function from a request to a response.
///
/// Async functions and closures are applications. They return a [`Response`] or any other value
/// that is [`IntoResponse`], such as text, or a `Result`, so that `?` works with
/// [`Error`](crate::Error).
///
/// Each worker thread has its own clone of the application, so its futures need not be `Send`.
/// [`Request`] and [`Response`] are `Send` and may be moved to other threads.
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
///
/// # HEAD
/// A function gets a HEAD request as GET, and the engine sends only the head of its response (RFC
/// 9110 §9.3.2): a stream is dropped without being polled. A function for which the content is
/// expensive tests [`received_method`](crate::message::RequestHead::received_method). A type that
/// implements this trait gets HEAD, as [`Middleware`] does.
///
/// ```
/// use weft::{Request, Response, testing};
///
/// async fn app(request: Request) -> Response {
///     match (request.method().as_str(), request.path()) {
///         ("GET", "/") => Response::text("Hello\n"),
///         (_, "/") => Response::method_not_allowed("GET"),
///         _ => Response::not_found(),
///     }
/// }
///
/// let head = testing::call(app, testing::request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"));
/// assert_eq!((head.status.as_u16(), head.header("content-length")), (200, Some("6")));
/// let put = testing::call(app, testing::request("PUT / HTTP/1.1\r\nHost: a\r\n\r\n"));
/// assert_eq!((put.status.as_u16(), put.header("allow")), (405, Some("GET, HEAD")));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an application",
    label = "expected an application here",
    note = "an application is an async function or closure from `weft::Request` to \
            `weft::Response`, or another value that is `weft::IntoResponse`, \
            or a type that implements `weft::Application`",
    note = "an `Arc` of an application is none: `weft::with_state(Arc::new(state), handler)`, or a \
            type that is `Clone` and has its shared state in an `Arc`",
    note = "a `Result` with an application is for `weft::Server::try_per_worker`",
    note = "a tower service, such as a router of axum, becomes an application by \
            `weft::tower::app(service)`"
)]
pub trait Application {
    /// Handles one request.
    fn call(&self, request: Request) -> impl Future<Output = Response>;

    /// Wraps this application in a middleware: requests pass through it before anything that this
    /// application consists of, and responses after it. The last call is the outermost middleware,
    /// whatever type the application has; [`stack`](crate::stack) is the form in which the first
    /// one is.
    ///
    /// ```
    /// use weft::{Application, Next, Request, Response};
    ///
    /// async fn hello(_: Request) -> Response { Response::text("Hello\n") }
    ///
    /// async fn inner(request: Request, next: Next<'_>) -> Response {
    ///     next.call(request).await.with_appended_header("via", "inner")
    /// }
    ///
    /// async fn outer(request: Request, next: Next<'_>) -> Response {
    ///     next.call(request).await.with_appended_header("via", "outer")
    /// }
    ///
    /// let reply = weft::testing::get(hello.wrap(inner).wrap(outer), "/");
    /// assert_eq!(reply.headers[1].1, "inner");
    /// assert_eq!(reply.headers[2].1, "outer");
    /// ```
    fn wrap<M: Middleware>(self, middleware: M) -> Wrapped<M, Self>
    where
        Self: Sized,
    {
        Wrapped::new(middleware, self)
    }
}

impl<F, T> Application for F
where
    F: AsyncFn(Request) -> T,
    T: IntoResponse,
{
    async fn call(&self, mut request: Request) -> Response {
        request.handle_head_as_get();
        self(request).await.into_response()
    }
}

/// A wrapper around an application, which handles each request before it and each response after
/// it.
///
/// A middleware may respond itself, change the request, or change the response. Async functions and
/// closures from a [`Request`] and a [`Next`] to a value that is [`IntoResponse`] are middleware;
/// [`from_fn`](crate::middleware::from_fn) gives a function a state. A type that implements this
/// trait avoids the allocation that `Next` needs per call.
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
/// # assert_eq!(weft::testing::get(hello.wrap(Closed), "/admin").status, 403);
/// # weft::testing::get(hello.wrap(Closed), "/").assert_text("Hello\n");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not middleware",
    label = "expected middleware here",
    note = "middleware is an async function or closure from `(weft::Request, weft::Next<'_>)` \
            to `weft::Response`, or a type that implements `weft::Middleware`",
    note = "a function with a state becomes middleware by `weft::middleware::from_fn(state, \
            function)`, and a layer of tower by `weft::tower::layer(layer)`"
)]
pub trait Middleware {
    /// Handles a request, by calling `next` or without it.
    fn call(&self, request: Request, next: &impl Application) -> impl Future<Output = Response>;
}

impl<F, T> Middleware for F
where
    F: AsyncFn(Request, Next<'_>) -> T,
    T: IntoResponse,
{
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        self(request, Next(next)).await.into_response()
    }
}

/// The application wrapped by a middleware function.
#[derive(Clone, Copy)]
pub struct Next<'a>(&'a dyn DynApplication);

impl<'a> Next<'a> {
    pub(crate) fn new(app: &'a impl Application) -> Next<'a> {
        Next(app)
    }

    /// Passes the request on. It is the method of the trait [`Application`], which a middleware
    /// function need not import.
    #[doc(alias = "run")]
    pub async fn call(&self, request: Request) -> Response {
        self.0.call_boxed(request).await
    }
}

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

/// Object-safe form of [`Application`], with boxed futures.
trait DynApplication {
    fn call_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Response> + '_>>;
}

impl<A: Application> DynApplication for A {
    fn call_boxed(&self, request: Request) -> Pin<Box<dyn Future<Output = Response> + '_>> {
        Box::pin(self.call(request))
    }
}

/// An application of any type, for lists of applications
/// ([`VirtualHosts`](crate::middleware::VirtualHosts)) and for selection at run time.
/// Each call makes one small allocation.
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
pub struct BoxApplication(Box<dyn CloneApplication>);

impl BoxApplication {
    /// Boxes an application.
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
        BoxApplication(self.0.clone_boxed())
    }
}

impl std::fmt::Debug for BoxApplication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxApplication")
    }
}

/// Object-safe form of an application that can be cloned for each worker.
trait CloneApplication: DynApplication + Send {
    fn clone_boxed(&self) -> Box<dyn CloneApplication>;
}

impl<A: Application + Clone + Send + 'static> CloneApplication for A {
    fn clone_boxed(&self) -> Box<dyn CloneApplication> {
        Box::new(self.clone())
    }
}

/// An application within a middleware, made by [`Application::wrap`].
///
/// The future of the middleware contains the future of the application directly, without a layer
/// that the compiler has to optimize away.
#[derive(Clone, Debug)]
pub struct Wrapped<M, A> {
    middleware: M,
    app: A,
}

impl<M, A> Wrapped<M, A> {
    pub(crate) fn new(middleware: M, app: A) -> Wrapped<M, A> {
        Wrapped { middleware, app }
    }

    /// Replaces the application by the result of `map`.
    pub(crate) fn map_app<B>(self, map: impl FnOnce(A) -> B) -> Wrapped<M, B> {
        Wrapped { middleware: self.middleware, app: map(self.app) }
    }
}

impl<M: Middleware, A: Application> Application for Wrapped<M, A> {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.middleware.call(request, &self.app)
    }
}
