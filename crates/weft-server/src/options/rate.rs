//! Rate limit of a route, by client or by another key.

use std::sync::Arc;

use weft::middleware::RateLimit;
use weft::{Application, Middleware, Request, Response, Settings};
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{NONE, RouteOption, RouteOptions, Setting, show, show_setting};
use crate::base::rate::Rate;
use crate::route::RouteName;
use crate::template::Template;

const MAX_BURST: u64 = 1_000_000;

/// Rate of the requests of each client, or of each value of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RateOptions {
    rate: Option<Setting<Rate>>,
    key: Option<Template>,
    burst: Option<u32>,
}

impl RateOptions {
    fn rate(&self) -> Option<&Rate> {
        self.rate.as_ref().and_then(Setting::value)
    }

    /// Returns true if requests are limited.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate().is_some()
    }

    /// Returns the name of the limit on all machines of a cluster. Limits that differ in a value
    /// have different names, such as while the machines get a new configuration.
    fn shared_name(&self, rate: &Rate, route: &RouteName) -> String {
        let key = self.key.as_ref().map(Template::source);
        let RouteName { host, prefix } = route;
        format!("{host:?} {prefix:?} {rate} {:?} {key:?}", self.burst)
    }
}

impl RouteOption for RateOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "rate",
            flag: "rate",
            argument: "RATE",
            help: "maximum rate of requests of each client, such as 10/s, 100/m or 1000/h; more: 429; \
                   none: unlimited",
            kind: ValueKind::Text(set_rate),
            show: |options| show_setting(options.rate.as_ref(), Rate::to_string),
        },
        Key {
            name: "rate_key",
            flag: "rate-key",
            argument: "TEMPLATE",
            help: "key that the rate applies to, in place of the client address, such as {header.X-API-Key} or \
                   {host}; a request without a value is not limited",
            kind: ValueKind::Text(set_key),
            show: |options| {
                options.key.as_ref().map_or_else(String::new, |template| quoted(template.source()))
            },
        },
        Key {
            name: "burst",
            flag: "burst",
            argument: "N",
            help: "number of requests that a client may send at once within its rate (the number in \
                   `rate`)",
            kind: ValueKind::Count(1..=MAX_BURST, |options, count| {
                options.burst = Some(count as u32);
            }),
            show: |options| show(options.burst.as_ref()),
        },
    ];

    fn or(self, outer: &Self) -> Self {
        RateOptions {
            // An inherited burst belongs to the inherited rate.
            burst: if self.rate.is_some() { self.burst } else { self.burst.or(outer.burst) },
            rate: self.rate.or_else(|| outer.rate.clone()),
            key: self.key.or_else(|| outer.key.clone()),
        }
    }

    fn complete(&mut self, _: &RouteOptions, _: &Settings) {
        if self.rate().is_none() {
            (self.key, self.burst) = (None, None);
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let has_rate = scope.any(|all| all.rate.rate().is_some());
        vec![
            (self.burst.is_some() && !has_rate, "`burst` has no effect without `rate`"),
            (self.key.is_some() && !has_rate, "`rate_key` has no effect without `rate`"),
        ]
    }

    fn open(&self, _: &RouteOptions, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let Some(rate) = self.rate() else { return Ok(Vec::new()) };
        let limit = RateLimit::new(rate.requests.get(), rate.period);
        let limit = self.burst.into_iter().fold(limit, RateLimit::burst);
        let limit = match context.cluster {
            Some(cluster) => cluster.share(limit, &self.shared_name(rate, context.route)),
            None => limit,
        };
        Ok(vec![match &self.key {
            Some(key) => Layer::of_middleware(RateByKey { limit, key: Arc::new(key.clone()) }),
            None => Layer::of_middleware(limit),
        }])
    }
}

fn set_rate(options: &mut RateOptions, text: Located<String>) -> ConfigResult {
    options.rate = Some(match &*text.value {
        NONE => Setting::None,
        rate => Setting::Value(rate.parse().map_err(|()| {
            // As nginx writes it.
            let own = rate.replace("r/", "/");
            let hint = match own.parse::<Rate>() {
                Ok(_) => format!("; write {own}"),
                Err(()) => String::new(),
            };
            let expected = "expected a rate such as 10/s, 100/m or none";
            text.problem(format!("{expected}, found {rate:?}{hint}"))
        })?),
    });
    Ok(())
}

fn set_key(options: &mut RateOptions, text: Located<String>) -> ConfigResult {
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
    options.key = Some(template);
    Ok(())
}

/// Limits the rate of requests with equal values of a template. A request with an empty value is
/// not limited.
#[derive(Clone)]
struct RateByKey {
    limit: RateLimit,
    key: Arc<Template>,
}

impl Middleware for RateByKey {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let key = match self.key.expand(&request) {
            Ok(key) => key,
            Err(error) => return error.into(),
        };
        match if key.is_empty() { Ok(()) } else { self.limit.take(&key) } {
            Ok(()) => next.call(request).await,
            Err(refusal) => refusal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_inherits_no_burst() {
        let rate = |rate: &str, burst| {
            let mut options = RateOptions { burst, ..RateOptions::default() };
            set_rate(&mut options, Located::without_location(rate.to_owned())).unwrap();
            options
        };
        let unset = RateOptions::default;
        assert_eq!(unset().or(&rate("1/s", Some(5))), rate("1/s", Some(5)));
        assert_eq!(rate("2/s", None).or(&rate("1/s", Some(5))), rate("2/s", None));
        assert_eq!(rate("none", None).or(&rate("1/s", Some(5))), rate("none", None));
    }
}
