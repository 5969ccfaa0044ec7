//! Purges of the response cache by the other machines of a cluster.

use weft::cache::Purge;

use super::active_plan::PlanReceiver;
use crate::sections::cluster::ClusterInput;
use crate::sections::response_cache::PurgeRequest;

/// Returns the function that applies the purges of other machines to the store of the active plan.
pub(super) fn handler(plans: PlanReceiver) -> impl Fn(ClusterInput) + Send + Sync + 'static {
    move |input| {
        let store = plans.borrow().opened.response_store.store.clone();
        match input {
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
                let count = store.purge(&Purge::All, true);
                log::warn!("purges of other machines were lost; {count} responses made stale: All");
            }
        }
    }
}
