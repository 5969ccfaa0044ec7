//! Certificates on demand: requests of handshakes for names without certificate, and the permission
//! to order them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::ready;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;
use weft::Method;
use weft::tls::{IdentitySource, ObtainIdentity};

use super::settings::Name;
use crate::apps::proxy::{OwnRequest, RemoteServer};
use crate::config::{AuthUrl, Rate};

/// Maximum number of handshakes that wait for a certificate.
const MAX_WAITING: usize = 1_024;

/// Maximum number of questions about names in progress.
const MAX_QUESTIONS: usize = 16;

/// Maximum number of orders on demand in progress.
const MAX_ORDERS: usize = 4;

/// Maximum size of the response to a question, whose status counts.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Time for which a name stays refused, and the number of names that are known to be.
const REFUSAL_TIME: Duration = Duration::from_secs(60);
const MAX_REFUSED: usize = 4_096;

/// Validated settings of certificates on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDemandPlan {
    /// Names that are permitted.
    pub(crate) patterns: Vec<NamePattern>,
    /// Resource that is asked about all other names.
    pub(crate) ask: Option<AuthUrl>,
    /// Certificate authorities of that resource; `None`: those of the system.
    pub(crate) ask_ca: Option<PathBuf>,
    /// Maximum rate of orders.
    pub(crate) rate: Rate,
    /// Maximum number of names with files in the store.
    pub(crate) max_names: usize,
    /// Time for which a handshake waits.
    pub(crate) timeout: Duration,
}

/// A name, or `*.example.org` for all of its subdomains, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamePattern(String);

impl OnDemandPlan {
    fn has_pattern_for(&self, name: &Name) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name.as_str()))
    }

    /// Returns true if the names that a wildcard stands for may be ordered one by one.
    pub(crate) fn covers(&self, wildcard: &str) -> bool {
        self.ask.is_some() || self.patterns.iter().any(|pattern| pattern.matches(wildcard))
    }

    /// Returns false for names that will get no permission.
    pub(super) fn may_permit(&self, name: &Name) -> bool {
        self.ask.is_some() || self.has_pattern_for(name)
    }
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
            None => name == self.0,
        }
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<NamePattern, String> {
        let text = text.to_ascii_lowercase();
        let name = text.strip_prefix("*.").unwrap_or(&text);
        if name == "*" {
            let all = "all names cannot be permitted by a pattern: set `on_demand_ask`";
            return Err(all.to_owned());
        }
        match name.parse::<Name>() {
            Ok(name) if name.ip().is_none() && !name.as_str().contains('*') => {
                Ok(NamePattern(text))
            }
            Ok(name) if name.ip().is_some() => {
                Err("clients that connect to an address send no name".to_owned())
            }
            _ => Err("expected a name, or *.example.org for its subdomains".to_owned()),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Passes the requests of handshakes to the manager. Clones share their state.
#[derive(Clone)]
pub(crate) struct OnDemand(Arc<Shared>);

struct Shared {
    plan: Mutex<Option<Arc<OnDemandPlan>>>,
    waiting: Arc<Semaphore>,
    /// Bounded by the permits of the requests.
    requests: UnboundedSender<DemandRequest>,
}

/// A handshake that waits for the certificate of a name.
pub(super) struct DemandRequest {
    pub(super) name: Name,
    pub(super) reply: oneshot::Sender<Result<(), String>>,
    _permit: OwnedSemaphorePermit,
}

impl OnDemand {
    pub(super) fn new(
        plan: Option<Arc<OnDemandPlan>>,
    ) -> (OnDemand, UnboundedReceiver<DemandRequest>) {
        let (requests, receiver) = unbounded_channel();
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        (OnDemand(Arc::new(Shared { plan: Mutex::new(plan), waiting, requests })), receiver)
    }

    pub(super) fn set_plan(&self, plan: Option<Arc<OnDemandPlan>>) {
        *self.0.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

impl IdentitySource for OnDemand {
    fn obtain(&self, name: &str) -> Option<ObtainIdentity> {
        let plan = self.0.plan.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let name: Name = name.parse().ok().filter(|name| plan.may_permit(name))?;
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
            let result = match timeout(plan.timeout, received).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err("its order was aborted".to_owned()),
                Err(_) => Err("its order has not ended within `on_demand_timeout`".to_owned()),
            };
            result.map_err(|reason| format!("no certificate for {name}: {reason}"))
        }))
    }
}

/// Permission, rate and slots of orders on demand.
pub(super) struct DemandLimits {
    pub(super) plan: Arc<OnDemandPlan>,
    server: Option<RemoteServer>,
    questions: Semaphore,
    orders: Semaphore,
    state: Mutex<LimitState>,
}

#[derive(Default)]
struct LimitState {
    /// Times of the orders in the last period.
    orders: VecDeque<Instant>,
    /// Times at which names were refused.
    refused: HashMap<Name, Instant>,
}

impl DemandLimits {
    /// # Errors
    /// If the URL needs certificate authorities, and they cannot be read.
    pub(super) fn new(plan: Arc<OnDemandPlan>) -> Result<DemandLimits, String> {
        let ca = plan.ask_ca.as_deref();
        let server = plan.ask.as_ref().map(|url| RemoteServer::new(url.upstream.clone(), ca));
        Ok(DemandLimits {
            server: server.transpose()?,
            plan,
            questions: Semaphore::new(MAX_QUESTIONS),
            orders: Semaphore::new(MAX_ORDERS),
            state: Mutex::default(),
        })
    }

    /// Returns true if a certificate for the name may be ordered.
    ///
    /// # Errors
    /// If the resource that is asked about it does not respond.
    pub(super) async fn is_permitted(&self, name: &Name) -> Result<bool, String> {
        if self.plan.has_pattern_for(name) {
            return Ok(true);
        }
        let (Some(server), Some(url)) = (&self.server, &self.plan.ask) else { return Ok(false) };
        if self.is_refused(name, Instant::now()) {
            return Ok(false);
        }
        let _permit = self.questions.acquire().await;
        let separator = if url.target.contains('?') { '&' } else { '?' };
        let target = format!("{}{separator}domain={name}", url.target);
        let request = OwnRequest { method: &Method::GET, target: &target, fields: &[], body: b"" };
        let answer = server.send(&request, MAX_ANSWER_BYTES, self.plan.timeout).await;
        let status = answer.map_err(|reason| format!("cannot ask {url}: {reason}"))?.head.status;
        if status.is_server_error() {
            return Err(format!("cannot ask {url}: the status is {status}"));
        }
        if !status.is_success() {
            self.refuse(name.clone(), Instant::now());
        }
        Ok(status.is_success())
    }

    /// Takes a place in the rate.
    ///
    /// # Errors
    /// If it is used up.
    pub(super) fn take(&self, now: Instant) -> Result<(), String> {
        let Rate { requests, period } = self.plan.rate;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |at: &Instant| now.saturating_duration_since(*at) >= period;
        while state.orders.front().is_some_and(is_over) {
            state.orders.pop_front();
        }
        if state.orders.len() >= requests.get() as usize {
            return Err(format!(
                "the rate of orders, {} (`on_demand_rate`), is used up",
                self.plan.rate
            ));
        }
        state.orders.push_back(now);
        Ok(())
    }

    /// Waits until fewer than the maximum number of orders are in progress.
    pub(super) async fn slot(&self) -> SemaphorePermit<'_> {
        self.orders.acquire().await.expect("the semaphore is never closed")
    }

    fn is_refused(&self, name: &Name, now: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let at = state.refused.get(name);
        at.is_some_and(|at| now.saturating_duration_since(*at) < REFUSAL_TIME)
    }

    fn refuse(&self, name: Name, now: Instant) {
        let refused = &mut self.state.lock().unwrap_or_else(PoisonError::into_inner).refused;
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

    fn limits(rate: &str) -> DemandLimits {
        let plan = OnDemandPlan {
            patterns: vec!["*.example.org".parse().unwrap()],
            ask: None,
            ask_ca: None,
            rate: rate.parse().unwrap(),
            max_names: 10,
            timeout: Duration::from_secs(1),
        };
        DemandLimits::new(Arc::new(plan)).unwrap()
    }

    #[test]
    fn patterns_match_a_name_or_its_subdomains() {
        for (pattern, name, expected) in [
            ("example.org", "example.org", true),
            ("Example.org", "example.org", true),
            ("example.org", "a.example.org", false),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
        ] {
            let parsed: NamePattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
        }
        for invalid in ["*", "", "*.", "a.*.b", "*example.org", "192.0.2.1", "*.192.0.2.1", "a/b"] {
            assert!(invalid.parse::<NamePattern>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn orders_have_a_rate() {
        let (limits, start) = (limits("2/m"), Instant::now());
        for (second, is_taken) in
            [(0, true), (10, true), (10, false), (59, false), (60, true), (69, false), (70, true)]
        {
            let taken = limits.take(start + Duration::from_secs(second));
            assert_eq!(taken.is_ok(), is_taken, "{second} {taken:?}");
        }
    }

    #[test]
    fn refused_names_are_bounded_and_expire() {
        let (limits, start) = (limits("2/m"), Instant::now());
        let name = |number: usize| format!("a{number}.example").parse::<Name>().unwrap();
        for number in 0..=MAX_REFUSED {
            limits.refuse(name(number), start);
        }
        assert!(limits.is_refused(&name(MAX_REFUSED - 1), start));
        assert!(!limits.is_refused(&name(MAX_REFUSED), start));
        let later = start + REFUSAL_TIME;
        assert!(!limits.is_refused(&name(0), later));
        limits.refuse(name(0), later);
        assert_eq!(limits.state.lock().unwrap().refused.len(), 1);
    }

    #[test]
    fn handshakes_that_wait_are_bounded() {
        let (source, receiver) = OnDemand::new(Some(limits("2/m").plan));
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
