//! The section `[tracing]`: spans of requests, which are exported to a collector.

mod exporter; // the thread that sends batches
mod otlp; // spans as JSON
mod span; // the span of a request
mod tracer; // the queue of spans

use std::path::PathBuf;
use std::time::Duration;

use weft::header::{HeaderName, HeaderValue};
use weft_config::{
    ConfigResult, Key, Located, Pair, Problem, ValueKind, quoted, quoted_path, quoted_table,
    show_time,
};

pub(crate) use self::span::Span;
pub(crate) use self::tracer::{SpanCounts, Tracer};

use super::limits::limit;
use crate::base::auth_url::AuthUrl;

/// Values of `[tracing]`. Without an endpoint no spans are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracingSettings {
    pub(crate) endpoint: Option<AuthUrl>,
    pub(crate) service: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) max_queued_spans: usize,
}

impl Default for TracingSettings {
    fn default() -> TracingSettings {
        TracingSettings {
            endpoint: None,
            service: "weft".to_owned(),
            headers: Vec::new(),
            ca: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            max_queued_spans: 2048,
        }
    }
}

impl TracingSettings {
    /// Returns a warning if nothing is exported. `is_traced`: the requests of a route are spans.
    pub(crate) fn warning(&self, is_traced: bool) -> Option<Problem> {
        let message = match (&self.endpoint, is_traced) {
            (None, _) if *self != TracingSettings::default() => {
                "[tracing] exports nothing without `endpoint`"
            }
            (Some(_), false) => "[tracing] exports nothing: no route has the option `tracing`",
            _ => return None,
        };
        Some(Problem::without_location(message))
    }
}

pub(crate) static TRACING: [Key<TracingSettings>; 7] = [
    Key {
        name: "endpoint",
        help: "URL of a collector that gets the spans of sampled requests by OTLP/HTTP, such as \
               http://127.0.0.1:4318/v1/traces",
        kind: ValueKind::Text(|tracing, url| {
            let parsed = AuthUrl::parse(&url.value);
            tracing.endpoint = Some(parsed.map_err(|reason| url.problem(reason))?);
            Ok(())
        }),
        show: |tracing| tracing.endpoint.as_ref().map_or_else(String::new, |url| quoted(&url.text)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "service",
        help: "name of this server among the services of a trace",
        kind: ValueKind::Text(|tracing, name| {
            tracing.service = name.value;
            Ok(())
        }),
        show: |tracing| quoted(&tracing.service),
        ..Key::FILE_ONLY
    },
    Key {
        name: "headers",
        help: "fields of the requests to the collector: `{ Authorization = \"Bearer {env.TOKEN}\" }`",
        kind: ValueKind::Pairs(set_headers),
        show: |tracing| match tracing.headers.is_empty() {
            true => String::new(),
            false => quoted_table(tracing.headers.iter().map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), value)
            })),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "ca",
        help: "trusted CA certificates in PEM, in place of the certificates of the system",
        kind: ValueKind::Path(|tracing, path| tracing.ca = Some(path.value)),
        show: |tracing| quoted_path(tracing.ca.as_ref()),
        ..Key::FILE_ONLY
    },
    limit!(
        interval,
        "",
        time,
        "time for which spans are collected for one request, of at most 512"
    ),
    limit!(timeout, "", time, "timeout for the response of the collector"),
    limit!(max_queued_spans, "", count 1..=1_000_000,
        "maximum number of spans that wait for their export; more are dropped"),
];

fn set_headers(tracing: &mut TracingSettings, pairs: Vec<Pair>) -> ConfigResult {
    const OWN: [&str; 6] =
        ["connection", "content-length", "content-type", "host", "transfer-encoding", "user-agent"];
    let field = |Pair { name, value, .. }: Pair| {
        let parsed = HeaderName::try_from(&*name.value).ok();
        let parsed = parsed.filter(|parsed| !OWN.contains(&parsed.as_str()));
        let parsed = parsed.ok_or_else(|| {
            name.problem(format!(
                "{:?} is not the name of a field that can be set here",
                name.value
            ))
        })?;
        let invalid = |value: &Located<String>| value.problem("this is not the value of a field");
        let text = HeaderValue::from_str(&value.value).map_err(|_| invalid(&value))?;
        Ok((parsed, text))
    };
    tracing.headers = pairs.into_iter().map(field).collect::<ConfigResult<_>>()?;
    Ok(())
}
