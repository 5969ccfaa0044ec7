//! Distributed traces: the fields that upstreams and scripts get, values of templates and logs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cgi::write_script;
use crate::common::{Client, PATIENCE, Weft, raw_upstream, read_head, until, unused_address, weft};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Responds with the lines of the request that are about traces.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let lines = head.lines().filter(|line| line.to_lowercase().starts_with("trace"));
            let text = lines.collect::<Vec<_>>().join("\n");
            let length = text.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + &text).as_bytes()).unwrap();
        }
    })
}

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    write_script(
        &folder.path().join("scripts/fields"),
        "printf 'Content-Type: text/plain\\n\\n'\n\
         printf 'traceparent: %s\\ntracestate: %s' \"$HTTP_TRACEPARENT\" \"$HTTP_TRACESTATE\"\n",
    );
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let mut command = weft(["--config", "weft.toml", "--listen", "127.0.0.1:0", "--workers", "1"]);
    let server = Weft::start(command.current_dir(folder.path()));
    (folder, server)
}

/// Returns the body of the response.
#[track_caller]
fn get(server: &Weft, target: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{response}");
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    match is_chunked {
        true => body.lines().filter(|line| line.contains(": ")).collect::<Vec<_>>().join("\n"),
        false => body.to_owned(),
    }
}

/// The IDs and flags in the one `traceparent` of a text, and its one `tracestate`.
#[derive(Debug, PartialEq)]
struct Received {
    trace: String,
    span: String,
    flags: String,
    state: Option<String>,
}

#[track_caller]
fn received(text: &str) -> Received {
    let values = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let values = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        values.map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
    };
    let (parents, states) = (values("traceparent"), values("tracestate"));
    assert!(parents.len() == 1 && states.len() <= 1, "{text}");
    let parts: Vec<_> = parents[0].split('-').map(str::to_owned).collect();
    let [version, trace, span, flags] = <[String; 4]>::try_from(parts).expect("four parts");
    let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    assert!(version == "00" && is_hex(&trace) && is_hex(&span), "{text}");
    assert_eq!((trace.len(), span.len(), flags.len()), (32, 16, 2), "{text}");
    Received { trace, span, flags, state: states.into_iter().next() }
}

/// Each row: fields of the request, and true if its trace continues, its flags and its state.
#[test]
fn continues_valid_traces_and_begins_others() {
    let up = upstream();
    let (_folder, server) = serve(&format!(
        "log.access = \"none\"\n[hosts.\"*\"]\ntracing = true\n\
         \"/up\" = \">> http://{up}/\"\n\"/cgi\" = \"=> scripts\"\n\
         \"/off\" = {{ proxy = \"http://{up}/\", tracing = false }}\n\
         \"/never\" = {{ proxy = \"http://{up}/\", tracing = \"0%\" }}\n"
    ));
    let valid = format!("traceparent: 00-{TRACE}-{PARENT}");
    let other = TRACE.replace('0', "1");
    let many = (0..33).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
    let long = ["a", "b", "c"].map(|key| format!("{key}={}", "v".repeat(198))).join(",");
    for (fields, expected) in [
        (String::new(), None),
        (format!("{valid}-01\r\n"), Some(("01", None))),
        (format!("{valid}-00\r\n"), Some(("00", None))),
        (format!("{valid}-03\r\n"), Some(("01", None))),
        (format!("TraceParent: 01-{TRACE}-{PARENT}-01-more\r\n"), Some(("01", None))),
        (format!("{valid}-01\r\ntracestate: a=1,b=2\r\n"), Some(("01", Some("a=1,b=2")))),
        (
            format!("{valid}-01\r\nTraceState: a=1\r\ntracestate: ,b=2 \r\n"),
            Some(("01", Some("a=1,b=2"))),
        ),
        (format!("{valid}-01\r\ntracestate: {many}\r\n"), Some(("01", None))),
        (format!("{valid}-01\r\ntracestate: a=1=\r\n"), Some(("01", None))),
        (format!("{valid}-01\r\ntracestate: {long}\r\n"), Some(("01", Some(&long[..401])))),
        // Invalid, or of no trace.
        (format!("{valid}\r\ntracestate: a=1\r\n"), None),
        (format!("{valid}-01-more\r\n"), None),
        (format!("traceparent: ff-{TRACE}-{PARENT}-01\r\n"), None),
        (format!("traceparent: 00-{}-{PARENT}-01\r\n", TRACE.to_uppercase()), None),
        (format!("traceparent: 00-{}-{PARENT}-01\r\n", "0".repeat(32)), None),
        (format!("traceparent: 00-{TRACE}-{}-01\r\n", "0".repeat(16)), None),
        (format!("{valid}-01\r\ntraceparent: 00-{other}-{PARENT}-01\r\n"), None),
        ("tracestate: a=1\r\n".to_owned(), None),
    ] {
        for target in ["/up", "/cgi/fields"] {
            let mut found = received(&get(&server, target, &fields));
            // A script has no field with an empty value.
            found.state = found.state.filter(|state| !state.is_empty());
            assert_ne!(found.span, PARENT);
            assert_eq!(found.trace == TRACE, expected.is_some(), "{target} {fields} {found:?}");
            let expected = expected.unwrap_or(("01", None));
            assert_eq!((&*found.flags, found.state.as_deref()), expected, "{target} {fields}");
        }
    }
    // Other IDs for each request.
    let ids = |target: &str| {
        let Received { trace, span, .. } = received(&get(&server, target, ""));
        (trace, span)
    };
    let (first, second) = (ids("/up"), ids("/up"));
    assert!(first.0 != second.0 && first.1 != second.1);
    assert_eq!(received(&get(&server, "/never", "")).flags, "00");
    let kept = received(&get(&server, "/never", &format!("{valid}-01\r\n")));
    assert_eq!((&*kept.trace, &*kept.flags), (TRACE, "01"));
    let forwarded = get(&server, "/off", "traceparent: anything\r\ntracestate: =\r\n");
    assert_eq!(forwarded.to_lowercase(), "traceparent: anything\ntracestate: =");
}

#[test]
fn templates_and_logs_have_the_ids() {
    let up = upstream();
    let (folder, server) = serve(&format!(
        "[log]\naccess = \"access.log\"\nformat = \"{{status}} {{trace_id}} {{span_id}}\"\n\
         [hosts.\"*\"]\n\
         \"/up\" = {{ proxy = \"http://{up}/\", tracing = true }}\n\
         \"/text\" = {{ respond = \"traceparent: 00-{{trace_id}}-{{span_id}}-01\", tracing = true }}\n\
         \"/refused\" = {{ respond = \"\", deny = \"127.0.0.1\", tracing = true }}\n\
         \"/off\" = {{ respond = \"[{{trace_id}}{{span_id}}]\" }}\n"
    ));
    let sent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let mut expected = Vec::new();
    for target in ["/up", "/text"] {
        let Received { trace, span, .. } = received(&get(&server, target, &sent));
        assert_eq!(trace, TRACE);
        expected.push(format!("200 {TRACE} {span}"));
    }
    assert_eq!(get(&server, "/off", &sent), "[]");
    expected.push("200 - -".to_owned());
    let lines = || fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
    until("the lines are written", || lines().lines().count() == 3);
    assert_eq!(lines().lines().collect::<Vec<_>>(), expected);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(format!("GET /refused HTTP/1.1\r\nHost: a\r\n{sent}\r\n").as_bytes()).unwrap();
    let is_logged = || lines().lines().last().unwrap().starts_with(&format!("403 {TRACE} "));
    until("the refused request is logged", is_logged);
}

// -- export of spans

/// A collector, which keeps its requests.
struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Collector {
    /// Starts a collector that sends these responses, the last one again and again.
    fn start(responses: &'static [&'static str]) -> Collector {
        let requests = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let received = requests.clone();
        let address = raw_upstream(move |_, mut stream| {
            let head = read_head(&mut stream).expect("a request").to_lowercase();
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.expect("a length").parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            let mut received = received.lock().unwrap();
            received.push((head, serde_json::from_slice(&body).unwrap()));
            let response = responses[(received.len() - 1).min(responses.len() - 1)];
            drop(received);
            // The server may have given up.
            let _ = stream.write_all(response.as_bytes());
        });
        Collector { address, requests }
    }

    fn requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Returns the spans of all requests.
    fn spans(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        let of_request = |(_, body): &(String, Value)| {
            body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone()
        };
        requests.iter().flat_map(of_request).collect()
    }
}

const ACCEPTED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// Returns an attribute of a span as text.
fn attribute(span: &Value, key: &str) -> Option<String> {
    let attributes = span["attributes"].as_array().unwrap();
    let value = &attributes.iter().find(|it| it["key"] == key)?["value"];
    let text = value["stringValue"].as_str().or_else(|| value["intValue"].as_str());
    Some(text.expect("a text or a number").to_owned())
}

/// Serves these routes, with a status endpoint, and exports spans without delay.
fn serve_exporting(collector: SocketAddr, keys: &str, routes: &str) -> (TempDir, Weft) {
    serve(&format!(
        "log.access = \"none\"\nstatus.listen = \"127.0.0.1:0\"\n\
         [tracing]\nendpoint = \"http://{collector}/v1/traces?a=b\"\ninterval = \"1ms\"\n{keys}\n\
         [hosts.\"*\"]\ntracing = true\n{routes}"
    ))
}

/// Returns the numbers of exported, failed and dropped spans.
#[track_caller]
fn counts(server: &Weft) -> [u64; 3] {
    let mut client = Client::tcp(server.status_address());
    client.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = String::from_utf8(client.response().body).unwrap();
    ["exported", "failed", "dropped"].map(|result| {
        let name = format!("weft_spans_total{{result=\"{result}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("a counter");
        line.parse().unwrap()
    })
}

#[test]
fn exports_the_spans_of_sampled_requests() {
    let (up, dead) = (upstream(), unused_address());
    let collector = Collector::start(&[ACCEPTED]);
    let (_folder, server) = serve_exporting(
        collector.address,
        "service = \"front\"\nheaders = { Authorization = \"Bearer t\" }",
        &format!(
            "\"/up/\" = \">> http://{up}/\"\n\"/dead\" = \">> http://{dead}/\"\n\
             \"/text\" = {{ respond = \"a\", tracing = false }}\n"
        ),
    );
    let sent =
        |flags: &str| format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\nUser-Agent: a\"b\r\n");
    let seen = received(&get(&server, "/up/a%20b?q=1", &sent("01")));
    // Neither of these is exported.
    get(&server, "/up/", &sent("00"));
    get(&server, "/text", &sent("01"));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET /dead HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).unwrap().starts_with("HTTP/1.1 502 "));
    until("both spans are exported", || collector.spans().len() == 2);
    until("both spans are counted", || counts(&server) == [2, 0, 0]);
    let (head, body) = collector.requests.lock().unwrap()[0].clone();
    assert!(head.starts_with("post /v1/traces?a=b http/1.1\r\n"), "{head}");
    for line in ["content-type: application/json\r\n", "authorization: bearer t\r\n"] {
        assert!(head.contains(line), "{head}");
    }
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(*service, json!({ "key": "service.name", "value": { "stringValue": "front" } }));
    let spans = collector.spans();
    let [span, failed] = &spans[..] else { panic!("{spans:#?}") };
    for (key, expected) in [
        ("traceId", json!(TRACE)),
        ("spanId", json!(seen.span)),
        ("parentSpanId", json!(PARENT)),
        ("flags", json!(1)),
        ("name", json!("GET /up/")),
        ("kind", json!(2)),
        ("status", Value::Null),
    ] {
        assert_eq!(span[key], expected, "{key}");
    }
    let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") < nanos("endTimeUnixNano"), "{span}");
    let up = up.to_string();
    for (key, expected) in [
        ("http.request.method", Some("GET")),
        ("url.path", Some("/up/a%20b")),
        ("url.query", Some("q=1")),
        ("url.scheme", Some("http")),
        ("http.route", Some("/up/")),
        ("server.address", Some("a")),
        ("client.address", Some("127.0.0.1")),
        ("user_agent.original", Some("a\"b")),
        ("network.protocol.version", Some("1.1")),
        ("http.response.status_code", Some("200")),
        ("weft.upstream.address", Some(&*up)),
        ("weft.upstream.status_code", Some("200")),
        ("weft.upstream.attempts", Some("1")),
        ("error.type", None),
    ] {
        assert_eq!(attribute(span, key).as_deref(), expected, "{key}");
    }
    assert_eq!(failed["status"]["code"], 2);
    assert_eq!(failed["parentSpanId"], Value::Null);
    assert_eq!(attribute(failed, "error.type").as_deref(), Some("502"));
    assert_eq!(attribute(failed, "weft.upstream.attempts").as_deref(), Some("3"));
}

/// Each row: keys of `[log]`, and the query and the client of a span.
#[test]
fn spans_withhold_the_same_parts_as_logs() {
    let long = "v".repeat(1100);
    let target = format!("/?Token=secret&q=1&long={long}&token=secret");
    for (keys, query, client) in [
        ("", "Token=secret&q=1&", "127.0.0.1"),
        ("log.redact = \"token\"\n", "Token=***&q=1&", "127.0.0.1"),
        ("log.mask_addresses = true\n", "Token=secret&q=1&", "127.0.0.0"),
    ] {
        let collector = Collector::start(&[ACCEPTED]);
        let (_folder, server) = serve(&format!(
            "{keys}log.access = \"none\"\n\
             [tracing]\nendpoint = \"http://{}/\"\ninterval = \"1ms\"\n\
             [hosts.\"*\"]\ntracing = true\n\"/\" = {{ respond = \"a\" }}\n",
            collector.address
        ));
        get(&server, &target, "");
        until("the span is exported", || collector.spans().len() == 1);
        let span = &collector.spans()[0];
        let found = attribute(span, "url.query").unwrap();
        assert!(found.starts_with(query) && found.len() == 1024, "{keys}: {found}");
        assert_eq!(attribute(span, "client.address").as_deref(), Some(client), "{keys}");
    }
}

/// Each row: responses of the collector, its number of requests, and the numbers of spans.
#[test]
fn transient_failures_of_the_collector_are_retried() {
    const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    const INVALID: &str = "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n";
    const PARTIAL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n\
                           {\"partialSuccess\":{\"rejectedSpans\":\"1\"}}";
    std::thread::scope(|scope| {
        for (responses, requests, expected) in [
            (&[BUSY, ACCEPTED][..], 2, [1, 0, 0]),
            (&["", ACCEPTED], 2, [1, 0, 0]),
            (&[BUSY], 3, [0, 1, 0]),
            (&[INVALID], 1, [0, 1, 0]),
            (&[PARTIAL], 1, [0, 1, 0]),
        ] {
            scope.spawn(move || {
                let collector = Collector::start(responses);
                let routes = "\"/\" = { respond = \"a\" }\n";
                let (_folder, server) = serve_exporting(collector.address, "", routes);
                get(&server, "/", "");
                until("the span is counted", || counts(&server) == expected);
                assert_eq!(collector.requests(), requests, "{responses:?}");
            });
        }
    });
}

/// A collector that does not respond delays no request, and occupies no more than the queue.
#[test]
fn spans_beyond_the_queue_are_dropped_and_counted() {
    let (received, is_received) = mpsc::channel();
    let received = Mutex::new(received);
    let address = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        received.lock().unwrap().send(()).unwrap();
        // Until the server closes the connection.
        while let Ok(1..) = stream.read(&mut [0; 4096]) {}
    });
    let routes = "\"/\" = { respond = \"a\" }\n";
    let (_folder, server) =
        serve_exporting(address, "max_queued_spans = 4\ntimeout = \"10m\"", routes);
    get(&server, "/", "");
    is_received.recv_timeout(PATIENCE).unwrap();
    for _ in 0..10 {
        get(&server, "/", "");
    }
    until("the rest is dropped", || counts(&server) == [0, 0, 6]);
}

#[test]
fn a_stop_exports_the_spans_before() {
    let collector = Collector::start(&[ACCEPTED]);
    let (_folder, server) = serve(&format!(
        "log.access = \"none\"\n[tracing]\nendpoint = \"http://{}/\"\ninterval = \"1h\"\n\
         [hosts.\"*\"]\ntracing = true\n\"/\" = {{ respond = \"a\" }}\n",
        collector.address
    ));
    (0..3).for_each(|_| drop(get(&server, "/", "")));
    assert_eq!(collector.requests(), 0);
    server.stop();
    assert_eq!((collector.requests(), collector.spans().len()), (1, 3));
}
