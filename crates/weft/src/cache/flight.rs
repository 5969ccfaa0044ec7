//! Fetches in progress, each on behalf of all requests that wait for it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use tokio::sync::Notify;

use crate::cache::growing::GrowingBody;
use crate::cache::purge::Purge;
use crate::cache::stored_response::{StoredHead, StoredResponse};

/// The fetches of a store.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// By the URL, then by the values that select the response.
    by_url: Mutex<HashMap<Box<str>, Vec<Selected>>>,
}

/// The values that select a response of a URL, and its fetch.
type Selected = (Box<[u8]>, Weak<Flight>);

/// A fetch, from the first request that waits for it to its last byte.
#[derive(Debug)]
pub(super) struct Flight {
    url: Box<str>,
    table: Weak<Flights>,
    state: Mutex<State>,
    changed: Notify,
    participants: AtomicUsize,
    /// All participants have left.
    abandoned: Notify,
    /// The response must not be stored: the resource has changed, or was purged.
    is_obsolete: AtomicBool,
}

#[derive(Debug)]
enum State {
    /// Nobody fetches; the next participant does.
    Vacant,
    Fetching,
    Landed(Landing),
}

/// The result of a fetch for its participants.
#[derive(Clone, Debug)]
pub(super) enum Landing {
    /// A stored response: validated, or stale in place of an error.
    Stored(Arc<StoredResponse>),
    /// A response that is received.
    Arriving(Arc<Arrival>),
    /// A response for one client. Each participant makes a request of its own.
    Private,
}

/// A response that is received.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) head: StoredHead,
    pub(super) body: Arc<GrowingBody>,
}

/// A request that waits for a fetch, or receives its body.
#[derive(Debug)]
pub(super) struct Participant(Arc<Flight>);

/// The turn of a participant.
pub(super) enum Turn {
    /// To fetch the response for all.
    Fetch(Pilot),
    Landed(Landing),
}

/// The right and duty to end a fetch. If it is dropped before, the next participant fetches.
#[derive(Debug)]
pub(super) struct Pilot {
    flight: Arc<Flight>,
    has_landed: bool,
}

impl Flights {
    /// Takes part in the fetch for a URL and the values that select the response.
    pub(super) fn join(self: &Arc<Self>, url: &str, selecting: &[u8]) -> Participant {
        let mut by_url = lock(&self.by_url);
        let flights = by_url.entry(url.into()).or_default();
        let mut known = flights.iter().filter(|(other, _)| **other == *selecting);
        if let Some(flight) = known.find_map(|(_, flight)| flight.upgrade()) {
            flight.participants.fetch_add(1, AcqRel);
            return Participant(flight);
        }
        let flight = Flight::new(url, self);
        flights.push((selecting.into(), Arc::downgrade(&flight)));
        Participant(flight)
    }

    /// Begins a fetch in which no other request takes part.
    pub(super) fn alone(self: &Arc<Self>, url: &str) -> Participant {
        Participant(Flight::new(url, self))
    }

    /// Keeps the responses of fetches in progress from being stored.
    pub(super) fn make_obsolete(&self, purge: &Purge) {
        let mark = |flights: &Vec<Selected>| {
            let flights = flights.iter().filter_map(|(_, flight)| flight.upgrade());
            flights.for_each(|flight| flight.is_obsolete.store(true, Relaxed));
        };
        let by_url = lock(&self.by_url);
        match purge {
            Purge::Url(url) => by_url.get(&**url).into_iter().for_each(mark),
            _ => by_url.iter().filter(|(url, _)| purge.concerns(url)).for_each(|(_, it)| mark(it)),
        }
    }

    /// Removes a flight, and ended flights of the same URL.
    fn remove(&self, flight: &Flight) {
        let mut by_url = lock(&self.by_url);
        let Some(flights) = by_url.get_mut(&flight.url) else { return };
        flights
            .retain(|(_, other)| !std::ptr::eq(other.as_ptr(), flight) && other.strong_count() > 0);
        if flights.is_empty() {
            by_url.remove(&flight.url);
        }
    }
}

impl Flight {
    fn new(url: &str, table: &Arc<Flights>) -> Arc<Flight> {
        Arc::new(Flight {
            url: url.into(),
            table: Arc::downgrade(table),
            state: Mutex::new(State::Vacant),
            changed: Notify::new(),
            participants: AtomicUsize::new(1),
            abandoned: Notify::new(),
            is_obsolete: AtomicBool::new(false),
        })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            table.remove(self);
        }
    }
}

impl Participant {
    /// Waits for the result of the fetch, or for the turn to make it.
    pub(super) async fn turn(&self) -> Turn {
        let flight = &self.0;
        loop {
            let mut changed = pin!(flight.changed.notified());
            changed.as_mut().enable();
            if let Some(pilot) = self.take_turn() {
                return Turn::Fetch(pilot);
            }
            if let State::Landed(landing) = &*lock(&flight.state) {
                return Turn::Landed(landing.clone());
            }
            changed.await;
        }
    }

    /// Takes the turn to fetch, if nobody has it and the fetch has no result.
    pub(super) fn take_turn(&self) -> Option<Pilot> {
        let mut state = lock(&self.0.state);
        let State::Vacant = *state else { return None };
        *state = State::Fetching;
        Some(Pilot { flight: self.0.clone(), has_landed: false })
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if self.0.participants.fetch_sub(1, AcqRel) == 1 {
            self.0.abandoned.notify_one();
        }
    }
}

impl Pilot {
    /// Ends the wait of all participants. Further requests do not take part, unless the response
    /// still arrives.
    pub(super) fn land(&mut self, landing: Landing) {
        if !matches!(landing, Landing::Arriving(_)) {
            self.close();
        }
        *lock(&self.flight.state) = State::Landed(landing);
        self.has_landed = true;
        self.flight.changed.notify_waiters();
    }

    /// Lets no further request take part.
    pub(super) fn close(&self) {
        if let Some(table) = self.flight.table.upgrade() {
            table.remove(&self.flight);
        }
    }

    /// Returns another participant of the fetch.
    pub(super) fn participant(&self) -> Participant {
        self.flight.participants.fetch_add(1, AcqRel);
        Participant(self.flight.clone())
    }

    /// Returns true if the response may be stored.
    pub(super) fn may_store(&self) -> bool {
        !self.flight.is_obsolete.load(Relaxed)
    }

    /// Runs a future until all participants have left; `None` then.
    pub(super) async fn while_awaited<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        loop {
            let mut abandoned = pin!(self.flight.abandoned.notified());
            let result = poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => abandoned.as_mut().poll(cx).map(|()| None),
            })
            .await;
            if result.is_some() || self.flight.participants.load(Acquire) == 0 {
                return result;
            }
        }
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        if !self.has_landed {
            *lock(&self.flight.state) = State::Vacant;
            self.flight.changed.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
