//! The certificate of one name on demand: from the store, or by an order with permission.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;
use weft::client_limit::{Client, ClientPermit};
use weft_proto::semantics::date::rfc3339;

use super::attempt::renew;
use super::order_context::OrderContext;
use super::registry::Origin;
use crate::name::Name;
use crate::on_demand::demand_limits::DemandLimits;
use crate::store::stored_certificate::StoredCertificate;

/// Longest time until a renewal without permission is considered again. The certificate is removed
/// when it expires.
const PERMISSION_INTERVAL: Duration = Duration::from_secs(3_600);

/// Time until the next question if the permission cannot be determined.
const QUESTION_INTERVAL: Duration = Duration::from_secs(60);

/// Permission for an order on demand, and its place among the orders.
pub(super) struct AdmittedOrder(ClientPermit);

/// Determines whether the certificate for a handshake is ordered; `None` if the store has it, or
/// without permission, which is no error. May be cancelled.
pub(super) async fn admit(
    context: &OrderContext,
    limits: &DemandLimits,
    name: &Name,
    client: Option<Client>,
) -> Result<Option<AdmittedOrder>, String> {
    if use_stored(context, name) || !limits.is_permitted(name, client).await? {
        return Ok(None);
    }
    let stored = StoredCertificate::read(&context.store, name).map_err(not_read)?;
    let (now, failures) = (SystemTime::now(), stored.state.failures);
    if failures > 0 && stored.due(now) > now {
        let due = rfc3339(stored.due(now));
        let reason = stored.state.last_error.unwrap_or_default();
        return Err(format!("the last order failed: {reason}; the next one is possible at {due}"));
    }
    let slot = limits.slot(client).await?;
    limits.take(client, Instant::now())?;
    make_room(context, limits, name)?;
    Ok(Some(AdmittedOrder(slot)))
}

/// Orders the certificate for a handshake.
pub(super) async fn order(
    context: &OrderContext,
    name: &Name,
    AdmittedOrder(_slot): AdmittedOrder,
) -> Result<(), String> {
    let ordered = async {
        // `renew` returns without a result while another process orders the certificate.
        loop {
            renew(context, name).await;
            if use_stored(context, name) {
                return Ok(());
            }
            if let Some(reason) = context.store.state(name).map_err(not_read)?.last_error {
                return Err(reason);
            }
        }
    };
    let ordered = timeout(context.settings.order_timeout, ordered).await;
    ordered.unwrap_or_else(|_| Err("another process orders it".to_owned()))
}

/// Renews a certificate that was ordered on demand, if it is still permitted.
pub(super) async fn renew_with_permission(
    context: &OrderContext,
    limits: &DemandLimits,
    name: &Name,
) {
    let (registry, now) = (&context.state.registry, SystemTime::now());
    let next = match limits.is_permitted(name, None).await {
        Ok(true) => {
            renew(context, name).await;
            return registry.read(&context.store, name, Origin::OnDemand);
        }
        Ok(false) => match registry.find(name) {
            Some((_, not_after)) if not_after > now => {
                log::info!("the certificate for {name} is not renewed without permission");
                not_after.min(now + PERMISSION_INTERVAL)
            }
            _ => return registry.remove(name),
        },
        Err(reason) => {
            log::error!("the certificate for {name} is not renewed: {reason}");
            now + QUESTION_INTERVAL
        }
    };
    registry.postpone(name, next);
}

/// Uses the certificate of the store if it is valid now. Returns true if it is.
fn use_stored(context: &OrderContext, name: &Name) -> bool {
    let OrderContext { state, store, .. } = context;
    let stored = StoredCertificate::read(store, name);
    let is_valid = stored.is_ok_and(|stored| stored.is_valid(SystemTime::now()));
    if is_valid {
        state.registry.read(store, name, Origin::OnDemand);
    }
    is_valid
}

/// Makes sure that the store has room for one more name on demand. If the store has too many names,
/// names without a valid certificate are removed.
fn make_room(context: &OrderContext, limits: &DemandLimits, name: &Name) -> Result<(), String> {
    let OrderContext { settings, store, .. } = context;
    let others = || {
        let mut names = store.names().map_err(not_read)?;
        names.retain(|it| it != name && settings.names.binary_search(it).is_err());
        Ok::<_, String>(names)
    };
    let max = limits.settings.max_names;
    let known = others()?;
    if known.len() < max {
        return Ok(());
    }
    let now = SystemTime::now();
    for other in known {
        let Ok(stored) = StoredCertificate::read(store, &other) else { continue };
        if !stored.is_valid(now) && stored.due(now) <= now {
            store.remove(&other);
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
