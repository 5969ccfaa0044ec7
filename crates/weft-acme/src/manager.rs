//! Orders certificates when they are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::acme::Shared;
use crate::attempt::renew;
use crate::demand::{obtain, renew_with_permission};
use crate::name::Name;
use crate::on_demand::{DemandLimits, DemandRequest};
use crate::registry::Origin;
use crate::settings::AcmeSettings;
use crate::store::Store;

/// Maximum number of orders in progress.
const MAX_ORDERS: usize = 8;

/// Longest time between two checks of the clock, which may jump, and of the versions of the files,
/// which another process may change. A check of 1,000 names costs some milliseconds.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time by which the clock may be set back without an effect on the times of orders.
const MAX_SET_BACK: Duration = Duration::from_secs(60);

/// The settings in effect.
#[derive(Clone)]
pub(crate) struct ActiveSettings {
    pub(crate) settings: Arc<AcmeSettings>,
    pub(crate) store: Store,
    limits: Option<Arc<DemandLimits>>,
}

/// Receives the settings; `None`: nothing is ordered.
pub(crate) type SettingsReceiver = watch::Receiver<Option<Arc<AcmeSettings>>>;

/// Runs until the sender of the settings is dropped.
pub(crate) fn run(
    acme: Arc<Shared>,
    settings: SettingsReceiver,
    requests: UnboundedReceiver<DemandRequest>,
) {
    let manager = Manager {
        acme,
        active: None,
        tasks: JoinSet::new(),
        in_progress: HashMap::new(),
        files_read_at: Instant::now(),
        latest: SystemTime::now(),
    };
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(manager.run(settings, requests)),
        Err(error) => log::error!("cannot start the event loop for certificates: {error}"),
    }
}

struct Manager {
    acme: Arc<Shared>,
    active: Option<ActiveSettings>,
    tasks: JoinSet<(Name, Result<(), String>)>,
    in_progress: HashMap<Name, InProgress>,
    files_read_at: Instant,
    /// Latest time of day since all files were read.
    latest: SystemTime,
}

/// A task for a name.
struct InProgress {
    kind: TaskKind,
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
    async fn run(
        mut self,
        mut settings: SettingsReceiver,
        mut requests: UnboundedReceiver<DemandRequest>,
    ) {
        self.set_settings(&mut settings);
        loop {
            let pause = self.start_due();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((name, result)) => self.end(&name, &result),
                    // The tasks that remain continue; their names are tried again, and are locked.
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

    /// Uses the settings in effect, if there are any.
    fn set_settings(&mut self, settings: &mut SettingsReceiver) {
        let settings = settings.borrow_and_update().clone();
        let on_demand = settings.as_ref().and_then(|it| it.on_demand.clone()).map(Arc::new);
        self.acme.on_demand.set_settings(on_demand.clone());
        let former = self.active.take().and_then(|active| active.limits);
        let limits = on_demand.map(|it| Arc::new(DemandLimits::new(it, former.as_deref())));
        let Some(settings) = settings else { return };
        let store = Store(settings.store.clone());
        self.acme.registry.add(&store, &settings.names);
        self.active = Some(ActiveSettings { settings, store, limits });
        self.retain_planned();
        self.read_changed();
    }

    fn read_changed(&mut self) {
        if let Some(ActiveSettings { store, .. }) = &self.active {
            self.acme.registry.read_changed(store);
            self.files_read_at = Instant::now();
        }
    }

    /// Removes the names that are not ordered any more.
    fn retain_planned(&self) {
        if let Some(ActiveSettings { settings, limits, .. }) = &self.active {
            let may_permit =
                |name: &Name| limits.as_ref().is_some_and(|it| it.settings.may_permit(name));
            self.acme.registry.retain(&settings.names, may_permit);
        }
    }

    /// Starts tasks for the names for which there is something to do. Returns the time until that may
    /// be so for others.
    fn start_due(&mut self) -> Duration {
        let sums_at = self.acme.failures.log_sums(Instant::now());
        if self.files_read_at.elapsed() >= FILE_INTERVAL {
            self.read_changed();
        }
        let Some(active) = &self.active else { return FILE_INTERVAL };
        let registry = &self.acme.registry;
        if SystemTime::now() + MAX_SET_BACK < self.latest {
            // The due times depend on the time of day at which the files were read.
            registry.read_all(&active.store);
            self.latest = SystemTime::now();
        }
        self.latest = self.latest.max(SystemTime::now());
        let scheduled = self.in_progress.values().filter(|it| it.kind == TaskKind::Scheduled);
        let (now, free) = (SystemTime::now(), MAX_ORDERS.saturating_sub(scheduled.count()));
        let (due, next) = registry.due(now, free, |name| !self.in_progress.contains_key(name));
        for name in due {
            let (acme, active, task_name) = (self.acme.clone(), active.clone(), name.clone());
            self.tasks.spawn(async move {
                match (&active.limits, acme.registry.find(&task_name)) {
                    (Some(limits), Some((Origin::OnDemand, _))) => {
                        renew_with_permission(&acme, &active, limits, &task_name).await;
                    }
                    _ => {
                        renew(&acme, &active, &task_name).await;
                        acme.registry.read(&active.store, &task_name, Origin::Configured);
                    }
                }
                (task_name, Ok(()))
            });
            let in_progress = InProgress { kind: TaskKind::Scheduled, requests: Vec::new() };
            self.in_progress.insert(name, in_progress);
        }
        let wait = next.and_then(|next| next.duration_since(now).ok());
        let sums = sums_at.map(|at| at.saturating_duration_since(Instant::now()));
        wait.into_iter().chain(sums).fold(FILE_INTERVAL, Duration::min)
    }

    /// Obtains the certificate that a handshake waits for.
    fn demand(&mut self, request: DemandRequest) {
        if let Some(in_progress) = self.in_progress.get_mut(&request.name) {
            // Of clients that have disconnected nothing is kept.
            in_progress.requests.retain(|request| !request.reply.is_closed());
            return in_progress.requests.push(request);
        }
        let active = self.active.as_ref();
        let Some((active, limits)) = active.and_then(|it| Some((it.clone(), it.limits.clone()?)))
        else {
            return drop(request.reply.send(Ok(())));
        };
        let (acme, name) = (self.acme.clone(), request.name.clone());
        let in_progress = InProgress { kind: TaskKind::OnDemand, requests: vec![request] };
        self.in_progress.insert(name.clone(), in_progress);
        self.tasks.spawn(async move {
            let obtained = obtain(&acme, &active, &limits, &name).await;
            (name, obtained)
        });
    }

    fn end(&mut self, name: &Name, result: &Result<(), String>) {
        // A task may have read the files of a name that a reload has removed.
        self.retain_planned();
        let requests = self.in_progress.remove(name).map_or_else(Vec::new, |it| it.requests);
        for request in requests {
            // Fails if the client has disconnected.
            let _ = request.reply.send(result.clone());
        }
    }
}
