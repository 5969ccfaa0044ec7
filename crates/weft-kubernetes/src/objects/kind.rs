//! Kinds of objects, with their places in the API.

use std::fmt;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `gateway.networking.k8s.io/v1`.
    GatewayClass,
    /// `gateway.networking.k8s.io/v1`.
    Gateway,
    /// `gateway.networking.k8s.io/v1`.
    HttpRoute,
    /// `gateway.networking.k8s.io/v1beta1`.
    ReferenceGrant,
    /// `networking.k8s.io/v1`.
    IngressClass,
    /// `networking.k8s.io/v1`.
    Ingress,
    /// `v1`.
    Service,
    /// `discovery.k8s.io/v1`.
    EndpointSlice,
    /// `v1`; only those with certificates.
    Secret,
    /// `v1`; for selectors by labels.
    Namespace,
}

/// Place of a kind in the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiPlace {
    /// Empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
}

const GATEWAY: &str = "gateway.networking.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 10] = [
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::HttpRoute,
        Kind::ReferenceGrant,
        Kind::IngressClass,
        Kind::Ingress,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::Namespace,
    ];

    pub(crate) fn place(self) -> ApiPlace {
        let place = |group, version, kind, plural| ApiPlace { group, version, kind, plural };
        match self {
            Kind::GatewayClass => place(GATEWAY, "v1", "GatewayClass", "gatewayclasses"),
            Kind::Gateway => place(GATEWAY, "v1", "Gateway", "gateways"),
            Kind::HttpRoute => place(GATEWAY, "v1", "HTTPRoute", "httproutes"),
            Kind::ReferenceGrant => place(GATEWAY, "v1beta1", "ReferenceGrant", "referencegrants"),
            Kind::IngressClass => place(NETWORKING, "v1", "IngressClass", "ingressclasses"),
            Kind::Ingress => place(NETWORKING, "v1", "Ingress", "ingresses"),
            Kind::Service => place("", "v1", "Service", "services"),
            Kind::EndpointSlice => {
                place("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
            }
            Kind::Secret => place("", "v1", "Secret", "secrets"),
            Kind::Namespace => place("", "v1", "Namespace", "namespaces"),
        }
    }

    /// Returns true for a kind of the Gateway API, which a cluster may lack.
    pub(crate) fn is_of_gateway_api(self) -> bool {
        self.place().group == GATEWAY
    }

    /// Returns the kind with this name.
    pub fn find(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.place().kind == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.place().kind)
    }
}
