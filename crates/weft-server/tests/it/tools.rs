//! The program and the examples, tested with external programs. A test without its program is
//! skipped; see `has_tool`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, PoisonError};

use crate::common::external::{
    browse, chromium, console_lines, curl, first_heading, pattern, run_successfully,
    with_max_descriptors,
};
use crate::common::{
    Client, MANY_DESCRIPTORS, Program, Signal, Weft, has_tool, raw_upstream, read_head, repository,
    until,
};

// -- the examples

/// Returns the path of an example of the library, built with the profile of this test.
fn example(name: &str) -> PathBuf {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(build_examples);
    FOLDER.join(name)
}

/// Builds the examples and returns their directory. With `--workspace` the features of their
/// dependencies are the same as in `cargo test --workspace`, which has built them.
fn build_examples() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_weft")).parent().expect("a parent directory");
    let profile = match folder.file_name().and_then(OsStr::to_str).expect("a profile") {
        "debug" => "test",
        other => other,
    };
    let target = folder.parent().expect("the target directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--workspace", "--examples", "--profile", profile]);
    build.arg("--target-dir").arg(target).current_dir(repository("."));
    run_successfully(&mut build);
    folder.join("examples")
}

/// Starts a server that takes its address as an argument and does not print it.
#[track_caller]
fn start(mut command: impl FnMut(&str) -> Command) -> (Program, SocketAddr) {
    loop {
        // Another process may bind the free port first: then retry with another port.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let mut server = Program::start(&mut command(&address.to_string()));
        until("the server listens or exits", || {
            TcpStream::connect(address).is_ok() || !server.is_running()
        });
        if server.is_running() {
            return (server, address);
        }
        let stderr = server.wait_with_output().stderr;
        assert!(stderr.contains("Address already in use"), "the server exited: {stderr}");
    }
}

#[track_caller]
fn start_example(name: &str) -> (Program, String) {
    let program = example(name);
    let (server, address) = start(|address| {
        let mut command = Command::new(&program);
        command.arg(address).current_dir(repository("."));
        command
    });
    (server, format!("http://{address}"))
}

#[test]
fn graceful_example_responds_before_it_stops() {
    let (server, url) = start_example("graceful");
    let mut client = Client::tcp(url.strip_prefix("http://").unwrap().parse().unwrap());
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.signal(Signal::TERM);
    let response = client.response();
    assert_eq!(response.body, b"The server stops.\n");
    // `Connection: close` is not asserted: its presence depends on the order in which handler and
    // worker observe the shutdown.
    client.assert_closed();
    assert_eq!(server.wait_with_output().status, Ok(0));
}

#[test]
fn middleware_example_applies_each_middleware() {
    let (server, url) = start_example("middleware");
    let mut client = Client::tcp(url.strip_prefix("http://").unwrap().parse().unwrap());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nX-Request-Id: mine\r\n\r\n");
    let page = client.response();
    for (name, value) in [
        ("content-encoding", "gzip"),
        ("vary", "accept-encoding"),
        ("via", "1.1 example"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    assert!(page.header("x-request-id").is_some());
    let etag = page.header("etag").expect("an entity tag").to_owned();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n\r\n"));
    assert!(client.head()[0].starts_with("HTTP/1.1 304 "));
    until("both requests are logged", || {
        server.stderr().matches("\"GET / HTTP/1.1\"").count() == 2
    });
}

// -- h2load

#[test]
fn h2load_100_000_requests_on_1_000_connections() {
    if !has_tool("h2load") {
        return;
    }
    let _exclusive = MANY_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = with_max_descriptors(env!("CARGO_BIN_EXE_weft"));
    command.arg(repository("site")).args(["--listen", "127.0.0.1:0"]);
    let server = Weft::start(&mut command);
    let mut command = with_max_descriptors("h2load");
    command.args(["--h1", "-n", "100000", "-c", "1000", "-t", "1"]);
    let output = run_successfully(command.arg(server.url("/index.html")));
    for line in [
        "requests: 100000 total, 100000 started, 100000 done, 100000 succeeded, 0 failed, 0 errored, 0 timeout",
        "status codes: 100000 2xx, 0 3xx, 0 4xx, 0 5xx",
    ] {
        assert!(output.stdout.lines().any(|found| found == line), "{}", output.stdout);
    }
    let page = fs::metadata(repository("site/index.html")).unwrap().len();
    let bytes = format!("({}) data", 100_000 * page);
    assert!(output.stdout.contains(&bytes), "{bytes}: {}", output.stdout);
    let log = server.stop().stdout;
    let line = format!(" \"GET /index.html HTTP/1.1\" 200 {page} \"-\" ");
    assert_eq!(log.lines().filter(|found| found.contains(&line)).count(), 100_000);
    assert_eq!(log.lines().count(), 100_000);
}

// -- chromium

#[test]
fn chromium_loads_the_site_without_console_messages() {
    if !has_tool("chromium") {
        return;
    }
    let server = Weft::serve(&repository("site"), &[]);
    for (target, file) in
        [("/", "index.html"), ("/guide/", "guide/index.html"), ("/d%C3%ADas.html", "días.html")]
    {
        let page = fs::read_to_string(repository("site").join(file)).unwrap();
        let output = browse(&server.url(target));
        assert!(output.stdout.contains(first_heading(&page)), "{target}: {}", output.stdout);
        assert_eq!(console_lines(&output), [""; 0], "{target}");
    }
    let log = server.stop().stdout;
    for file in ["/", "/style.css", "/weave.svg", "/guide/", "/d%C3%ADas.html"] {
        assert!(log.contains(&format!("\"GET {file} HTTP/1.1\" 200 ")), "{file} was not requested");
    }
    assert!(log.lines().all(|line| line.contains(" HTTP/1.1\" 200 ")), "{log}");
}

/// A directory listing does not violate its own Content-Security-Policy, and links to unusual names
/// are escaped.
#[test]
fn chromium_loads_a_listing_without_console_messages() {
    if !has_tool("chromium") {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    for name in ["a & b.txt", "<img src=x onerror=alert(1)>", "javascript:alert(1)", "100%.txt"] {
        fs::write(site.path().join(name), name).unwrap();
    }
    fs::create_dir(site.path().join("folder")).unwrap();
    let server = Weft::serve(site.path(), &["--list"]);
    let output = browse(&server.url("/?sort=date&order=desc"));
    assert_eq!(console_lines(&output), [""; 0], "{}", output.stderr);
    for part in [
        "<a href=\"./folder/\"><bdi>folder</bdi>/</a>",
        "<a href=\"./100%25.txt\"><bdi>100%.txt</bdi></a>",
        "<a href=\"./javascript%3Aalert%281%29\">",
        "<bdi>&lt;img src=x onerror=alert(1)&gt;</bdi>",
        "aria-sort=\"descending\"",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    assert!(!output.stdout.contains("<img"), "{}", output.stdout);
    server.stop();
}

/// Control for the tests above: console messages are found in the output of the browser.
#[test]
fn chromium_reports_console_messages_of_a_faulty_page() {
    if !has_tool("chromium") {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    let page = "<h1>Fault</h1><img src=nothing.png><script>console.error('oh'); none();</script>";
    fs::write(site.path().join("index.html"), page).unwrap();
    let server = Weft::serve(site.path(), &[]);
    let output = browse(&server.url("/"));
    assert!(output.stdout.contains("<h1>Fault</h1>"), "{}", output.stdout);
    for message in ["\"oh\"", "none is not defined"] {
        let is_reported = console_lines(&output).iter().any(|line| line.contains(message));
        assert!(is_reported, "{message}: {}", output.stderr);
    }
    // The browser may not report a missing image, so the access log is checked.
    let log = server.stop().stdout;
    assert!(log.contains("\"GET /nothing.png HTTP/1.1\" 404 "), "{log}");
}

/// Two participants: a page in the browser and a raw client.
#[test]
fn chromium_exchanges_websocket_messages() {
    if !has_tool("chromium") {
        return;
    }
    let (_server, url) = start_example("websocket_chat");
    let profile = tempfile::tempdir().unwrap();
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &format!("{url}/?name=page")]);
    let page = Program::start(&mut command);
    until("the page has joined", || page.stderr().contains("page has joined"));

    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut client = Client::tcp(address);
    client.send(concat!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ));
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    for text in ["raw", "hello, page"] {
        // A text frame with the masking key 0.
        let frame = [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
        client.send(frame);
    }
    until("the page receives the message", || page.stderr().contains("raw: hello, page"));
    let expected = b"\x81\x0eraw has joined\x81\x10raw: hello, page";
    assert_eq!(
        client.body(expected.len()).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    drop(page);
    let expected = b"\x81\x0dpage has left";
    assert_eq!(
        client.body(expected.len()).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

// -- curl

#[test]
fn curl_downloads_files_over_each_http_version() {
    if !has_tool("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (site, copy) = (folder.path().join("site"), folder.path().join("copy"));
    fs::create_dir(&site).unwrap();
    let sizes = [0, 1, 151, 16 << 10, 1 << 20, 20 << 20];
    sizes.iter().for_each(|&size| fs::write(site.join(size.to_string()), pattern(size)).unwrap());
    let socket = folder.path().join("socket");
    let server = Weft::serve(&site, &["--listen", &format!("unix:{}", socket.display())]);
    let unix: &[&OsStr] = &["--unix-socket".as_ref(), socket.as_ref()];
    for options in [&["--http1.1".as_ref()], &["--http1.0".as_ref()], unix] {
        for size in sizes {
            let mut command = curl();
            command.args(options).args(["--write-out", "%{http_code} %{size_download}"]);
            command.arg("--output").arg(&copy).arg(server.url(&format!("/{size}")));
            assert_eq!(run_successfully(&mut command).stdout, format!("200 {size}"), "{options:?}");
            assert!(
                fs::read(&copy).unwrap() == pattern(size),
                "{options:?}, {size}: unexpected contents"
            );
        }
    }
    // In Apache's format `-` is an empty body.
    let log = server.stop().stdout;
    for (version, times) in [("1.1", 2), ("1.0", 1)] {
        for size in sizes {
            let bytes = if size == 0 { "-".to_owned() } else { size.to_string() };
            let line = format!("\"GET /{size} HTTP/{version}\" 200 {bytes} \"-\" \"curl/");
            assert_eq!(log.matches(&line).count(), times, "{line}");
        }
    }
}

#[test]
fn curl_reuses_a_connection_and_sends_head_requests() {
    if !has_tool("curl") {
        return;
    }
    let site = repository("site");
    let server = Weft::serve(&site, &["--no-log"]);
    let targets = ["/", "/style.css", "/nothing", "/guide", "/d%C3%ADas.html"];
    let mut command = curl();
    command.args(["--write-out", "%{http_code} %{size_download} %{num_connects}\n"]);
    for target in targets {
        command.args(["--output", "/dev/null", &server.url(target)]);
    }
    let stdout = run_successfully(&mut command).stdout;
    let size = |file: &str| fs::metadata(site.join(file)).unwrap().len();
    let expected = [
        format!("200 {} 1", size("index.html")),
        format!("200 {} 0", size("style.css")),
        format!("404 {} 0", size("404.html")),
        "301 ".to_owned(),
        format!("200 {} 0", size("días.html")),
    ];
    assert_eq!(stdout.lines().count(), expected.len());
    for (line, expected) in stdout.lines().zip(expected) {
        assert!(line.starts_with(&expected), "{line}, expected {expected}");
    }

    let head = run_successfully(curl().arg("--head").arg(server.url("/style.css"))).stdout;
    let length = format!("content-length: {}\r\n", size("style.css"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&length) && head.contains("last-modified: "), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "unexpected body: {head}");

    // The redirect to the directory is followed.
    let mut follow = curl();
    follow.args(["--location", "--write-out", "%{url_effective}", "--output", "/dev/null"]);
    let final_url = run_successfully(follow.arg(server.url("/guide?a=b"))).stdout;
    assert_eq!(final_url, server.url("/guide/?a=b"));
    server.stop();
}

#[test]
fn curl_uploads_are_echoed() {
    if !has_tool("curl") {
        return;
    }
    let (_server, url) = start_example("echo");
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("file"), folder.path().join("copy"));
    let bytes = pattern(20 << 20);
    fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    let whole = format!("@{file}");
    // Options of curl, and expected lines of its verbose output.
    let cases: [(&[&str], &[&str]); _] = [
        (&["--upload-file", file], &["> PUT /up HTTP/1.1", "> Content-Length: 20971520"]),
        (
            &["--upload-file", file, "--header", "Expect: 100-continue"],
            &["> Expect: 100-continue", "< HTTP/1.1 100 Continue"],
        ),
        (&["--upload-file", file, "--header", "Expect:"], &["> PUT /up HTTP/1.1"]),
        (
            &["--upload-file", file, "--header", "Transfer-Encoding: chunked"],
            &["> Transfer-Encoding: chunked"],
        ),
        (&["--data-binary", &whole], &["> POST /up HTTP/1.1", "> Content-Length: 20971520"]),
        (&["--http1.0", "--upload-file", file], &["> PUT /up HTTP/1.0"]),
        (&["--http2-prior-knowledge", "--upload-file", file], &["> PUT /up HTTP/2"]),
        // Without a length: HTTP/2 needs no other field for that.
        (
            &["--http2-prior-knowledge", "--upload-file", file, "--header", "Content-Length:"],
            &["> PUT /up HTTP/2"],
        ),
    ];
    for (options, expected_lines) in cases {
        let mut command = curl();
        command.args(options).args(["--verbose", "--write-out", "%{http_code} %{size_upload}"]);
        command.arg("--output").arg(&copy).arg(format!("{url}/up"));
        let output = run_successfully(&mut command);
        assert!(output.stdout.starts_with("200 20"), "{options:?}: {}", output.stdout);
        for line in expected_lines {
            assert!(output.stderr.lines().any(|l| l == *line), "{options:?}: {}", output.stderr);
        }
        assert!(fs::read(&copy).unwrap() == bytes, "{options:?}: unexpected contents");
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn curl_requests_to_each_example() {
    if !has_tool("curl") {
        return;
    }
    // Example, request, and expected status and body.
    for (name, requests) in [
        (
            "hello",
            &[(&["/"][..], "200 Hello, world!\n"), (&["/any?thing"], "200 Hello, world!\n")][..],
        ),
        (
            "echo",
            &[
                (&["/"], "200 POST or PUT something, and it comes back.\n"),
                (&["/", "--data", "a=b"], "200 a=b"),
                (&["/", "--request", "PUT", "--data", "c"], "200 c"),
                (&["/", "--request", "DELETE"], "200 POST or PUT something, and it comes back.\n"),
            ],
        ),
        (
            "routes",
            &[
                (&["/hello/d%C3%ADas"], "200 Hello, días!\n"),
                (&["/add/2/40"], "200 42\n"),
                (&["/add/2/x"], "400 two whole numbers, please\n"),
                (&["/length", "--data", "12345"], "200 5 bytes\n"),
                (&["/length"], "405 405 Method Not Allowed\n"),
                (&["/nothing"], "404 404 Not Found\n"),
            ],
        ),
        (
            "axum",
            &[
                (&["/"], "200 Hello, visitor 1!\n"),
                (&["/search?q=d%C3%ADas"], "200 You look for días.\n"),
                (&["/people/anna"], "200 This is anna.\n"),
                (&["/people/form", "--data", "name=anna"], "200 anna\n"),
                (&["/people/json", "--json", "{\"name\":\"a\"}"], "200 {\"name\":\"a\",\"age\":0}"),
                (&["/upload", "--form", "a=b", "--form", "c=def"], "200 a: 1 bytes\nc: 3 bytes\n"),
                (&["/tower/none"], "404 "),
                (&["/nothing"], "404 There is no /nothing.\n"),
            ],
        ),
        (
            "vhosts",
            &[
                (&["/a", "--header", "Host: shop.localhost"], "200 The shop, at /a\n"),
                (&["/", "--header", "Host: Anna.blog.localhost:80"], "200 The blog of Anna\n"),
                (&["/"], "200 Ask for shop.localhost.\n"),
                (&["/status", "--header", "Host: shop.localhost"], "200 All is well.\n"),
            ],
        ),
        (
            "middleware",
            &[
                (&["/admin"], "401 401 Unauthorized\n"),
                (&["/admin", "--user", "alice:s3cret"], "200 For your eyes only.\n"),
                (&["/admin", "--user", "alice:secret"], "401 401 Unauthorized\n"),
                (&["/slow"], "503 503 Service Unavailable\n"),
                (&["/panic"], "500 500 Internal Server Error\n"),
                (&["/nothing"], "404 404 Not Found\n"),
            ],
        ),
        (
            "upload",
            &[
                (&["/", "--form", "title=días"], "200 title = días\n"),
                (
                    &["/", "--form", "files=@-;filename=../a\"b.txt", "--form", "files=@/dev/null"],
                    "200 files: a%22b.txt, 0 bytes, CRC-32 00000000\n\
                     files: null, 0 bytes, CRC-32 00000000\n",
                ),
                (&["/", "--form", "files=;filename="], "200 files: no file\n"),
                (
                    &["/", "--form", "files=123456789;filename=n"],
                    "200 files: n, 9 bytes, CRC-32 cbf43926\n",
                ),
                (
                    &["/", "--data", "title=a"],
                    "415 415 Unsupported Media Type: expected a form as multipart/form-data, and \
                     Content-Type says application/x-www-form-urlencoded\n",
                ),
                (&["/", "--request", "PUT"], "405 "),
            ],
        ),
        ("sse", &[(&["/nothing"], "404 404 Not Found\n")]),
    ] {
        let (_server, url) = start_example(name);
        for (request, expected) in requests {
            let mut command = curl();
            command.arg(format!("{url}{}", request[0])).args(&request[1..]);
            let output = run_successfully(command.args(["--write-out", "\n%{http_code}"]));
            let (text, status) = output.stdout.rsplit_once('\n').unwrap();
            assert_eq!(format!("{status} {text}"), *expected, "{name} {request:?}");
        }
    }
}

#[test]
fn curl_uploads_multipart_forms() {
    if !has_tool("curl") {
        return;
    }
    let (_server, url) = start_example("upload");
    let folder = tempfile::tempdir().unwrap();
    let sizes = [1, 64 << 10, 20 << 20];
    let mut command = curl();
    command.arg(&url);
    let mut expected = String::new();
    for size in sizes {
        let file = folder.path().join(size.to_string());
        fs::write(&file, pattern(size)).unwrap();
        command.arg("--form").arg(format!("files=@{}", file.display()));
        let mut sum = flate2::Crc::new();
        sum.update(&pattern(size));
        expected += &format!("files: {size}, {size} bytes, CRC-32 {:08x}\n", sum.sum());
    }
    for options in [&[][..], &["--header", "Transfer-Encoding: chunked"]] {
        assert_eq!(run_successfully(command.args(options)).stdout, expected, "{options:?}");
    }
}

#[test]
fn curl_receives_events_of_the_sse_example() {
    if !has_tool("curl") {
        return;
    }
    let (_server, url) = start_example("sse");
    let page = run_successfully(curl().arg(&url)).stdout;
    assert!(page.contains("new EventSource(\"/clock\")"), "{page}");
    let clock = Program::start(curl().arg("--no-buffer").arg(format!("{url}/clock")));
    until("two events are received", || clock.stdout().matches("\n\n").count() >= 2);
    for event in clock.stdout().split_terminator("\n\n") {
        let (first, second) = event.split_once('\n').expect("two lines");
        assert_eq!(first, "event: tick");
        assert!(second.starts_with("data: ") && second.ends_with(" GMT"), "{second}");
    }
}

// -- strace

/// System calls by name, with the number of calls and of failures.
#[derive(Debug, Default)]
struct Calls(BTreeMap<String, (usize, usize)>);

impl Calls {
    /// Parses a trace, starting with the first request. Calls for the timer of a worker, which it
    /// has while there are connections, are left out.
    fn since_first_request(trace: &str) -> Calls {
        let mut calls = Calls::default();
        let lines = trace.lines().skip_while(|line| !line.contains("recvfrom("));
        for line in lines.filter(|line| !is_for_timer(line)) {
            // `PID name(…) = result`; a call of another thread may be between the start,
            // `PID name(… <unfinished ...>`, and the end, `PID <... name resumed>…) = result`.
            let (_, line) = line.split_once(' ').expect("a thread ID");
            let line = line.trim_start();
            let failed = line.contains(" = -1 ");
            let (name, is_start) = match line.strip_prefix("<... ") {
                Some(resumed) => (resumed.split(' ').next(), false),
                None if line.starts_with(['+', '-']) => continue,
                None => (line.split('(').next(), true),
            };
            let entry = calls.0.entry(name.expect("a name").to_owned()).or_default();
            entry.0 += usize::from(is_start);
            entry.1 += usize::from(failed);
        }
        calls
    }

    fn count(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |count| count.0)
    }

    fn failures(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |count| count.1)
    }
}

/// Traces the example `hello` while it handles `requests` requests on each of `connections`
/// connections, one request at a time.
#[track_caller]
fn trace_hello(connections: usize, requests: usize) -> Calls {
    let hello = example("hello");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace");
    let trace = || String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let (server, address) = start(|address| {
        let mut command = Command::new("strace");
        // With -D our child process is the server instead of strace.
        command.args(["-D", "-f", "-y", "-e", "trace=%network,%desc,%file", "-o"]).arg(&output);
        command.arg(&hello).arg(address).stderr(Stdio::piped());
        command
    });
    // `start` has opened and closed one connection.
    until("the first connection is closed", || closed_connections(&trace()) == 1);
    let before = trace().len();

    let mut clients: Vec<Client> = (0..connections).map(|_| Client::tcp(address)).collect();
    for _ in 0..requests {
        for client in &mut clients {
            assert_eq!(client.get("/").body, b"Hello, world!\n");
        }
    }
    drop(clients);
    until("each connection is closed", || closed_connections(&trace()) == 1 + connections);
    server.signal(Signal::TERM);
    let id = format!("{} ", server.id());
    let is_last = |line: &str| line.starts_with(&id) && line.ends_with("+++ killed by SIGTERM +++");
    until("the trace is complete", || trace().lines().any(is_last));
    assert_eq!(server.wait_with_output().status, Err(Signal::TERM.as_raw()));
    Calls::since_first_request(&trace()[before..])
}

/// Returns the number of closed connections in a trace.
fn closed_connections(trace: &str) -> usize {
    let accepted = trace.lines().skip_while(|line| !line.contains(" accept4("));
    accepted.filter(|line| line.contains(" close(") && !is_for_timer(line)).count()
}

/// Returns true if a line of a trace with the names of descriptors (`-y`) has the name of a timer.
fn is_for_timer(line: &str) -> bool {
    line.contains("[timerfd]")
}

#[test]
fn strace_shows_one_recv_and_one_send_per_request() {
    if !has_tool("strace") {
        return;
    }
    for (connections, requests_each) in [(1, 1000), (20, 50)] {
        let requests = connections * requests_each;
        let calls = trace_hello(connections, requests_each);
        let context = format!("{connections} connections: {calls:?}");
        // One more receive per connection reads its end, and the first one of a connection may
        // fail.
        let failures = calls.failures("recvfrom");
        assert!(failures <= connections, "{context}");
        assert_eq!(calls.count("recvfrom"), requests + connections + failures, "{context}");
        assert_eq!(calls.count("sendto"), requests, "{context}");
        assert_eq!(calls.failures("sendto"), 0, "{context}");
        for name in ["open", "openat", "openat2", "stat", "newfstatat", "fstat", "statx"] {
            assert_eq!(calls.count(name), 0, "{name}, {context}");
        }
        for name in ["read", "readv", "recvmsg", "writev", "sendmsg", "sendfile"] {
            assert_eq!(calls.count(name), 0, "{name}, {context}");
        }
        assert_eq!(calls.count("close"), connections, "{context}");
        // Further calls are made per connection, to accept it and hand it to a worker, and not per
        // request.
        let waits = ["epoll_wait", "epoll_pwait"];
        let per_request = ["recvfrom", "sendto", "close"].into_iter().chain(waits);
        let per_request: usize = per_request.map(|name| calls.count(name)).sum();
        let all: usize = calls.0.values().map(|count| count.0).sum();
        assert!(all - per_request <= 16 * (connections + 1), "{context}");
    }
}

/// A response of 16 KiB is received with its head.
#[test]
fn strace_shows_two_receives_for_a_proxied_response() {
    if !has_tool("strace") {
        return;
    }
    const REQUESTS: usize = 200;
    let upstream = raw_upstream(|_, mut stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 16384\r\n\r\n";
        let response = [head.as_bytes(), &[b'x'; 16 << 10]].concat();
        while read_head(&mut stream).is_some() {
            stream.write_all(&response).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let route = format!("[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{upstream}/\" }}\n");
    fs::write(folder.path().join("weft.toml"), route).unwrap();
    let output = folder.path().join("trace");
    let trace = || String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-e", "trace=%network,%desc", "-o"]).arg(&output);
    strace.args([env!("CARGO_BIN_EXE_weft"), "--config"]).arg(folder.path().join("weft.toml"));
    strace.args(["--listen", "127.0.0.1:0", "--workers", "1", "--no-log"]);
    let server = Weft::start(&mut strace);
    let mut client = server.client();
    // The first request opens the connection to the upstream.
    assert_eq!(client.get("/").body.len(), 16 << 10);
    let count = |calls: &Calls, names: [&str; 2]| -> usize {
        names.into_iter().map(|name| calls.count(name)).sum()
    };
    let sent = || count(&Calls::since_first_request(&trace()), ["sendto", "sendmsg"]);
    until("both messages of the first request are traced", || sent() == 2);
    let before = trace().len();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").body.len(), 16 << 10);
    }
    until("all messages are traced", || sent() == 2 + 2 * REQUESTS);
    let calls = Calls::since_first_request(&trace()[before..]);
    let receives = count(&calls, ["recvfrom", "readv"]);
    // The kernel may deliver a response in parts.
    assert!((2 * REQUESTS..=2 * REQUESTS + REQUESTS / 10).contains(&receives), "{calls:?}");
}

#[test]
fn strace_shows_four_calls_for_a_connection_with_one_request() {
    if !has_tool("strace") {
        return;
    }
    const CONNECTIONS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weft.toml"), "[hosts.\"*\"]\n\"/\" = { respond = \"hello\" }\n")
        .unwrap();
    let output = folder.path().join("trace");
    let trace = || String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let mut strace = Command::new("strace");
    // With -D our child process is the program instead of strace.
    strace.args(["-D", "-f", "-y", "-e", "trace=%network,%desc,%file", "-o"]).arg(&output);
    strace.args([env!("CARGO_BIN_EXE_weft"), "--config"]).arg(folder.path().join("weft.toml"));
    strace.args(["--listen", "127.0.0.1:0", "--workers", "1", "--no-log"]);
    let server = Weft::start(&mut strace);
    // The connection stays in the kernel until its request is there, so that no read fails.
    let get = || {
        let mut client = server.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().body, b"hello");
        client.assert_closed();
    };
    get();
    until("the first connection is closed", || closed_connections(&trace()) >= 1);
    let before = trace().len();
    let closed = closed_connections(&trace());
    (0..CONNECTIONS).for_each(|_| get());
    until("each connection is closed", || closed_connections(&trace()) >= closed + CONNECTIONS);
    let calls = Calls::since_first_request(&trace()[before..]);
    let context = format!("{calls:?}");
    for name in ["recvfrom", "sendto", "close"] {
        assert_eq!(
            (calls.count(name), calls.failures(name)),
            (CONNECTIONS, 0),
            "{name}, {context}"
        );
    }
    // The response and the FIN share a segment.
    assert_eq!(trace()[before..].matches("MSG_MORE").count(), CONNECTIONS);
    // The event loop waits for the next connection, and a last attempt to accept fails.
    // Without optimization, the standard library checks each descriptor that it closes.
    let permitted =
        ["accept4", "recvfrom", "sendto", "close", "epoll_wait", "epoll_pwait", "fcntl"];
    // Other calls belong to another thread, such as a wake-up, and are not one for each connection.
    let others = calls.0.iter().filter(|(name, _)| !permitted.contains(&&***name));
    let others: usize = others.map(|(_, count)| count.0).sum();
    assert!(others <= CONNECTIONS / 20, "{context}");
    assert!(calls.count("accept4") <= 2 * CONNECTIONS, "{context}");
    // The connection is served without a call that only polls for events before.
    let trace = trace();
    let polls = trace[before..].lines().filter(|line| line.contains(", [], 1024, 0)")).count();
    assert!(polls <= CONNECTIONS / 10, "{polls} waits without a timeout");
    server.stop();
}

#[test]
fn strace_shows_no_open_for_a_small_cached_file() {
    if !has_tool("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut strace = Command::new("strace");
    // With -D our child process is the program instead of strace.
    strace.args(["-D", "-f", "-e", "trace=recvfrom,sendto,sendfile,openat2"]);
    strace.arg("-o").arg(&trace).arg(env!("CARGO_BIN_EXE_weft")).arg(repository("site"));
    let server = Weft::start(strace.args(["--listen", "127.0.0.1:0", "--no-log"]));
    let start = std::time::Instant::now();
    let mut client = server.client();
    for _ in 0..500 {
        assert_eq!(client.get("/style.css").status, 200);
    }
    let seconds = start.elapsed().as_secs() as usize + 1;
    let trace = || fs::read_to_string(&trace).unwrap();
    let calls = |name: &str| trace().lines().filter(|line| line.contains(name)).count();
    until("the trace is complete", || calls(" sendto(") >= 500);
    // No receive fails: the connection is accepted with its first request.
    assert_eq!((calls(" recvfrom("), calls(" sendto("), calls(" sendfile(")), (500, 500, 0));
    // The file and its three precompressed variants are revalidated once per second; the first
    // lookup may be made twice, on the event loop and in the thread pool.
    let opened = calls(" openat2(");
    assert!(opened <= 4 * (seconds + 2), "the file was opened {opened} times");
    server.stop();
}
