//! Orders certificates when they are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Builder;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::attempt::renew;
use super::demand::{admit, order, renew_with_permission};
use super::order_context::{AcmeState, OrderContext};
use super::registry::Origin;
use crate::name::Name;
use crate::on_demand::demand_limits::DemandLimits;
use crate::on_demand::demand_requests::DemandRequest;
use crate::settings::AcmeSettings;
use crate::store::store_entries::StoreEntries;

/// Maximum number of orders in progress.
const MAX_ORDERS: usize = 8;

/// Longest time between two checks: the clock may jump, and another process may change the files. A
/// check of 1,000 names costs some milliseconds.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time by which the clock may be set back without an effect on the times of orders.
const MAX_SET_BACK: Duration = Duration::from_secs(60);

/// Receives the settings, or `None` if nothing is ordered.
pub(crate) type SettingsReceiver = watch::Receiver<Option<Arc<AcmeSettings>>>;

/// Runs until the sender of the settings is dropped.
pub(crate) fn run(
    state: Arc<AcmeState>,
    settings: SettingsReceiver,
    requests: Receiver<DemandRequest>,
) {
    let manager = Manager {
        state,
        context: None,
        tasks: JoinSet::new(),
        in_progress: HashMap::new(),
        files_read_at: Instant::now(),
        latest: SystemTime::now(),
    };
    let run = async move {
        let state = manager.state.clone();
        tokio::select! {
            () = manager.run(settings, requests) => {}
            () = state.challenges.read_remote() => {}
        }
    };
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run),
        Err(error) => log::error!("cannot start the event loop for certificates: {error}"),
    }
}

struct Manager {
    state: Arc<AcmeState>,
    /// The settings in effect.
    context: Option<OrderContext>,
    tasks: JoinSet<(Name, Outcome)>,
    in_progress: HashMap<Name, InProgress>,
    files_read_at: Instant,
    /// Latest time of day since all files were read.
    latest: SystemTime,
}

/// Outcome of a task; `None` if it was cancelled.
type Outcome = Option<Result<(), String>>;

/// A task for a name.
struct InProgress {
    kind: TaskKind,
    /// Cancels the task before it orders a certificate.
    cancel: Option<oneshot::Sender<()>>,
    /// Handshakes that wait for its end.
    requests: Vec<DemandRequest>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    /// A task that was due.
    Scheduled,
    OnDemand,
}

impl Manager {
    async fn run(mut self, mut settings: SettingsReceiver, mut requests: Receiver<DemandRequest>) {
        self.set_settings(&mut settings);
        let state = self.state.clone();
        loop {
            let pause = self.start_due();
            tokio::select! {
                () = state.changed.notified() => self.read_changed(),
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((name, outcome)) => self.end(&name, outcome),
                    // A task has panicked. The others continue, and hold the leases of their names.
                    Err(_) => self.in_progress.clear(),
                },
                Some(request) = requests.recv() => self.demand(request),
                changed = settings.changed() => match changed {
                    Ok(()) => self.set_settings(&mut settings),
                    Err(_) => return,
                },
                () = sleep(pause) => {}
            }
        }
    }

    /// Uses the latest settings.
    fn set_settings(&mut self, settings: &mut SettingsReceiver) {
        let settings = settings.borrow_and_update().clone();
        let on_demand = settings.as_ref().and_then(|it| it.on_demand.clone()).map(Arc::new);
        self.state.demand_requests.set_settings(on_demand.clone());
        let former = self.context.take().and_then(|context| context.limits);
        let limits = on_demand.map(|it| Arc::new(DemandLimits::new(it, former.as_deref())));
        let Some(settings) = settings else { return };
        let (state, store) = (self.state.clone(), StoreEntries(settings.store.clone()));
        state.registry.add(&store, &settings.names);
        self.context = Some(OrderContext { state, settings, store, limits });
        self.retain_planned();
        self.read_changed();
    }

    fn read_changed(&mut self) {
        if let Some(OrderContext { store, .. }) = &self.context {
            self.state.registry.read_changed(store);
            self.files_read_at = Instant::now();
        }
    }

    /// Removes the names from memory that are not ordered any more.
    fn retain_planned(&self) {
        if let Some(OrderContext { settings, limits, .. }) = &self.context {
            let may_permit =
                |name: &Name| limits.as_ref().is_some_and(|it| it.settings.may_permit(name));
            self.state.registry.retain(&settings.names, may_permit);
        }
    }

    /// Starts tasks for the names that are due. Returns the time until the next name may be due.
    fn start_due(&mut self) -> Duration {
        let sums_at = self.state.failures.log_sums(Instant::now());
        if self.files_read_at.elapsed() >= FILE_INTERVAL {
            self.read_changed();
        }
        let Some(context) = &self.context else { return FILE_INTERVAL };
        let registry = &self.state.registry;
        if SystemTime::now() + MAX_SET_BACK < self.latest {
            // The due times depend on the time of day at which the files were read.
            registry.read_all(&context.store);
            self.latest = SystemTime::now();
        }
        self.latest = self.latest.max(SystemTime::now());
        let scheduled = self.in_progress.values().filter(|it| it.kind == TaskKind::Scheduled);
        let (now, free) = (SystemTime::now(), MAX_ORDERS.saturating_sub(scheduled.count()));
        let (due, next) = registry.due(now, free, |name| !self.in_progress.contains_key(name));
        for name in due {
            let in_progress =
                InProgress { kind: TaskKind::Scheduled, cancel: None, requests: Vec::new() };
            self.in_progress.insert(name.clone(), in_progress);
            let context = context.clone();
            self.tasks.spawn(async move {
                let registry = &context.state.registry;
                match (&context.limits, registry.find(&name)) {
                    (Some(limits), Some((Origin::OnDemand, _))) => {
                        renew_with_permission(&context, limits, &name).await;
                    }
                    _ => {
                        renew(&context, &name).await;
                        registry.read(&context.store, &name, Origin::Configured);
                    }
                }
                (name, Some(Ok(())))
            });
        }
        let wait = next.and_then(|next| next.duration_since(now).ok());
        let sums = sums_at.map(|at| at.saturating_duration_since(Instant::now()));
        wait.into_iter().chain(sums).fold(FILE_INTERVAL, Duration::min)
    }

    /// Obtains the certificate that a handshake waits for.
    fn demand(&mut self, request: DemandRequest) {
        if let Some(in_progress) = self.in_progress.get_mut(&request.name) {
            in_progress.requests.push(request);
            return self.cancel_abandoned();
        }
        self.cancel_abandoned();
        let context = self.context.as_ref();
        let Some((context, limits)) = context.and_then(|it| Some((it.clone(), it.limits.clone()?)))
        else {
            return drop(request.reply.send(Ok(())));
        };
        let (name, client) = (request.name.clone(), request.client);
        let (cancel, cancelled) = oneshot::channel();
        let in_progress =
            InProgress { kind: TaskKind::OnDemand, cancel: Some(cancel), requests: vec![request] };
        self.in_progress.insert(name.clone(), in_progress);
        self.tasks.spawn(async move {
            let admitted = tokio::select! {
                admitted = admit(&context, &limits, &name, client) => admitted,
                Ok(()) = cancelled => return (name, None),
            };
            let obtained = match admitted {
                Ok(Some(admitted)) => order(&context, &name, admitted).await,
                admitted => admitted.map(|_| ()),
            };
            (name, Some(obtained))
        });
    }

    /// Cancels the tasks of clients that have left, unless their orders have begun.
    fn cancel_abandoned(&mut self) {
        for InProgress { cancel, requests, .. } in self.in_progress.values_mut() {
            requests.retain(|request| !request.reply.is_closed());
            if let Some(cancel) = cancel.take_if(|_| requests.is_empty()) {
                // Fails if the order has begun.
                let _ = cancel.send(());
            }
        }
    }

    fn end(&mut self, name: &Name, outcome: Outcome) {
        // A reload may have removed the name, and then the task has read its files again.
        self.retain_planned();
        let requests = self.in_progress.remove(name).map_or_else(Vec::new, |it| it.requests);
        for request in requests {
            match &outcome {
                // Fails if the client has left.
                Some(result) => drop(request.reply.send(result.clone())),
                // Another client has come since the task was cancelled.
                None => self.demand(request),
            }
        }
    }
}
