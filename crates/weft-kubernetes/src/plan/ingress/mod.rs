//! Ingresses → routes of the ports 80 and 443.
//!
//! For the class `nginx`, the annotations of ingress-nginx apply. It serves all Ingresses of a host
//! as one server, so that some annotations of one Ingress apply to the whole host.

mod annotations; // annotations of ingress-nginx → keys of routes
mod sizes; // sizes and times of nginx

use std::collections::{BTreeMap, BTreeSet};

use self::annotations::{Annotations, PREFIX};
use super::conditions::{ObjectEvent, ObjectStatus};
use super::endpoints::{Pool, PoolBackend};
use super::filters::url_path;
use super::grants::Referrer;
use super::hostnames::is_host_pattern;
use super::matches::{PathRule, Precedence, check_path, check_regex};
use super::planner::Planner;
use super::sections::PlannedRoute;
use super::toml::Table;
use crate::objects::gateway::ObjectReference;
use crate::objects::ingress::{Ingress, IngressBackend, IngressPath, IngressService};
use crate::objects::{Kind, Object, ObjectName, ObjectRef};

/// Annotation that precedes `ingressClassName`.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Annotation of the class of Ingresses without one.
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// Controller of the class `nginx`.
const NGINX_CONTROLLER: &str = "k8s.io/ingress-nginx";

/// Text of the response of an Ingress that cannot be served as its annotations require.
const NOT_SERVED: &str = "This Ingress cannot be served; see its events.\n";

/// An Ingress of this controller.
struct OwnIngress<'a> {
    name: &'a ObjectName,
    ingress: &'a Object<Ingress>,
    /// Annotations without their prefix; empty for other classes.
    annotations: Annotations<'a>,
}

/// Properties of a host that follow from all of its Ingresses.
#[derive(Default)]
struct HostTraits {
    /// All paths are expressions.
    has_regex: bool,
    has_tls: bool,
}

impl<'a> Planner<'a> {
    /// Plans all Ingresses of this controller, the oldest first.
    pub(super) fn plan_ingresses(&mut self) {
        let mut own: Vec<_> = self.objects.ingresses.iter().collect();
        own.sort_by_key(|(_, ingress)| ingress.metadata.age_order());
        let own = own.into_iter().filter_map(|(name, ingress)| self.own_ingress(name, ingress));
        let own: Vec<_> = own.collect();
        let mut hosts: BTreeMap<String, HostTraits> = BTreeMap::new();
        for OwnIngress { ingress, annotations, .. } in &own {
            let tls: BTreeSet<_> = ingress.spec.tls.iter().flat_map(|it| &it.hosts).collect();
            for rule in &ingress.spec.rules {
                let host = rule.host.clone().unwrap_or_default();
                let traits = hosts.entry(host.clone()).or_default();
                traits.has_regex |= annotations.uses_regex();
                traits.has_tls |= tls.contains(&host);
            }
        }
        for ingress in own {
            self.plan_ingress(&ingress, &hosts);
        }
    }

    fn own_ingress(
        &self,
        name: &'a ObjectName,
        ingress: &'a Object<Ingress>,
    ) -> Option<OwnIngress<'a>> {
        let annotations = &ingress.metadata.annotations;
        let class = annotations.get(CLASS_ANNOTATION).or(ingress.spec.ingress_class_name.as_ref());
        let classes = &self.objects.ingress_classes;
        let is_default = |class: &&Object<_>| {
            class.metadata.annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true")
        };
        let known = match class {
            Some(class) => classes.get(&ObjectName::new("", class)),
            None => classes.values().find(is_default),
        };
        let controller = known.map(|class| class.spec.controller.as_str());
        let is_nginx = self.settings.nginx_class
            && match (controller, class) {
                (Some(controller), _) => controller == NGINX_CONTROLLER,
                (None, class) => class.is_some_and(|class| class == "nginx"),
            };
        let is_own =
            is_nginx || controller.is_some_and(|it| self.settings.ingress_controllers.contains(it));
        // The class of Weft has the same annotations, so that an Ingress can be moved.
        is_own.then(|| OwnIngress { name, ingress, annotations: Annotations::new(annotations) })
    }

    fn plan_ingress(&mut self, own: &OwnIngress<'a>, hosts: &BTreeMap<String, HostTraits>) {
        let object = ObjectRef { kind: Kind::Ingress, name: own.name.clone() };
        let addresses = self.settings.addresses.clone();
        self.plan.statuses.insert(object.clone(), ObjectStatus::Ingress(addresses));
        if let Some(reason) = self.refused.get(&object).cloned() {
            return self.report(&object, "Refused", reason);
        }
        self.plan_ingress_certificates(own, &object);
        let options = own.annotations.options();
        for (annotation, reason) in &options.lost {
            let message = format!("the annotation {PREFIX}{annotation} is not applied: {reason}");
            self.report(&object, "AnnotationNotApplied", message);
        }
        let names_of_rules = own.ingress.spec.rules.iter().map(|rule| &rule.host);
        let has_hosts = names_of_rules.clone().any(Option::is_some);
        for rule in &own.ingress.spec.rules {
            let host = rule.host.clone().unwrap_or_default();
            let traits = hosts.get(&host);
            let is_regex = traits.is_some_and(|it| it.has_regex);
            let has_tls = traits.is_some_and(|it| it.has_tls);
            let mut names = vec![if host.is_empty() { "*".to_owned() } else { host }];
            names.extend(options.aliases.iter().filter(|_| has_hosts).cloned());
            for (number, path) in rule.http.paths.iter().enumerate() {
                let routes = self.ingress_routes(own, path, number, is_regex);
                let routes = match routes {
                    Ok(routes) => routes,
                    Err(reason) => {
                        self.report(&object, "PathLeftOut", reason);
                        continue;
                    }
                };
                for name in &names {
                    self.add_ingress_routes(&object, name, &routes, has_tls, own);
                }
            }
        }
        if let Some(backend) = &own.ingress.spec.default_backend {
            let path = IngressPath { backend: backend.clone(), ..IngressPath::default() };
            match self.ingress_routes(own, &path, 0, false) {
                Ok(routes) => self.add_ingress_routes(&object, "*", &routes, false, own),
                Err(reason) => self.report(&object, "PathLeftOut", reason),
            }
        }
    }

    fn report(&mut self, object: &ObjectRef, reason: &'static str, message: String) {
        self.plan.events.insert(ObjectEvent { object: object.clone(), reason, message });
    }

    fn plan_ingress_certificates(&mut self, own: &OwnIngress<'_>, object: &ObjectRef) {
        let from = Referrer { kind: Kind::Ingress, namespace: &own.name.namespace };
        for tls in &own.ingress.spec.tls {
            // Without a Secret, a host has the certificate of the server.
            let Some(secret) = &tls.secret_name else { continue };
            let reference = ObjectReference { name: secret.clone(), ..ObjectReference::default() };
            match self.certificate(from, &reference) {
                Ok(identity) => {
                    let names = tls.hosts.iter().filter(|name| is_host_pattern(name));
                    self.serve_certificate(names.map(String::as_str), &identity);
                }
                Err(invalid) => self.report(object, "CertificateNotServed", invalid.message),
            }
        }
    }

    /// Returns the routes of a path, each with its keys.
    fn ingress_routes(
        &mut self,
        own: &OwnIngress<'_>,
        path: &IngressPath,
        number: usize,
        is_regex: bool,
    ) -> Result<Vec<PlannedRoute>, String> {
        let options = own.annotations.options();
        let kind = path.path_type.as_deref().unwrap_or("ImplementationSpecific");
        let given = path.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let rule = match (is_regex && kind != "Exact" || options.is_regex, kind) {
            (true, _) => {
                check_regex(given)?;
                PathRule::RegexPrefix(given.to_owned())
            }
            (false, "Exact") => check_path(given).map(|()| PathRule::Exact(given.to_owned()))?,
            (false, _) => {
                check_path(given)?;
                let prefix = given.strip_suffix('/').filter(|prefix| !prefix.is_empty());
                PathRule::Prefix(prefix.unwrap_or(given).to_owned())
            }
        };
        let mut table = Table::default();
        let url = self.ingress_backend(own.name, &path.backend, options.scheme);
        match (&options.refused, &options.redirect, url) {
            (Some(_), _, _) => set_response(&mut table, NOT_SERVED, 503),
            (None, Some((target, status)), _) => {
                table.set_text("redirect", target);
                table.set("status", status.to_string());
            }
            (None, None, Err(reason)) => {
                let object = ObjectRef { kind: Kind::Ingress, name: own.name.clone() };
                self.report(&object, "BackendNotFound", reason);
                set_response(&mut table, "This service is not available.\n", 503);
            }
            (None, None, Ok(url)) => {
                let behind = match options.rewrite.is_some() {
                    true => String::new(),
                    false => rule.removed_prefix().map(url_path).unwrap_or_default(),
                };
                table.set_text("proxy", &format!("{url}{behind}"));
                if !behind.is_empty() {
                    table.set("merge_slashes", "false".to_owned());
                }
                if let Some(rewrite) = &options.rewrite {
                    table.set_text("rewrite", rewrite);
                }
                table.extend(&options.proxy);
            }
        }
        table.extend(&options.route);
        let (namespace, name) = (&own.name.namespace, &own.name.name);
        let route = PlannedRoute {
            path: rule,
            precedence: Precedence::default(),
            conditions: options.conditions.clone(),
            expressions: 0,
            label: format!("{namespace}.{name}.{number}"),
            table,
            owner: ObjectRef { kind: Kind::Ingress, name: own.name.clone() },
        };
        let app_root = options.app_root.as_ref().map(|target| {
            let mut table = Table::default();
            table.set_text("redirect", target);
            table.set("status", "302".to_owned());
            PlannedRoute { path: PathRule::Exact("/".to_owned()), table, ..route.clone() }
        });
        Ok(app_root.into_iter().chain([route]).collect())
    }

    fn ingress_backend(
        &mut self,
        ingress: &ObjectName,
        backend: &IngressBackend,
        scheme: &str,
    ) -> Result<String, String> {
        let Some(IngressService { name, port }) = &backend.service else {
            return Err("a path has no service".to_owned());
        };
        let name = ObjectName::new(&ingress.namespace, name);
        let service = self.objects.services.get(&name);
        let service = service.ok_or_else(|| format!("the Service {name} does not exist"))?;
        if service.spec.kind.as_deref() == Some("ExternalName") {
            return Err(format!("the Service {name} is an ExternalName"));
        }
        let port = service.spec.ports.iter().find(|it| match (&port.name, port.number) {
            (Some(name), _) => it.name == *name,
            (None, number) => Some(it.port) == number,
        });
        let port = port.ok_or_else(|| format!("the Service {name} has no such port"))?;
        let backend = PoolBackend { service: name, port: port.port, weight: 1 };
        let pool = self.add_pool(Pool { backends: vec![backend] });
        Ok(format!("srv+{scheme}://{pool}"))
    }

    /// Adds routes to a host on both ports. On port 80, a host with a certificate redirects to
    /// HTTPS, unless an annotation says otherwise.
    fn add_ingress_routes(
        &mut self,
        object: &ObjectRef,
        host: &str,
        routes: &[PlannedRoute],
        has_tls: bool,
        own: &OwnIngress<'_>,
    ) {
        let name = host.to_ascii_lowercase();
        if !is_host_pattern(&name) {
            return self.report(object, "HostLeftOut", format!("the host {host:?} is invalid"));
        }
        let redirects = own.annotations.redirects_to_https(has_tls);
        for (port, is_tls) in [(80, false), (443, true)] {
            let Some(bound) = self.settings.bound_port(port) else { continue };
            for route in routes {
                let mut route = route.clone();
                if redirects && !is_tls {
                    route.table.set("https_redirect", "true".to_owned());
                }
                if let Err(reason) = self.sections.add(bound, &name, route) {
                    self.report(object, "PathLeftOut", reason);
                }
            }
        }
    }
}

fn set_response(table: &mut Table, text: &str, status: u16) {
    table.set_text("respond", text);
    table.set("status", status.to_string());
}
