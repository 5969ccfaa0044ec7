//! Rate limit of a route, by client or by another key.

use std::sync::Arc;

use weft::middleware::RateLimit;
use weft::{Application, Middleware, Request, Response};

use crate::template::Template;

/// Limits the rate of requests with equal values of a template. A request with an empty value is
/// not limited.
#[derive(Clone)]
pub(super) struct RateByKey {
    pub(super) limit: RateLimit,
    pub(super) key: Arc<Template>,
}

impl Middleware for RateByKey {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let key = match self.key.expand(&request) {
            Ok(key) => key,
            Err(error) => return error.into(),
        };
        match if key.is_empty() { Ok(()) } else { self.limit.take(&key) } {
            Ok(()) => next.call(request).await,
            Err(refusal) => refusal,
        }
    }
}
