//! Distributed traces: the fields that upstreams and scripts get, values of templates and logs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tempfile::TempDir;

use crate::cgi::write_script;
use crate::common::{PATIENCE, Weft, raw_upstream, read_head, until, weft};

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
