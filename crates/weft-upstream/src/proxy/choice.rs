//! Choice of the upstream for a request, by its session, the policy and the states of the upstreams.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use weft::Response;

use super::ReverseProxy;
use crate::balance::balancer::Candidate;
use crate::connect::upstream::Upstream;
use crate::health::upstream_health::Availability;
use crate::pool::connection_pool::Pool;
use crate::proxy::upstream_group::Members;

impl ReverseProxy {
    /// Returns true if the status of a response of upstream `index` is a failure, and one that was not
    /// tried may respond in its place.
    pub(crate) fn may_replace(
        &self,
        members: &Members,
        response: &Response,
        index: usize,
        tried: &[usize],
    ) -> bool {
        let settings = &self.shared.settings;
        let is_failure = settings.failure_statuses.contains(&response.status());
        if !is_failure || tried.len() >= settings.max_retries {
            return false;
        }
        let now = Instant::now();
        let mut pools = members.pools.iter().enumerate();
        pools.any(|(other, pool)| {
            let upstream = &pool.upstream;
            other != index
                && !tried.contains(&other)
                && upstream.may_get_requests()
                && upstream.health.availability(now) == Availability::Available
        })
    }

    /// Records a response for the health of its upstream.
    pub(crate) fn record_response(&self, pool: &Pool, status: StatusCode, latency: Duration) {
        let settings = &self.shared.settings;
        if settings.failure_statuses.contains(&status) {
            pool.upstream.record_failure(&format!("the status is {status}"));
        } else if !settings.failure_latency.is_zero() && latency > settings.failure_latency {
            let millis = latency.as_millis();
            pool.upstream.record_failure(&format!("the response took {millis} ms"));
        } else {
            pool.upstream.record_success();
        }
    }

    /// Returns true if so many upstreams are down that the others would be overrun.
    fn has_too_few(&self, members: &Members, now: Instant) -> bool {
        let Some(min) = self.shared.settings.min_available else { return false };
        let is_available = |pool: &&Arc<Pool>| {
            let upstream = &pool.upstream;
            upstream.may_get_requests() && upstream.health.availability(now) != Availability::Down
        };
        let available = members.pools.iter().filter(is_available).count() as u64;
        available * 1_000_000 < u64::from(min) * members.pools.len() as u64
    }

    /// Returns the upstream for a request, which is that of its session unless that is down.
    pub(crate) fn choose_upstream(
        &self,
        members: &Members,
        of_session: Option<usize>,
        key: Option<u64>,
        tried: &[usize],
    ) -> Option<usize> {
        let Members { pools, balancer, .. } = members;
        let count = pools.len();
        if count == 1 && pools[0].upstream.may_get_requests() {
            return Some(0);
        }
        let now = Instant::now();
        // Excluding the only upstream would fail all requests for no benefit.
        let may_be_down = count > 1 && !self.has_too_few(members, now);
        let availability = |upstream: &Upstream| match may_be_down {
            false => Availability::Available,
            true => upstream.health.availability(now),
        };
        let candidate = |index: usize| {
            let pool = &pools[index];
            let is_available = availability(&pool.upstream) == Availability::Available;
            Candidate {
                is_up: pool.upstream.may_get_requests() && is_available,
                was_tried: tried.contains(&index),
                is_full: pool.is_full(),
                load: pool.load(),
                weight: pool.upstream.weight(now),
            }
        };
        let is_available = |index: &usize| {
            let upstream = &pools[*index].upstream;
            !tried.contains(index)
                && upstream.may_get_requests_of_session()
                && availability(upstream) == Availability::Available
        };
        let chosen = of_session.filter(is_available).or_else(|| balancer.choose(key, candidate));
        let chosen = chosen.or_else(|| {
            // If the responses of all are failures, such a response is better than none.
            let uses_down = self.shared.settings.has_failing_responses();
            let last_resort = |index: usize| {
                let upstream = &pools[index].upstream;
                let is_down = availability(upstream) == Availability::Down;
                let is_up = upstream.may_get_requests() && (uses_down || !is_down);
                Candidate { is_up, ..candidate(index) }
            };
            balancer.choose(key, last_resort)
        });
        if let Some(index) = chosen {
            pools[index].upstream.health.begin_probe(now);
        }
        chosen
    }
}
