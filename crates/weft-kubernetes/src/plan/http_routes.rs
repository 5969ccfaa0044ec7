//! HTTPRoutes → routes of the listeners to which they are attached, with conditions.

use std::collections::BTreeMap;

use super::backends::Backends;
use super::conditions::{Condition, ObjectStatus, ParentStatus, parent_json};
use super::filters::{Filters, RedirectOrigin};
use super::gateways::{PlannedGateway, PlannedListener};
use super::grants::Referrer;
use super::hostnames::{intersection, is_host_pattern};
use super::matches::{PathRule, RouteMatch};
use super::planner::Planner;
use super::sections::PlannedRoute;
use super::timeouts::milliseconds;
use super::toml::Table;
use crate::objects::http_route::{HttpMatch, HttpRoute, HttpRule, ParentReference};
use crate::objects::{Kind, Object, ObjectName, ObjectRef};

/// Text of the response of a rule whose backends are invalid.
const INVALID_BACKENDS: &str = "The backends of this route are invalid.\n";

/// The rules of a route, read once for all of its parents.
struct ReadRoute<'a> {
    name: &'a ObjectName,
    rules: Vec<ReadRule<'a>>,
    /// Reason and message of the first reference that is not valid.
    unresolved: Option<(&'static str, String)>,
    /// Messages about rules that are left out, or respond with an error.
    invalid: Vec<String>,
}

struct ReadRule<'a> {
    number: usize,
    matches: Vec<RouteMatch>,
    /// `None`: requests get an error.
    filters: Option<Filters<'a>>,
    backends: Backends,
    timeout: Option<u64>,
}

/// A listener to which a route is attached.
struct Attachment {
    listen_port: u16,
    bound_port: u16,
    is_tls: bool,
    is_usable: bool,
    listener_hostname: String,
    hostnames: Vec<String>,
}

impl<'a> Planner<'a> {
    /// Attaches all HTTPRoutes, the oldest first.
    pub(super) fn plan_http_routes(
        &mut self,
        gateways: &mut BTreeMap<ObjectName, PlannedGateway<'a>>,
    ) {
        let mut routes: Vec<_> = self.objects.http_routes.iter().collect();
        routes.sort_by_key(|(_, route)| route.metadata.age_order());
        for (name, route) in routes {
            self.plan_http_route(name, route, gateways);
        }
    }

    fn plan_http_route(
        &mut self,
        name: &'a ObjectName,
        route: &'a Object<HttpRoute>,
        gateways: &mut BTreeMap<ObjectName, PlannedGateway<'a>>,
    ) {
        let is_own = |parent: &&ParentReference| find(gateways, parent, name).is_some();
        let parents: Vec<_> = route.spec.parent_refs.iter().filter(is_own).collect();
        if parents.is_empty() {
            return;
        }
        let mut read = self.read_route(name, &route.spec);
        let mut statuses = Vec::new();
        for parent in parents {
            let mut conditions = Vec::new();
            match self.attach(parent, name, &route.spec, gateways) {
                Ok(attachments) => {
                    for attachment in attachments.iter().filter(|it| it.is_usable) {
                        self.add_routes(&mut read, attachment);
                    }
                    conditions.extend(accepted_conditions(&read));
                }
                Err((reason, message)) => {
                    conditions.push(Condition::new("Accepted", false, reason, message));
                }
            }
            conditions.push(match read.unresolved.clone() {
                Some((reason, message)) => Condition::new("ResolvedRefs", false, reason, message),
                None => Condition::new("ResolvedRefs", true, "ResolvedRefs", ""),
            });
            let parent = parent_json(parent, &name.namespace);
            statuses.push(ParentStatus { parent, conditions });
        }
        let object = ObjectRef { kind: Kind::HttpRoute, name: name.clone() };
        self.plan.statuses.insert(object, ObjectStatus::Route(statuses));
    }

    fn read_route(&mut self, name: &'a ObjectName, route: &'a HttpRoute) -> ReadRoute<'a> {
        let mut read = ReadRoute { name, rules: Vec::new(), unresolved: None, invalid: Vec::new() };
        let object = ObjectRef { kind: Kind::HttpRoute, name: name.clone() };
        if let Some(reason) = self.refused.get(&object) {
            read.invalid.push(reason.clone());
            return read;
        }
        for (number, rule) in route.rules.iter().enumerate() {
            let any = [HttpMatch::default()];
            let given = if rule.matches.is_empty() { &any[..] } else { &rule.matches };
            let matches = given.iter().map(RouteMatch::parse).collect::<Result<Vec<_>, _>>();
            match matches {
                Ok(matches) => {
                    let rule = self.read_rule(&mut read, number, matches, rule);
                    read.rules.push(rule);
                }
                Err(message) => read.invalid.push(format!("dropped rule {number}: {message}")),
            }
        }
        read
    }

    fn read_rule(
        &mut self,
        read: &mut ReadRoute<'a>,
        number: usize,
        matches: Vec<RouteMatch>,
        rule: &'a HttpRule,
    ) -> ReadRule<'a> {
        let from = Referrer { kind: Kind::HttpRoute, namespace: &read.name.namespace };
        let backends = self.backends(from, &rule.backend_refs);
        if read.unresolved.is_none() {
            read.unresolved.clone_from(&backends.unresolved);
        }
        let of_backends = rule.backend_refs.iter().flat_map(|it| &it.filters);
        let filters = match (rule.backend_refs.len(), of_backends.clone().next()) {
            (2.., Some(_)) => {
                Err("filters of one of several backends are not supported".to_owned())
            }
            _ => Filters::parse(rule.filters.iter().chain(of_backends)),
        };
        let timeouts = [&rule.timeouts.request, &rule.timeouts.backend_request];
        let timeouts = timeouts.into_iter().flatten().map(|text| milliseconds(text));
        let timeout = timeouts.collect::<Result<Vec<_>, _>>();
        // A duration of zero is no limit.
        let timeout = timeout.map(|all| all.into_iter().filter(|time| *time > 0).min());
        let both = filters.and_then(|filters| timeout.map(|timeout| (filters, timeout)));
        let (filters, timeout) = match both {
            Ok((filters, timeout)) => (Some(filters), timeout),
            Err(message) => {
                read.invalid.push(format!("rule {number} responds with 500: {message}"));
                (None, None)
            }
        };
        ReadRule { number, matches, filters, backends, timeout }
    }

    /// Finds the listeners of a parent to which a route is attached, and counts it there.
    fn attach(
        &self,
        parent: &ParentReference,
        name: &ObjectName,
        route: &HttpRoute,
        gateways: &mut BTreeMap<ObjectName, PlannedGateway<'a>>,
    ) -> Result<Vec<Attachment>, (&'static str, String)> {
        let gateway_name = parent_name(parent, name);
        let Some(gateway) = gateways.get_mut(&gateway_name) else { return Ok(Vec::new()) };
        if let Some(invalid) = route.hostnames.iter().find(|it| !is_host_pattern(it)) {
            return Err(("UnsupportedValue", format!("the host {invalid:?} is invalid")));
        }
        let is_meant = |it: &&mut PlannedListener<'_>| {
            parent.section_name.as_ref().is_none_or(|section| it.spec.name == *section)
                && parent.port.is_none_or(|port| it.spec.port == port)
        };
        let mut meant: Vec<_> = gateway.listeners.iter_mut().filter(is_meant).collect();
        if meant.is_empty() {
            let message = "the Gateway has no such listener".to_owned();
            return Err(("NoMatchingParent", message));
        }
        meant.retain(|it| {
            it.permits_http_routes && self.permits_namespace(it, &gateway_name, &name.namespace)
        });
        if meant.is_empty() {
            let message = "no listener permits routes of this kind and namespace".to_owned();
            return Err(("NotAllowedByListeners", message));
        }
        let mut attachments = Vec::new();
        for listener in meant {
            let hostnames = intersection(listener.spec.hostname.as_deref(), &route.hostnames);
            if hostnames.is_empty() {
                continue;
            }
            listener.attached_routes += 1;
            let own = listener.spec.hostname.as_deref().filter(|name| !name.is_empty());
            attachments.push(Attachment {
                listen_port: listener.spec.port,
                bound_port: listener.bound_port,
                is_tls: listener.is_tls,
                is_usable: listener.is_usable,
                listener_hostname: own.unwrap_or("*").to_ascii_lowercase(),
                hostnames,
            });
        }
        match attachments.is_empty() {
            true => {
                let message = "no listener has a host name of the route".to_owned();
                Err(("NoMatchingListenerHostname", message))
            }
            false => Ok(attachments),
        }
    }

    fn permits_namespace(
        &self,
        listener: &PlannedListener<'_>,
        gateway: &ObjectName,
        namespace: &str,
    ) -> bool {
        let namespaces = &listener.spec.allowed_routes.namespaces;
        match namespaces.from.as_deref().unwrap_or("Same") {
            "All" => true,
            "Same" => gateway.namespace == namespace,
            "Selector" => {
                let known = self.objects.namespaces.get(&ObjectName::new("", namespace));
                let selector = namespaces.selector.as_ref();
                known
                    .zip(selector)
                    .is_some_and(|(it, selector)| selector.matches(&it.metadata.labels))
            }
            _ => false,
        }
    }

    /// Adds the rules of a route to the hosts of a listener.
    fn add_routes(&mut self, read: &mut ReadRoute<'a>, attachment: &Attachment) {
        let (port, own) = (attachment.bound_port, &attachment.listener_hostname);
        for host in &attachment.hostnames {
            // Requests for the host have the more specific listener.
            if self.sections.has_more_specific(port, own, host) {
                continue;
            }
            for rule in &read.rules {
                if let Err(message) = self.add_rule(read.name, rule, attachment, host) {
                    read.invalid.push(format!("rule {}: {message}", rule.number));
                }
            }
        }
    }

    fn add_rule(
        &mut self,
        name: &ObjectName,
        rule: &ReadRule<'_>,
        attachment: &Attachment,
        host: &str,
    ) -> Result<(), String> {
        let owner = ObjectRef { kind: Kind::HttpRoute, name: name.clone() };
        for (number, matched) in rule.matches.iter().enumerate() {
            let label = format!("{}.{}.{}.{number}", name.namespace, name.name, rule.number);
            for (path, table) in rule.tables(&matched.path, attachment)? {
                let route = PlannedRoute {
                    path,
                    precedence: matched.precedence,
                    conditions: matched.conditions.clone(),
                    expressions: matched.expressions,
                    label: label.clone(),
                    table,
                    owner: owner.clone(),
                };
                self.sections.add(attachment.bound_port, host, route)?;
            }
        }
        Ok(())
    }
}

impl ReadRule<'_> {
    /// Returns the keys of the routes for a path.
    fn tables(
        &self,
        path: &PathRule,
        attachment: &Attachment,
    ) -> Result<Vec<(PathRule, Table)>, String> {
        let Some(filters) = &self.filters else {
            return Ok(vec![(path.clone(), error_table())]);
        };
        let origin = RedirectOrigin { port: attachment.listen_port, is_tls: attachment.is_tls };
        if let Some(routes) = filters.redirect(path, origin)? {
            return Ok(routes);
        }
        let Some(url) = &self.backends.url else {
            return Ok(vec![(path.clone(), error_table())]);
        };
        let mut table = Table::default();
        let behind = filters.rewrite(path, &mut table)?;
        let mut all = Table::default();
        all.set_text("proxy", &format!("{url}{behind}"));
        if !behind.is_empty() {
            // As for upstreams whose URL has no path.
            all.set("merge_slashes", "false".to_owned());
        }
        all.extend(&table);
        if let Some(milliseconds) = self.timeout {
            all.set_text("response_timeout", &format!("{milliseconds}ms"));
        }
        all.extend(filters.options());
        Ok(vec![(path.clone(), all)])
    }
}

/// Returns the keys of a route whose requests get an error, because its rule cannot be applied.
fn error_table() -> Table {
    let mut table = Table::default();
    table.set_text("respond", INVALID_BACKENDS);
    table.set("status", "500".to_owned());
    table
}

/// Returns the conditions of a route that is attached.
fn accepted_conditions(read: &ReadRoute<'_>) -> Vec<Condition> {
    let message = read.invalid.join("; ");
    match (read.rules.is_empty(), read.invalid.is_empty()) {
        (true, false) => vec![Condition::new("Accepted", false, "UnsupportedValue", message)],
        (false, false) => vec![
            Condition::new("Accepted", true, "Accepted", "some rules are not valid"),
            Condition::new("PartiallyInvalid", true, "UnsupportedValue", message),
        ],
        (_, true) => vec![Condition::new("Accepted", true, "Accepted", "the route is served")],
    }
}

/// Returns the name of the Gateway that a reference means.
fn parent_name(parent: &ParentReference, route: &ObjectName) -> ObjectName {
    ObjectName::new(parent.namespace.as_deref().unwrap_or(&route.namespace), &parent.name)
}

/// Returns the Gateway that a reference means, if it is of this controller.
fn find<'g, 'a>(
    gateways: &'g BTreeMap<ObjectName, PlannedGateway<'a>>,
    parent: &ParentReference,
    route: &ObjectName,
) -> Option<&'g PlannedGateway<'a>> {
    let group = parent.group.as_deref().unwrap_or(Kind::Gateway.place().group);
    let kind = parent.kind.as_deref().unwrap_or("Gateway");
    let is_gateway = (group, kind) == (Kind::Gateway.place().group, "Gateway");
    gateways.get(&parent_name(parent, route)).filter(|_| is_gateway)
}
