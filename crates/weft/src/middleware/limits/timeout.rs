//! Limit on the response time of the application.

use std::time::Duration;

use http::StatusCode;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Responds with 503 (RFC 9110 §15.6.4), or [another status](Timeout::with_status), if the
/// application has not returned a response within a duration; its future is then dropped.
///
/// ```
/// use std::time::Duration;
/// use weft::middleware::Timeout;
/// use weft::{Application, Request, Response, testing};
///
/// async fn stuck(_: Request) -> Response { std::future::pending().await }
///
/// let app = stuck.wrap(Timeout::new(Duration::from_millis(10)));
/// assert_eq!(testing::get(app, "/").status, 503);
/// ```
///
/// The time starts when the request reaches this middleware, and includes the time in which the
/// application waits for the request body. It ends with the response head: a streamed body is
/// limited only by the engine's [`stall_timeout`](crate::Settings::stall_timeout). Work that the
/// application moved to other tasks or threads continues, and an application that never yields
/// cannot be interrupted.
#[derive(Clone, Debug)]
pub struct Timeout {
    after: Duration,
    status: StatusCode,
}

impl Timeout {
    /// Sets the maximum response time. The timeout may fire up to a millisecond late.
    pub fn new(after: Duration) -> Timeout {
        Timeout { after, status: StatusCode::SERVICE_UNAVAILABLE }
    }

    /// Sets the status of the response, such as 504 in front of a client of another server.
    pub fn with_status(self, status: StatusCode) -> Timeout {
        Timeout { status, ..self }
    }
}

impl Middleware for Timeout {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        // The timer is registered only when the application is first pending.
        match tokio::time::timeout(self.after, next.call(request)).await {
            Ok(response) => response,
            Err(_) => self.status.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn responds_with_the_status_after_the_timeout() {
        let plain = |after| Timeout::new(Duration::from_millis(after));
        let gateway = |after| plain(after).with_status(StatusCode::GATEWAY_TIMEOUT);
        for (delay_ms, timeout, status) in [
            (0, plain(0), 200),
            (0, plain(50), 200),
            (5, plain(5_000), 200),
            (5, gateway(5_000), 200),
            (5_000, plain(5), 503),
            (5_000, gateway(5), 504),
        ] {
            let app = move |_: Request| async move {
                if delay_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                }
                Response::text("ok")
            };
            let label = format!("{delay_ms} {timeout:?}");
            assert_eq!(testing::get(app.wrap(timeout), "/").status, status, "{label}");
        }
    }
}
