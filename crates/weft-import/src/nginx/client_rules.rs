//! `allow` and `deny`: rules about the addresses of clients.

use std::net::IpAddr;

use weft_proto::proxy_protocol::IpNetwork;

use super::scope::Scope;
use super::tree::Directive;
use crate::document::Table;

/// A rule, in the order of the file. `None`: all addresses.
struct Rule<'a> {
    directive: &'a Directive,
    is_allowed: bool,
    network: Option<(IpNetwork, IpAddr)>,
}

/// Translates rules about client addresses. nginx applies the first rule that matches. Weft applies
/// `deny` before `allow`. `refuse` gets each rule that has no equivalent, and the reason.
pub(super) fn translate(scope: &Scope<'_>, refuse: &dyn Fn(&Directive, &str), table: &mut Table) {
    let mut rules = Vec::new();
    for directive in scope.all(&["allow", "deny"]) {
        let network = match directive.arg(0) {
            "all" => None,
            "unix:" => {
                refuse(directive, "clients on Unix sockets have no address");
                continue;
            }
            text => match parse_network(text) {
                Some(network) => Some(network),
                None => {
                    refuse(directive, "the network is invalid");
                    continue;
                }
            },
        };
        let is_allowed = directive.name == "allow";
        rules.push(Rule { directive, is_allowed, network });
        if network.is_none() {
            break;
        }
    }
    let Some(last) = rules.last() else { return };
    let allows_others = last.network.is_some() || last.is_allowed;
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for (index, rule) in rules.iter().enumerate() {
        let Some(network) = &rule.network else { continue };
        let overlaps = |others: &[Rule<'_>], is_allowed| {
            let mut others = others.iter().filter(|other| other.is_allowed == is_allowed);
            others.any(|other| other.network.as_ref().is_some_and(|it| overlap(it, network)))
        };
        let is_needed = match (rule.is_allowed, allows_others) {
            (true, false) => true,
            // Clients that are allowed anyway need no rule.
            (true, true) => false,
            (false, true) => true,
            (false, false) => overlaps(&rules[index + 1..], true),
        };
        if !rule.is_allowed && is_needed && overlaps(&rules[..index], true) {
            refuse(rule.directive, "`deny` has precedence over `allow` in Weft");
        }
        match rule.is_allowed {
            _ if !is_needed => {}
            true => allowed.push(rule.directive.arg(0).to_owned()),
            false => denied.push(rule.directive.arg(0).to_owned()),
        }
    }
    if !allows_others && allowed.is_empty() {
        denied = vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()];
    }
    if !allowed.is_empty() {
        table.set("allow", allowed);
    }
    if !denied.is_empty() {
        table.set("deny", denied);
    }
}

fn parse_network(text: &str) -> Option<(IpNetwork, IpAddr)> {
    let address = text.split('/').next()?.parse().ok()?;
    Some((text.parse().ok()?, address))
}

/// Returns true if two networks have common addresses: one contains the other.
fn overlap(a: &(IpNetwork, IpAddr), b: &(IpNetwork, IpAddr)) -> bool {
    a.0.contains(b.1) || b.0.contains(a.1)
}
