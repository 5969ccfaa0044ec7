//! Limits of a route.

use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_time, show_size};

use super::{NONE, RouteOptions, Setting, show, show_setting};
use crate::base::rate::Rate;
use crate::template::Template;

pub(super) const RATE: Key<RouteOptions> = Key {
    name: "rate",
    flag: "rate",
    argument: "RATE",
    help: "maximum rate of requests of each client, such as 10/s, 100/m or 1000/h; more: 429; \
           none: unlimited",
    kind: ValueKind::Text(set_rate),
    show: |options| show_setting(options.rate.as_ref(), Rate::to_string),
};

pub(super) const RATE_KEY: Key<RouteOptions> = Key {
    name: "rate_key",
    flag: "rate-key",
    argument: "TEMPLATE",
    help: "key that the rate applies to, in place of the client address, such as {header.X-API-Key} or \
           {host}; a request without a value is not limited",
    kind: ValueKind::Text(|options, text| {
        let template = Template::parse(&text.value).and_then(Template::forbid_user);
        let template = template.map_err(|invalid| text.problem(invalid))?;
        // Most routes that inherit the key have no pattern, and would not be limited.
        if let Some(group) = template.groups().next() {
            return Err(text.problem(format!("{{re.{group}}} is no value of all routes")));
        }
        if let Some(group) = template.host_groups().next() {
            return Err(text.problem(format!("{{host.{group}}} is no value of all hosts")));
        }
        if template.as_literal() == Some("") {
            return Err(text.problem("expected a text with placeholders, such as {client_ip}"));
        }
        options.rate_key = Some(template);
        Ok(())
    }),
    show: |options| {
        options.rate_key.as_ref().map_or_else(String::new, |template| quoted(template.source()))
    },
};

pub(super) const BURST: Key<RouteOptions> = Key {
    name: "burst",
    flag: "burst",
    argument: "N",
    help: "number of requests that a client may send at once within its rate (the number in \
           `rate`)",
    kind: ValueKind::Count(1..=MAX_COUNT, |options, count| options.burst = Some(count as u32)),
    show: |options| show(options.burst.as_ref()),
};

pub(super) const MAX_CONCURRENT_REQUESTS: Key<RouteOptions> = Key {
    name: "max_concurrent_requests",
    flag: "max-concurrent-requests",
    argument: "N",
    help: "maximum number of concurrent requests, over all workers; as many more wait for up \
           to 5 s; more: 503; 0: unlimited",
    kind: ValueKind::Count(0..=MAX_COUNT, |options, count| {
        options.max_concurrent_requests = Some(count as u32);
    }),
    show: |options| show(options.max_concurrent_requests.as_ref()),
};

pub(super) const MAX_BODY_BYTES: Key<RouteOptions> = Key {
    name: "max_body_bytes",
    flag: "",
    argument: "",
    help: "maximum size of a request body (that of [limits]); larger: 413",
    kind: ValueKind::Size(0..=u64::MAX, |options, bytes| options.max_body_bytes = Some(bytes)),
    show: |options| options.max_body_bytes.map_or_else(String::new, |it| quoted(&show_size(it))),
};

pub(super) const MIN_BYTES_PER_SECOND: Key<RouteOptions> = Key {
    name: "min_bytes_per_second",
    flag: "",
    argument: "",
    help: "minimum rate at which a request body is received (that of [limits]); 0: none",
    kind: ValueKind::Count(0..=u32::MAX as u64, |options, count| {
        options.min_bytes_per_second = Some(count as u32);
    }),
    show: |options| show(options.min_bytes_per_second.as_ref()),
};

pub(super) const STALL_TIMEOUT: Key<RouteOptions> = Key {
    name: "stall_timeout",
    flag: "",
    argument: "",
    help: "time for which a request body may fall behind the minimum rate, or pause (that of \
           [limits]); never: for streams of messages before the response",
    kind: ValueKind::Time(|options, time| options.stall_timeout = Some(time)),
    show: |options| options.stall_timeout.map_or_else(String::new, quoted_time),
};

pub(super) const REQUEST_TIMEOUT: Key<RouteOptions> = Key {
    name: "request_timeout",
    flag: "request-timeout",
    argument: "TIME",
    help: "maximum time until the head of the response, including that in which the body of the \
           request is received; then 503; never: unlimited",
    kind: ValueKind::Time(|options, time| options.request_timeout = Some(time)),
    show: |options| options.request_timeout.map_or_else(String::new, quoted_time),
};

pub(super) const BANDWIDTH: Key<RouteOptions> = Key {
    name: "bandwidth",
    flag: "bandwidth",
    argument: "SIZE",
    help: "maximum number of bytes that are sent each second of the content of one response, such as \
           1MiB; 0: unlimited",
    kind: ValueKind::Size(0..=u64::MAX, |options, bytes| options.bandwidth = Some(bytes)),
    show: |options| options.bandwidth.map_or_else(String::new, |it| quoted(&show_size(it))),
};

pub(super) const BANDWIDTH_AFTER: Key<RouteOptions> = Key {
    name: "bandwidth_after",
    flag: "bandwidth-after",
    argument: "SIZE",
    help: "size of the content of each response that is sent without the limit of `bandwidth` (0B)",
    kind: ValueKind::Size(0..=u64::MAX, |options, bytes| options.bandwidth_after = Some(bytes)),
    show: |options| options.bandwidth_after.map_or_else(String::new, |it| quoted(&show_size(it))),
};

const MAX_COUNT: u64 = 1_000_000;

pub(super) fn set_rate(options: &mut RouteOptions, text: Located<String>) -> ConfigResult {
    options.rate = Some(match &*text.value {
        NONE => Setting::None,
        rate => Setting::Value(rate.parse().map_err(|()| {
            text.problem(format!("expected a rate such as 10/s, 100/m or none, found {rate:?}"))
        })?),
    });
    Ok(())
}
