//! Permission, rates and slots of orders on demand. One client has half of each.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings, ClientPermit};

use super::demand_requests::MAX_WAITING;
use super::on_demand_settings::OnDemandSettings;
use crate::name::Name;

/// Maximum number of permissions that are being determined.
const MAX_QUESTIONS: usize = 16;

/// Maximum number of questions about permission in `QUESTION_PERIOD`. Each name in a handshake can
/// cause one.
const MAX_QUESTIONS_IN_PERIOD: usize = 100;
const QUESTION_PERIOD: Duration = Duration::from_secs(10);

/// Maximum number of orders on demand in progress.
const MAX_ORDERS: usize = 4;

/// Maximum time for which an order or a question waits for others. The handshake ends earlier.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(3_600);

/// Time for which a name without permission stays refused.
const REFUSAL_TIME: Duration = Duration::from_secs(60);

const TOO_MANY: &str = "too many other names wait for their orders";

const TOO_MANY_QUESTIONS: &str =
    "too many names were asked about in 10 s: at most 100, and 50 of one client";

/// Maximum number of refused names that are kept.
const MAX_REFUSED: usize = 4_096;

/// Permission, rate and slots of orders on demand.
pub(crate) struct DemandLimits {
    pub(crate) settings: Arc<OnDemandSettings>,
    state: Arc<LimitState>,
    /// Times at which names were refused.
    refused: Mutex<HashMap<Name, Instant>>,
}

/// State that a change of the settings keeps.
struct LimitState {
    questions: ClientLimit,
    orders: ClientLimit,
    asked: Mutex<RateWindow>,
    started: Mutex<RateWindow>,
}

/// The orders or the questions of the last period.
struct RateWindow {
    /// Their number in a period, with a share per client.
    rate: ClientLimit,
    max: usize,
    /// Time of each one, and its permit of `rate`.
    taken: VecDeque<(Instant, ClientPermit)>,
}

impl RateWindow {
    fn new(max: usize) -> RateWindow {
        let rate = ClientLimit::new(ClientLimitSettings::new(max));
        RateWindow { rate, max, taken: VecDeque::new() }
    }

    /// Counts one more now. Returns false if the rate, or the half of the client, is used up.
    fn take(&mut self, client: Option<Client>, now: Instant, period: Duration) -> bool {
        let is_over = |(at, _): &(Instant, _)| now.saturating_duration_since(*at) >= period;
        while self.taken.front().is_some_and(is_over) {
            self.taken.pop_front();
        }
        let permit = self.rate.try_acquire(client);
        let is_taken = permit.is_some();
        self.taken.extend(permit.map(|permit| (now, permit)));
        is_taken
    }

    /// Changes the maximum. The latest entries are kept, and count for no client any more.
    fn set_max(&mut self, max: usize) {
        if self.max == max {
            return;
        }
        let former = std::mem::replace(self, RateWindow::new(max)).taken;
        let kept = former.len().min(max);
        let kept = former.into_iter().rev().take(kept).rev();
        let again = |(at, _)| Some((at, self.rate.try_acquire(None)?));
        self.taken = kept.filter_map(again).collect();
    }
}

/// Creates a limit whose queue has room for all handshakes that wait, and for renewals.
fn queueing(max: usize) -> ClientLimit {
    ClientLimit::new(ClientLimitSettings {
        max_queued: 2 * MAX_WAITING,
        queue_timeout: MAX_QUEUE_TIME,
        ..ClientLimitSettings::new(max)
    })
}

impl DemandLimits {
    /// Creates limits. The orders that `former` limits have counted count for the new limits as
    /// well.
    pub(crate) fn new(
        settings: Arc<OnDemandSettings>,
        former: Option<&DemandLimits>,
    ) -> DemandLimits {
        let max = settings.rate.orders.get() as usize;
        let state = match former {
            Some(former) => former.state.clone(),
            None => Arc::new(LimitState {
                questions: queueing(MAX_QUESTIONS),
                orders: queueing(MAX_ORDERS),
                asked: Mutex::new(RateWindow::new(MAX_QUESTIONS_IN_PERIOD)),
                started: Mutex::new(RateWindow::new(max)),
            }),
        };
        state.started.lock().unwrap_or_else(PoisonError::into_inner).set_max(max);
        DemandLimits { settings, state, refused: Mutex::default() }
    }

    /// Returns true if a certificate for the name may be ordered.
    ///
    /// # Errors
    /// If the permission cannot be determined.
    pub(crate) async fn is_permitted(
        &self,
        name: &Name,
        client: Option<Client>,
    ) -> Result<bool, String> {
        if self.settings.has_pattern_for(name) {
            return Ok(true);
        }
        let Some(permission) = &self.settings.permission else { return Ok(false) };
        if self.is_refused(name, Instant::now()) {
            return Ok(false);
        }
        // Renewals, which have no client, are not delayed by the questions of clients.
        if client.is_some() && !self.may_ask(client, Instant::now()) {
            return Err(TOO_MANY_QUESTIONS.to_owned());
        }
        let _permit = self.state.questions.acquire(client).await.ok_or(TOO_MANY)?;
        let is_permitted = timeout(self.settings.timeout, permission.is_permitted(name)).await;
        let is_permitted = is_permitted.unwrap_or_else(|_| {
            Err(format!("the permission was not determined within {:?}", self.settings.timeout))
        })?;
        if !is_permitted {
            self.refuse(name.clone(), Instant::now());
        }
        Ok(is_permitted)
    }

    /// Counts an order that begins now.
    ///
    /// # Errors
    /// If the rate of orders, or the client's half of it, is used up.
    pub(crate) fn take(&self, client: Option<Client>, now: Instant) -> Result<(), String> {
        let rate = self.settings.rate;
        let mut started = self.state.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.take(client, now, rate.period).then_some(()).ok_or_else(|| {
            format!(
                "the rate of orders, {rate} (`on_demand_rate`), is used up, or by this client half of it"
            )
        })
    }

    /// Counts a question that is asked now. Returns false if it may not be asked.
    fn may_ask(&self, client: Option<Client>, now: Instant) -> bool {
        let mut asked = self.state.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.take(client, now, QUESTION_PERIOD)
    }

    /// Waits until fewer than `MAX_ORDERS` orders are in progress, and the client has fewer than
    /// half as many.
    ///
    /// # Errors
    /// If too many orders wait, or for too long.
    pub(crate) async fn slot(&self, client: Option<Client>) -> Result<ClientPermit, String> {
        Ok(self.state.orders.acquire(client).await.ok_or(TOO_MANY)?)
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
    use std::num::NonZeroU32;

    use super::*;
    use crate::on_demand::on_demand_settings::OrderRate;

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
            let taken = limits.take(None, start + Duration::from_secs(second));
            assert_eq!(taken.is_ok(), is_taken, "{second} {taken:?}");
        }
    }

    /// Rows: client, second, number of questions, and how many of them may be asked.
    #[test]
    fn questions_have_a_rate_and_a_client_has_half_of_it() {
        let (limits, start) = (limits(), Instant::now());
        let [one, other, third] = [1, 2, 3].map(|last| Some(Client::new([192, 0, 2, last].into())));
        for (client, second, questions, expected) in [
            (one, 0, 400, 50),
            (other, 1, 20, 20),
            (one, 9, 1, 0),
            (third, 9, 50, 30),
            // The first 50 are over.
            (one, 10, 400, 50),
            (other, 10, 1, 0),
            (other, 11, 1, 1),
        ] {
            let now = start + Duration::from_secs(second);
            let asked = (0..questions).filter(|_| limits.may_ask(client, now)).count();
            assert_eq!(asked, expected, "{client:?} {second}");
        }
        // A change of the settings keeps the count.
        let changed = DemandLimits::new(limits.settings.clone(), Some(&limits));
        assert!(!changed.may_ask(one, start + Duration::from_secs(11)));
    }

    #[test]
    fn new_settings_count_the_orders_of_the_former_settings() {
        let (first, start) = (limits(), Instant::now());
        first.take(None, start).unwrap();
        let second = DemandLimits::new(first.settings.clone(), Some(&first));
        second.take(None, start).unwrap();
        assert!(first.take(None, start).is_err());
        assert!(second.take(None, start).is_err());
    }

    #[test]
    fn a_client_has_half_of_the_orders() {
        let (limits, start) = (limits(), Instant::now());
        let [one, other] = [1, 2].map(|last| Some(Client::new([192, 0, 2, last].into())));
        for (client, second, is_taken) in
            [(one, 0, true), (one, 0, false), (other, 0, true), (other, 1, false), (one, 60, true)]
        {
            let taken = limits.take(client, start + Duration::from_secs(second));
            assert_eq!(taken.is_ok(), is_taken, "{client:?} {second}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut slots = Vec::new();
            for client in [one, other] {
                for _ in 0..MAX_ORDERS / 2 {
                    slots.push(limits.slot(client).await.unwrap());
                }
                let waits = timeout(Duration::from_millis(1), limits.slot(client)).await;
                assert!(waits.is_err(), "{client:?}");
            }
        });
    }

    #[test]
    fn another_rate_counts_the_latest_orders() {
        let (first, start) = (limits(), Instant::now());
        for second in [0, 1] {
            first.take(None, start + Duration::from_secs(second)).unwrap();
        }
        for (orders, second, is_taken) in [(1, 60, false), (1, 61, true), (2, 61, true)] {
            let mut settings = (*first.settings).clone();
            settings.rate.orders = NonZeroU32::new(orders).unwrap();
            let limits = DemandLimits::new(Arc::new(settings), Some(&first));
            let taken = limits.take(None, start + Duration::from_secs(second));
            assert_eq!(taken.is_ok(), is_taken, "{orders} {second}");
        }
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
}
