//! Listeners of hosts: the addresses in `listen` of a host, and the ports that are names of hosts.

use std::collections::HashSet;

use weft_config::{Located, Problem};

use super::HostConfig;
use super::host_names::{SectionNames, named_ports};
use crate::base::listen_end::{Ipv4Ports, ListenEnd, TLS_PREFIX};
use crate::sections::addresses::Addresses;

/// Normalizes the addresses of the hosts, so that an address begins with `tls://` if its listener
/// uses TLS. Adds the addresses that only hosts have to `plain` or `secure`. A port that is the
/// name of a host is listened on if it has no listener. `others` have other purposes.
pub(super) fn bind_hosts(
    hosts: &mut [(HostConfig, SectionNames)],
    plain: &mut Addresses,
    secure: &mut Addresses,
    others: &[&Located<String>],
) {
    let of_hosts = hosts.iter().flat_map(|(host, _)| &host.settings.listen.list);
    let own = plain.list.iter().chain(&secure.list).chain(of_hosts.clone());
    let own = own.map(|address| &*address.value);
    let ports = Ipv4Ports::new(others.iter().map(|address| &*address.value).chain(own));
    let with_prefix = of_hosts.filter(|address| address.value.starts_with(TLS_PREFIX));
    let secure_ends: HashSet<ListenEnd> =
        secure.list.iter().chain(with_prefix).flat_map(|it| ports.ends(&it.value)).collect();
    for address in hosts.iter_mut().flat_map(|(host, _)| &mut host.settings.listen.list) {
        let text = address.value.trim_start_matches(TLS_PREFIX).to_owned();
        let is_secure = ports.ends(&text).iter().any(|end| secure_ends.contains(end));
        add(if is_secure { &mut *secure } else { &mut *plain }, &ports, address, &text);
        address.value = if is_secure { format!("{TLS_PREFIX}{text}") } else { text };
    }
    let by_port = hosts.iter().filter(|(host, _)| host.settings.listen.list.is_empty());
    for (host, names) in by_port {
        for port in named_ports(&names.hosts) {
            let is_of_port = |end: &ListenEnd| end.port() == Some(port);
            let has_port = |text: &String| ports.ends(text).iter().any(is_of_port);
            if !plain.texts().any(has_port) && !secure.texts().any(has_port) {
                add(plain, &ports, &host.names, &format!(":{port}"));
            }
        }
    }
}

/// Adds an address of a host, unless it is among the addresses.
fn add(addresses: &mut Addresses, ports: &Ipv4Ports, at: &Located<String>, text: &str) {
    let ends = ports.ends(text);
    if !addresses.texts().any(|known| ports.ends(known) == ends) {
        let location = at.location.clone();
        addresses.of_hosts.push(Located { location, value: text.to_owned() });
    }
}

/// Reports an address of a host whose name is another port.
pub(super) fn check_ports(host: &HostConfig, names: &SectionNames, problems: &mut Vec<Problem>) {
    let ports = named_ports(&names.hosts);
    let port_of = |address: &str| address.rsplit_once(':')?.1.parse::<u16>().ok();
    for address in host.settings.listen.list.iter().filter(|_| !ports.is_empty()) {
        if port_of(&address.value).is_none_or(|port| !ports.contains(&port)) {
            let name = &host.names.value;
            let message = format!("`{}` is no address of the port in `{name}`", address.value);
            problems.push(address.problem(message));
        }
    }
}

/// Returns true if a host is bound to addresses without TLS only.
pub(super) fn is_without_tls(host: &HostConfig) -> bool {
    let addresses = &host.settings.listen.list;
    !addresses.is_empty() && addresses.iter().all(|it| !it.value.starts_with(TLS_PREFIX))
}

/// Returns true if a host is bound to addresses or ports.
pub(super) fn is_bound(host: &HostConfig, names: &SectionNames) -> bool {
    !host.settings.listen.list.is_empty() || !named_ports(&names.hosts).is_empty()
}
