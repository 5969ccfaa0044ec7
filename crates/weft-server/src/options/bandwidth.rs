//! Limit of the bandwidth of each response.

use std::num::NonZeroU64;

use weft::message::Bandwidth;
use weft::{Application, Middleware, Request, Response, Settings};
use weft_config::{Key, ValueKind, quoted, show_size};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions};

/// Bytes of each response in a second, and the bytes before that limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BandwidthOptions {
    bytes_per_second: Option<u64>,
    after: Option<u64>,
}

impl BandwidthOptions {
    fn is_limited(&self) -> bool {
        self.bytes_per_second.is_some_and(|bytes| bytes > 0)
    }
}

impl RouteOption for BandwidthOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "bandwidth",
            flag: "bandwidth",
            argument: "SIZE",
            help: "maximum number of bytes that are sent each second of the content of one response, such as \
                   1MiB; 0: unlimited",
            kind: ValueKind::Size(0..=u64::MAX, |options, bytes| {
                options.bytes_per_second = Some(bytes);
            }),
            show: |options| show_bytes(options.bytes_per_second),
        },
        Key {
            name: "bandwidth_after",
            flag: "bandwidth-after",
            argument: "SIZE",
            help: "size of the content of each response that is sent without the limit of `bandwidth` (0B)",
            kind: ValueKind::Size(0..=u64::MAX, |options, bytes| options.after = Some(bytes)),
            show: |options| show_bytes(options.after),
        },
    ];

    fn or(self, outer: &Self) -> Self {
        BandwidthOptions {
            bytes_per_second: self.bytes_per_second.or(outer.bytes_per_second),
            after: self.after.or(outer.after),
        }
    }

    fn complete(&mut self, _: &RouteOptions, _: &Settings) {
        self.after = self.after.filter(|_| self.is_limited());
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let is_limited = scope.any(|all| all.bandwidth.is_limited());
        vec![(
            self.after.is_some() && !is_limited,
            "`bandwidth_after` has no effect without `bandwidth`",
        )]
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let bytes = self.bytes_per_second.and_then(NonZeroU64::new);
        let limit = bytes.map(|bytes| Bandwidth::new(bytes).after(self.after.unwrap_or(0)));
        Ok(limit.map(|limit| Layer::of_middleware(LimitBandwidth(limit))).into_iter().collect())
    }
}

fn show_bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| quoted(&show_size(bytes)))
}

/// Sets the bandwidth of responses, which the engine enforces while it sends them.
#[derive(Clone)]
struct LimitBandwidth(Bandwidth);

impl Middleware for LimitBandwidth {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        next.call(request).await.with_bandwidth(self.0)
    }
}
