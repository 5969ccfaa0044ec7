//! An application as a tower service.

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

/// An application as a tower service: to be mounted in an axum router that Weft serves, or
/// to be tested with tower's tools.
///
/// The futures of an application stay on their thread, while routers want futures that can
/// be sent to others. So each call runs as a local task of the thread, and there has to be a
/// place for that: Weft's workers have one, and so has a [`LocalSet`](tokio::task::LocalSet).
/// **Anywhere else a call panics,** under `axum::serve` too. Dropping a call's future ends
/// its task. Each thread has a clone of the application, as each worker of a server has.
///
/// Of an [`app`](super::app) around it, the application has the peer and the shutdown.
///
/// ```
/// use axum::Router;
/// use weft::{Directory, Request, Response, testing, tower};
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

/// An application as a tower service: what [`service`] makes.
///
/// Its application is locked once in each thread.
pub struct AppService<A>(Arc<Mutex<A>>);

thread_local! {
    static CLONES: RefCell<Vec<Local>> = RefCell::default();
}

/// This thread's clone of an application.
struct Local {
    /// The application's place in its service.
    source: Weak<dyn Any + Send + Sync>,
    app: Rc<dyn Any>,
}

impl<A: Clone + Send + 'static> AppService<A> {
    /// This thread's clone of the application.
    fn local(&self) -> Rc<A> {
        CLONES.with_borrow_mut(|clones| {
            let source = Arc::as_ptr(&self.0);
            let known = clones.iter().find(|l| std::ptr::addr_eq(l.source.as_ptr(), source));
            if let Some(app) = known.and_then(|local| local.app.clone().downcast().ok()) {
                return app;
            }
            clones.retain(|local| local.source.strong_count() > 0);
            let app = Rc::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone());
            let source: Arc<dyn Any + Send + Sync> = self.0.clone();
            clones.push(Local { source: Arc::downgrade(&source), app: app.clone() });
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
    type Future = Call;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Call {
        let app = self.local();
        let request = convert::from_http_request(request, None);
        Call(tokio::task::spawn_local(async move {
            match request {
                Ok(request) => {
                    let head = request.head().clone();
                    convert::to_http_response(&head, app.call(request).await)
                }
                Err(error) => convert::plain(Response::from(error)),
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

/// The future of [`AppService`].
#[derive(Debug)]
pub struct Call(JoinHandle<http::Response<Body>>);

impl Future for Call {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(response) => Poll::Ready(Ok(response)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // Only a runtime that is shutting down cancels it.
                Err(_) => Poll::Pending,
            },
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.abort();
    }
}
