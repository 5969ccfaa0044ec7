//! The route table: listener → hosts.
//!
//! A connection has the hosts that are bound to the most specific end of it: to its address, to all
//! addresses of its family, to all addresses. An address that is listened on for all hosts also has
//! the hosts that are not bound, and the host of its port, if there is one, in place of their `*`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use weft::Request;
use weft::net::Peer;

use super::table::{Host, HostName, HostTable, Route};
use crate::base::listen_end::{HostBinding, ListenEnd, TcpEnd};

/// Hosts by listener.
#[derive(Default)]
pub(super) struct RouteTable {
    /// The host of each section.
    hosts: Vec<Host>,
    /// Hosts that are not bound.
    everywhere: HostTable,
    /// `None` if no host is bound: the end of a connection is not looked for.
    bound: Option<Box<BoundTables>>,
}

/// Hosts of the ends that hosts are bound to. `None` stands for the hosts that are not bound.
#[derive(Default)]
struct BoundTables {
    tcp: HashMap<TcpEnd, Option<HostTable>>,
    unix: HashMap<PathBuf, Option<HostTable>>,
    /// Hosts of all other ends of a port.
    ports: HashMap<u16, HostTable>,
}

/// Ends of the listeners.
#[derive(Default)]
pub(crate) struct ListenEnds {
    /// Ends for all hosts that are not bound.
    pub(crate) common: Vec<ListenEnd>,
    /// Ends for the hosts that are bound to them.
    pub(crate) of_hosts: Vec<ListenEnd>,
}

/// A host section, with its names and the connections whose requests it gets.
pub(super) struct HostSection {
    pub(super) names: Vec<HostName>,
    pub(super) binding: HostBinding,
    pub(super) host: Host,
}

impl RouteTable {
    pub(super) fn new(sections: Vec<HostSection>, ends: ListenEnds) -> RouteTable {
        let everywhere = table(all_unbound(&sections));
        let bound = BoundTables::new(&sections, ends).map(Box::new);
        let hosts = sections.into_iter().map(|section| section.host).collect();
        RouteTable { hosts, everywhere, bound }
    }

    /// Returns the routes of all hosts.
    pub(super) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.hosts.iter().flat_map(|host| host.routes.iter())
    }

    /// Returns the hosts of the connection of a request.
    #[inline(always)]
    pub(super) fn hosts_of(&self, request: &Request) -> &HostTable {
        match &self.bound {
            None => &self.everywhere,
            Some(bound) => bound.find(request.peer()).unwrap_or(&self.everywhere),
        }
    }
}

impl BoundTables {
    /// Returns `None` if no host is bound.
    fn new(sections: &[HostSection], listened: ListenEnds) -> Option<BoundTables> {
        let bindings = || sections.iter().map(|section| &section.binding);
        let bound_to = bindings().filter_map(|binding| match binding {
            HostBinding::Ends(ends) => Some(ends),
            _ => None,
        });
        let mut ends: HashSet<ListenEnd> = bound_to.flatten().cloned().collect();
        let ports = bindings().filter_map(|binding| match binding {
            HostBinding::Ports(ports) => Some(ports),
            _ => None,
        });
        let ports: HashSet<u16> = ports.flatten().copied().collect();
        if ends.is_empty() && ports.is_empty() {
            return None;
        }
        // A more general end to which hosts are bound does not include them.
        let common: HashSet<ListenEnd> = listened.common.into_iter().collect();
        ends.extend(common.iter().cloned().chain(listened.of_hosts));
        let mut tables = BoundTables::default();
        for end in ends {
            let hosts = hosts_of_end(sections, &end, common.contains(&end));
            match end {
                ListenEnd::Tcp(end) => drop(tables.tcp.insert(end, hosts)),
                ListenEnd::Unix(path) => drop(tables.unix.insert(path, hosts)),
            }
        }
        for port in ports {
            let of_port = all_of_port(sections, port);
            tables.ports.insert(port, table(of_port.chain(all_unbound(sections))));
        }
        Some(tables)
    }

    /// Returns the hosts of a connection, `None` for the hosts that are not bound.
    fn find(&self, peer: &Peer) -> Option<&HostTable> {
        if let Some(path) = peer.local_path() {
            return self.unix.get(path)?.as_ref();
        }
        let address = peer.local_address()?;
        let mut ends = TcpEnd::of_connection(address).into_iter();
        match ends.find_map(|end| self.tcp.get(&end)) {
            Some(hosts) => hosts.as_ref(),
            None => self.ports.get(&address.port()),
        }
    }
}

/// Returns the hosts of an end; `None` for the hosts that are not bound.
fn hosts_of_end(sections: &[HostSection], end: &ListenEnd, is_common: bool) -> Option<HostTable> {
    let is_bound = |section: &&HostSection| match &section.binding {
        HostBinding::Ends(ends) => ends.contains(end),
        _ => false,
    };
    let of_port = || end.port().into_iter().flat_map(|port| all_of_port(sections, port));
    let unbound = all_unbound(sections).filter(|_| is_common);
    let mut bound = sections.iter().filter(is_bound).peekable();
    if is_common && bound.peek().is_none() && of_port().next().is_none() {
        return None;
    }
    Some(table(bound.chain(of_port()).chain(unbound)))
}

fn all_of_port(sections: &[HostSection], port: u16) -> impl Iterator<Item = &HostSection> {
    sections.iter().filter(move |section| match &section.binding {
        HostBinding::Ports(ports) => ports.contains(&port),
        _ => false,
    })
}

fn all_unbound(sections: &[HostSection]) -> impl Iterator<Item = &HostSection> {
    sections.iter().filter(|section| section.binding == HostBinding::Everywhere)
}

/// Returns a table of hosts. Of several hosts with a name, the first keeps it.
fn table<'a>(sections: impl Iterator<Item = &'a HostSection>) -> HostTable {
    let mut table = HostTable::default();
    sections.for_each(|section| table.add(&section.names, &section.host));
    table.sort();
    table
}
