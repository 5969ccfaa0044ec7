//! Orders certificates when they are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, Error};
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use weft_proto::semantics::date::rfc3339;

use super::client::{AuthorityClient, AuthorityServers};
use super::demand::{obtain, renew_with_permission};
use super::on_demand::{DemandLimits, DemandRequest};
use super::order::{self, Failure, certificate_identifier};
use super::registry::Origin;
use super::renewal::retry_delay;
use super::settings::{AcmePlan, Name};
use super::sign_in::sign_in;
use super::store::{NameState, Store, seconds};
use super::stored::StoredCertificate;
use super::{Acme, ChallengeKind};
use crate::active_plan::PlanReceiver;

/// Maximum number of orders in progress.
const MAX_ORDERS: usize = 8;

/// Maximum number of attempts that an authority ends by refusing nonces; each of them has several
/// requests, which are repeated, too.
const MAX_NONCE_FAILURES: usize = 5;

/// Longest time between two looks at the clock, which may jump, and at the versions of the files,
/// which another process may change. A look at 1,000 names costs some milliseconds.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time by which the clock may be set back without an effect on the times of orders.
const MAX_SET_BACK: Duration = Duration::from_secs(60);

/// Time until the next attempt if the directory of the state cannot be used.
const STORE_RETRY: Duration = Duration::from_secs(60);

/// Maximum length of an error that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 1_024;

/// Longest delay that an authority can require.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Longest time after an order in which no other one follows.
const MAX_PAUSE: Duration = Duration::from_secs(3_600);

/// Limits of the interval at which an authority is asked for the time of a renewal.
const MIN_ASK_INTERVAL: Duration = Duration::from_secs(60);
const MAX_ASK_INTERVAL: Duration = Duration::from_secs(86_400);

/// The settings in effect.
#[derive(Clone)]
pub(super) struct ActivePlan {
    pub(super) acme: Arc<AcmePlan>,
    pub(super) store: Store,
    limits: Option<Arc<DemandLimits>>,
    servers: Arc<AuthorityServers>,
}

/// Runs until the process exits.
pub(super) fn run(
    acme: Arc<Acme>,
    plans: PlanReceiver,
    requests: UnboundedReceiver<DemandRequest>,
) {
    let manager = Manager {
        acme,
        plan: None,
        tasks: JoinSet::new(),
        in_progress: HashMap::new(),
        files_read_at: Instant::now(),
        latest: SystemTime::now(),
    };
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(manager.run(plans, requests)),
        Err(error) => log::error!("cannot start the event loop for certificates: {error}"),
    }
}

struct Manager {
    acme: Arc<Acme>,
    plan: Option<ActivePlan>,
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
    /// There was something to do at this time.
    Scheduled,
    OnDemand,
}

impl Manager {
    async fn run(
        mut self,
        mut plans: PlanReceiver,
        mut requests: UnboundedReceiver<DemandRequest>,
    ) {
        self.set_plan(&mut plans);
        loop {
            let pause = self.start_due();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((name, result)) => self.end(&name, &result),
                    // The tasks that remain continue; their names are tried again, and are locked.
                    Err(_) => self.in_progress.clear(),
                },
                Some(request) = requests.recv() => self.demand(request),
                changed = plans.changed() => match changed {
                    Ok(()) => self.set_plan(&mut plans),
                    Err(_) => return,
                },
                () = sleep(pause) => {}
            }
        }
    }

    /// Uses the settings in effect, if there are any.
    fn set_plan(&mut self, plans: &mut PlanReceiver) {
        let active = plans.borrow_and_update().clone();
        let acme = active.plan.tls.as_ref().and_then(|tls| tls.acme.clone());
        let on_demand = acme.as_ref().and_then(|plan| plan.on_demand.clone());
        self.acme.on_demand.set_plan(on_demand.clone());
        let former = self.plan.take().and_then(|plan| plan.limits);
        let plan = acme.map(|acme| {
            let store = Store::new(acme.state.as_deref())?;
            let limits = match (former, on_demand) {
                (_, None) => None,
                (Some(former), Some(plan)) if *former.plan == *plan => Some(former),
                (_, Some(plan)) => Some(Arc::new(DemandLimits::new(plan)?)),
            };
            let servers = Arc::new(AuthorityServers::new(acme.ca.clone()));
            Ok::<_, String>(ActivePlan { acme: Arc::new(acme), store, limits, servers })
        });
        self.plan = plan.transpose().unwrap_or_else(|reason| {
            log::error!("no certificates are ordered: {reason}");
            None
        });
        if let Some(ActivePlan { acme, store, .. }) = &self.plan {
            self.acme.registry.add(store, &acme.names);
            self.retain_planned();
            self.acme.registry.read_changed(store);
            self.files_read_at = Instant::now();
        }
    }

    /// Removes the names that are not ordered any more.
    fn retain_planned(&self) {
        if let Some(ActivePlan { acme, limits, .. }) = &self.plan {
            let may_permit =
                |name: &Name| limits.as_ref().is_some_and(|it| it.plan.may_permit(name));
            self.acme.registry.retain(&acme.names, may_permit);
        }
    }

    /// Starts tasks for the names for which there is something to do. Returns the time until that may
    /// be so for others.
    fn start_due(&mut self) -> Duration {
        let sums_at = self.acme.failures.log_sums(Instant::now());
        let Some(plan) = &self.plan else { return FILE_INTERVAL };
        let registry = &self.acme.registry;
        if SystemTime::now() + MAX_SET_BACK < self.latest {
            // What is due depends on the time of day at which the files were read.
            registry.read_all(&plan.store);
            self.latest = SystemTime::now();
        }
        self.latest = self.latest.max(SystemTime::now());
        if self.files_read_at.elapsed() >= FILE_INTERVAL {
            registry.read_changed(&plan.store);
            self.files_read_at = Instant::now();
        }
        let scheduled = self.in_progress.values().filter(|it| it.kind == TaskKind::Scheduled);
        let (now, free) = (SystemTime::now(), MAX_ORDERS.saturating_sub(scheduled.count()));
        let (due, next) = registry.due(now, free, |name| !self.in_progress.contains_key(name));
        for name in due {
            let (acme, plan, task_name) = (self.acme.clone(), plan.clone(), name.clone());
            self.tasks.spawn(async move {
                match (&plan.limits, acme.registry.find(&task_name)) {
                    (Some(limits), Some((Origin::OnDemand, _))) => {
                        renew_with_permission(&acme, &plan, limits, &task_name).await;
                    }
                    _ => {
                        renew(&acme, &plan, &task_name).await;
                        acme.registry.read(&plan.store, &task_name, Origin::Configured);
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
        let plan = self.plan.as_ref();
        let Some((plan, limits)) = plan.and_then(|it| Some((it.clone(), it.limits.clone()?)))
        else {
            return drop(request.reply.send(Ok(())));
        };
        let (acme, name) = (self.acme.clone(), request.name.clone());
        let in_progress = InProgress { kind: TaskKind::OnDemand, requests: vec![request] };
        self.in_progress.insert(name.clone(), in_progress);
        self.tasks.spawn(async move {
            let obtained = obtain(&acme, &plan, &limits, &name).await;
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

/// Orders or renews the certificate of a name if it is due, unless another process does.
pub(super) async fn renew(acme: &Acme, plan: &ActivePlan, name: &Name) {
    let ActivePlan { acme: plan, store, servers, .. } = plan;
    let lock = match store.create(plan.allows_ephemeral_state) {
        Ok(()) => store.lock(name).map_err(|error| format!("cannot lock its files: {error}")),
        Err(reason) => Err(reason),
    };
    let _lock = match lock {
        Ok(Some(lock)) => lock,
        Ok(None) => return sleep(Duration::from_secs(1)).await,
        Err(reason) => {
            let line = format!("no certificate for {name}: {reason}");
            acme.failures.report(name, &reason, Instant::now(), &line);
            return sleep(STORE_RETRY).await;
        }
    };
    // Another process may have renewed it since.
    let current = StoredCertificate::read(store, name);
    let now = SystemTime::now();
    if current.due(now) > now {
        return;
    }
    let client = AuthorityClient::new(servers.clone(), plan.order_timeout);
    let attempt = Attempt::new(plan, name, current.state.failures);
    let run = async {
        let mut result = Err(Failure::BadNonce);
        for _ in 0..MAX_NONCE_FAILURES {
            result = attempt.run(acme, plan, store, name, &current, &client).await;
            if result != Err(Failure::BadNonce) {
                break;
            }
        }
        result
    };
    let renewed = timeout(plan.order_timeout, run).await;
    let state = match renewed.unwrap_or_else(|_| Err("timed out".to_owned().into())) {
        Ok(state) => state,
        Err(reason) => attempt.failed(acme, plan, name, current, &reason, &client),
    };
    if let Err(error) = store.write_state(name, &state) {
        log::error!("cannot store the state of the certificate for {name}: {error}");
        sleep(STORE_RETRY).await;
    }
}

/// The authority and the validation of an attempt. After each failure the next ones are tried.
struct Attempt<'p> {
    directory: &'p str,
    kind: ChallengeKind,
}

impl<'p> Attempt<'p> {
    fn new(plan: &'p AcmePlan, name: &Name, failures: u32) -> Attempt<'p> {
        let failures = failures as usize;
        let (directories, kinds) = (&plan.directories, plan.challenges_for(name));
        Attempt {
            directory: &directories[failures % directories.len()],
            kind: kinds[failures / directories.len() % kinds.len()],
        }
    }

    /// Returns the new state.
    async fn run(
        &self,
        acme: &Acme,
        plan: &AcmePlan,
        store: &Store,
        name: &Name,
        current: &StoredCertificate,
        client: &AuthorityClient,
    ) -> Result<NameState, Failure> {
        let account = sign_in(&acme.failed_sign_ins, store, plan, self.directory, client).await?;
        if let Some(der) = &current.der
            && current.renewal() > SystemTime::now()
        {
            return Ok(ask_for_window(&account, der).await);
        }
        if let Some(staging) = plan.staging.as_ref().filter(|_| current.state.failures > 0) {
            self.rehearse(acme, plan, store, name, staging, client).await?;
        }
        let replaced = current.der.as_deref();
        let pem = order::order(&account, plan, name, self.kind, replaced, &acme.challenges, client)
            .await?;
        let written = store.write_certificate(name, &pem);
        written.map_err(|error| format!("cannot store it: {error}"))?;
        let renewed = StoredCertificate::read(store, name);
        let der = renewed.der.as_deref().ok_or_else(|| {
            Failure::Other("the authority's response is no certificate".to_owned())
        })?;
        let mut state = ask_for_window(&account, der).await;
        // The authority may want a new certificate to be renewed at once, again and again.
        let pause = renewed.lifetime.map_or(MAX_PAUSE, |it| it.length() / 4).min(MAX_PAUSE);
        state.retry_at = seconds(SystemTime::now() + pause);
        let renewed =
            StoredCertificate { state: state.clone(), ..StoredCertificate::read(store, name) };
        log::info!(
            "the certificate for {name} was issued by {}, until {}; it will be renewed at {}",
            self.directory,
            rfc3339(renewed.lifetime.map_or(SystemTime::UNIX_EPOCH, |lifetime| lifetime.not_after)),
            rfc3339(renewed.renewal()),
        );
        Ok(state)
    }

    /// Orders a certificate that is not used, so that repeated failures do not count against the limits
    /// of the other authority.
    async fn rehearse(
        &self,
        acme: &Acme,
        plan: &AcmePlan,
        store: &Store,
        name: &Name,
        staging: &str,
        client: &AuthorityClient,
    ) -> Result<(), Failure> {
        let rehearsal = async {
            let account = sign_in(&acme.failed_sign_ins, store, plan, staging, client).await?;
            order::order(&account, plan, name, self.kind, None, &acme.challenges, client).await
        };
        match rehearsal.await {
            Ok(_) => Ok(()),
            Err(Failure::BadNonce) => Err(Failure::BadNonce),
            Err(failure) => Err(format!("rehearsal with {staging}: {failure}").into()),
        }
    }

    /// Logs a failure, and returns the new state.
    fn failed(
        &self,
        acme: &Acme,
        plan: &AcmePlan,
        name: &Name,
        current: StoredCertificate,
        reason: &Failure,
        client: &AuthorityClient,
    ) -> NameState {
        let failures = current.state.failures.saturating_add(1);
        let delay = retry_delay(plan.retry_delay, failures, current.jitter);
        let required = client.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
        let delay = delay.max(required);
        let (directory, kind) = (self.directory, self.kind.name());
        let meanwhile = match current.lifetime {
            Some(lifetime) => {
                format!("the present one is valid until {}", rfc3339(lifetime.not_after))
            }
            None => "there is none yet".to_owned(),
        };
        let reason = truncated(&reason.to_string());
        let line = format!(
            "no certificate for {name} from {directory} by {kind}: {reason}; next attempt in {} s, \
             {meanwhile}",
            delay.as_secs()
        );
        acme.failures.report(name, &format!("{directory}: {reason}"), Instant::now(), &line);
        NameState {
            failures,
            retry_at: seconds(SystemTime::now() + delay),
            last_error: Some(reason),
            ..current.state
        }
    }
}

/// Bounds the words of an authority, and keeps them in one line.
fn truncated(text: &str) -> String {
    let length = if text.len() > MAX_ERROR_BYTES { MAX_ERROR_BYTES / 4 } else { text.len() };
    text.chars().take(length).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Asks for the time of a renewal (ARI, RFC 9773). Without an answer, the validity decides.
async fn ask_for_window(account: &Account, der: &[u8]) -> NameState {
    let Some(identifier) = certificate_identifier(der) else { return NameState::default() };
    let (window, interval) = match account.renewal_info(&identifier).await {
        Ok((info, interval)) => {
            let at = |time: time::OffsetDateTime| u64::try_from(time.unix_timestamp()).unwrap_or(0);
            let window = info.suggested_window;
            (Some((at(window.start), at(window.end))), interval)
        }
        Err(Error::Unsupported(_)) => return NameState::default(),
        Err(_) => (None, MAX_ASK_INTERVAL),
    };
    let interval = interval.clamp(MIN_ASK_INTERVAL, MAX_ASK_INTERVAL);
    NameState { window, ask_at: seconds(SystemTime::now() + interval), ..NameState::default() }
}
