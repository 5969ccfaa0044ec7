//! Health check endpoint.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{ALLOW, CACHE_CONTROL};
use http::{Method, StatusCode};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Health check endpoint for load balancers and supervisors: 200 while the server runs, 503 when
/// it is shutting down or its [check](Health::check) fails.
///
/// ```
/// use weft::middleware::Health;
/// use weft::{Application, Request, Response, testing};
///
/// async fn app(_: Request) -> Response { Response::text("Hello\n") }
/// async fn database_is_up() -> bool { false }
///
/// testing::get(app.wrap(Health::new("/healthz")), "/healthz").assert_text("200 OK\n");
/// testing::get(app.wrap(Health::new("/healthz")), "/").assert_text("Hello\n");
///
/// let ready = Health::new("/ready").check(database_is_up);
/// assert_eq!(testing::get(app.wrap(ready), "/ready").status, 503);
/// ```
///
/// A server that is shutting down accepts no new connections and closes idle ones. So most clients
/// cannot connect, and only requests on open connections get the 503. For a load balancer to switch
/// over in time, the check should return false some time before the shutdown. The response contains
/// no reason and has `Cache-Control: no-store`. Methods other than GET and HEAD get 405.
#[derive(Clone)]
pub struct Health {
    path: Box<str>,
    check: Option<Arc<Check>>,
}

type Check = dyn Fn() -> Pin<Box<dyn Future<Output = bool>>> + Send + Sync;

impl Health {
    /// Responds at this path, by convention `/healthz`, compared without percent-decoding.
    ///
    /// # Panics
    /// If the path does not begin with a slash.
    pub fn new(path: &str) -> Health {
        assert!(path.starts_with('/'), "a path must begin with a slash: {path:?}");
        Health { path: path.into(), check: None }
    }

    /// Adds a check that is called for each request: the response is 503 if it returns false.
    /// It should finish within the timeout of the health checkers, and cache expensive results.
    pub fn check<F, T>(self, check: F) -> Health
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = bool> + 'static,
    {
        Health { check: Some(Arc::new(move || Box::pin(check()))), ..self }
    }

    async fn respond(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let response = Response::from(StatusCode::METHOD_NOT_ALLOWED);
            return response.with_header(ALLOW, "GET, HEAD");
        }
        let is_healthy = !request.shutdown().is_requested()
            && match &self.check {
                Some(check) => check().await,
                None => true,
            };
        let status = if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        Response::from(status).with_header(CACHE_CONTROL, "no-store")
    }
}

impl Middleware for Health {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match request.path() == &*self.path {
            true => self.respond(&request).await,
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
    fn responds_only_at_its_path() {
        let plain = Health::new("/healthz");
        let healthy = plain.clone().check(async || true);
        let unhealthy = plain.clone().check(async || false);
        for (health, line, status) in [
            (&plain, "GET /healthz", 200),
            (&plain, "GET /healthz?x", 200),
            (&plain, "HEAD /healthz", 200),
            (&plain, "POST /healthz", 405),
            (&plain, "GET /healthz/", 418),
            (&plain, "GET /", 418),
            (&healthy, "GET /healthz", 200),
            (&unhealthy, "GET /healthz", 503),
            (&unhealthy, "HEAD /healthz", 503),
            (&unhealthy, "DELETE /healthz", 405),
            (&unhealthy, "GET /", 418),
        ] {
            let app = async |_: Request| Response::from(StatusCode::IM_A_TEAPOT);
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
            let reply = call(app.wrap(health.clone()), request(head));
            assert_eq!(reply.status, status, "{line}");
            let has_status = matches!(status, 200 | 503);
            assert_eq!(reply.header("cache-control").is_some(), has_status, "{line}");
            assert_eq!(reply.header("allow").is_some(), status == 405, "{line}");
        }
    }
}
