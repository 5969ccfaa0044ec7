//! Request IDs in the requests that upstreams and scripts get.

use weft::middleware::RequestId;
use weft::{Application, HeaderName, Middleware, Request, Response};
use weft_upstream::RequestFields;

/// Passes the ID of a request on in a field, which replaces that of the client.
#[derive(Clone)]
pub(super) struct ForwardRequestId(pub(super) HeaderName);

impl Middleware for ForwardRequestId {
    fn call(
        &self,
        mut request: Request,
        next: &impl Application,
    ) -> impl Future<Output = Response> {
        let id = request.extensions().get::<RequestId>().map(|id| id.as_value().clone());
        if let Some(id) = id {
            RequestFields::set(&mut request, self.0.clone(), id);
        }
        next.call(request)
    }
}
