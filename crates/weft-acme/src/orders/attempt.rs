//! One attempt to order or renew the certificate of a name, and its effect on the state of the
//! name.

use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, Error};
use tokio::time::{sleep, timeout};
use weft_proto::semantics::date::rfc3339;

use super::order_context::OrderContext;
use crate::authority::authority_client::AuthorityClient;
use crate::authority::certificate_order::{CertificateOrder, certificate_identifier};
use crate::authority::failure::Failure;
use crate::authority::sign_in::sign_in;
use crate::name::Name;
use crate::store::renewal::retry_delay;
use crate::store::store_entries::{NameState, seconds};
use crate::store::stored_certificate::StoredCertificate;
use crate::validation::challenge_kind::ChallengeKind;

/// Maximum number of repetitions after the authority has refused nonces. Each has several requests,
/// which are repeated, too.
const MAX_NONCE_FAILURES: usize = 5;

/// Time until the next attempt if the directory of the state cannot be used.
const STORE_RETRY: Duration = Duration::from_secs(60);

/// Maximum length of an error that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 1_024;

/// Longest delay that an authority can require.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Longest time after an order until the next order for the same name.
const MAX_PAUSE: Duration = Duration::from_secs(3_600);

/// Shortest and longest interval at which an authority is asked for the time of a renewal.
const MIN_ASK_INTERVAL: Duration = Duration::from_secs(60);
const MAX_ASK_INTERVAL: Duration = Duration::from_secs(86_400);

/// Orders or renews the certificate of a name if it is due, unless another process does.
pub(super) async fn renew(context: &OrderContext, name: &Name) {
    let OrderContext { settings, store, .. } = context;
    let lease = store.lease(name).and_then(|lease| match lease {
        // Another process may have renewed it since.
        Some(lease) => Ok(Some((lease, StoredCertificate::read(store, name)?))),
        None => Ok(None),
    });
    let (_lease, current) = match lease {
        Ok(Some(acquired)) => acquired,
        Ok(None) => return sleep(Duration::from_secs(1)).await,
        Err(error) => {
            let reason = error.to_string();
            let line = format!("no certificate for {name}: {reason}");
            context.state.failures.report(name, &reason, Instant::now(), &line);
            return sleep(STORE_RETRY).await;
        }
    };
    let now = SystemTime::now();
    if current.due(now) > now {
        return;
    }
    let attempt = Attempt::new(context, name, &current);
    let run = async {
        let mut result = Err(Failure::BadNonce);
        for _ in 0..MAX_NONCE_FAILURES {
            result = attempt.run().await;
            if result != Err(Failure::BadNonce) {
                break;
            }
        }
        result
    };
    let renewed = timeout(settings.order_timeout, run).await;
    let renewed = renewed.unwrap_or_else(|_| Err("timed out".to_owned().into()));
    let state = renewed.unwrap_or_else(|reason| attempt.failed(&reason));
    if let Err(error) = store.write_state(name, &state) {
        log::error!("cannot store the state of the certificate for {name}: {error}");
        sleep(STORE_RETRY).await;
    }
}

/// An attempt, with its authority and its kind of validation. After each failure, the next attempt
/// uses others.
struct Attempt<'a> {
    context: &'a OrderContext,
    name: &'a Name,
    current: &'a StoredCertificate,
    client: AuthorityClient,
    directory: &'a str,
    kind: ChallengeKind,
}

impl<'a> Attempt<'a> {
    fn new(
        context: &'a OrderContext,
        name: &'a Name,
        current: &'a StoredCertificate,
    ) -> Attempt<'a> {
        let (settings, failures) = (&context.settings, current.state.failures as usize);
        let (directories, kinds) = (&settings.directories, settings.challenges_for(name));
        Attempt {
            context,
            name,
            current,
            client: AuthorityClient::new(settings.client.clone(), settings.order_timeout),
            directory: &directories[failures % directories.len()],
            kind: kinds[failures / directories.len() % kinds.len()],
        }
    }

    /// Renews the certificate, or asks the authority for the time of the renewal. Returns the new
    /// state.
    async fn run(&self) -> Result<NameState, Failure> {
        let Attempt { context: OrderContext { settings, store, .. }, name, current, .. } = *self;
        let account = self.sign_in(self.directory).await?;
        if let Some(der) = &current.der
            && current.renewal() > SystemTime::now()
        {
            return Ok(ask_for_window(&account, der).await);
        }
        if let Some(staging) = settings.staging.as_ref().filter(|_| current.state.failures > 0) {
            self.rehearse(staging).await?;
        }
        let pem = self.order(&account, self.directory, Some(current)).await?;
        let written = store.write_certificate(name, &pem);
        written.map_err(|error| format!("cannot store it: {error}"))?;
        let renewed = StoredCertificate::new(name, Some(pem.into_bytes()), NameState::default());
        let mut state = ask_for_window(&account, renewed.der.as_deref().unwrap_or_default()).await;
        // The authority may request immediate renewal of every new certificate.
        let pause = renewed.lifetime.map_or(MAX_PAUSE, |it| it.length() / 4).min(MAX_PAUSE);
        state.retry_at = seconds(SystemTime::now() + pause);
        let renewed = StoredCertificate::new(name, renewed.pem, state.clone());
        log::info!(
            "the certificate for {name} was issued by {}, until {}; it will be renewed at {}",
            self.directory,
            rfc3339(renewed.lifetime.map_or(SystemTime::UNIX_EPOCH, |lifetime| lifetime.not_after)),
            rfc3339(renewed.renewal()),
        );
        Ok(state)
    }

    async fn sign_in(&self, directory: &str) -> Result<Account, Failure> {
        let OrderContext { state, settings, store, .. } = self.context;
        sign_in(&state.failed_sign_ins, store, settings, directory, &self.client).await
    }

    /// Orders a certificate in place of the `current` one; `None` for a rehearsal.
    async fn order(
        &self,
        account: &Account,
        directory: &str,
        current: Option<&StoredCertificate>,
    ) -> Result<String, Failure> {
        let Attempt { context, name, ref client, kind, .. } = *self;
        let (settings, challenges) = (&*context.settings, &context.state.challenges);
        let store = current.map(|_| &context.store);
        let order = CertificateOrder {
            account,
            settings,
            store,
            directory,
            name,
            kind,
            challenges,
            client,
        };
        order.obtain(current).await
    }

    /// Orders a certificate that is not used, so that repeated failures do not count against the
    /// limits of the authority whose certificate is used.
    async fn rehearse(&self, staging: &str) -> Result<(), Failure> {
        let rehearsal = async {
            let account = self.sign_in(staging).await?;
            self.order(&account, staging, None).await
        };
        match rehearsal.await {
            Ok(_) => Ok(()),
            Err(Failure::BadNonce) => Err(Failure::BadNonce),
            Err(failure) => Err(format!("rehearsal with {staging}: {failure}").into()),
        }
    }

    /// Logs a failure, and returns the new state.
    fn failed(&self, reason: &Failure) -> NameState {
        let Attempt { context, name, current, directory, .. } = *self;
        let failures = current.state.failures.saturating_add(1);
        let delay = retry_delay(context.settings.retry_delay, failures, current.jitter);
        let required = self.client.reported().retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        let delay = delay.max(required);
        let meanwhile = match current.lifetime {
            Some(lifetime) => {
                format!("the present one is valid until {}", rfc3339(lifetime.not_after))
            }
            None => "there is none yet".to_owned(),
        };
        let reason = truncated(&reason.to_string());
        let line = format!(
            "no certificate for {name} from {directory} by {}: {reason}; next attempt in {} s, \
             {meanwhile}",
            self.kind.name(),
            delay.as_secs()
        );
        let group = format!("{directory}: {reason}");
        context.state.failures.report(name, &group, Instant::now(), &line);
        NameState {
            failures,
            retry_at: seconds(SystemTime::now() + delay),
            last_error: Some(reason),
            ..current.state.clone()
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
