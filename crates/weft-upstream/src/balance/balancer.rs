//! Selection of the upstream for a request. Pure, besides the state of one worker.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::base::rendezvous::{mix, score};
use crate::settings::proxy_settings::BalancePolicy;
use crate::url::member::MemberShare;

/// Properties of an upstream that the selection depends on.
#[derive(Clone, Copy, Debug)]
pub struct BalanceCandidate {
    /// The upstream may get requests: it is healthy, and no operator has taken it out.
    pub is_up: bool,
    /// The request was sent to this upstream before, and failed.
    pub was_tried: bool,
    /// All permitted connections are in use: the request would be queued.
    pub is_full: bool,
    /// Returns the number of requests in progress or queued.
    pub load: usize,
    /// Share of the requests in relation to the weights of the others, which may change at any
    /// time.
    pub weight: u32,
}

/// Selection by one worker. Its state is atomic only so that it is `Sync`: one worker uses it.
pub struct Balancer {
    balance: BalancePolicy,
    shares: Box<[MemberShare]>,
    has_backups: bool,
    /// Index at which the next search starts.
    next: AtomicUsize,
    /// Credit of each upstream for weighted turns.
    credits: Box<[AtomicI64]>,
    /// State of the generator of pseudorandom numbers.
    random: AtomicU64,
}

/// Rank of an upstream, lower is better: not tried yet, then without a queue, then not a backup.
type Rank = (bool, bool, bool);

/// Requests in progress up to which an upstream keeps its keys although others have fewer: with few
/// requests, a share exceeds the average by chance.
const MIN_BOUND: usize = 8;

impl Balancer {
    /// Creates the selection of a worker. `seed` makes the random choices of workers differ.
    pub fn new(balance: BalancePolicy, shares: Vec<MemberShare>, seed: u64) -> Balancer {
        Balancer {
            balance,
            has_backups: shares.iter().any(|share| share.is_backup),
            next: AtomicUsize::new(0),
            credits: shares.iter().map(|_| AtomicI64::new(0)).collect(),
            random: AtomicU64::new(seed),
            shares: shares.into(),
        }
    }

    /// Returns true if the selection depends on a key of the request.
    pub fn needs_key(&self) -> bool {
        self.balance == BalancePolicy::Hash && self.shares.len() > 1
    }

    /// Returns the index of the best available upstream. Upstreams that were not tried come first,
    /// then upstreams without a queue, then upstreams that are no backups. The policy decides among
    /// the rest, and equal candidates take turns. `key` is the hash of the request's key. Requests
    /// without a key take turns.
    pub fn choose(
        &self,
        key: Option<u64>,
        candidate: impl Fn(usize) -> BalanceCandidate,
    ) -> Option<usize> {
        let by_turns = match (self.balance, key) {
            _ if self.has_backups => Err(DifferentWeights),
            (BalancePolicy::RoundRobin, _) | (BalancePolicy::Hash, None) => {
                self.take_uniform_turn(&candidate, |_| 0)
            }
            (BalancePolicy::LeastConnections, _) => {
                self.take_uniform_turn(&candidate, |it| it.load)
            }
            (BalancePolicy::RandomTwo | BalancePolicy::Hash, _) => Err(DifferentWeights),
        };
        by_turns
            .unwrap_or_else(|DifferentWeights| self.choose_by_share(self.balance, key, candidate))
    }

    /// Takes turns between upstreams of the same weight, in one pass.
    ///
    /// # Errors
    /// If their weights differ.
    fn take_uniform_turn(
        &self,
        candidate: impl Fn(usize) -> BalanceCandidate,
        load: impl Fn(&BalanceCandidate) -> usize,
    ) -> Result<Option<usize>, DifferentWeights> {
        let (count, start) = (self.shares.len(), self.next.load(Relaxed));
        let mut best: Option<(usize, (bool, bool, usize))> = None;
        let mut weight = None;
        for index in (0..count).map(|offset| (start + offset) % count) {
            let candidate = candidate(index);
            if !candidate.is_up {
                continue;
            }
            if *weight.get_or_insert(candidate.weight) != candidate.weight {
                return Err(DifferentWeights);
            }
            let penalty = (candidate.was_tried, candidate.is_full, load(&candidate));
            if best.is_none_or(|(_, lowest)| penalty < lowest) {
                best = Some((index, penalty));
            }
        }
        let Some((chosen, _)) = best else { return Ok(None) };
        self.next.store((chosen + 1) % count, Relaxed);
        Ok(Some(chosen))
    }

    fn choose_by_share(
        &self,
        balance: BalancePolicy,
        key: Option<u64>,
        candidate: impl Fn(usize) -> BalanceCandidate,
    ) -> Option<usize> {
        let rank = |index: usize, it: &BalanceCandidate| -> Rank {
            (it.was_tried, it.is_full, self.shares[index].is_backup)
        };
        let ranks = (0..self.shares.len()).filter_map(|index| {
            let it = candidate(index);
            it.is_up.then(|| rank(index, &it))
        });
        let best_rank = ranks.min()?;
        let eligible = &|index: usize| {
            let it = candidate(index);
            let is_best = it.is_up && rank(index, &it) == best_rank;
            is_best.then_some(Eligible { index, weight: it.weight, load: it.load })
        };
        let all = || (0..self.shares.len()).filter_map(eligible);
        match (balance, key) {
            (BalancePolicy::RoundRobin, _) | (BalancePolicy::Hash, None) => {
                self.take_weighted_turn(all())
            }
            (BalancePolicy::LeastConnections, _) => {
                let lightest = all().reduce(Eligible::lighter)?;
                self.take_weighted_turn(all().filter(|it| it.is_as_light_as(&lightest)))
            }
            (BalancePolicy::RandomTwo, _) => self.lighter_of_two(all),
            (BalancePolicy::Hash, Some(key)) => self.owner(key, all),
        }
    }

    /// Takes turns by weight (nginx's smooth weighted round robin). Each upstream earns its weight
    /// as credit. The upstream with the most credit is chosen and pays the sum of the weights.
    fn take_weighted_turn(&self, all: impl Iterator<Item = Eligible>) -> Option<usize> {
        let (mut total, mut best) = (0, None);
        for Eligible { index, weight, .. } in all {
            let credit = self.credits[index].load(Relaxed) + i64::from(weight);
            self.credits[index].store(credit, Relaxed);
            total += i64::from(weight);
            if best.is_none_or(|(_, highest)| credit > highest) {
                best = Some((index, credit));
            }
        }
        let (chosen, credit) = best?;
        self.credits[chosen].store(credit - total, Relaxed);
        Some(chosen)
    }

    /// Chooses two upstreams at random, by weight, and returns the upstream with fewer requests.
    fn lighter_of_two<I: Iterator<Item = Eligible>>(&self, all: impl Fn() -> I) -> Option<usize> {
        let first = self.random_of(all())?;
        match self.random_of(all().filter(|it| it.index != first.index)) {
            Some(second) => Some(first.lighter(second).index),
            None => Some(first.index),
        }
    }

    fn random_of(&self, all: impl Iterator<Item = Eligible>) -> Option<Eligible> {
        let (mut total, mut chosen) = (0, None);
        for it in all {
            total += u64::from(it.weight);
            // Replaces the choice with the probability of the share of all weights so far.
            if self.next_random() % total < u64::from(it.weight) {
                chosen = Some(it);
            }
        }
        chosen
    }

    /// Returns the upstream that a key belongs to: the upstream with the highest score for the key
    /// (rendezvous hashing). If an upstream leaves, only its keys move. An upstream that has more
    /// than 1.25 times its share of the requests in progress is passed over.
    fn owner<I: Iterator<Item = Eligible>>(&self, key: u64, all: impl Fn() -> I) -> Option<usize> {
        let sum = |(loads, weights), it: Eligible| (loads + it.load, weights + it.weight as usize);
        let (loads, weights): (usize, usize) = all().fold((0, 0), sum);
        let is_within_bound = |it: &Eligible| {
            let bound = (5 * (loads + 1) * it.weight as usize).div_ceil(4 * weights.max(1));
            it.load < bound.max(MIN_BOUND)
        };
        let scored = all()
            .filter(is_within_bound)
            .map(|it| (it.index, score(key, self.shares[it.index].seed, it.weight)));
        scored.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index)
    }

    /// Returns the next pseudorandom number (splitmix64).
    fn next_random(&self) -> u64 {
        let state = self.random.load(Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.store(state, Relaxed);
        mix(state)
    }
}

/// The upstreams that may be chosen do not all have the same weight.
struct DifferentWeights;

/// An upstream that may be chosen.
#[derive(Clone, Copy)]
struct Eligible {
    index: usize,
    weight: u32,
    load: usize,
}

impl Eligible {
    /// Returns the upstream with fewer requests in relation to its weight. Of equal upstreams, it
    /// is the first.
    fn lighter(self, other: Eligible) -> Eligible {
        if other.load * (self.weight as usize) < self.load * other.weight as usize {
            return other;
        }
        self
    }

    fn is_as_light_as(&self, other: &Eligible) -> bool {
        self.load * (other.weight as usize) == other.load * self.weight as usize
    }
}

#[cfg(test)]
mod tests;
