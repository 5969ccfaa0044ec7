//! Requirement of a client certificate.

use weft::{Application, Middleware, Request, Response, StatusCode};

/// Refuses requests over connections without a client certificate. The certificate of a connection
/// was verified in the handshake.
#[derive(Clone)]
pub(super) struct RequireClientCertificate;

impl Middleware for RequireClientCertificate {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let session = request.peer().tls();
        match session.is_some_and(|session| !session.peer_certificates().is_empty()) {
            true => next.call(request).await,
            false => StatusCode::FORBIDDEN.into(),
        }
    }
}
