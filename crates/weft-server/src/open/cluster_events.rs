//! Events of the other machines of a cluster, and the entry of this machine for them.

use std::time::SystemTime;

use serde_json::json;
use sha2::{Digest, Sha256};
use weft::cache::Purge;

use super::active_plan::PlanReceiver;
use crate::base::sys;
use crate::config::print_plan;
use crate::sections::cluster::ClusterInput;
use crate::sections::response_cache::PurgeRequest;

/// Returns the function that handles messages of other machines by the active plan.
pub(super) fn handler(plans: PlanReceiver) -> impl Fn(ClusterInput) + Send + Sync + 'static {
    move |input| {
        let active = plans.borrow().clone();
        let store = &active.opened.response_store.store;
        let read_certificates =
            || active.opened.acme().into_iter().for_each(|acme| acme.store_changed());
        match input {
            ClusterInput::CertificatesChanged => read_certificates(),
            ClusterInput::Message(message) => match PurgeRequest::parse(&message) {
                Ok((request, purge)) => {
                    let count = store.purge(&purge, request.soft);
                    let done = if request.soft { "made stale" } else { "removed" };
                    log::info!(
                        "another machine purged the response cache; {count} responses {done}: {purge:?}"
                    );
                }
                // A newer version may have other messages.
                Err(error) => log::warn!("a message of another machine has no effect: {error}"),
            },
            ClusterInput::Gap => {
                read_certificates();
                let count = store.purge(&Purge::All, true);
                log::warn!("purges of other machines were lost; {count} responses made stale: All");
            }
        }
    }
}

/// Returns the function that describes this machine for `weft cluster status`, in JSON.
pub(super) fn machine_entry(plans: PlanReceiver) -> impl Fn() -> String + Send + 'static {
    let host = sys::host_name();
    move || {
        let active = plans.borrow().clone();
        let certificates = active.opened.acme().map_or_else(Vec::new, |acme| acme.certificates());
        let now = SystemTime::now();
        let is_valid = |end: &SystemTime| *end > now;
        let ends = certificates.iter().filter_map(|(_, info)| info.not_after).filter(is_valid);
        let valid = ends.clone().count();
        let digest = Sha256::digest(print_plan(&active.plan));
        let configuration: String = digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let listen: Vec<&String> = active.plan.top.listen.texts().take(MAX_ADDRESSES).collect();
        json!({
            "host": host,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "seen": seconds(now),
            "listen": listen,
            "configuration": configuration,
            "certificates": certificates.len(),
            "valid": valid,
            "expires": ends.min().map(seconds),
        })
        .to_string()
    }
}

/// Maximum number of addresses in the entry of a machine.
const MAX_ADDRESSES: usize = 8;

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
