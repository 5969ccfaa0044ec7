//! Minimum rate of request bodies.

use std::time::Duration;

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::response::Response;

/// Sets the minimum rate of request bodies, in place of
/// [`Settings::min_bytes_per_second`](crate::Settings::min_bytes_per_second) and
/// [`Settings::stall_timeout`](crate::Settings::stall_timeout).
///
/// The settings suit uploads. They do not apply to bidirectional streams: while the response is
/// sent, the client may pause for any time before the next piece of a body of unknown length. This
/// middleware is for streams of messages that come before the response, such as client streams of
/// gRPC:
///
/// ```
/// use std::time::Duration;
///
/// use weft::middleware::BodyRate;
/// use weft::{Application, Request, Response};
///
/// async fn collect_readings(mut request: Request) -> weft::Result<Response> {
///     let mut count = 0;
///     while let Some(_reading) = request.body().chunk().await? {
///         count += 1;
///     }
///     Ok(Response::text(format!("{count} readings\n")))
/// }
///
/// let app = collect_readings.wrap(BodyRate::new(1, Duration::from_secs(3_600)));
/// # let _ = app;
/// ```
///
/// A slow client occupies a connection or stream, and the memory of the application for its
/// request. [`ConcurrencyLimit`](crate::middleware::ConcurrencyLimit) and
/// [`Settings::max_connections_per_peer`](crate::Settings::max_connections_per_peer) bound their
/// number.
#[derive(Clone, Debug)]
pub struct BodyRate {
    bytes_per_second: u32,
    stall_timeout: Duration,
}

impl BodyRate {
    /// Sets the minimum rate, and the time credit that waiting for the client uses up and received
    /// bytes restore. Both apply also while the response is sent. With a rate of 0, any byte
    /// restores the whole credit; [`Duration::MAX`] permits pauses of any length.
    pub fn new(bytes_per_second: u32, stall_timeout: Duration) -> BodyRate {
        BodyRate { bytes_per_second, stall_timeout }
    }
}

impl Middleware for BodyRate {
    async fn call(&self, mut request: Request, next: &impl Application) -> Response {
        request.body().set_min_rate(self.bytes_per_second, self.stall_timeout);
        next.call(request).await
    }
}
