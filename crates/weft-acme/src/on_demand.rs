//! Certificates on demand: requests of handshakes for names without certificate, and the permission
//! to order them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;

use crate::name::{Name, NamePattern};
use weft::tls::{IdentitySource, ObtainIdentity};

/// Maximum number of handshakes that wait for a certificate.
const MAX_WAITING: usize = 1_024;

/// Maximum number of questions about names in progress.
const MAX_QUESTIONS: usize = 16;

/// Maximum number of orders on demand in progress.
const MAX_ORDERS: usize = 4;

/// Time for which a name stays refused, and the number of names that are known to be.
const REFUSAL_TIME: Duration = Duration::from_secs(60);
const MAX_REFUSED: usize = 4_096;

/// Certificates that are ordered when a client sends a name in its handshake, which waits. Nothing is
/// ordered without permission. At most 1,024 handshakes wait, and 4 orders on demand are in progress.
#[derive(Clone, Debug)]
pub struct OnDemandSettings {
    /// Names that are permitted.
    ///
    /// Default empty.
    pub patterns: Vec<NamePattern>,

    /// Decides about all other names.
    ///
    /// Default `None`: they are refused.
    pub permission: Option<Arc<dyn OrderPermission>>,

    /// Maximum number of orders that begin within a time.
    ///
    /// Default 10 in a minute.
    pub rate: OrderRate,

    /// Maximum number of names in the store, apart from [`AcmeSettings::names`](crate::AcmeSettings).
    /// If there are more, those without a valid certificate are removed.
    ///
    /// Default 1,000.
    pub max_names: usize,

    /// Time for which a handshake waits, and a question about a name. A handshake also ends after
    /// [`head_timeout`](weft::Settings::head_timeout).
    ///
    /// Default 10 s.
    pub timeout: Duration,
}

/// Decides for which names certificates are ordered on demand.
pub trait OrderPermission: fmt::Debug + Send + Sync + 'static {
    /// Returns true if a certificate for `name` may be ordered or renewed. Otherwise the name stays
    /// refused for a minute. At most 16 of these futures are in progress.
    ///
    /// An error, which is the reason, fails the handshake.
    fn is_permitted<'a>(&'a self, name: &'a Name) -> PermissionFuture<'a>;
}

/// Future of [`OrderPermission::is_permitted`].
pub type PermissionFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'a>>;

/// Maximum number of orders that begin within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRate {
    /// Number of orders.
    pub orders: NonZeroU32,
    /// Time in which they begin.
    pub period: Duration,
}

impl Default for OnDemandSettings {
    fn default() -> OnDemandSettings {
        let orders = NonZeroU32::new(10).expect("it is not zero");
        OnDemandSettings {
            patterns: Vec::new(),
            permission: None,
            rate: OrderRate { orders, period: Duration::from_secs(60) },
            max_names: 1_000,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Shows the rate as `10/m`, or as `10 in 5 s`.
impl fmt::Display for OrderRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders = self.orders;
        match self.period.as_secs_f64() {
            1.0 => write!(f, "{orders}/s"),
            60.0 => write!(f, "{orders}/m"),
            3_600.0 => write!(f, "{orders}/h"),
            seconds => write!(f, "{orders} in {seconds} s"),
        }
    }
}

impl OnDemandSettings {
    fn has_pattern_for(&self, name: &Name) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name.as_str()))
    }

    /// Returns false for names that will get no permission.
    pub(crate) fn may_permit(&self, name: &Name) -> bool {
        self.permission.is_some() || self.has_pattern_for(name)
    }
}

/// Passes the requests of handshakes to the manager. Clones share their state.
#[derive(Clone)]
pub(crate) struct OnDemand(Arc<Shared>);

struct Shared {
    settings: Mutex<Option<Arc<OnDemandSettings>>>,
    waiting: Arc<Semaphore>,
    /// Bounded by the permits of the requests.
    requests: UnboundedSender<DemandRequest>,
}

/// A handshake that waits for the certificate of a name.
pub(crate) struct DemandRequest {
    pub(crate) name: Name,
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
    _permit: OwnedSemaphorePermit,
}

impl OnDemand {
    pub(crate) fn new(
        settings: Option<Arc<OnDemandSettings>>,
    ) -> (OnDemand, UnboundedReceiver<DemandRequest>) {
        let (requests, receiver) = unbounded_channel();
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        (OnDemand(Arc::new(Shared { settings: Mutex::new(settings), waiting, requests })), receiver)
    }

    pub(crate) fn set_settings(&self, settings: Option<Arc<OnDemandSettings>>) {
        *self.0.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }
}

impl IdentitySource for OnDemand {
    fn obtain(&self, name: &str) -> Option<ObtainIdentity> {
        let settings = self.0.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let name: Name = name.parse().ok().filter(|name| settings.may_permit(name))?;
        if name.ip().is_some() || name.as_str().contains('*') {
            return None;
        }
        let Ok(_permit) = self.0.waiting.clone().try_acquire_owned() else {
            let reason =
                format!("no certificate for {name}: {MAX_WAITING} handshakes wait for one");
            return Some(Box::pin(ready(Err(reason))));
        };
        let (reply, received) = oneshot::channel();
        let request = DemandRequest { name: name.clone(), reply, _permit };
        // Fails only if the manager has ended, and then there is no reply.
        let _ = self.0.requests.send(request);
        Some(Box::pin(async move {
            let result = match timeout(settings.timeout, received).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("its order was aborted".to_owned()),
                Err(_) => Err("its order has not ended within `on_demand_timeout`".to_owned()),
            };
            result.map_err(|reason| format!("no certificate for {name}: {reason}"))
        }))
    }
}

/// PermissionFuture, rate and slots of orders on demand.
pub(crate) struct DemandLimits {
    pub(crate) settings: Arc<OnDemandSettings>,
    state: Arc<LimitState>,
    /// Times at which names were refused.
    refused: Mutex<HashMap<Name, Instant>>,
}

/// State that other settings keep.
struct LimitState {
    questions: Semaphore,
    orders: Semaphore,
    /// Times of the orders in the last period.
    began: Mutex<VecDeque<Instant>>,
}

impl DemandLimits {
    /// Creates limits that count the orders of `former` limits, too.
    pub(crate) fn new(
        settings: Arc<OnDemandSettings>,
        former: Option<&DemandLimits>,
    ) -> DemandLimits {
        let state = former.map_or_else(
            || {
                let (questions, orders) =
                    (Semaphore::new(MAX_QUESTIONS), Semaphore::new(MAX_ORDERS));
                Arc::new(LimitState { questions, orders, began: Mutex::default() })
            },
            |former| former.state.clone(),
        );
        DemandLimits { settings, state, refused: Mutex::default() }
    }

    /// Returns true if a certificate for the name may be ordered.
    ///
    /// # Errors
    /// If the permission cannot be determined.
    pub(crate) async fn is_permitted(&self, name: &Name) -> Result<bool, String> {
        if self.settings.has_pattern_for(name) {
            return Ok(true);
        }
        let Some(permission) = &self.settings.permission else { return Ok(false) };
        if self.is_refused(name, Instant::now()) {
            return Ok(false);
        }
        let _permit = self.state.questions.acquire().await;
        let is_permitted = timeout(self.settings.timeout, permission.is_permitted(name)).await;
        let is_permitted = is_permitted.unwrap_or_else(|_| {
            Err(format!("the permission was not determined within {:?}", self.settings.timeout))
        })?;
        if !is_permitted {
            self.refuse(name.clone(), Instant::now());
        }
        Ok(is_permitted)
    }

    /// Takes a place in the rate.
    ///
    /// # Errors
    /// If it is used up.
    pub(crate) fn take(&self, now: Instant) -> Result<(), String> {
        let OrderRate { orders, period } = self.settings.rate;
        let mut began = self.state.began.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= period;
        while began.front().is_some_and(is_over) {
            began.pop_front();
        }
        if began.len() >= orders.get() as usize {
            let rate = self.settings.rate;
            return Err(format!("the rate of orders, {rate} (`on_demand_rate`), is used up"));
        }
        began.push_back(now);
        Ok(())
    }

    /// Waits until fewer than the maximum number of orders are in progress.
    pub(crate) async fn slot(&self) -> SemaphorePermit<'_> {
        self.state.orders.acquire().await.expect("the semaphore is never closed")
    }

    fn is_refused(&self, name: &Name, now: Instant) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let at = refused.get(name);
        at.is_some_and(|at| now.saturating_duration_since(*at) < REFUSAL_TIME)
    }

    fn refuse(&self, name: Name, now: Instant) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= MAX_REFUSED {
            refused.retain(|_, at| now.saturating_duration_since(*at) < REFUSAL_TIME);
        }
        if refused.len() < MAX_REFUSED {
            refused.insert(name, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> DemandLimits {
        let orders = NonZeroU32::new(2).unwrap();
        let settings = OnDemandSettings {
            patterns: vec!["*.example.org".parse().unwrap()],
            rate: OrderRate { orders, period: Duration::from_secs(60) },
            ..OnDemandSettings::default()
        };
        DemandLimits::new(Arc::new(settings), None)
    }

    #[test]
    fn orders_have_a_rate() {
        let (limits, start) = (limits(), Instant::now());
        for (second, is_taken) in
            [(0, true), (10, true), (10, false), (59, false), (60, true), (69, false), (70, true)]
        {
            let taken = limits.take(start + Duration::from_secs(second));
            assert_eq!(taken.is_ok(), is_taken, "{second} {taken:?}");
        }
    }

    #[test]
    fn other_settings_count_the_orders_of_the_former_ones() {
        let (first, start) = (limits(), Instant::now());
        first.take(start).unwrap();
        let second = DemandLimits::new(first.settings.clone(), Some(&first));
        second.take(start).unwrap();
        assert!(first.take(start).is_err());
        assert!(second.take(start).is_err());
    }

    #[test]
    fn refused_names_are_bounded_and_expire() {
        let (limits, start) = (limits(), Instant::now());
        let name = |number: usize| format!("a{number}.example").parse::<Name>().unwrap();
        for number in 0..=MAX_REFUSED {
            limits.refuse(name(number), start);
        }
        assert!(limits.is_refused(&name(MAX_REFUSED - 1), start));
        assert!(!limits.is_refused(&name(MAX_REFUSED), start));
        let later = start + REFUSAL_TIME;
        assert!(!limits.is_refused(&name(0), later));
        limits.refuse(name(0), later);
        assert_eq!(limits.refused.lock().unwrap().len(), 1);
    }

    #[test]
    fn handshakes_that_wait_are_bounded() {
        let (source, receiver) = OnDemand::new(Some(limits().settings));
        assert!(source.obtain("a.example").is_none());
        assert!(source.obtain("*.example.org").is_none());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let waiting: Vec<_> =
                (0..MAX_WAITING).map(|_| source.obtain("a.example.org").unwrap()).collect();
            let reason = source.obtain("a.example.org").unwrap().await.unwrap_err();
            assert_eq!(reason, "no certificate for a.example.org: 1024 handshakes wait for one");
            // The manager ends.
            drop(receiver);
            for future in waiting {
                assert!(future.await.unwrap_err().ends_with("its order was aborted"));
            }
            let future = source.obtain("a.example.org").unwrap();
            assert!(future.await.unwrap_err().ends_with("its order was aborted"));
        });
    }
}
