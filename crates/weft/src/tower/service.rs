//! Applications as tower services.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::task::JoinHandle;
use tower_service::Service;

use crate::app::Application;
use crate::message::body::Body;
use crate::message::response::Response;
use crate::tower::{BoxError, convert};

/// Converts an application to a tower service, to be mounted in an axum router that Weft serves, or
/// to be tested with tower's tools.
///
/// The futures of an application are not `Send`, but routers require `Send` futures. So each call
/// runs as a local task of the current thread, which needs a local task context: Weft's workers
/// provide one, and so does a [`LocalSet`](tokio::task::LocalSet). **Anywhere else a call panics,**
/// including under `axum::serve`. Dropping a call's future cancels its task. Each thread has its
/// own clone of the application, as each worker of a server has.
///
/// Inside an [`app`](super::app), requests have the peer and the shutdown state of the outer
/// server.
///
/// ```
/// use axum::Router;
/// use weft::files::Directory;
/// use weft::{Request, Response, testing, tower};
///
/// async fn hello(request: Request) -> Response {
///     Response::text(format!("Hello from {}\n", request.path()))
/// }
///
/// let router: Router = Router::new().nest_service("/weft", tower::service(hello));
/// # tokio::runtime::Builder::new_current_thread().build_local(Default::default()).unwrap().block_on(async {
/// # use weft::Application;
/// # let request = testing::request("GET /weft/a HTTP/1.1\r\nHost: a\r\n\r\n");
/// # assert_eq!(tower::app(router.clone()).call(request).await.length(), Some(14));
/// # });
/// # let _ = || weft::serve("127.0.0.1:8080", tower::app(router));
/// ```
pub fn service<A>(app: A) -> AppService<A>
where
    A: Application + Clone + Send + 'static,
{
    AppService(Arc::new(Mutex::new(app)))
}

/// An application as a tower service; returned by [`service`].
///
/// The mutex is locked once in each thread.
pub struct AppService<A>(Arc<Mutex<A>>);

thread_local! {
    static CLONES: RefCell<Vec<ThreadLocalApp>> = RefCell::default();
}

/// The current thread's clone of an application.
struct ThreadLocalApp {
    /// Identifies the service that the clone was made for.
    source: Weak<dyn Any + Send + Sync>,
    app: Rc<dyn Any>,
}

impl<A: Clone + Send + 'static> AppService<A> {
    /// Returns the current thread's clone of the application.
    fn local(&self) -> Rc<A> {
        CLONES.with_borrow_mut(|clones| {
            let source = Arc::as_ptr(&self.0);
            let existing = clones.iter().find(|l| std::ptr::addr_eq(l.source.as_ptr(), source));
            if let Some(app) = existing.and_then(|local| local.app.clone().downcast().ok()) {
                return app;
            }
            clones.retain(|local| local.source.strong_count() > 0);
            let app = Rc::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone());
            let source: Arc<dyn Any + Send + Sync> = self.0.clone();
            clones.push(ThreadLocalApp { source: Arc::downgrade(&source), app: app.clone() });
            app
        })
    }
}

impl<A, B> Service<http::Request<B>> for AppService<A>
where
    A: Application + Clone + Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = CallFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> CallFuture {
        let app = self.local();
        let request = convert::from_http_request(request, None);
        CallFuture(tokio::task::spawn_local(async move {
            match request {
                Ok(request) => {
                    let head = request.head().clone();
                    convert::to_http_response(&head, app.call(request).await)
                }
                Err(error) => convert::to_http_response_as_is(Response::from(error)),
            }
        }))
    }
}

impl<A> Clone for AppService<A> {
    fn clone(&self) -> AppService<A> {
        AppService(self.0.clone())
    }
}

impl<A> fmt::Debug for AppService<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppService")
    }
}

/// Future of [`AppService`].
#[derive(Debug)]
pub struct CallFuture(JoinHandle<http::Response<Body>>);

impl Future for CallFuture {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(response) => Poll::Ready(Ok(response)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The task is canceled only if the runtime shuts down.
                Err(_) => Poll::Pending,
            },
        }
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        self.0.abort();
    }
}
