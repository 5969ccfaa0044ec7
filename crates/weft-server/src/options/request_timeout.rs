//! Maximum time until the head of the response.

use std::time::Duration;

use weft::middleware::Timeout;
use weft_config::{Key, ValueKind, quoted_time};

use super::layer::{Layer, OpenContext};
use super::{RouteOption, RouteOptions};

/// Time until the head of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestTimeoutOptions {
    timeout: Option<Duration>,
}

impl RouteOption for RequestTimeoutOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "request_timeout",
        flag: "request-timeout",
        argument: "TIME",
        help: "maximum time until the head of the response, including that in which the body of the \
               request is received; then 503; never: unlimited",
        kind: ValueKind::Time(|options, time| options.timeout = Some(time)),
        show: |options| options.timeout.map_or_else(String::new, quoted_time),
    }];

    fn or(self, outer: &Self) -> Self {
        RequestTimeoutOptions { timeout: self.timeout.or(outer.timeout) }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let timeout = self.timeout.filter(|time| *time < Duration::MAX).map(Timeout::new);
        Ok(timeout.map(Layer::of_middleware).into_iter().collect())
    }
}
