//! Settings of the translation.

use std::collections::BTreeSet;

/// Settings of the translation of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSettings {
    /// Name of the controller in GatewayClasses. Default `weft/gateway`.
    pub gateway_controller: String,

    /// Names of controllers in IngressClasses whose Ingresses are served. Default `weft/ingress`.
    pub ingress_controllers: BTreeSet<String>,

    /// True if the class `nginx` is served as ingress-nginx did, also without an IngressClass.
    /// Default false: two controllers must not serve the same Ingress.
    pub nginx_class: bool,

    /// Number that is added to the ports of listeners below 1024, which a process without
    /// privileges cannot bind: a Service maps port 80 to 10080. Default 10000.
    pub port_offset: u16,

    /// Addresses at which clients reach the listeners, for statuses. Default none.
    pub addresses: Vec<String>,

    /// Namespaces whose Secrets may be used; `None`: all that the objects name. Default `None`.
    pub secret_namespaces: Option<BTreeSet<String>>,

    /// Maximum number of routes in the configuration; more are left out, the youngest first.
    /// Default 20,000.
    pub max_routes: usize,

    /// Maximum number of routes in the configuration that one namespace has. Default 10,000.
    pub max_routes_per_namespace: usize,
}

impl Default for PlanSettings {
    fn default() -> PlanSettings {
        PlanSettings {
            gateway_controller: "weft/gateway".to_owned(),
            ingress_controllers: BTreeSet::from(["weft/ingress".to_owned()]),
            nginx_class: false,
            port_offset: 10_000,
            addresses: Vec::new(),
            secret_namespaces: None,
            max_routes: 20_000,
            max_routes_per_namespace: 10_000,
        }
    }
}

impl PlanSettings {
    /// Returns the port on which the process listens for a port of a listener.
    pub(in crate::plan) fn bound_port(&self, port: u16) -> Option<u16> {
        match port {
            0 => None,
            1..1024 => port.checked_add(self.port_offset),
            port => Some(port),
        }
    }

    /// Returns true if Secrets of this namespace may be used.
    pub(in crate::plan) fn permits_secrets_of(&self, namespace: &str) -> bool {
        self.secret_namespaces.as_ref().is_none_or(|permitted| permitted.contains(namespace))
    }
}
