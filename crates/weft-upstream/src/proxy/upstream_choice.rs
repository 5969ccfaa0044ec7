//! Choice of the upstream for a request, by its session, the policy and the states of the
//! upstreams.

use std::sync::Arc;
use std::time::Instant;

use weft::Response;

use super::proxy_context::WorkerContext;
use super::worker_upstreams::WorkerGroup;
use crate::balance::balancer::BalanceCandidate;
use crate::connect::upstream::Upstream;
use crate::health::upstream_health::UpstreamAvailability;
use crate::pool::connection_pool::ConnectionPool;

/// The choice of an upstream for each attempt of a request.
pub(crate) struct UpstreamChoice<'a> {
    pub(crate) context: &'a WorkerContext,
    pub(crate) group: &'a WorkerGroup,
    /// Index of the upstream that has the session of the client.
    pub(crate) of_session: Option<usize>,
    /// Hash of the key of the request, if the balancer needs one.
    pub(crate) key: Option<u64>,
    /// Indexes of the upstreams that the request was sent to before.
    pub(crate) tried: Vec<usize>,
}

impl UpstreamChoice<'_> {
    /// Returns true if a further attempt is permitted.
    pub(crate) fn may_retry(&self) -> bool {
        self.tried.len() < self.context.shared.settings.max_retries
    }

    /// Returns true if an upstream waits for the result of its first health check.
    pub(crate) fn awaits_check(&self) -> bool {
        self.group.pools.iter().any(|pool| pool.upstream.health.is_unchecked())
    }

    /// Returns true if the status of a response of upstream `index` is a failure, and an upstream
    /// that was not tried may respond in its place.
    pub(crate) fn may_replace(&self, response: &Response, index: usize) -> bool {
        let settings = &self.context.shared.settings;
        if !settings.failure_statuses.contains(&response.status()) || !self.may_retry() {
            return false;
        }
        let now = Instant::now();
        let mut pools = self.group.pools.iter().enumerate();
        pools.any(|(other, pool)| {
            let upstream = &pool.upstream;
            other != index
                && !self.tried.contains(&other)
                && upstream.may_get_requests()
                && upstream.health.availability(now) == UpstreamAvailability::Available
        })
    }

    /// Returns true if so many upstreams are down that the others would be overrun.
    fn has_too_few(&self, now: Instant) -> bool {
        let Some(min) = self.context.shared.settings.min_available else { return false };
        let is_available = |pool: &&Arc<ConnectionPool>| {
            let upstream = &pool.upstream;
            upstream.may_get_requests()
                && upstream.health.availability(now) != UpstreamAvailability::Down
        };
        let available = self.group.pools.iter().filter(is_available).count() as u64;
        available * 1_000_000 < u64::from(min) * self.group.pools.len() as u64
    }

    /// Chooses the upstream for the next attempt: the upstream of the session, unless that is down.
    pub(crate) fn choose(&self) -> Option<usize> {
        let WorkerGroup { pools, balancer, .. } = self.group;
        let count = pools.len();
        if count == 1 && pools[0].upstream.may_get_requests() {
            return Some(0);
        }
        let now = Instant::now();
        // Excluding the only upstream would fail all requests for no benefit.
        let may_be_down = count > 1 && !self.has_too_few(now);
        let availability = |upstream: &Upstream| match may_be_down {
            false => UpstreamAvailability::Available,
            true => upstream.health.availability(now),
        };
        let candidate = |index: usize| {
            let pool = &pools[index];
            let is_available = availability(&pool.upstream) == UpstreamAvailability::Available;
            BalanceCandidate {
                is_up: pool.upstream.may_get_requests() && is_available,
                was_tried: self.tried.contains(&index),
                is_full: pool.is_full(),
                load: pool.load(),
                weight: pool.upstream.weight(now),
            }
        };
        let is_available = |index: &usize| {
            let upstream = &pools[*index].upstream;
            !self.tried.contains(index)
                && upstream.may_get_requests_of_session()
                && availability(upstream) == UpstreamAvailability::Available
        };
        let of_session = self.of_session.filter(is_available);
        let chosen = of_session.or_else(|| balancer.choose(self.key, candidate));
        let chosen = chosen.or_else(|| {
            // If all upstreams respond with failures, such a response is better than none.
            let uses_down = self.context.shared.settings.has_failing_responses();
            let last_resort = |index: usize| {
                let upstream = &pools[index].upstream;
                let is_down = availability(upstream) == UpstreamAvailability::Down;
                let is_up = upstream.may_get_requests() && (uses_down || !is_down);
                BalanceCandidate { is_up, ..candidate(index) }
            };
            balancer.choose(self.key, last_resort)
        });
        if let Some(index) = chosen {
            pools[index].upstream.health.begin_probe(now);
        }
        chosen
    }
}
