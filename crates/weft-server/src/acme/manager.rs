//! Orders certificates when they are due.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, Error};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use weft_proto::semantics::date::rfc3339;

use super::client::AuthorityClient;
use super::order::{self, Failure, certificate_identifier, sign_in};
use super::renewal::retry_delay;
use super::settings::{AcmePlan, Name};
use super::store::{NameState, Store, seconds};
use super::stored::StoredCertificate;
use super::{Acme, ChallengeKind};
use crate::active_plan::PlanReceiver;

/// Maximum number of orders in progress.
const MAX_ORDERS: usize = 8;

/// Time limit for an order, with all validations.
const ORDER_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum number of attempts that an authority ends by refusing nonces; each of them has several
/// requests, which are repeated, too.
const MAX_NONCE_FAILURES: usize = 5;

/// Longest time between two looks at the clock, which may jump, and at the versions of the files,
/// which another process may change. A look at 1,000 names costs some milliseconds.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// Time until the next attempt if the directory of the state cannot be used.
const STORE_RETRY: Duration = Duration::from_secs(60);

/// Maximum length of an error that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 1_024;

/// Longest delay that an authority can require.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Limits of the interval at which an authority is asked for the time of a renewal.
const MIN_ASK_INTERVAL: Duration = Duration::from_secs(60);
const MAX_ASK_INTERVAL: Duration = Duration::from_secs(86_400);

/// Runs until the process exits.
pub(super) fn run(acme: &Arc<Acme>, plans: PlanReceiver) {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(manage(acme, plans)),
        Err(error) => log::error!("cannot start the event loop for certificates: {error}"),
    }
}

async fn manage(acme: &Arc<Acme>, mut plans: PlanReceiver) {
    let mut orders = JoinSet::new();
    let mut in_progress = HashSet::new();
    let mut plan = current_plan(&mut plans);
    let mut looked_at = Instant::now();
    loop {
        let is_new = plans.has_changed().unwrap_or(false);
        if is_new {
            plan = current_plan(&mut plans);
        }
        let mut pause = FILE_INTERVAL;
        if let Some((plan, store)) = &plan {
            acme.registry.add(store, &plan.names);
            acme.registry.retain(&plan.names);
            if is_new || looked_at.elapsed() >= FILE_INTERVAL {
                acme.registry.read_changed(store);
                looked_at = Instant::now();
            }
            let (now, free) = (SystemTime::now(), MAX_ORDERS - in_progress.len());
            let (due, next) = acme.registry.due(now, free, |name| !in_progress.contains(name));
            for name in due {
                in_progress.insert(name.clone());
                let (acme, plan, store) = (acme.clone(), plan.clone(), store.clone());
                orders.spawn(async move {
                    renew(&acme, &plan, &store, &name).await;
                    acme.registry.read(&store, &name);
                    name
                });
            }
            let wait = next.and_then(|next| next.duration_since(now).ok());
            pause = wait.unwrap_or(pause).min(pause);
        }
        tokio::select! {
            Some(ended) = orders.join_next() => match ended {
                Ok(name) => {
                    in_progress.remove(&name);
                }
                // The orders that remain continue; their names are tried again, and are locked.
                Err(_) => in_progress.clear(),
            },
            changed = plans.changed() => match changed {
                Ok(()) => plans.mark_changed(),
                Err(_) => return,
            },
            () = sleep(pause) => {}
        }
    }
}

/// Returns the settings in effect, if there are any.
fn current_plan(plans: &mut PlanReceiver) -> Option<(Arc<AcmePlan>, Store)> {
    let active = plans.borrow_and_update().clone();
    let plan = active.plan.tls.as_ref()?.acme.clone()?;
    match Store::new(plan.state.as_deref()) {
        Ok(store) => Some((Arc::new(plan), store)),
        Err(reason) => {
            log::error!("{reason}");
            None
        }
    }
}

/// Orders or renews the certificate of a name if it is due, unless another process does.
async fn renew(acme: &Acme, plan: &AcmePlan, store: &Store, name: &Name) {
    let lock = match store.create(plan.allows_ephemeral_state) {
        Ok(()) => store.lock(name).map_err(|error| format!("cannot lock its files: {error}")),
        Err(reason) => Err(reason),
    };
    let _lock = match lock {
        Ok(Some(lock)) => lock,
        Ok(None) => return sleep(Duration::from_secs(1)).await,
        Err(reason) => {
            log::error!("no certificate for {name}: {reason}");
            return sleep(STORE_RETRY).await;
        }
    };
    // Another process may have renewed it since.
    let current = StoredCertificate::read(store, name);
    let now = SystemTime::now();
    if current.due(now) > now {
        return;
    }
    let client = AuthorityClient::new(plan.ca.clone());
    let attempt = Attempt::new(plan, current.state.failures);
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
    let renewed = timeout(ORDER_TIMEOUT, run).await;
    let state = match renewed.unwrap_or_else(|_| Err("timed out".to_owned().into())) {
        Ok(state) => state,
        Err(reason) => attempt.failed(plan, name, current, &reason, &client),
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
    fn new(plan: &'p AcmePlan, failures: u32) -> Attempt<'p> {
        let failures = failures as usize;
        let (directories, kinds) = (&plan.directories, &plan.challenges);
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
        let account = {
            let _one = acme.sign_in.lock().await;
            sign_in(store, plan, self.directory, client).await?
        };
        if let Some(der) = &current.der
            && current.renewal() > SystemTime::now()
        {
            return Ok(ask_for_window(&account, der).await);
        }
        let replaced = current.der.as_deref();
        let pem = order::order(&account, plan, name, self.kind, replaced, &acme.challenges).await?;
        let written = store.write_certificate(name, &pem);
        written.map_err(|error| format!("cannot store it: {error}"))?;
        let renewed = StoredCertificate::read(store, name);
        let der = renewed.der.as_deref().ok_or_else(|| {
            Failure::Other("the authority's response is no certificate".to_owned())
        })?;
        let state = ask_for_window(&account, der).await;
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

    /// Logs a failure, and returns the new state.
    fn failed(
        &self,
        plan: &AcmePlan,
        name: &Name,
        current: StoredCertificate,
        reason: &Failure,
        client: &AuthorityClient,
    ) -> NameState {
        let failures = current.state.failures.saturating_add(1);
        let delay = retry_delay(plan.retry_delay, failures, current.jitter);
        let required = client.take_retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
        let delay = delay.max(required);
        let (directory, kind) = (self.directory, self.kind.name());
        let meanwhile = match current.lifetime {
            Some(lifetime) => {
                format!("the present one is valid until {}", rfc3339(lifetime.not_after))
            }
            None => "there is none yet".to_owned(),
        };
        log::error!(
            "no certificate for {name} from {directory} by {kind}: {reason}; next attempt in {} s, \
             {meanwhile}",
            delay.as_secs()
        );
        NameState {
            failures,
            retry_at: seconds(SystemTime::now() + delay),
            last_error: Some(truncated(reason.to_string())),
            ..current.state
        }
    }
}

fn truncated(text: String) -> String {
    match text.len() > MAX_ERROR_BYTES {
        true => text.chars().take(MAX_ERROR_BYTES / 4).collect(),
        false => text,
    }
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
