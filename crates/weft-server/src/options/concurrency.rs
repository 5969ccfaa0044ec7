//! Limit of the number of concurrent requests.

use weft::middleware::ConcurrencyLimit;
use weft_config::{Key, ValueKind};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show};

const MAX_REQUESTS: u64 = 1_000_000;

/// Maximum number of requests that wait. Each request that ends searches the queue.
const MAX_QUEUED: usize = 1_024;

/// Number of concurrent requests, in total and per client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ConcurrencyOptions {
    max_requests: Option<u32>,
    max_per_client: Option<u32>,
}

impl RouteOption for ConcurrencyOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "max_concurrent_requests",
            flag: "max-concurrent-requests",
            argument: "N",
            help: "maximum number of concurrent requests, over all workers; as many more, at most \
                   1024, wait for up to 5 s; more: 503; 0: unlimited",
            kind: ValueKind::Count(0..=MAX_REQUESTS, |options, count| {
                options.max_requests = Some(count as u32);
            }),
            show: |options| show(options.max_requests.as_ref()),
        },
        Key {
            name: "max_concurrent_requests_per_client",
            flag: "max-concurrent-requests-per-client",
            argument: "N",
            help: "maximum number of these for each client: an IPv4 address, an IPv6 /64 network; 0: \
                   half of all (0)",
            kind: ValueKind::Count(0..=MAX_REQUESTS, |options, count| {
                options.max_per_client = Some(count as u32);
            }),
            show: |options| show(options.max_per_client.as_ref()),
        },
    ];

    fn or(self, outer: &Self) -> Self {
        ConcurrencyOptions {
            max_requests: self.max_requests.or(outer.max_requests),
            max_per_client: self.max_per_client.or(outer.max_per_client),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let is_limited = |all: &RouteOptions| all.concurrency.max_requests.is_some();
        vec![(
            self.max_per_client.is_some() && scope.route().is_some() && !scope.any(is_limited),
            "`max_concurrent_requests_per_client` has no effect without `max_concurrent_requests`",
        )]
    }

    fn open(&self, _: &RouteOptions, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let max_requests = self.max_requests.unwrap_or(0) as usize;
        if max_requests == 0 {
            return Ok(Vec::new());
        }
        let limit = ConcurrencyLimit::new(max_requests)
            .max_per_client(self.max_per_client.unwrap_or(0) as usize)
            .max_queued(max_requests.min(MAX_QUEUED))
            .trust(context.trusted_proxies);
        Ok(vec![Layer::of_middleware(limit)])
    }
}
