//! Limit of the bandwidth of each response.

use weft::{Application, Bandwidth, Middleware, Request, Response};

/// Sets the bandwidth of responses, which the engine enforces while it sends them.
#[derive(Clone)]
pub(super) struct LimitBandwidth(pub(super) Bandwidth);

impl Middleware for LimitBandwidth {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        next.call(request).await.with_bandwidth(self.0)
    }
}
