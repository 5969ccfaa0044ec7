//! Names for which certificates are ordered.

use std::path::PathBuf;

use weft_acme::{ChallengeKind, ExternalAccount, Name};
use weft_config::{Located, Problem};

use super::HostPlan;
use crate::acme::{AcmePlan, DnsMethod, DnsPlan, OnDemandPlan};
use crate::config::{AcmeConfig, DnsConfig, OnDemandConfig, dns_server_address};

/// Plans the orders of the domains, and of the names of hosts if `has_hosts` is set. Returns `None` if
/// there is nothing to order.
pub(super) fn plan_acme(
    mut config: AcmeConfig,
    has_hosts: bool,
    hosts: &[HostPlan],
    warnings: &mut Vec<Problem>,
    problems: &mut Vec<Problem>,
) -> Option<AcmePlan> {
    let directories = config.directory_urls();
    let staging = config.staging_url();
    let challenges = config.challenge_kinds();
    let on_demand = on_demand_plan(std::mem::take(&mut config.on_demand));
    let mut names = domain_names(&config.domains, &challenges, problems);
    for name in hosts.iter().filter(|_| has_hosts).flat_map(|host| &host.names) {
        let is_on_demand_only =
            name.starts_with("*.") && on_demand.as_ref().is_some_and(|plan| plan.covers(name));
        match parse(name) {
            Ok(name) if name.is_local() => {}
            // The host of all other names has no certificate of its own.
            Err(_) if name == "*" => {}
            parsed => match parsed.and_then(|name| possible(name, &challenges)) {
                Ok(name) => names.push(name),
                Err(_) if is_on_demand_only => {}
                Err(reason) => {
                    let message = format!("no certificate is ordered for {name:?}: {reason}");
                    warnings.push(Problem::without_location(message));
                }
            },
        }
    }
    names.sort();
    names.dedup();
    let dns = dns_plan(&config, problems);
    let external_account = external_account(config.eab_key_id, config.eab_key, problems);
    let [ca, state] = [config.ca, config.state].map(|path| path.map(|path| path.value));
    let [email, profile] = [config.email, config.profile].map(|text| text.map(value));
    (has_hosts || !names.is_empty() || on_demand.is_some()).then_some(AcmePlan {
        names,
        includes_hosts: has_hosts,
        directories,
        staging,
        external_account,
        email,
        ca,
        state,
        allows_ephemeral_state: config.allows_ephemeral_state,
        has_placeholder: config.has_placeholder,
        challenges,
        dns,
        profile,
        on_demand,
        retry_delay: config.retry_delay,
        order_timeout: config.order_timeout,
    })
}

fn on_demand_plan(config: OnDemandConfig) -> Option<OnDemandPlan> {
    let OnDemandConfig { patterns, ask, ask_ca, rate, max_names, timeout } = config;
    let ask_ca = ask_ca.map(value);
    let is_on_demand = !patterns.is_empty() || ask.is_some();
    is_on_demand.then_some(OnDemandPlan { patterns, ask, ask_ca, rate, max_names, timeout })
}

/// Returns the names of `domains`, and reports those that no challenge can validate.
fn domain_names(
    domains: &[Located<String>],
    challenges: &[ChallengeKind],
    problems: &mut Vec<Problem>,
) -> Vec<Name> {
    let mut names = Vec::new();
    for domain in domains {
        match parse(&domain.value).and_then(|name| possible(name, challenges)) {
            Ok(name) => names.push(name),
            Err(reason) => problems.push(domain.problem(format!("{:?}: {reason}", domain.value))),
        }
    }
    names
}

fn external_account(
    id: Option<Located<String>>,
    key: Option<Located<PathBuf>>,
    problems: &mut Vec<Problem>,
) -> Option<ExternalAccount> {
    match (id, key) {
        (Some(id), Some(key)) => {
            return Some(ExternalAccount { id: id.value, key: key.value });
        }
        (Some(id), None) => problems.push(id.problem("`eab_key_id` needs `eab_key`")),
        (None, Some(key)) => problems.push(key.problem("`eab_key` needs `eab_key_id`")),
        (None, None) => {}
    }
    None
}

/// Returns true if a certificate can be ordered for one of these names.
pub(super) fn can_order<'n>(
    mut names: impl Iterator<Item = &'n str>,
    challenges: &[ChallengeKind],
) -> bool {
    names.any(|name| {
        parse(name).is_ok_and(|name| !name.is_local() && possible(name, challenges).is_ok())
    })
}

fn parse(name: &str) -> Result<Name, String> {
    name.parse().map_err(|error: weft::Error| error.to_string())
}

/// Returns `name` if one of `challenges` can validate it.
fn possible(name: Name, challenges: &[ChallengeKind]) -> Result<Name, String> {
    match challenges.iter().any(|kind| kind.can_validate(&name)) {
        true => Ok(name),
        false if name.is_wildcard() => Err(
            "a wildcard certificate needs a validation by DNS: set `dns_program`, `dns_server` or \
                 `acme_dns` in [acme], or `challenges` to dns-persist-01"
                .to_owned(),
        ),
        false => Err("an IP address is validated by tls-alpn-01 or http-01, not by DNS".to_owned()),
    }
}

/// Plans the changes of the DNS, which `dns-01` needs.
fn dns_plan(config: &AcmeConfig, problems: &mut Vec<Problem>) -> Option<DnsPlan> {
    let DnsConfig { program, server, key, acme_dns, acme_dns_accounts, delay } = &config.dns;
    let mut methods = Vec::new();
    if let Some(path) = program {
        methods.push((&path.location, DnsMethod::Program(path.value.clone())));
    }
    match (server, key) {
        (Some(server), Some(key)) => {
            let address = dns_server_address(&server.value);
            let method = DnsMethod::Update { server: address, key: key.value.clone() };
            methods.push((&server.location, method));
        }
        (Some(server), None) => problems.push(server.problem("`dns_server` needs `dns_key`")),
        (None, Some(key)) => problems.push(key.problem("`dns_key` needs `dns_server`")),
        (None, None) => {}
    }
    match (acme_dns, acme_dns_accounts) {
        (Some(Located { value: url, location }), Some(accounts)) => {
            let url = url.trim_end_matches('/').to_owned();
            let accounts = accounts.value.clone();
            methods.push((location, DnsMethod::AcmeDns { url, accounts }));
        }
        (Some(url), None) => problems.push(url.problem("`acme_dns` needs `acme_dns_accounts`")),
        (None, Some(path)) => problems.push(path.problem("`acme_dns_accounts` needs `acme_dns`")),
        (None, None) => {}
    }
    let needs_dns = config.challenges.iter().find(|kind| kind.value == ChallengeKind::Dns01);
    if let (Some(kind), false) = (needs_dns, config.dns.is_set()) {
        problems.push(kind.problem("dns-01 needs `dns_program`, `dns_server` or `acme_dns`"));
    }
    if let [_, (location, _), ..] = &*methods {
        let message = "only one of `dns_program`, `dns_server` and `acme_dns` is possible";
        problems.push(Problem { location: (*location).clone(), message: message.to_owned() });
    }
    let (_, method) = methods.into_iter().next()?;
    Some(DnsPlan { method, delay: *delay })
}

fn value<T>(located: Located<T>) -> T {
    located.value
}
