//! Spans → JSON of the OpenTelemetry protocol (`ExportTraceServiceRequest`). Pure.
//!
//! IDs are hexadecimal and numbers of 64 bits are texts, as the protocol requires of JSON. The
//! names of the attributes follow the semantic conventions for HTTP servers.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::Span;

/// `SPAN_KIND_SERVER`.
const SERVER: u8 = 2;

/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Composes a request with a batch of spans.
pub(super) fn request(service: &str, spans: &[Span]) -> Vec<u8> {
    let resource = json!({ "attributes": [text("service.name", service)] });
    let scope = json!({ "name": "weft", "version": env!("CARGO_PKG_VERSION") });
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope_spans = json!([{ "scope": scope, "spans": spans }]);
    let request = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scope_spans }] });
    request.to_string().into_bytes()
}

/// Returns the number of spans that the collector has rejected, and its reason.
pub(super) fn rejected(response: &[u8]) -> (u64, String) {
    let response: Value = serde_json::from_slice(response).unwrap_or_default();
    let partial = &response["partialSuccess"];
    let number = match &partial["rejectedSpans"] {
        Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    };
    (number, partial["errorMessage"].as_str().unwrap_or_default().to_owned())
}

fn span(span: &Span) -> Value {
    let context = &span.context;
    let name = match &span.route {
        Some(route) => format!("{} {route}", span.method),
        None => span.method.to_string(),
    };
    let mut object = json!({
        "traceId": format!("{:032x}", context.trace_id),
        "spanId": format!("{:016x}", context.span_id),
        "flags": u8::from(context.is_sampled),
        "name": name,
        "kind": SERVER,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.start + span.duration),
        "attributes": attributes(span),
    });
    if let Some(parent) = context.parent_id {
        object["parentSpanId"] = format!("{parent:016x}").into();
    }
    // A status of 4xx is an error of the client, not of the server's span.
    if span.status >= 500 {
        object["status"] = json!({ "code": ERROR });
    }
    object
}

fn nanos(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos()).to_string()
}

fn attributes(span: &Span) -> Vec<Value> {
    let error = (span.status >= 500).then(|| span.status.to_string());
    let texts = [
        ("http.request.method", Some(span.method.as_str())),
        ("url.scheme", Some(span.scheme)),
        ("url.path", Some(&*span.path)),
        ("url.query", span.query.as_deref()),
        ("http.route", span.route.as_deref()),
        ("server.address", span.host.as_deref()),
        ("client.address", span.client.as_deref()),
        ("user_agent.original", span.user_agent.as_deref()),
        ("network.protocol.version", Some(span.version)),
        ("error.type", error.as_deref()),
        ("weft.upstream.address", span.upstream.as_deref()),
    ];
    let numbers = [
        ("http.response.status_code", Some(span.status.into())),
        ("http.response.body.size", Some(span.body_bytes)),
        ("weft.upstream.status_code", span.upstream_status),
        ("weft.upstream.attempts", span.upstream_attempts),
    ];
    let texts = texts.into_iter().filter_map(|(key, value)| Some(text(key, value?)));
    let numbers = numbers.into_iter().filter_map(|(key, value)| Some(number(key, value?)));
    texts.chain(numbers).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU64, NonZeroU128};
    use std::time::Duration;

    use weft::Method;

    use super::*;
    use crate::base::trace_context::TraceContext;

    #[test]
    fn composes_the_json_of_a_span() {
        let context = TraceContext {
            trace_id: NonZeroU128::new(0xab).unwrap(),
            span_id: NonZeroU64::new(0xcd).unwrap(),
            parent_id: NonZeroU64::new(0xef),
            is_sampled: true,
        };
        let span = Span {
            context,
            start: UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001),
            duration: Duration::from_nanos(5),
            method: Method::GET,
            version: "2",
            scheme: "https",
            path: "/a\"b".to_owned(),
            query: None,
            host: None,
            route: Some("/a/".to_owned()),
            client: None,
            user_agent: None,
            status: 502,
            body_bytes: 7,
            upstream: None,
            upstream_status: None,
            upstream_attempts: Some(3),
        };
        let found: Value = serde_json::from_slice(&request("s", &[span])).unwrap();
        let text =
            |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let number = |key: &str, value: &str| json!({ "key": key, "value": { "intValue": value } });
        let expected = json!({ "resourceSpans": [{
            "resource": { "attributes": [text("service.name", "s")] },
            "scopeSpans": [{
                "scope": { "name": "weft", "version": env!("CARGO_PKG_VERSION") },
                "spans": [{
                    "traceId": "000000000000000000000000000000ab",
                    "spanId": "00000000000000cd",
                    "parentSpanId": "00000000000000ef",
                    "flags": 1,
                    "name": "GET /a/",
                    "kind": 2,
                    "startTimeUnixNano": "1700000000000000001",
                    "endTimeUnixNano": "1700000000000000006",
                    "status": { "code": 2 },
                    "attributes": [
                        text("http.request.method", "GET"),
                        text("url.scheme", "https"),
                        text("url.path", "/a\"b"),
                        text("http.route", "/a/"),
                        text("network.protocol.version", "2"),
                        text("error.type", "502"),
                        number("http.response.status_code", "502"),
                        number("http.response.body.size", "7"),
                        number("weft.upstream.attempts", "3"),
                    ],
                }],
            }],
        }] });
        assert_eq!(found, expected);
    }

    #[test]
    fn reads_the_number_of_rejected_spans() {
        for (response, expected) in [
            ("", (0, "")),
            ("{}", (0, "")),
            ("[1]", (0, "")),
            ("{\"partialSuccess\":{\"rejectedSpans\":\"5\",\"errorMessage\":\"no\"}}", (5, "no")),
            ("{\"partialSuccess\":{\"rejectedSpans\":5}}", (5, "")),
            ("{\"partialSuccess\":{\"rejectedSpans\":-5}}", (0, "")),
        ] {
            let (number, reason) = rejected(response.as_bytes());
            assert_eq!((number, &*reason), expected, "{response}");
        }
    }
}
