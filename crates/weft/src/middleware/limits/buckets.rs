//! The table of the buckets of clients.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::middleware::limits::bucket_rate::Rate;
use crate::middleware::limits::shared_buckets::{SLOTS, SharedSet, SharedTable};

/// A hash table of buckets.
pub(super) struct Table {
    keys: Keys,
    sets: Box<[Mutex<Set>]>,
    /// Buckets that have changed, of a limit that several processes share.
    pub(super) shared: Option<SharedTable>,
}

/// Hash functions of clients.
enum Keys {
    /// Differs in each table.
    Random(RandomState),
    /// The same in all processes with this secret. Other processes learn of clients by their hashes
    /// only.
    Secret([u8; 16]),
}

/// A client's bucket may be in any slot of one set.
#[derive(Default)]
struct Set {
    slots: [Slot; SLOTS],
    /// Time at which the overflow bucket, shared by clients without a slot, is full again.
    overflow_full_at: u64,
    shared: Option<Box<SharedSet>>,
}

/// The bucket of one client. Each interval until `full_at` is one request missing from the bucket;
/// after that time the slot is free.
#[derive(Clone, Copy, Default)]
struct Slot {
    client: u64,
    full_at: u64,
}

impl Keys {
    fn hash(&self, key: &(impl Hash + ?Sized)) -> u64 {
        match self {
            Keys::Random(keys) => keys.hash_one(key),
            Keys::Secret(secret) => {
                let mut hasher = DefaultHasher::new();
                hasher.write(secret);
                key.hash(&mut hasher);
                hasher.finish()
            }
        }
    }
}

impl Table {
    pub(super) fn new(clients: usize) -> Table {
        let sets = clients.div_ceil(SLOTS).clamp(1, 1 << 24).next_power_of_two();
        let sets = (0..sets).map(|_| Mutex::default()).collect();
        Table { keys: Keys::Random(RandomState::new()), sets, shared: None }
    }

    /// Returns an empty table of the same size whose changes are listed.
    pub(super) fn shared(&self, secret: [u8; 16]) -> Table {
        let set = || Mutex::new(Set { shared: Some(Box::default()), ..Set::default() });
        Table {
            keys: Keys::Secret(secret),
            sets: self.sets.iter().map(|_| set()).collect(),
            shared: Some(SharedTable::default()),
        }
    }

    /// Returns the client of a key.
    pub(super) fn client_of_key(&self, key: &(impl Hash + ?Sized)) -> u64 {
        self.keys.hash(key)
    }

    /// Returns the client of an address.
    pub(super) fn client_of_address(&self, address: u64) -> u64 {
        match self.keys {
            Keys::Random(_) => address,
            Keys::Secret(_) => self.keys.hash(&address),
        }
    }

    pub(super) fn set_number(&self, client: u64) -> usize {
        let hash = match self.keys {
            Keys::Random(_) => self.keys.hash(&client),
            Keys::Secret(_) => client,
        };
        hash as usize % self.sets.len()
    }

    /// Takes a request from a client's bucket; if it is empty, returns the time until the next.
    pub(super) fn take(&self, client: u64, now: u64, rate: Rate) -> Result<(), Duration> {
        let rate = self.shared.as_ref().map_or(rate, |shared| shared.divided(rate));
        let number = self.set_number(client);
        let mut set = self.sets[number].lock().unwrap_or_else(PoisonError::into_inner);
        let Set { slots, overflow_full_at, shared } = &mut *set;
        let own_slot = slots.iter().position(|slot| slot.client == client);
        let Some(slot) = own_slot.or_else(|| slots.iter().position(|slot| slot.full_at <= now))
        else {
            return rate.overflow().take(overflow_full_at, now);
        };
        slots[slot].client = client;
        rate.take(&mut slots[slot].full_at, now)?;
        if let (Some(table), Some(set)) = (&self.shared, shared) {
            set.count(slot, own_slot.is_none());
            table.note(set, number, slots[slot].full_at - now > rate.capacity() / 2);
        }
        Ok(())
    }

    /// Calls a function with the clients of a set and their buckets, and with the counts.
    pub(super) fn with_shared<T>(
        &self,
        number: usize,
        apply: impl FnOnce([(u64, &mut u64); SLOTS], &mut SharedSet) -> T,
    ) -> Option<T> {
        let mut set = self.sets[number].lock().unwrap_or_else(PoisonError::into_inner);
        let Set { slots, shared, .. } = &mut *set;
        let slots = slots.each_mut().map(|slot| (slot.client, &mut slot.full_at));
        Some(apply(slots, shared.as_deref_mut()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// One request per second with a burst of three.
    const RATE: Rate = Rate { interval: SECOND, burst: 3 };

    /// Takes a request and returns the wait in seconds, 0 if admitted.
    fn wait(table: &Table, client: u64, seconds: f64) -> f64 {
        let now = (seconds * SECOND as f64) as u64;
        table.take(client, now, RATE).map_or_else(|wait| wait.as_secs_f64(), |()| 0.0)
    }

    #[test]
    fn bucket_is_emptied_and_refilled() {
        let table = Table::new(16);
        for (seconds, waits) in [
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 0.0),
            (100.0, 1.0),
            // A rejected request takes nothing from the bucket.
            (100.5, 0.5),
            (100.75, 0.25),
            (101.0, 0.0),
            (101.0, 1.0),
            (103.5, 0.0),
            (103.5, 0.0),
            (103.5, 0.5),
            // The refill stops at the capacity.
            (1_000.0, 0.0),
            (1_000.0, 0.0),
            (1_000.0, 0.0),
            (1_000.0, 1.0),
        ] {
            assert_eq!(wait(&table, 7, seconds), waits, "at {seconds}");
        }
        assert_eq!(wait(&table, 8, 1_000.0), 0.0, "another client");
    }

    #[test]
    fn full_table_limits_without_locking_clients_out() {
        let table = Table::new(SLOTS);
        assert_eq!(table.sets.len(), 1);
        for client in 1..=16 {
            for waits in [0.0, 0.0, 0.0, 1.0] {
                assert_eq!(wait(&table, client, 100.0), waits, "{client}");
            }
        }
        // New clients share a bucket of 16 times the size and refill rate.
        for client in 1_000..1_048 {
            assert_eq!(wait(&table, client, 100.0), 0.0, "{client}");
        }
        for client in 1_048..2_000 {
            assert_eq!(wait(&table, client, 100.0), 0.0625, "{client}");
        }
        assert_eq!(wait(&table, 2_000, 100.0625), 0.0);
        assert_eq!(wait(&table, 2_001, 100.0625), 0.0625);
        // Clients with a slot keep their own limit.
        assert_eq!(wait(&table, 1, 100.5), 0.5);
        assert_eq!(wait(&table, 1, 101.0), 0.0);
        assert_eq!(wait(&table, 1, 101.0), 1.0);
        // Slots with full buckets are reused.
        for waits in [0.0, 0.0, 0.0, 1.0] {
            assert_eq!(wait(&table, 3_000, 103.0), waits);
        }
        assert_eq!(wait(&table, 1, 103.0), 0.0);
    }
}
