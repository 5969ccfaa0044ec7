//! The certificate of one name on demand: from the store, or by an order with permission.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;
use weft_proto::semantics::date::rfc3339;

use super::Acme;
use super::manager::{ActivePlan, renew};
use super::on_demand::DemandLimits;
use super::registry::Origin;
use super::settings::Name;
use super::stored::StoredCertificate;

/// Longest time until a renewal without permission is considered again; the certificate is removed at
/// its end.
const PERMISSION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Time until the permission is asked for again without an answer.
const QUESTION_INTERVAL: Duration = Duration::from_secs(60);

/// Obtains the certificate for a handshake. Without permission there is none, which is no error.
pub(super) async fn obtain(
    acme: &Acme,
    plan: &ActivePlan,
    limits: &DemandLimits,
    name: &Name,
) -> Result<(), String> {
    if read_valid(acme, plan, name) {
        return Ok(());
    }
    if !limits.is_permitted(name).await? {
        return Ok(());
    }
    let stored = StoredCertificate::read(&plan.store, name);
    let (now, failures) = (SystemTime::now(), stored.state.failures);
    if failures > 0 && stored.due(now) > now {
        let (reason, due) = (stored.state.last_error.clone(), rfc3339(stored.due(now)));
        let reason = reason.unwrap_or_default();
        return Err(format!("the last order failed: {reason}; the next one is possible at {due}"));
    }
    let _slot = limits.slot().await;
    limits.take(Instant::now())?;
    make_room(plan, limits, name)?;
    let ordered = async {
        loop {
            renew(acme, plan, name).await;
            if read_valid(acme, plan, name) {
                return Ok(());
            }
            if let Some(reason) = plan.store.state(name).last_error {
                return Err(reason);
            }
        }
    };
    let ordered = timeout(plan.acme.order_timeout, ordered).await;
    ordered.unwrap_or_else(|_| Err("another process orders it".to_owned()))
}

/// Renews a certificate that was ordered on demand, if it is still permitted.
pub(super) async fn renew_with_permission(
    acme: &Acme,
    plan: &ActivePlan,
    limits: &DemandLimits,
    name: &Name,
) {
    let now = SystemTime::now();
    let next = match limits.is_permitted(name).await {
        Ok(true) => {
            renew(acme, plan, name).await;
            return acme.registry.read(&plan.store, name, Origin::OnDemand);
        }
        Ok(false) => match acme.registry.find(name) {
            Some((_, not_after)) if not_after > now => {
                log::info!("the certificate for {name} is not renewed without permission");
                not_after.min(now + PERMISSION_INTERVAL)
            }
            _ => return acme.registry.remove(name),
        },
        Err(reason) => {
            log::error!("the certificate for {name} is not renewed: {reason}");
            now + QUESTION_INTERVAL
        }
    };
    acme.registry.postpone(name, next);
}

/// Uses the certificate of the store, if it is valid now.
fn read_valid(acme: &Acme, plan: &ActivePlan, name: &Name) -> bool {
    let is_valid = plan.store.has_certificate(name) && {
        let lifetime = StoredCertificate::read(&plan.store, name).lifetime;
        lifetime.is_some_and(|lifetime| lifetime.not_after > SystemTime::now())
    };
    if is_valid {
        acme.registry.read(&plan.store, name, Origin::OnDemand);
    }
    is_valid
}

/// Makes sure that the store has room for one more name. Names with a certificate that has expired, or
/// without one, are removed from it if there are too many.
fn make_room(plan: &ActivePlan, limits: &DemandLimits, name: &Name) -> Result<(), String> {
    let others = || {
        let names = plan.store.names().into_iter();
        names.filter(|it| it != name && plan.acme.names.binary_search(it).is_err())
    };
    let max = limits.plan.max_names;
    if others().count() < max {
        return Ok(());
    }
    let now = SystemTime::now();
    for other in others() {
        let stored = StoredCertificate::read(&plan.store, &other);
        let is_valid = stored.lifetime.is_some_and(|lifetime| lifetime.not_after > now);
        if !is_valid && stored.due(now) <= now {
            plan.store.remove(&other);
        }
    }
    match others().count() < max {
        true => Ok(()),
        false => Err(format!("the store has {max} names on demand (`on_demand_names`)")),
    }
}
