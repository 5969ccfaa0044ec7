//! The access log.

use super::*;

/// A line of the log, in Apache's combined format.
#[derive(Debug)]
struct LogLine {
    host: String,
    request: String,
    status: String,
    bytes: String,
    referer: String,
    user_agent: String,
}

impl LogLine {
    /// Parses `host - - [date] "request line" status bytes "referer" "user agent"`; the escapes of
    /// the quoted parts are kept.
    fn parse(text: &str) -> Option<LogLine> {
        let text = text.strip_suffix('\n')?;
        let (host, text) = text.split_once(" - - [")?;
        let (date, text) = text.split_once("] ")?;
        let (request, text) = quoted(text)?;
        let (status, text) = text.strip_prefix(' ')?.split_once(' ')?;
        let (bytes, text) = text.split_once(' ')?;
        let (referer, text) = quoted(text)?;
        let (user_agent, text) = quoted(text.strip_prefix(' ')?)?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let is_valid = text.is_empty()
            && status.len() == 3
            && number(status)
            && (number(bytes) && !bytes.starts_with('0') && !bytes.is_empty() || bytes == "-")
            && is_date(date);
        let [host, request, status, bytes, referer, user_agent] =
            [host, request, status, bytes, referer, user_agent].map(str::to_owned);
        is_valid.then_some(LogLine { host, request, status, bytes, referer, user_agent })
    }
}

/// Splits a quoted string from the start of `text`; returns its contents and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('"')?;
    let mut escaped = false;
    let end = text.find(|c| {
        let is_end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        is_end
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// Returns true for a date such as `06/Nov/1994:08:49:37 +0000`.
fn is_date(date: &str) -> bool {
    date.len() == 26
        && date.bytes().zip("00/Aaa/0000:00:00:00 +0000".bytes()).all(|(b, like)| match like {
            b'0' => b.is_ascii_digit(),
            b'A' => b.is_ascii_uppercase(),
            b'a' => b.is_ascii_lowercase(),
            other => b == other,
        })
}

/// Sends requests, each on a new connection, and returns the responses and the log.
#[track_caller]
fn log_of(requests: &[&[u8]]) -> (Vec<Response>, Vec<LogLine>) {
    let site = small_site();
    // The lines of a single worker are in the order of the responses.
    let server = Weft::serve(site.path(), &["--workers", "1"]);
    let send = |request: &&[u8]| {
        let mut client = server.client();
        client.send(request);
        client.response()
    };
    let responses = requests.iter().map(send).collect();
    let log = server.stop().stdout;
    let is_printable = |b: u8| matches!(b, b' '..=b'~' | b'\n');
    assert!(log.bytes().all(is_printable), "not printable ASCII: {log:?}");
    let line = |line: &str| LogLine::parse(line).unwrap_or_else(|| panic!("torn: {line:?}"));
    (responses, log.split_inclusive('\n').map(line).collect())
}

#[test]
fn log_uses_the_combined_format_by_default() {
    let cases: [(&[u8], &str); _] = [
        (
            b"GET /a.txt?b=c HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\nReferer: http://r/\r\n\r\n",
            r#""GET /a.txt?b=c HTTP/1.1" 200 2 "http://r/" "curl/8""#,
        ),
        (b"GET / HTTP/1.0\r\n\r\n", r#""GET / HTTP/1.0" 200 12 "-" "-""#),
        (
            b"GET http://a/a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
            r#""GET http://a/a.txt HTTP/1.1" 200 2 "-" "-""#,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: \r\n\r\n",
            r#""GET / HTTP/1.1" 200 12 "-" """#,
        ),
    ];
    let (_, lines) = log_of(&cases.map(|(request, _)| request));
    assert_eq!(lines.len(), cases.len());
    for (line, (_, expected)) in lines.iter().zip(cases) {
        let LogLine { host, request, status, bytes, referer, user_agent } = line;
        let found = format!(r#""{request}" {status} {bytes} "{referer}" "{user_agent}""#);
        assert_eq!((&**host, &*found), ("127.0.0.1", expected));
    }
}

#[test]
fn log_contains_the_body_size() {
    let requests: [&[u8]; _] = [
        b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
        b"DELETE / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
    ];
    let (responses, lines) = log_of(&requests);
    assert_eq!(lines.len(), requests.len());
    for (response, line) in responses.iter().zip(&lines) {
        assert_eq!(line.bytes, response.body.len().to_string(), "{line:?}");
        assert_eq!(line.status, response.status.to_string(), "{line:?}");
    }
    assert_eq!(lines[3].request, "no HTTP at all", "an invalid request line is logged as it is");
}

#[test]
fn logs_head_requests_and_redirects() {
    let site = small_site();
    fs::create_dir(site.path().join("sub")).unwrap();
    let server = Weft::serve(site.path(), &[]);
    let mut client = server.client();
    client.send("HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    assert_eq!(client.get("/sub").status, 301);
    let log = server.stop().stdout;
    assert!(log.contains(r#"] "HEAD /a.txt HTTP/1.1" 200 - "-" "-""#), "{log}");
    assert!(log.contains(r#"] "GET /sub HTTP/1.1" 301 "#), "{log}");
}

#[test]
fn escapes_client_data_in_log_lines() {
    // Sent value, and its escaped form in the log.
    let values: [(&[u8], &str); _] = [
        (b"a\"b", r#"a\"b"#),
        (b"\" 200 1 \"-\" \"-", r#"\" 200 1 \"-\" \"-"#),
        (b"a\\", r"a\\"),
        (b"a\\\"", r#"a\\\""#),
        (b"\\x0a", r"\\x0a"),
        (b"a\tb", r"a\x09b"),
        (b"d\xc3\xadas", r"d\xc3\xadas"),
        (b"\x80\xfe\xff", r"\x80\xfe\xff"),
        // Line ends of Unicode: next line (U+0085) and line separator (U+2028).
        (b"a\xc2\x85b\xe2\x80\xa8c", r"a\xc2\x85b\xe2\x80\xa8c"),
        (b"%0d%0a127.0.0.1 - - [", "%0d%0a127.0.0.1 - - ["),
        (b"${jndi:ldap://a}%s%n{}", "${jndi:ldap://a}%s%n{}"),
    ];
    let field = |name: &str, value: &[u8]| {
        let head = format!("GET /a.txt HTTP/1.1\r\nHost: a\r\n{name}: ");
        [head.as_bytes(), value, b"\r\n\r\n"].concat()
    };
    let targets: [(&[u8], &str); _] = [
        (b"/\"", r#"/\""#),
        (b"/\\\"", r#"/\\\""#),
        (b"/%22%0d%0a", "/%22%0d%0a"),
        ("/días\u{85}\u{2028}".as_bytes(), r"/d\xc3\xadas\xc2\x85\xe2\x80\xa8"),
    ];
    let mut requests = Vec::new();
    for (value, _) in values {
        requests.push(field("User-Agent", value));
        requests.push(field("Referer", value));
    }
    for (target, _) in targets {
        requests.push([b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    }
    let (_, lines) = log_of(&requests.iter().map(|r| &r[..]).collect::<Vec<_>>());
    assert_eq!(lines.len(), requests.len());
    let (of_values, of_targets) = lines.split_at(2 * values.len());
    for (lines, (_, escaped)) in of_values.chunks(2).zip(values) {
        assert_eq!((&*lines[0].user_agent, &*lines[0].referer), (escaped, "-"));
        assert_eq!((&*lines[1].user_agent, &*lines[1].referer), ("-", escaped));
    }
    for (line, (_, escaped)) in of_targets.iter().zip(targets) {
        assert_eq!(line.request, format!("GET {escaped} HTTP/1.1"));
    }
}

#[test]
fn rejects_control_characters_and_escapes_them_in_the_log() {
    let requests: [&[u8]; _] = [
        b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a\nb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: a\0b\r\n\r\n",
        b"GET /\x1b[2J HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    let (responses, lines) = log_of(&requests);
    assert!(responses.iter().all(|response| response.status == 400));
    assert_eq!(lines.len(), requests.len());
    let expected = [
        "GET / HTTP/1.1",
        "GET / HTTP/1.1",
        "GET / HTTP/1.1",
        "GET /\\x1b[2J HTTP/1.1",
        "GET /\\xff HTTP/1.1",
    ];
    for (line, request) in lines.iter().zip(expected) {
        let logged = (&*line.request, &*line.status, &*line.referer, &*line.user_agent);
        assert_eq!(logged, (request, "400", "-", "-"));
    }
}

/// Sends requests from several concurrent clients; their log lines are long enough to fill the
/// buffers of the log several times. Returns the sorted request lines.
#[track_caller]
fn send_many(server: &Weft, clients: usize, requests: usize) -> Vec<String> {
    let padding = "p".repeat(200);
    let target = |client: usize, request: usize| format!("/a.txt?{client}-{request}-{padding}");
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut client = server.client();
                for request in 0..requests {
                    assert_eq!(client.get(&target(number, request)).status, 200);
                }
            });
        }
    });
    let all = (0..clients).flat_map(|client| (0..requests).map(move |request| (client, request)));
    let mut lines: Vec<String> =
        all.map(|(client, request)| format!("GET {} HTTP/1.1", target(client, request))).collect();
    lines.sort();
    lines
}

/// Returns the sorted request lines of a log, and asserts that every log line is complete.
#[track_caller]
fn request_lines(log: &str) -> Vec<String> {
    let request = |text: &str| {
        let line = LogLine::parse(text).unwrap_or_else(|| panic!("torn: {text:?}"));
        assert_eq!((&*line.status, &*line.bytes), ("200", "2"));
        line.request
    };
    let mut lines: Vec<String> = log.split_inclusive('\n').map(request).collect();
    lines.sort();
    lines
}

#[test]
fn stop_writes_all_pending_log_lines() {
    let site = small_site();
    let server = Weft::serve(site.path(), &["--workers", "3"]);
    let sent = send_many(&server, 4, 250);
    // Stop immediately: buffered lines must not be lost.
    let logged = request_lines(&server.stop().stdout);
    assert!(logged == sent, "{} lines for {} requests", logged.len(), sent.len());
}

#[test]
fn log_pipe_that_is_read_late_loses_no_lines() {
    let site = small_site();
    let mut command = weft([site.path()]);
    command.args(["--listen", "127.0.0.1:0", "--workers", "2"]);
    let (mut server, log) = Weft::start_with_unread_log(command);
    // Several times the capacity of a pipe, and less than the program buffers.
    let sent = send_many(&server, 4, 300);
    server.read_log(log);
    let logged = request_lines(&server.stop().stdout);
    assert!(logged == sent, "{} lines for {} requests", logged.len(), sent.len());
}

#[test]
fn log_lines_are_written_while_the_server_runs() {
    let site = small_site();
    let server = Weft::serve(site.path(), &[]);
    assert_serves(server.client());
    until("the line is written", || server.stdout().ends_with('\n'));
    server.stop();
}

#[test]
fn no_log_option_disables_the_access_log() {
    let site = small_site();
    let server = Weft::serve(site.path(), &["--no-log"]);
    for _ in 0..10 {
        assert_serves(server.client());
    }
    assert_eq!(server.stop().stdout, "");
}

#[test]
fn log_write_errors_do_not_stop_the_server() {
    let site = small_site();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" "$@" >/dev/full"#, env!("CARGO_BIN_EXE_weft")]);
    command.arg(site.path()).args(["--listen", "127.0.0.1:0"]);
    let server = Weft::start(&mut command);
    for _ in 0..10 {
        assert_serves(server.client());
    }
    let output = server.stop();
    let message = "weft: the access log cannot be written: ";
    assert!(output.stderr.contains(message), "{}", output.stderr);
}
