//! The state and the settings that orders use.

use std::sync::Arc;

use tokio::sync::Notify;

use super::failure_log::FailureLog;
use super::registry::Registry;
use crate::authority::sign_in::FailedSignIns;
use crate::on_demand::demand_limits::DemandLimits;
use crate::on_demand::demand_requests::DemandRequests;
use crate::settings::AcmeSettings;
use crate::store::store_entries::StoreEntries;
use crate::validation::challenges::Challenges;

/// State that orders share with handshakes and applications.
pub(crate) struct AcmeState {
    pub(crate) challenges: Challenges,
    pub(crate) registry: Registry,
    pub(crate) demand_requests: DemandRequests,
    pub(crate) failed_sign_ins: FailedSignIns,
    pub(crate) failures: FailureLog,
    /// Another process has changed the store.
    pub(crate) changed: Notify,
}

/// The shared state, and the settings at the start of an order.
#[derive(Clone)]
pub(crate) struct OrderContext {
    pub(crate) state: Arc<AcmeState>,
    pub(crate) settings: Arc<AcmeSettings>,
    pub(crate) store: StoreEntries,
    /// Limits of orders on demand; `None` without orders on demand.
    pub(crate) limits: Option<Arc<DemandLimits>>,
}
