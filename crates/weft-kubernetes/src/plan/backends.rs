//! References to services → pools of endpoints.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::cluster_plan::POOL_DOMAIN;
use super::endpoints::{Pool, PoolBackend};
use super::grants::Referrer;
use super::planner::Planner;
use crate::objects::http_route::BackendReference;
use crate::objects::{Kind, ObjectName};

/// Backends of a rule.
#[derive(Debug, Default)]
pub(super) struct Backends {
    /// URL of the pool, without a path: `srv+http://NAME`. `None`: no reference is valid and has a
    /// weight.
    pub(super) url: Option<String>,
    /// Reason and message of the first reference that is not valid.
    pub(super) unresolved: Option<(&'static str, String)>,
}

/// Port of a service and its protocol.
struct ResolvedBackend {
    backend: PoolBackend,
    scheme: &'static str,
}

impl Planner<'_> {
    /// Resolves references, and makes a pool of the valid backends.
    pub(super) fn backends(
        &mut self,
        from: Referrer<'_>,
        references: &[BackendReference],
    ) -> Backends {
        let mut found = Backends::default();
        let mut pool = Pool::default();
        let mut scheme = None;
        for reference in references {
            let resolved = match self.resolve_backend(from, reference) {
                Ok(resolved) => resolved,
                Err(reason) => {
                    found.unresolved.get_or_insert(reason);
                    continue;
                }
            };
            if resolved.backend.weight == 0 {
                continue;
            }
            if *scheme.get_or_insert(resolved.scheme) != resolved.scheme {
                let message = "the backends of a rule have one protocol".to_owned();
                found.unresolved.get_or_insert(("UnsupportedProtocol", message));
                continue;
            }
            pool.backends.push(resolved.backend);
        }
        if let Some(scheme) = scheme {
            found.url = Some(format!("srv+{scheme}://{}", self.add_pool(pool)));
        }
        found
    }

    /// Adds a pool, and returns the name of its upstream.
    pub(super) fn add_pool(&mut self, pool: Pool) -> String {
        let name = match &pool.backends[..] {
            [PoolBackend { service, port, .. }] => {
                format!("{port}.{}.{}.{POOL_DOMAIN}", service.name, service.namespace)
            }
            backends => {
                let mut text = String::new();
                for PoolBackend { service, port, weight } in backends {
                    // Writing to a string never fails.
                    let _ = write!(text, "{service}:{port}={weight} ");
                }
                let digest = Sha256::digest(text.as_bytes());
                let hex: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
                format!("{hex}.pool.{POOL_DOMAIN}")
            }
        };
        self.plan.pools.entry(name.clone()).or_insert(pool);
        name
    }

    fn resolve_backend(
        &self,
        from: Referrer<'_>,
        reference: &BackendReference,
    ) -> Result<ResolvedBackend, (&'static str, String)> {
        let group = reference.group.as_deref().unwrap_or_default();
        let kind = reference.kind.as_deref().unwrap_or("Service");
        if (group, kind) != ("", "Service") {
            return Err(("InvalidKind", format!("{group}/{kind} is no Service")));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
        let name = ObjectName::new(namespace, &reference.name);
        if !self.permits_reference(from, Kind::Service, namespace, &reference.name) {
            let message = format!("no ReferenceGrant permits the reference to the Service {name}");
            return Err(("RefNotPermitted", message));
        }
        let not_found = |message: String| ("BackendNotFound", message);
        let Some(service) = self.objects.services.get(&name) else {
            return Err(not_found(format!("the Service {name} does not exist")));
        };
        if service.spec.kind.as_deref() == Some("ExternalName") {
            return Err(not_found(format!("the Service {name} is an ExternalName")));
        }
        let port =
            reference.port.and_then(|port| service.spec.ports.iter().find(|it| it.port == port));
        let Some(port) = port else {
            let port = reference.port.map_or_else(|| "none".to_owned(), |port| port.to_string());
            return Err(not_found(format!("the Service {name} has no such port: {port}")));
        };
        if port.protocol.as_deref().is_some_and(|protocol| protocol != "TCP") {
            let message = format!("the port {} of the Service {name} is not TCP", port.port);
            return Err(("UnsupportedProtocol", message));
        }
        let scheme = match port.app_protocol.as_deref() {
            Some("kubernetes.io/h2c" | "grpc") => "h2c",
            _ => "http",
        };
        let weight = reference.weight.unwrap_or(1);
        let backend = PoolBackend { service: name, port: port.port, weight };
        Ok(ResolvedBackend { backend, scheme })
    }
}
