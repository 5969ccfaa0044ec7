//! Permission, rate and slots of orders on demand.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::on_demand_settings::{OnDemandSettings, OrderRate};
use crate::name::Name;

/// Maximum number of permissions that are being determined.
const MAX_QUESTIONS: usize = 16;

/// Maximum number of orders on demand in progress.
const MAX_ORDERS: usize = 4;

/// Time for which a name without permission stays refused.
const REFUSAL_TIME: Duration = Duration::from_secs(60);

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
    questions: Semaphore,
    orders: Semaphore,
    /// Times of the orders in the last period.
    began: Mutex<VecDeque<Instant>>,
}

impl DemandLimits {
    /// Creates limits. The orders that `former` limits have counted count for the new limits as
    /// well.
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

    /// Counts an order that begins now.
    ///
    /// # Errors
    /// If the rate of orders is used up.
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

    /// Waits until fewer than `MAX_ORDERS` orders are in progress.
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
    use std::num::NonZeroU32;

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
    fn new_settings_count_the_orders_of_the_former_settings() {
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
}
