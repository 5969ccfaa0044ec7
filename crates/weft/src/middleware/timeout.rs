//! An application that takes too long.

use std::time::Duration;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Answers 503 (RFC 9110 §15.6.4) when the application has not answered within a duration; its
/// future is dropped then.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::Timeout;
/// use weft::{Application, Request, Response, testing};
///
/// async fn stuck(_: Request) -> Response { std::future::pending().await }
///
/// let app = stuck.with(Timeout::new(Duration::from_millis(10)));
/// assert_eq!(testing::get(app, "/").status, 503);
/// ```
///
/// The time runs from when the request meets this, and includes what the application waits
/// for the rest of the request's body. It ends with the response's head: a body that is
/// streamed after it may take as long as it likes, within the engine's
/// [`stall_timeout`](crate::Settings::stall_timeout). What the application handed to other
/// tasks or threads goes on, and an application that never waits cannot be interrupted.
#[derive(Clone, Debug)]
pub struct Timeout {
    after: Duration,
}

impl Timeout {
    /// So long an application may take. An answer may be a millisecond late.
    pub fn new(after: Duration) -> Timeout {
        Timeout { after }
    }
}

impl Middleware for Timeout {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        // The timer begins to exist when the application first has to wait.
        match tokio::time::timeout(self.after, next.call(request)).await {
            Ok(response) => response,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn in_time_or_not() {
        for (takes, after, status) in [(0, 0, 200), (0, 50, 200), (5, 5_000, 200), (5_000, 5, 503)]
        {
            let app = move |_: Request| async move {
                if takes > 0 {
                    tokio::time::sleep(Duration::from_millis(takes)).await;
                }
                Response::text("ok")
            };
            let timeout = Timeout::new(Duration::from_millis(after));
            assert_eq!(testing::get(app.with(timeout), "/").status, status, "{takes} {after}");
        }
    }
}
