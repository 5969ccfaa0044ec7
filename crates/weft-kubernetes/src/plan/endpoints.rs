//! Pools: services with weights → endpoints.

use std::net::{IpAddr, SocketAddr};

use crate::objects::core::{Endpoint as SliceEndpoint, EndpointSlice};
use crate::objects::{ClusterObjects, ObjectName};

/// Maximum number of endpoints of a pool; more are left out.
pub(super) const MAX_ENDPOINTS: usize = 1_024;

/// Weight of the endpoints of the backend with the largest weight for each of them.
const LARGEST_WEIGHT: f64 = 10_000.0;

/// The services that get the requests of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub(super) backends: Vec<PoolBackend>,
}

/// A port of a service, with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolBackend {
    pub(super) service: ObjectName,
    pub(super) port: u16,
    /// At least 1.
    pub(super) weight: u32,
}

/// An endpoint of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Share of the requests in relation to the other endpoints.
    pub weight: u16,
}

impl Pool {
    /// Returns the services of the pool.
    pub(super) fn services(&self) -> impl Iterator<Item = &ObjectName> {
        self.backends.iter().map(|backend| &backend.service)
    }

    /// Returns the endpoints that may get requests, in a fixed order.
    pub fn endpoints(&self, objects: &ClusterObjects) -> Vec<Endpoint> {
        let of_backends: Vec<_> = self
            .backends
            .iter()
            .map(|backend| (backend.weight, addresses(objects, backend)))
            .filter(|(_, addresses)| !addresses.is_empty())
            .collect();
        let share = |(weight, addresses): &(u32, Vec<SocketAddr>)| {
            f64::from(*weight) / addresses.len() as f64
        };
        let largest = of_backends.iter().map(share).fold(f64::MIN_POSITIVE, f64::max);
        let mut endpoints = Vec::new();
        for backend in &of_backends {
            // One backend needs no weights.
            let weight = match of_backends.len() {
                1 => 1,
                _ => (share(backend) / largest * LARGEST_WEIGHT).round().max(1.0) as u16,
            };
            endpoints
                .extend(backend.1.iter().map(|address| Endpoint { address: *address, weight }));
        }
        endpoints.sort();
        // Two services may have the same endpoint.
        endpoints.dedup_by(|later, earlier| {
            let is_same = later.address == earlier.address;
            if is_same {
                earlier.weight = earlier.weight.saturating_add(later.weight);
            }
            is_same
        });
        endpoints.truncate(MAX_ENDPOINTS);
        endpoints
    }
}

/// Returns the addresses of a service: its ready endpoints, or if there are none, the
/// endpoints that still serve while they terminate.
fn addresses(objects: &ClusterObjects, backend: &PoolBackend) -> Vec<SocketAddr> {
    let Some(service) = objects.services.get(&backend.service) else { return Vec::new() };
    let Some(port) = service.spec.ports.iter().find(|it| it.port == backend.port) else {
        return Vec::new();
    };
    let names = objects.slices_of_services.get(&backend.service);
    let slices = names.into_iter().flatten().filter_map(|name| objects.endpoint_slices.get(name));
    let with_port = slices.filter_map(|slice| Some((slice, port_number(slice, &port.name)?)));
    let with_port: Vec<_> = with_port.collect();
    let select = |is_selected: fn(&SliceEndpoint) -> bool| {
        let endpoints = with_port.iter().flat_map(|(slice, port)| {
            let selected = slice.endpoints.iter().filter(move |it| is_selected(it));
            selected.filter_map(|it| address(it, *port))
        });
        endpoints.collect::<Vec<_>>()
    };
    let ready = select(|it| it.conditions.ready != Some(false));
    match ready.is_empty() {
        true => select(|it| {
            it.conditions.serving == Some(true) && it.conditions.terminating == Some(true)
        }),
        false => ready,
    }
}

/// Returns the port of the endpoints for a port of their service.
fn port_number(slice: &EndpointSlice, name: &str) -> Option<u16> {
    let is_named = |it: &&_| {
        let crate::objects::core::EndpointPort { name: known, .. } = it;
        known.as_deref().unwrap_or_default() == name
    };
    slice.ports.iter().find(is_named)?.port
}

fn address(endpoint: &SliceEndpoint, port: u16) -> Option<SocketAddr> {
    // All addresses of an endpoint lead to the same pod.
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    // The status endpoint of this process, for example, is no endpoint of a service.
    let is_foreign = !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast();
    is_foreign.then_some(SocketAddr::new(ip, port))
}
