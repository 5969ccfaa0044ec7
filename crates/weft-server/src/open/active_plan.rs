//! The plan in effect, with everything that is open for it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::logs::OpenLogs;
use crate::open::Opened;
use crate::plan::Plan;
use crate::sockets::ServedSocket;

/// The plan in effect, with everything that is open for it. The process, its workers and the status
/// endpoint share this value, and a reload replaces it as a whole.
pub(crate) struct ActivePlan {
    pub(crate) plan: Plan,
    pub(crate) opened: Opened,
    pub(crate) sockets: Vec<ServedSocket>,
    pub(crate) logs: Arc<OpenLogs>,
}

/// Sends the active plan to the workers and to the status endpoint.
pub(crate) type PlanSender = watch::Sender<Arc<ActivePlan>>;

/// Receives the active plan.
pub(crate) type PlanReceiver = watch::Receiver<Arc<ActivePlan>>;
