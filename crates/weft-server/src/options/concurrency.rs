//! Limit of the number of concurrent requests.

use weft::middleware::ConcurrencyLimit;
use weft_config::{Key, ValueKind};

use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions, show};

const MAX_REQUESTS: u64 = 1_000_000;

/// Number of concurrent requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ConcurrencyOptions {
    max_requests: Option<u32>,
}

impl RouteOption for ConcurrencyOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "max_concurrent_requests",
        flag: "max-concurrent-requests",
        argument: "N",
        help: "maximum number of concurrent requests, over all workers; as many more wait for up \
               to 5 s; more: 503; 0: unlimited",
        kind: ValueKind::Count(0..=MAX_REQUESTS, |options, count| {
            options.max_requests = Some(count as u32);
        }),
        show: |options| show(options.max_requests.as_ref()),
    }];

    fn or(self, outer: &Self) -> Self {
        ConcurrencyOptions { max_requests: self.max_requests.or(outer.max_requests) }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let limit = self.max_requests.filter(|limit| *limit > 0);
        let limit = limit.map(|limit| ConcurrencyLimit::new(limit as usize));
        Ok(limit.map(Layer::of_middleware).into_iter().collect())
    }
}
