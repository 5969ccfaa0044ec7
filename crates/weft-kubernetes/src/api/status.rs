//! Statuses as JSON, merged with the statuses that the API server has.

use serde_json::{Value, json};

use crate::plan::{Condition, GatewayStatus, ListenerStatus, ObjectStatus, ParentStatus};

/// Values that all statuses of one time have in common.
#[derive(Clone, Copy)]
pub(super) struct StatusContext<'a> {
    pub(super) controller: &'a str,
    pub(super) generation: i64,
    /// Time of conditions that change now.
    pub(super) now: &'a str,
}

impl StatusContext<'_> {
    /// Returns the status of an object if it differs from its `current` status. Entries of other
    /// controllers are kept.
    pub(super) fn changed(&self, status: &ObjectStatus, current: &Value) -> Option<Value> {
        let mut next = if current.is_object() { current.clone() } else { json!({}) };
        match status {
            ObjectStatus::GatewayClass(conditions) => {
                next["conditions"] = self.conditions(conditions, &current["conditions"]);
            }
            ObjectStatus::Gateway(status) => self.set_gateway(&mut next, status, current),
            ObjectStatus::Route(parents) => next["parents"] = self.parents(parents, current),
            ObjectStatus::Ingress(addresses) => {
                let address = |address: &String| match is_ip(address) {
                    true => json!({ "ip": address }),
                    false => json!({ "hostname": address }),
                };
                let ingress: Vec<_> = addresses.iter().map(address).collect();
                next["loadBalancer"] = match ingress.is_empty() {
                    true => json!({}),
                    false => json!({ "ingress": ingress }),
                };
            }
        }
        (next != *current).then_some(next)
    }

    fn set_gateway(&self, next: &mut Value, status: &GatewayStatus, current: &Value) {
        let address = |address: &String| {
            let kind = if is_ip(address) { "IPAddress" } else { "Hostname" };
            json!({ "type": kind, "value": address })
        };
        next["addresses"] = status.addresses.iter().map(address).collect();
        next["conditions"] = self.conditions(&status.conditions, &current["conditions"]);
        let listener = |listener: &ListenerStatus| {
            let known = entries(&current["listeners"]).find(|it| it["name"] == *listener.name);
            let known = known.map_or(Value::Null, |known| known["conditions"].clone());
            let kind = |kind: &&str| json!({ "group": "gateway.networking.k8s.io", "kind": kind });
            json!({
                "name": listener.name,
                "supportedKinds": listener.supported_kinds.iter().map(kind).collect::<Value>(),
                "attachedRoutes": listener.attached_routes,
                "conditions": self.conditions(&listener.conditions, &known),
            })
        };
        next["listeners"] = status.listeners.iter().map(listener).collect();
    }

    fn parents(&self, parents: &[ParentStatus], current: &Value) -> Value {
        let is_own = |entry: &&Value| entry["controllerName"] == self.controller;
        let (own, others): (Vec<_>, Vec<_>) = entries(&current["parents"]).partition(is_own);
        let parent = |status: &ParentStatus| {
            let known = own.iter().find(|it| it["parentRef"] == status.parent);
            let known = known.map_or(Value::Null, |known| known["conditions"].clone());
            json!({
                "parentRef": status.parent,
                "controllerName": self.controller,
                "conditions": self.conditions(&status.conditions, &known),
            })
        };
        others.into_iter().cloned().chain(parents.iter().map(parent)).collect()
    }

    /// Returns conditions as JSON. The time of a condition changes with its status.
    fn conditions(&self, conditions: &[Condition], current: &Value) -> Value {
        let condition = |condition: &Condition| {
            let status = if condition.is_true { "True" } else { "False" };
            let known = entries(current).find(|it| it["type"] == condition.kind);
            let since = known.filter(|known| known["status"] == status);
            let since = since.and_then(|known| known["lastTransitionTime"].as_str());
            json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": self.generation,
                "lastTransitionTime": since.unwrap_or(self.now),
            })
        };
        conditions.iter().map(condition).collect()
    }
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn is_ip(address: &str) -> bool {
    address.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: StatusContext<'_> =
        StatusContext { controller: "weft/gateway", generation: 3, now: "2026-01-02T00:00:00Z" };

    fn accepted(is_true: bool) -> Vec<Condition> {
        vec![Condition { kind: "Accepted", is_true, reason: "Accepted", message: String::new() }]
    }

    fn route(is_true: bool) -> ObjectStatus {
        let parent = json!({ "name": "a" });
        ObjectStatus::Route(vec![ParentStatus { parent, conditions: accepted(is_true) }])
    }

    #[test]
    fn keeps_the_entries_of_other_controllers() {
        let other = json!({ "controllerName": "other/one", "parentRef": { "name": "a" } });
        let current = json!({ "parents": [other] });
        let changed = CONTEXT.changed(&route(true), &current).unwrap();
        assert_eq!(changed["parents"][0], other);
        assert_eq!(changed["parents"][1]["controllerName"], "weft/gateway");
        // A route that leaves its parent loses only the own entry.
        let left = CONTEXT.changed(&ObjectStatus::Route(Vec::new()), &changed).unwrap();
        assert_eq!(left, current);
    }

    #[test]
    fn writes_nothing_without_a_change_and_keeps_the_time_of_a_condition() {
        let first = CONTEXT.changed(&route(true), &Value::Null).unwrap();
        let later = StatusContext { now: "2026-01-03T00:00:00Z", ..CONTEXT };
        assert_eq!(later.changed(&route(true), &first), None);
        let time =
            |status: &Value| status["parents"][0]["conditions"][0]["lastTransitionTime"].clone();
        let changed = later.changed(&route(false), &first).unwrap();
        assert_eq!(time(&changed), later.now);
        let newer = StatusContext { generation: 4, ..later };
        let observed = newer.changed(&route(true), &first).unwrap();
        assert_eq!(time(&observed), CONTEXT.now);
        assert_eq!(observed["parents"][0]["conditions"][0]["observedGeneration"], 4);
    }
}
