//! The lease of the process that writes statuses. All processes serve; one of them writes.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time after which the lease of a process that does not renew it may be taken.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Interval at which the lease is renewed, or compared.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);

/// Name of a lease, and of this process.
#[derive(Clone, Debug)]
pub(crate) struct LeaseName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) holder: String,
}

/// State of the lease as this process has seen it.
struct Lease {
    api: Api<DynamicObject>,
    name: LeaseName,
    resource: ApiResource,
    /// Version of the lease of another process, and the time at which it was first seen. The clocks
    /// of two machines are not compared.
    seen: Option<(String, Instant)>,
}

/// Holds the lease whenever it can, and sends whether it does.
pub(super) async fn hold(client: Client, name: LeaseName, is_writer: watch::Sender<bool>) {
    let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let resource = ApiResource::from_gvk_with_plural(&kind, "leases");
    let api = Api::namespaced_with(client, &name.namespace, &resource);
    let mut lease = Lease { api, name, resource, seen: None };
    let mut held_until = Instant::now();
    loop {
        let asked = Instant::now();
        let holds = match timeout(RENEW_INTERVAL, lease.acquire()).await {
            Ok(Ok(holds)) => {
                if holds {
                    held_until = asked + LEASE_DURATION;
                }
                holds
            }
            Ok(Err(error)) => {
                log::debug!("cannot renew the lease {}: {error}", lease.name.name);
                Instant::now() + RENEW_INTERVAL < held_until
            }
            Err(_) => Instant::now() + RENEW_INTERVAL < held_until,
        };
        let has_changed =
            is_writer.send_if_modified(|known| std::mem::replace(known, holds) != holds);
        if has_changed && holds {
            log::info!("this process writes the statuses of objects from now on");
        } else if has_changed {
            log::info!("this process no longer writes the statuses of objects");
        }
        sleep(RENEW_INTERVAL).await;
    }
}

impl Lease {
    /// Renews or takes the lease. Returns true if this process holds it.
    async fn acquire(&mut self) -> kube::Result<bool> {
        let Some(known) = self.api.get_opt(&self.name.name).await? else {
            let lease = self.object(None, 0);
            return self.result(self.api.create(&PostParams::default(), &lease).await);
        };
        let spec = known.data.get("spec").cloned().unwrap_or_default();
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let version = known.metadata.resource_version.clone().unwrap_or_default();
        let is_own = holder == self.name.holder;
        if !is_own && !holder.is_empty() {
            match &self.seen {
                Some((seen, since)) if *seen == version => {
                    if since.elapsed() < LEASE_DURATION {
                        return Ok(false);
                    }
                }
                _ => {
                    self.seen = Some((version, Instant::now()));
                    return Ok(false);
                }
            }
        }
        let transitions = spec["leaseTransitions"].as_i64().unwrap_or_default();
        let lease = self.object(Some(version), transitions + i64::from(!is_own));
        let replaced = self.api.replace(&self.name.name, &PostParams::default(), &lease).await;
        self.result(replaced)
    }

    /// Another process was faster if the version is no longer current.
    fn result(&self, result: kube::Result<DynamicObject>) -> kube::Result<bool> {
        match result {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn object(&self, version: Option<String>, transitions: i64) -> DynamicObject {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let spec: Value = json!({
            "holderIdentity": self.name.holder,
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "renewTime": now,
            "leaseTransitions": transitions,
        });
        let mut object = DynamicObject::new(&self.name.name, &self.resource);
        object.metadata.resource_version = version;
        object.data = json!({ "spec": spec });
        object
    }
}
