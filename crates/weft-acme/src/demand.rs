//! The certificate of one name on demand: from the store, or by an order with permission.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;
use weft_proto::semantics::date::rfc3339;

use crate::acme::Shared;
use crate::attempt::renew;
use crate::manager::ActiveSettings;
use crate::name::Name;
use crate::on_demand::DemandLimits;
use crate::registry::Origin;
use crate::stored::StoredCertificate;

/// Longest time until a renewal without permission is considered again; the certificate is removed at
/// its end.
const PERMISSION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Time until the permission is asked for again without an answer.
const QUESTION_INTERVAL: Duration = Duration::from_secs(60);

/// Obtains the certificate for a handshake. Without permission there is none, which is no error.
pub(crate) async fn obtain(
    acme: &Shared,
    active: &ActiveSettings,
    limits: &DemandLimits,
    name: &Name,
) -> Result<(), String> {
    if read_valid(acme, active, name) {
        return Ok(());
    }
    if !limits.is_permitted(name).await? {
        return Ok(());
    }
    let stored = StoredCertificate::read(&active.store, name).map_err(not_read)?;
    let (now, failures) = (SystemTime::now(), stored.state.failures);
    if failures > 0 && stored.due(now) > now {
        let (reason, due) = (stored.state.last_error.clone(), rfc3339(stored.due(now)));
        let reason = reason.unwrap_or_default();
        return Err(format!("the last order failed: {reason}; the next one is possible at {due}"));
    }
    let _slot = limits.slot().await;
    limits.take(Instant::now())?;
    make_room(active, limits, name)?;
    let ordered = async {
        loop {
            renew(acme, active, name).await;
            if read_valid(acme, active, name) {
                return Ok(());
            }
            if let Some(reason) = active.store.state(name).map_err(not_read)?.last_error {
                return Err(reason);
            }
        }
    };
    let ordered = timeout(active.settings.order_timeout, ordered).await;
    ordered.unwrap_or_else(|_| Err("another process orders it".to_owned()))
}

/// Renews a certificate that was ordered on demand, if it is still permitted.
pub(crate) async fn renew_with_permission(
    acme: &Shared,
    active: &ActiveSettings,
    limits: &DemandLimits,
    name: &Name,
) {
    let now = SystemTime::now();
    let next = match limits.is_permitted(name).await {
        Ok(true) => {
            renew(acme, active, name).await;
            return acme.registry.read(&active.store, name, Origin::OnDemand);
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
fn read_valid(acme: &Shared, active: &ActiveSettings, name: &Name) -> bool {
    let lifetime = StoredCertificate::read(&active.store, name).ok().and_then(|it| it.lifetime);
    let is_valid = lifetime.is_some_and(|lifetime| lifetime.not_after > SystemTime::now());
    if is_valid {
        acme.registry.read(&active.store, name, Origin::OnDemand);
    }
    is_valid
}

/// Makes sure that the store has room for one more name. Names with a certificate that has expired, or
/// without one, are removed from it if there are too many.
fn make_room(active: &ActiveSettings, limits: &DemandLimits, name: &Name) -> Result<(), String> {
    let others = || {
        let mut names = active.store.names().map_err(not_read)?;
        names.retain(|it| it != name && active.settings.names.binary_search(it).is_err());
        Ok::<_, String>(names)
    };
    let max = limits.settings.max_names;
    let known = others()?;
    if known.len() < max {
        return Ok(());
    }
    let now = SystemTime::now();
    for other in known {
        let Ok(stored) = StoredCertificate::read(&active.store, &other) else { continue };
        let is_valid = stored.lifetime.is_some_and(|lifetime| lifetime.not_after > now);
        if !is_valid && stored.due(now) <= now {
            active.store.remove(&other);
        }
    }
    match others()?.len() < max {
        true => Ok(()),
        false => Err(format!("the store has {max} names on demand (`on_demand_names`)")),
    }
}

fn not_read(error: std::io::Error) -> String {
    format!("cannot read the store: {error}")
}
