//! Requirement of a client certificate.

use weft::{Application, Middleware, Request, Response, StatusCode};
use weft_config::{Key, ValueKind};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show};

/// The requirement of a client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientCertificateOptions {
    is_required: Option<bool>,
}

impl ClientCertificateOptions {
    pub(super) fn is_required(&self) -> bool {
        self.is_required == Some(true)
    }
}

impl RouteOption for ClientCertificateOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "client_cert_required",
        help: "refuse clients without a certificate that `client_ca` has signed, if `client_auth` is \
               optional: 403",
        kind: ValueKind::Bool(|options, switch| options.is_required = Some(switch)),
        show: |options| show(options.is_required.as_ref()),
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        ClientCertificateOptions { is_required: self.is_required.or(outer.is_required) }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let lacks_ca = scope.route().is_some_and(|route| !route.has_client_ca);
        vec![(
            self.is_required() && lacks_ca,
            "`client_cert_required` refuses all requests without `client_ca` in [tls]",
        )]
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let layer = self.is_required().then(|| Layer::of_middleware(RequireClientCertificate));
        Ok(layer.into_iter().collect())
    }
}

/// Refuses requests of clients without a certificate. The certificate of a connection was verified
/// in the handshake. The certificate of a trusted proxy does not count for its clients.
#[derive(Clone)]
struct RequireClientCertificate;

impl Middleware for RequireClientCertificate {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match request.client_certificates().is_empty() {
            false => next.call(request).await,
            true => StatusCode::FORBIDDEN.into(),
        }
    }
}
