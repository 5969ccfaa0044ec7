//! GatewayClasses and Gateways → listeners, with their conditions.

use std::collections::{BTreeMap, HashMap};

use super::certificates::InvalidCertificate;
use super::cluster_plan::DEFAULT_SERVER_NAME;
use super::conditions::{Condition, GatewayStatus, ListenerStatus, ObjectStatus};
use super::grants::Referrer;
use super::planner::Planner;
use crate::objects::gateway::{Gateway, Listener};
use crate::objects::{Kind, Object, ObjectName, ObjectRef};

/// A Gateway of this controller.
pub(super) struct PlannedGateway<'a> {
    name: &'a ObjectName,
    pub(super) listeners: Vec<PlannedListener<'a>>,
}

/// A listener of a Gateway.
pub(super) struct PlannedListener<'a> {
    pub(super) spec: &'a Listener,
    /// Port on which the process listens.
    pub(super) bound_port: u16,
    pub(super) is_tls: bool,
    /// False for a listener with an error: its routes are attached, and not served.
    pub(super) is_usable: bool,
    pub(super) permits_http_routes: bool,
    pub(super) attached_routes: u32,
    conditions: Vec<Condition>,
}

/// Use of a port by all Gateways.
#[derive(Default)]
pub(super) struct PortUse {
    /// True if listeners on the port use TLS, by port.
    is_tls: HashMap<u16, bool>,
}

impl<'a> Planner<'a> {
    /// Accepts the classes of this controller.
    pub(super) fn plan_gateway_classes(&mut self) {
        for (name, class) in &self.objects.gateway_classes {
            if class.spec.controller_name != self.settings.gateway_controller {
                continue;
            }
            let accepted = Condition::new("Accepted", true, "Accepted", "the class is served");
            let object = ObjectRef { kind: Kind::GatewayClass, name: name.clone() };
            self.plan.statuses.insert(object, ObjectStatus::GatewayClass(vec![accepted]));
        }
    }

    /// Makes the listeners of all Gateways of this controller, the oldest Gateway first.
    pub(super) fn plan_gateways(&mut self) -> BTreeMap<ObjectName, PlannedGateway<'a>> {
        let objects = self.objects;
        let is_own = |gateway: &Object<Gateway>| {
            let class = ObjectName::new("", &gateway.spec.gateway_class_name);
            let class = objects.gateway_classes.get(&class);
            class.is_some_and(|it| it.spec.controller_name == self.settings.gateway_controller)
        };
        let mut own: Vec<_> = objects.gateways.iter().filter(|(_, it)| is_own(it)).collect();
        own.sort_by_key(|(_, gateway)| gateway.metadata.age_order());
        let mut ports = PortUse::default();
        // The ports of Ingresses, which are also the ports of most Gateways, are always open.
        for (port, is_tls) in [(80, false), (443, true)] {
            if let Some(bound) = self.settings.bound_port(port) {
                self.sections.open_port(bound, is_tls);
                ports.is_tls.insert(bound, is_tls);
            }
        }
        let mut planned = BTreeMap::new();
        for (name, gateway) in own {
            let mut listeners: Vec<PlannedListener<'a>> = Vec::new();
            for spec in &gateway.spec.listeners {
                let listener = self.plan_listener(name, spec, &listeners, &mut ports);
                if listener.is_usable {
                    let hostname = spec.hostname.as_deref().unwrap_or("*");
                    self.sections.listen(listener.bound_port, listener.is_tls, hostname);
                }
                listeners.push(listener);
            }
            planned.insert(name.clone(), PlannedGateway { name, listeners });
        }
        planned
    }

    fn plan_listener(
        &mut self,
        gateway: &ObjectName,
        spec: &'a Listener,
        others: &[PlannedListener<'a>],
        ports: &mut PortUse,
    ) -> PlannedListener<'a> {
        let is_tls = spec.protocol == "HTTPS";
        let refused = self.refusal(gateway, spec, others, ports);
        let (permits_http_routes, kinds) = match &*spec.protocol {
            "HTTP" | "HTTPS" => check_kinds(spec),
            _ => (false, Ok(())),
        };
        let certificates = match is_tls && refused.is_none() {
            true => self.plan_certificates(gateway, spec),
            false => Ok(()),
        };
        let is_usable = refused.is_none() && certificates.is_ok();
        let unresolved = match (certificates, kinds) {
            (Err(InvalidCertificate { reason, message }), _) => Some((reason, message)),
            (Ok(()), Err(message)) => Some(("InvalidRouteKinds", message)),
            (Ok(()), Ok(())) => None,
        };
        let programmed = match is_usable {
            true => Condition::new("Programmed", true, "Programmed", "the listener is served"),
            false => Condition::new("Programmed", false, "Invalid", "the listener has errors"),
        };
        let resolved = match unresolved {
            Some((reason, message)) => Condition::new("ResolvedRefs", false, reason, message),
            None => Condition::new("ResolvedRefs", true, "ResolvedRefs", ""),
        };
        let (accepted, conflicted) = match refused {
            Some((reason @ ("ProtocolConflict" | "HostnameConflict"), message)) => (
                Condition::new("Accepted", false, reason, message.clone()),
                Condition::new("Conflicted", true, reason, message),
            ),
            Some((reason, message)) => (
                Condition::new("Accepted", false, reason, message),
                Condition::new("Conflicted", false, "NoConflicts", ""),
            ),
            None => (
                Condition::new("Accepted", true, "Accepted", ""),
                Condition::new("Conflicted", false, "NoConflicts", ""),
            ),
        };
        PlannedListener {
            spec,
            bound_port: self.settings.bound_port(spec.port).unwrap_or_default(),
            is_tls,
            is_usable,
            permits_http_routes,
            attached_routes: 0,
            conditions: vec![accepted, conflicted, programmed, resolved],
        }
    }

    /// Returns the reason and a message if a listener cannot be served.
    fn refusal(
        &self,
        gateway: &ObjectName,
        spec: &Listener,
        others: &[PlannedListener<'_>],
        ports: &mut PortUse,
    ) -> Option<(&'static str, String)> {
        if !matches!(&*spec.protocol, "HTTP" | "HTTPS") {
            return Some(("UnsupportedProtocol", format!("{} is not supported", spec.protocol)));
        }
        let object = ObjectRef { kind: Kind::Gateway, name: gateway.clone() };
        if let Some(reason) = self.refused.get(&object) {
            return Some(("Invalid", reason.clone()));
        }
        let Some(bound) = self.settings.bound_port(spec.port) else {
            return Some(("PortUnavailable", format!("the port {} is not available", spec.port)));
        };
        let is_tls = spec.protocol == "HTTPS";
        let of_port = others.iter().filter(|other| other.spec.port == spec.port);
        let hostname = |it: &Listener| it.hostname.clone().filter(|it| !it.is_empty());
        for other in of_port {
            if other.spec.protocol != spec.protocol {
                let message = format!("the listener {} has another protocol", other.spec.name);
                return Some(("ProtocolConflict", message));
            }
            if hostname(other.spec) == hostname(spec) {
                let message = format!("the listener {} has the same hostname", other.spec.name);
                return Some(("HostnameConflict", message));
            }
        }
        match *ports.is_tls.entry(bound).or_insert(is_tls) == is_tls {
            true => None,
            false => {
                let message =
                    format!("an older Gateway has the port {} with another protocol", spec.port);
                Some(("ProtocolConflict", message))
            }
        }
    }

    /// Serves the certificates of a listener for its host name, or for their own names.
    fn plan_certificates(
        &mut self,
        gateway: &ObjectName,
        spec: &Listener,
    ) -> Result<(), InvalidCertificate> {
        let invalid =
            |reason, message: &str| Err(InvalidCertificate { reason, message: message.to_owned() });
        let Some(tls) = &spec.tls else {
            return invalid("InvalidCertificateRef", "a listener with HTTPS needs `tls`");
        };
        if tls.mode.as_deref().is_some_and(|mode| mode != "Terminate") {
            return invalid("InvalidCertificateRef", "the mode of HTTPS is Terminate");
        }
        if tls.certificate_refs.is_empty() {
            return invalid("InvalidCertificateRef", "a listener with HTTPS needs a certificate");
        }
        let from = Referrer { kind: Kind::Gateway, namespace: &gateway.namespace };
        for reference in &tls.certificate_refs {
            let identity = self.certificate(from, reference)?;
            let hostname = spec.hostname.as_deref().filter(|name| !name.is_empty());
            self.serve_certificate([hostname.unwrap_or(DEFAULT_SERVER_NAME)], &identity);
        }
        Ok(())
    }
}

/// Checks the kinds of routes that a listener permits. Returns true if HTTPRoutes are among them.
fn check_kinds(spec: &Listener) -> (bool, Result<(), String>) {
    let kinds = &spec.allowed_routes.kinds;
    let is_http = |group: Option<&str>, kind: &str| {
        group.is_none_or(|group| group == Kind::HttpRoute.place().group) && kind == "HTTPRoute"
    };
    let unknown = kinds.iter().find(|it| !is_http(it.group.as_deref(), &it.kind));
    let permits_http =
        kinds.is_empty() || kinds.iter().any(|it| is_http(it.group.as_deref(), &it.kind));
    match unknown {
        Some(unknown) => (permits_http, Err(format!("{} is not supported", unknown.kind))),
        None => (permits_http, Ok(())),
    }
}

impl PlannedListener<'_> {
    fn into_status(self) -> ListenerStatus {
        ListenerStatus {
            name: self.spec.name.clone(),
            supported_kinds: self.permits_http_routes.then_some("HTTPRoute").into_iter().collect(),
            attached_routes: self.attached_routes,
            conditions: self.conditions,
        }
    }
}

impl PlannedGateway<'_> {
    /// Returns the status of the Gateway.
    pub(super) fn into_status(self, addresses: &[String]) -> (ObjectRef, GatewayStatus) {
        let usable = self.listeners.iter().filter(|it| it.is_usable).count();
        let (accepted, reason, message) = match usable {
            0 => (false, "ListenersNotValid", "no listener is valid"),
            usable if usable < self.listeners.len() => {
                (true, "ListenersNotValid", "some listeners are not valid")
            }
            _ => (true, "Accepted", "the Gateway is served"),
        };
        let accepted = Condition::new("Accepted", accepted, reason, message);
        let programmed = match (usable, addresses.is_empty()) {
            (0, _) => Condition::new("Programmed", false, "Invalid", "no listener is valid"),
            (_, true) => {
                let message = "the controller has no address to publish";
                Condition::new("Programmed", false, "AddressNotAssigned", message)
            }
            _ => Condition::new("Programmed", true, "Programmed", "the Gateway is served"),
        };
        let object = ObjectRef { kind: Kind::Gateway, name: self.name.clone() };
        let status = GatewayStatus {
            addresses: addresses.to_vec(),
            conditions: vec![accepted, programmed],
            listeners: self.listeners.into_iter().map(PlannedListener::into_status).collect(),
        };
        (object, status)
    }
}
