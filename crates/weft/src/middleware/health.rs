//! Whether the server is well, and means to stay.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{ALLOW, CACHE_CONTROL};
use http::{Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// A path at which a load balancer or a supervisor asks whether the server is well: 200 while
/// it runs, 503 when it is to stop or its own [check](Health::check) fails.
///
/// ```
/// use weft::middleware::Health;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(_: Request) -> Response { Response::text("Hello\n") }
/// async fn database_answers() -> bool { false }
///
/// testing::get(app.with(Health::new("/healthz")), "/healthz").assert_text("200 OK\n");
/// testing::get(app.with(Health::new("/healthz")), "/").assert_text("Hello\n");
///
/// let ready = Health::new("/ready").check(database_answers);
/// assert_eq!(testing::get(app.with(ready), "/ready").status, 503);
/// ```
///
/// A server that is to stop accepts no connections any more and closes those that are idle,
/// which is what most will see of it; the 503 is for a request that had come before. So that
/// a load balancer looks elsewhere in time, let the check say `false` a while before the stop.
/// The answer tells no reason, and is not to be stored. Methods other than GET and HEAD get
/// 405.
#[derive(Clone)]
pub struct Health {
    path: Box<str>,
    check: Option<Arc<Check>>,
}

type Check = dyn Fn() -> Pin<Box<dyn Future<Output = bool>>> + Send + Sync;

impl Health {
    /// Answers at this path, by custom `/healthz`, as it is sent.
    ///
    /// # Panics
    /// If it does not begin with a slash.
    pub fn new(path: &str) -> Health {
        assert!(path.starts_with('/'), "a path begins with a slash: {path:?}");
        Health { path: path.into(), check: None }
    }

    /// Asks this function too, each time: `false` is 503. It should take no longer than those
    /// who ask are ready to wait, and remember its findings if they are costly.
    pub fn check<F, T>(self, check: F) -> Health
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = bool> + 'static,
    {
        Health { check: Some(Arc::new(move || Box::pin(check()))), ..self }
    }

    async fn answer(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let refusal = Response::from(StatusCode::METHOD_NOT_ALLOWED);
            return refusal.with_header(ALLOW, "GET, HEAD");
        }
        let is_well = !request.shutdown().is_requested()
            && match &self.check {
                Some(check) => check().await,
                None => true,
            };
        let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Response::from(status).with_header(CACHE_CONTROL, "no-store")
    }
}

impl Middleware for Health {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match request.path() == &*self.path {
            true => self.answer(&request).await,
            false => next.call(request).await,
        }
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health")
            .field("path", &self.path)
            .field("has_check", &self.check.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{call, request};

    #[test]
    fn answers() {
        let plain = Health::new("/healthz");
        let well = plain.clone().check(async || true);
        let ill = plain.clone().check(async || false);
        for (health, line, status) in [
            (&plain, "GET /healthz", 200),
            (&plain, "GET /healthz?x", 200),
            (&plain, "HEAD /healthz", 200),
            (&plain, "POST /healthz", 405),
            (&plain, "GET /healthz/", 418),
            (&plain, "GET /", 418),
            (&well, "GET /healthz", 200),
            (&ill, "GET /healthz", 503),
            (&ill, "HEAD /healthz", 503),
            (&ill, "DELETE /healthz", 405),
            (&ill, "GET /", 418),
        ] {
            let app = async |_: Request| Response::from(StatusCode::IM_A_TEAPOT);
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
            let reply = call(app.with(health.clone()), request(head));
            assert_eq!(reply.status, status, "{line}");
            let is_ours = matches!(status, 200 | 503);
            assert_eq!(reply.header("cache-control").is_some(), is_ours, "{line}");
            assert_eq!(reply.header("allow").is_some(), status == 405, "{line}");
        }
    }
}
