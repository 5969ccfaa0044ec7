//! Size of the body of a request, and the rate at which it is received.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::middleware::{BodyLimit, BodyRate};
use weft::{Request, Response, Settings};
use weft_config::{Key, ValueKind, quoted, quoted_time, show_size};

use super::layer::{Layer, OpenContext, WorkerLayer, WrappedApp};
use super::{RouteOption, RouteOptions, show};

/// Limits of the body of a request in place of the values of `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RequestBodyOptions {
    max_bytes: Option<u64>,
    min_bytes_per_second: Option<u32>,
    stall_timeout: Option<Duration>,
}

impl RequestBodyOptions {
    /// Returns the maximum size in bytes.
    pub(crate) fn max_bytes(&self, limits: &Settings) -> u64 {
        self.max_bytes.unwrap_or(limits.max_body_bytes)
    }
}

impl RouteOption for RequestBodyOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "max_body_bytes",
            help: "maximum size of a request body (as in [limits]); larger: 413",
            kind: ValueKind::Size(0..=u64::MAX, |options, bytes| options.max_bytes = Some(bytes)),
            show: |options| options.max_bytes.map_or_else(String::new, |it| quoted(&show_size(it))),
            ..Key::FILE_ONLY
        },
        Key {
            name: "min_bytes_per_second",
            help: "minimum rate at which a request body is received (as in [limits]); 0: none",
            kind: ValueKind::Count(0..=u32::MAX as u64, |options, count| {
                options.min_bytes_per_second = Some(count as u32);
            }),
            show: |options| show(options.min_bytes_per_second.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "stall_timeout",
            help: "time for which a request body may fall behind the minimum rate, or pause (as \
                   in [limits]); never: for streams of messages before the response",
            kind: ValueKind::Time(|options, time| options.stall_timeout = Some(time)),
            show: |options| options.stall_timeout.map_or_else(String::new, quoted_time),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        RequestBodyOptions {
            max_bytes: self.max_bytes.or(outer.max_bytes),
            min_bytes_per_second: self.min_bytes_per_second.or(outer.min_bytes_per_second),
            stall_timeout: self.stall_timeout.or(outer.stall_timeout),
        }
    }

    /// Takes the other value of the rate from `limits` if one of them is set.
    fn complete(&mut self, _: &RouteOptions, limits: &Settings) {
        if self.min_bytes_per_second.is_some() || self.stall_timeout.is_some() {
            self.min_bytes_per_second.get_or_insert(limits.min_bytes_per_second);
            self.stall_timeout.get_or_insert(limits.stall_timeout);
        }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let rate = self.min_bytes_per_second.zip(self.stall_timeout);
        let rate = rate.map(|(rate, timeout)| Layer::of_middleware(BodyRate::new(rate, timeout)));
        let limit = self.max_bytes.map(BodyLimit::new);
        let limit = limit.map(|limit| Layer::of_worker(move || limit.clone()));
        Ok(rate.into_iter().chain(limit).collect())
    }
}

impl WorkerLayer for BodyLimit {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        match self.apply(&mut request) {
            Ok(()) => next.respond(request),
            Err(error) => ready(error.into()).boxed_local(),
        }
    }
}
