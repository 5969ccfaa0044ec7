//! Metrics and access logs of streams.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::{Streams, connect, echo, exchange, read_to_close};
use crate::common::{Client, PATIENCE, Signal, raw_upstream, until, unused_address};

/// Reads the file `access.log` until it has this number of lines.
pub(super) fn lines(streams: &Streams, count: usize) -> Vec<String> {
    let path = streams.path("access.log");
    let read = || fs::read_to_string(&path).unwrap_or_default();
    until("the lines are written", || read().matches('\n').count() >= count);
    let lines: Vec<String> = read().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

/// Returns the values of a line that do not depend on time, with `LOCAL` and `CLIENT` for
/// addresses.
fn stable(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let [time, protocol, client, local, upstream, received, sent, seconds, end, name] = words[..]
    else {
        panic!("{line}");
    };
    assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
    assert!(client.parse::<SocketAddr>().is_ok() && local.parse::<SocketAddr>().is_ok(), "{line}");
    assert!(seconds.parse::<f64>().is_ok_and(|seconds| (0.0..60.0).contains(&seconds)), "{line}");
    let client = if client.starts_with("127.0.0.1:") { "CLIENT" } else { client };
    [protocol, client, upstream, received, sent, end, name].join(" ")
}

/// Closes a connection with a reset.
pub(super) fn reset(stream: TcpStream) {
    let linger = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, linger).unwrap();
}

#[test]
fn each_connection_has_one_line_with_the_reason_of_its_end() {
    let (upstream, gone) = (echo("up "), unused_address());
    for (keys, sent, expected) in [
        (format!("to = \"{upstream}\""), &b"hello"[..], format!("{upstream} 5 8 closed -")),
        (format!("to = \"{gone}\""), b"hello", "- 0 0 unreachable -".to_owned()),
        (
            format!("server_names = {{ \"a.example\" = \"{gone}\" }}"),
            b"hello",
            "- 0 0 unknown-name -".to_owned(),
        ),
        (
            format!("to = \"{upstream}\"\nproxy_protocol_from = \"127.0.0.1\""),
            b"PROXY TCP4 a b 1 2\r\n",
            "- 0 0 proxy-header -".to_owned(),
        ),
        (
            format!("to = \"{upstream}\"\nproxy_protocol_from = \"127.0.0.1\""),
            b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 25\r\nhello",
            format!("192.0.2.7:4711 {upstream} 5 8 closed -"),
        ),
        (format!("to = \"{upstream}\"\ntls = true"), b"hello", "- 0 0 tls -".to_owned()),
    ] {
        let streams = Streams::start(&format!(
            "[tls]\nself_signed = true\n[streams.\"127.0.0.1:0\"]\n{keys}\naccess_log = \"access.log\"\n"
        ));
        let mut stream = streams.connect();
        stream.write_all(sent).unwrap();
        // The server may have closed the connection.
        let _ = stream.shutdown(Shutdown::Write);
        read_to_close(stream);
        let line = &lines(&streams, 1)[0];
        let expected = match expected.starts_with("192") {
            true => format!("tcp {expected}"),
            false => format!("tcp CLIENT {expected}"),
        };
        assert_eq!(stable(line), expected);
    }
}

#[test]
fn lines_state_timeouts_limits_resets_and_a_stop() {
    let upstream = echo("up ");
    let start = |keys: &str| {
        Streams::start(&format!(
            "drain_timeout = \"100ms\"\n[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n\
             server_names = {{ \"a.example\" = \"{upstream}\" }}\n\
             access_log = \"access.log\"\n{keys}\n"
        ))
    };
    let opened = |streams: &Streams| {
        let mut stream = streams.connect();
        stream.write_all(b"hello").unwrap();
        let mut returned = [0; 8];
        stream.read_exact(&mut returned).unwrap();
        stream
    };
    let line = |end: &str| format!("tcp CLIENT {upstream} 5 8 {end} -");
    let streams = start("handshake_timeout = \"1s\"");
    read_to_close(streams.connect());
    assert_eq!(stable(&lines(&streams, 1)[0]), "tcp CLIENT - 0 0 timeout -");

    let streams = start("idle_timeout = \"1s\"\nmax_connections = 1");
    let first = opened(&streams);
    read_to_close(streams.connect());
    assert_eq!(stable(&lines(&streams, 1)[0]), "tcp CLIENT - 0 0 limit -");
    read_to_close(first);
    assert_eq!(stable(&lines(&streams, 2)[1]), line("idle"));

    let mut streams = start("");
    reset(opened(&streams));
    assert_eq!(stable(&lines(&streams, 1)[0]), line("client-error"));
    let open = opened(&streams);
    streams.server.signal(Signal::TERM);
    assert!(streams.server.wait().success());
    assert_eq!(stable(&lines(&streams, 2)[1]), line("stopped"));
    drop(open);
}

/// A peer that has ended its direction and then resets the connection is noticed at once. A peer
/// that is only half-closed keeps it.
#[test]
fn resets_behind_the_end_of_a_direction_end_the_connection() {
    for (is_upstream, is_reset) in [(false, true), (false, false), (true, true), (true, false)] {
        let (sender, accepted) = std::sync::mpsc::channel();
        let upstream = raw_upstream(move |_, stream| sender.send(stream).unwrap());
        let streams = Streams::start(&format!(
            "[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\naccess_log = \"access.log\"\n"
        ));
        let mut client = streams.connect();
        client.write_all(b"hello").unwrap();
        let mut upstream = accepted.recv_timeout(PATIENCE).unwrap();
        upstream.read_exact(&mut [0; 5]).unwrap();
        let (mut other, leaving) = match is_upstream {
            true => (client, upstream),
            false => (upstream, client),
        };
        leaving.shutdown(Shutdown::Write).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        if is_reset {
            reset(leaving);
            let line = &lines(&streams, 1)[0];
            let end = if is_upstream { " upstream-error -" } else { " client-error -" };
            assert!(line.ends_with(end), "{line}");
        } else {
            std::thread::sleep(std::time::Duration::from_millis(300));
            let log = fs::read_to_string(streams.path("access.log")).unwrap_or_default();
            assert_eq!(log, "", "{is_upstream}");
        }
    }
}

#[test]
fn lines_of_json_have_names_and_survive_a_reload_of_the_logs() {
    let upstream = echo("");
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\naccess_log = \"access.log\"\n\
         log_format = \"json\"\n"
    ));
    let mut open = streams.connect();
    open.write_all(b"hello").unwrap();
    open.read_exact(&mut [0; 5]).unwrap();
    fs::rename(streams.path("access.log"), streams.path("former.log")).unwrap();
    streams.server.signal(Signal::USR1);
    until("the log is reopened", || streams.path("access.log").exists());
    exchange(open, b"");
    let line: serde_json::Value = serde_json::from_str(&lines(&streams, 1)[0]).unwrap();
    let local = streams.addresses()[0].to_string();
    assert_eq!(line["local"], local);
    assert_eq!(line["upstream"], upstream.to_string());
    assert_eq!(line["bytes_received"], 5);
    assert_eq!(line["bytes_sent"], 5);
    assert_eq!((&line["protocol"], &line["end"]), (&"tcp".into(), &"closed".into()));
    assert!(line["server_name"].is_null());
}

#[test]
fn metrics_count_connections_bytes_and_failures_by_upstream() {
    let (up, gone) = (echo("up "), unused_address());
    let streams = Streams::start(&format!(
        "[status]\nlisten = \"127.0.0.1:0\"\nhosts = \"*\"\n\
         [streams.\"127.0.0.1:0\"]\nto = [\"{up}\"]\nserver_names = {{ \"a.example\" = \"{gone}\" }}\n"
    ));
    for _ in 0..3 {
        exchange(streams.connect(), b"hello");
    }
    read_to_close({
        let mut stream = streams.connect();
        stream.write_all(&super::client_hello("a.example")).unwrap();
        stream
    });
    let mut open = connect(streams.addresses()[0]);
    open.write_all(b"hello").unwrap();
    open.read_exact(&mut [0; 8]).unwrap();
    let status = streams.server.status_address();
    let page = || String::from_utf8(Client::tcp(status).get("/metrics").body).unwrap();
    let (first, second) = (
        format!("{{stream=\"127.0.0.1:0\",server_name=\"\",upstream=\"{up}\""),
        format!("{{stream=\"127.0.0.1:0\",server_name=\"a.example\",upstream=\"{gone}\""),
    );
    for line in [
        format!("weft_stream_connections_total{first}}} 4\n"),
        format!("weft_stream_connections_total{second}}} 0\n"),
        format!("weft_stream_connections_open{first}}} 1\n"),
        format!("weft_stream_bytes_total{first},direction=\"received\"}} 20\n"),
        format!("weft_stream_bytes_total{first},direction=\"sent\"}} 32\n"),
        format!("weft_stream_failures_total{first}}} 0\n"),
        format!("weft_stream_failures_total{second}}} 1\n"),
        format!("weft_stream_up{first}}} 1\n"),
        format!("weft_stream_duration_seconds_count{first}}} 3\n"),
        "weft_stream_ends_total{stream=\"127.0.0.1:0\",reason=\"closed\"} 3\n".to_owned(),
        "weft_stream_ends_total{stream=\"127.0.0.1:0\",reason=\"unreachable\"} 1\n".to_owned(),
    ] {
        until(&line, || page().contains(&line));
    }
    assert_eq!(exchange(open, b""), b"");
}
