//! One attempt to order or renew the certificate of a name, and its effect on the state of the name.

use std::time::{Duration, Instant, SystemTime};

use instant_acme::{Account, Error};
use tokio::time::{sleep, timeout};
use weft_proto::semantics::date::rfc3339;

use crate::acme::Shared;
use crate::authority::AuthorityClient;
use crate::manager::ActiveSettings;
use crate::name::Name;
use crate::order::{self, Failure, certificate_identifier};
use crate::renewal::retry_delay;
use crate::settings::{AcmeSettings, ChallengeKind};
use crate::sign_in::sign_in;
use crate::store::{NameState, Store, seconds};
use crate::stored::StoredCertificate;

/// Maximum number of attempts that an authority ends by refusing nonces; each of them has several
/// requests, which are repeated, too.
const MAX_NONCE_FAILURES: usize = 5;

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

/// Orders or renews the certificate of a name if it is due, unless another process does.
pub(crate) async fn renew(acme: &Shared, active: &ActiveSettings, name: &Name) {
    let ActiveSettings { settings, store, .. } = active;
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
            acme.failures.report(name, &reason, Instant::now(), &line);
            return sleep(STORE_RETRY).await;
        }
    };
    let now = SystemTime::now();
    if current.due(now) > now {
        return;
    }
    let client = AuthorityClient::new(settings.client.clone(), settings.order_timeout);
    let attempt = Attempt::new(settings, name, current.state.failures);
    let run = async {
        let mut result = Err(Failure::BadNonce);
        for _ in 0..MAX_NONCE_FAILURES {
            result = attempt.run(acme, settings, store, name, &current, &client).await;
            if result != Err(Failure::BadNonce) {
                break;
            }
        }
        result
    };
    let renewed = timeout(settings.order_timeout, run).await;
    let state = match renewed.unwrap_or_else(|_| Err("timed out".to_owned().into())) {
        Ok(state) => state,
        Err(reason) => attempt.failed(acme, settings, name, current, &reason, &client),
    };
    if let Err(error) = store.write_state(name, &state) {
        log::error!("cannot store the state of the certificate for {name}: {error}");
        sleep(STORE_RETRY).await;
    }
}

/// The authority and the validation of an attempt. After each failure the next ones are tried.
struct Attempt<'s> {
    directory: &'s str,
    kind: ChallengeKind,
}

impl<'s> Attempt<'s> {
    fn new(settings: &'s AcmeSettings, name: &Name, failures: u32) -> Attempt<'s> {
        let failures = failures as usize;
        let (directories, kinds) = (&settings.directories, settings.challenges_for(name));
        Attempt {
            directory: &directories[failures % directories.len()],
            kind: kinds[failures / directories.len() % kinds.len()],
        }
    }

    /// Returns the new state.
    async fn run(
        &self,
        acme: &Shared,
        settings: &AcmeSettings,
        store: &Store,
        name: &Name,
        current: &StoredCertificate,
        client: &AuthorityClient,
    ) -> Result<NameState, Failure> {
        let account =
            sign_in(&acme.failed_sign_ins, store, settings, self.directory, client).await?;
        if let Some(der) = &current.der
            && current.renewal() > SystemTime::now()
        {
            return Ok(ask_for_window(&account, der).await);
        }
        if let Some(staging) = settings.staging.as_ref().filter(|_| current.state.failures > 0) {
            self.rehearse(acme, settings, store, name, staging, client).await?;
        }
        let replaced = current.der.as_deref();
        let pem =
            order::order(&account, settings, name, self.kind, replaced, &acme.challenges, client)
                .await?;
        let written = store.write_certificate(name, &pem);
        written.map_err(|error| format!("cannot store it: {error}"))?;
        let read = || StoredCertificate::read(store, name).map_err(|error| error.to_string());
        let renewed = read()?;
        let der = renewed.der.as_deref().ok_or_else(|| {
            Failure::Other("the authority's response is no certificate".to_owned())
        })?;
        let mut state = ask_for_window(&account, der).await;
        // The authority may request immediate renewal of every new certificate.
        let pause = renewed.lifetime.map_or(MAX_PAUSE, |it| it.length() / 4).min(MAX_PAUSE);
        state.retry_at = seconds(SystemTime::now() + pause);
        let renewed = StoredCertificate { state: state.clone(), ..read()? };
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
        acme: &Shared,
        settings: &AcmeSettings,
        store: &Store,
        name: &Name,
        staging: &str,
        client: &AuthorityClient,
    ) -> Result<(), Failure> {
        let rehearsal = async {
            let account = sign_in(&acme.failed_sign_ins, store, settings, staging, client).await?;
            order::order(&account, settings, name, self.kind, None, &acme.challenges, client).await
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
        acme: &Shared,
        settings: &AcmeSettings,
        name: &Name,
        current: StoredCertificate,
        reason: &Failure,
        client: &AuthorityClient,
    ) -> NameState {
        let failures = current.state.failures.saturating_add(1);
        let delay = retry_delay(settings.retry_delay, failures, current.jitter);
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
