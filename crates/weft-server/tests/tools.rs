//! The program and the examples, seen by outside programs. Where one is missing its test
//! says so; see `tool`.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::outside::{
    browse, chromium, console, curl, heading, pattern, succeed, with_descriptors,
};
use common::{Client, Program, Signal, Weft, repository, tool, until};

// -- the examples

/// Builds an example of the library, in the profile of this test.
#[track_caller]
fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_weft")).parent().expect("a file has a folder");
    let profile = match folder.file_name().and_then(OsStr::to_str).expect("a profile") {
        "debug" => "dev",
        other => other,
    };
    let target = folder.parent().expect("the folder of all profiles");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "weft-http", "--example", name, "--profile", profile]);
    build.arg("--target-dir").arg(target).current_dir(repository("."));
    succeed(&mut build);
    folder.join("examples").join(name)
}

/// Starts a server that is told its address and does not tell it.
#[track_caller]
fn start(mut command: impl FnMut(&str) -> Command) -> (Program, SocketAddr) {
    loop {
        // A port that is free now may be taken in a moment: then with another.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let mut server = Program::start(&mut command(&address.to_string()));
        until("it listens or has ended", || {
            TcpStream::connect(address).is_ok() || !server.is_running()
        });
        if server.is_running() {
            return (server, address);
        }
        let said = server.end().stderr;
        assert!(said.contains("Address already in use"), "it ended: {said}");
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
fn the_graceful_example_answers_before_it_stops() {
    let (server, url) = start_example("graceful");
    let mut client = Client::tcp(url.strip_prefix("http://").unwrap().parse().unwrap());
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.signal(Signal::TERM);
    let response = client.response();
    assert_eq!(response.body, b"The server stops.\n");
    // Whether it says so depends on who hears of the stop first, the handler or the worker.
    client.assert_closed();
    assert_eq!(server.end().status, Ok(0));
}

/// What each middleware of the example adds.
#[test]
fn the_middleware_example_shows_each_of_them() {
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
    let etag = page.header("etag").expect("a tag").to_owned();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: {etag}\r\n\r\n"));
    assert!(client.head()[0].starts_with("HTTP/1.1 304 "));
    until("both are in the log", || server.stderr().matches("\"GET / HTTP/1.1\"").count() == 2);
}

// -- h2load

#[test]
fn h2load_has_100_000_requests_answered_on_1_000_connections() {
    if !tool("h2load") {
        return;
    }
    let mut command = with_descriptors(env!("CARGO_BIN_EXE_weft"));
    command.arg(repository("site")).args(["--listen", "127.0.0.1:0"]);
    let server = Weft::start(&mut command);
    let mut command = with_descriptors("h2load");
    command.args(["--h1", "-n", "100000", "-c", "1000", "-t", "1"]);
    let ended = succeed(command.arg(server.url("/index.html")));
    for line in [
        "requests: 100000 total, 100000 started, 100000 done, 100000 succeeded, 0 failed, 0 errored, 0 timeout",
        "status codes: 100000 2xx, 0 3xx, 0 4xx, 0 5xx",
    ] {
        assert!(ended.stdout.lines().any(|found| found == line), "{}", ended.stdout);
    }
    let page = fs::metadata(repository("site/index.html")).unwrap().len();
    let bytes = format!("({}) data", 100_000 * page);
    assert!(ended.stdout.contains(&bytes), "{bytes}: {}", ended.stdout);
    let log = server.stop().stdout;
    let line = format!(" \"GET /index.html HTTP/1.1\" 200 {page} \"-\" ");
    assert_eq!(log.lines().filter(|found| found.contains(&line)).count(), 100_000);
    assert_eq!(log.lines().count(), 100_000);
}

// -- chromium

#[test]
fn chromium_shows_the_site_without_a_word_in_its_console() {
    if !tool("chromium") {
        return;
    }
    let server = Weft::serve(&repository("site"), &[]);
    for (target, file) in
        [("/", "index.html"), ("/guide/", "guide/index.html"), ("/d%C3%ADas.html", "días.html")]
    {
        let page = fs::read_to_string(repository("site").join(file)).unwrap();
        let ended = browse(&server.url(target));
        assert!(ended.stdout.contains(heading(&page)), "{target}: {}", ended.stdout);
        assert_eq!(console(&ended), [""; 0], "{target}");
    }
    let log = server.stop().stdout;
    for file in ["/", "/style.css", "/weave.svg", "/guide/", "/d%C3%ADas.html"] {
        assert!(log.contains(&format!("\"GET {file} HTTP/1.1\" 200 ")), "{file} was not asked for");
    }
    assert!(log.lines().all(|line| line.contains(" HTTP/1.1\" 200 ")), "{log}");
}

/// A list as the browser has it: nothing of it is refused by its own policy, and the links of
/// strange names lead to them.
#[test]
fn chromium_shows_a_folder_without_a_word_in_its_console() {
    if !tool("chromium") {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    for name in ["a & b.txt", "<img src=x onerror=alert(1)>", "javascript:alert(1)", "100%.txt"] {
        fs::write(site.path().join(name), name).unwrap();
    }
    fs::create_dir(site.path().join("folder")).unwrap();
    let server = Weft::serve(site.path(), &["--list"]);
    let ended = browse(&server.url("/?sort=date&order=desc"));
    assert_eq!(console(&ended), [""; 0], "{}", ended.stderr);
    for part in [
        "<a href=\"./folder/\"><bdi>folder</bdi>/</a>",
        "<a href=\"./100%25.txt\"><bdi>100%.txt</bdi></a>",
        "<a href=\"./javascript%3Aalert%281%29\">",
        "<bdi>&lt;img src=x onerror=alert(1)&gt;</bdi>",
        "aria-sort=\"descending\"",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("<img"), "{}", ended.stdout);
    server.stop();
}

/// The test above would pass if the browser called its complaints by another name.
#[test]
fn chromium_does_complain_of_a_page_with_a_fault() {
    if !tool("chromium") {
        return;
    }
    let site = tempfile::tempdir().unwrap();
    let page = "<h1>Fault</h1><img src=nothing.png><script>console.error('oh'); none();</script>";
    fs::write(site.path().join("index.html"), page).unwrap();
    let server = Weft::serve(site.path(), &[]);
    let ended = browse(&server.url("/"));
    assert!(ended.stdout.contains("<h1>Fault</h1>"), "{}", ended.stdout);
    for complaint in ["\"oh\"", "none is not defined"] {
        let complains = console(&ended).iter().any(|line| line.contains(complaint));
        assert!(complains, "{complaint}: {}", ended.stderr);
    }
    // What it cannot load it may keep to itself; then the log tells.
    let log = server.stop().stdout;
    assert!(log.contains("\"GET /nothing.png HTTP/1.1\" 404 "), "{log}");
}

/// A guest that is a program, and one that is a page.
#[test]
fn chromium_chats_over_a_websocket() {
    if !tool("chromium") {
        return;
    }
    let (_server, url) = start_example("websocket_chat");
    let profile = tempfile::tempdir().unwrap();
    let mut command = chromium(profile.path());
    command.args(["--remote-debugging-port=0", &format!("{url}/?name=page")]);
    let page = Program::start(&mut command);
    until("the page has joined", || page.stderr().contains("page has joined"));

    let address = url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut guest = Client::tcp(address);
    guest.send(concat!(
        "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ));
    assert!(guest.head()[0].starts_with("HTTP/1.1 101 "));
    for text in ["raw", "hello, page"] {
        // A text, masked with zeros.
        let frame = [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0], text.as_bytes()].concat();
        guest.send(frame);
    }
    until("the page hears the guest", || page.stderr().contains("raw: hello, page"));
    let expected = b"\x81\x0eraw has joined\x81\x10raw: hello, page";
    assert_eq!(
        guest.body(expected.len()).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    drop(page);
    let expected = b"\x81\x0dpage has left";
    assert_eq!(
        guest.body(expected.len()).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

// -- curl

#[test]
fn curl_fetches_files_whole_with_each_version() {
    if !tool("curl") {
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
            assert_eq!(succeed(&mut command).stdout, format!("200 {size}"), "{options:?}");
            assert!(fs::read(&copy).unwrap() == pattern(size), "{options:?}, {size}: other bytes");
        }
    }
    // Apache's `-` is no byte.
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
fn curl_uses_one_connection_for_all_and_asks_for_heads() {
    if !tool("curl") {
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
    let said = succeed(&mut command).stdout;
    let size = |file: &str| fs::metadata(site.join(file)).unwrap().len();
    let expected = [
        format!("200 {} 1", size("index.html")),
        format!("200 {} 0", size("style.css")),
        format!("404 {} 0", size("404.html")),
        "301 ".to_owned(),
        format!("200 {} 0", size("días.html")),
    ];
    assert_eq!(said.lines().count(), expected.len());
    for (line, expected) in said.lines().zip(expected) {
        assert!(line.starts_with(&expected), "{line}, and not {expected}");
    }

    let head = succeed(curl().arg("--head").arg(server.url("/style.css"))).stdout;
    let length = format!("content-length: {}\r\n", size("style.css"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&length) && head.contains("last-modified: "), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "a body came: {head}");

    // The folder's redirect is one that a client follows.
    let mut follow = curl();
    follow.args(["--location", "--write-out", "%{url_effective}", "--output", "/dev/null"]);
    let arrived = succeed(follow.arg(server.url("/guide?a=b"))).stdout;
    assert_eq!(arrived, server.url("/guide/?a=b"));
    server.stop();
}

#[test]
fn curl_gets_back_what_it_uploads() {
    if !tool("curl") {
        return;
    }
    let (_server, url) = start_example("echo");
    let folder = tempfile::tempdir().unwrap();
    let (file, copy) = (folder.path().join("file"), folder.path().join("copy"));
    let bytes = pattern(20 << 20);
    fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    let whole = format!("@{file}");
    // How it is sent, and what curl's account of it must say.
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
        // Without a length: in HTTP/2 nothing has to say that.
        (
            &["--http2-prior-knowledge", "--upload-file", file, "--header", "Content-Length:"],
            &["> PUT /up HTTP/2"],
        ),
    ];
    for (options, account) in cases {
        let mut command = curl();
        command.args(options).args(["--verbose", "--write-out", "%{http_code} %{size_upload}"]);
        command.arg("--output").arg(&copy).arg(format!("{url}/up"));
        let ended = succeed(&mut command);
        assert!(ended.stdout.starts_with("200 20"), "{options:?}: {}", ended.stdout);
        for line in account {
            assert!(ended.stderr.lines().any(|l| l == *line), "{options:?}: {}", ended.stderr);
        }
        assert!(fs::read(&copy).unwrap() == bytes, "{options:?}: other bytes came back");
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn curl_talks_to_each_example() {
    if !tool("curl") {
        return;
    }
    // The example, the request, and the answer's status and text.
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
                (&["/length"], "405 "),
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
            let ended = succeed(command.args(["--write-out", "\n%{http_code}"]));
            let (text, status) = ended.stdout.rsplit_once('\n').unwrap();
            assert_eq!(format!("{status} {text}"), *expected, "{name} {request:?}");
        }
    }
}

#[test]
fn curl_uploads_files_as_a_browser_does() {
    if !tool("curl") {
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
        assert_eq!(succeed(command.args(options)).stdout, expected, "{options:?}");
    }
}

#[test]
fn curl_sees_the_clock_of_an_example_tick() {
    if !tool("curl") {
        return;
    }
    let (_server, url) = start_example("sse");
    let page = succeed(curl().arg(&url)).stdout;
    assert!(page.contains("new EventSource(\"/clock\")"), "{page}");
    let clock = Program::start(curl().arg("--no-buffer").arg(format!("{url}/clock")));
    until("it ticks twice", || clock.stdout().matches("\n\n").count() >= 2);
    for event in clock.stdout().split_terminator("\n\n") {
        let (first, second) = event.split_once('\n').expect("two lines");
        assert_eq!(first, "event: tick");
        assert!(second.starts_with("data: ") && second.ends_with(" GMT"), "{second}");
    }
}

// -- strace

/// System calls by name: how often each was made, and how often it failed.
#[derive(Debug, Default)]
struct Calls(BTreeMap<String, (usize, usize)>);

impl Calls {
    /// Those of a trace from the first request on.
    fn since_the_first_request(trace: &str) -> Calls {
        let mut calls = Calls::default();
        for line in trace.lines().skip_while(|line| !line.contains("recvfrom(")) {
            // `PID name(…) = result`; another thread's call may stand between the beginning,
            // `PID name(… <unfinished ...>`, and the end, `PID <... name resumed>…) = result`.
            let (_, line) = line.split_once(' ').expect("the id of a thread comes first");
            let line = line.trim_start();
            let failed = line.contains(" = -1 ");
            let (name, begins) = match line.strip_prefix("<... ") {
                Some(resumed) => (resumed.split(' ').next(), false),
                None if line.starts_with(['+', '-']) => continue,
                None => (line.split('(').next(), true),
            };
            let count = calls.0.entry(name.expect("a name").to_owned()).or_default();
            count.0 += usize::from(begins);
            count.1 += usize::from(failed);
        }
        calls
    }

    fn made(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |count| count.0)
    }

    fn failed(&self, name: &str) -> usize {
        self.0.get(name).map_or(0, |count| count.1)
    }
}

/// Traces the example `hello` while it answers `each` requests on each of `connections`
/// connections, one request at a time.
#[track_caller]
fn trace_hello(connections: usize, each: usize) -> Calls {
    let hello = example("hello");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("trace");
    let trace = || String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
    let (server, address) = start(|address| {
        let mut command = Command::new("strace");
        // With -D the server, and not strace, is our child.
        command.args(["-D", "-f", "-e", "trace=%network,%desc,%file", "-o"]).arg(&output);
        command.arg(&hello).arg(address).stderr(Stdio::piped());
        command
    });
    // `start` has connected once and left.
    until("the first connection is closed", || closed(&trace()) == 1);
    let before = trace().len();

    let mut clients: Vec<Client> = (0..connections).map(|_| Client::tcp(address)).collect();
    for _ in 0..each {
        for client in &mut clients {
            assert_eq!(client.get("/").body, b"Hello, world!\n");
        }
    }
    drop(clients);
    until("each connection is closed", || closed(&trace()) == 1 + connections);
    server.signal(Signal::TERM);
    let id = format!("{} ", server.id());
    let is_last = |line: &str| line.starts_with(&id) && line.ends_with("+++ killed by SIGTERM +++");
    until("the trace is whole", || trace().lines().any(is_last));
    assert_eq!(server.end().status, Err(Signal::TERM.as_raw()));
    Calls::since_the_first_request(&trace()[before..])
}

/// How many connections are closed in a trace.
fn closed(trace: &str) -> usize {
    let accepted = trace.lines().skip_while(|line| !line.contains(" accept4("));
    accepted.filter(|line| line.contains(" close(")).count()
}

#[test]
fn strace_sees_one_receive_and_one_send_for_each_request() {
    if !tool("strace") {
        return;
    }
    for (connections, each) in [(1, 1000), (20, 50)] {
        let requests = connections * each;
        let calls = trace_hello(connections, each);
        let shown = format!("{connections} connections: {calls:?}");
        // The end of each connection is read too.
        assert_eq!(calls.made("recvfrom"), requests + connections, "{shown}");
        assert_eq!(calls.made("sendto"), requests, "{shown}");
        assert_eq!((calls.failed("recvfrom"), calls.failed("sendto")), (0, 0), "{shown}");
        for name in ["open", "openat", "openat2", "stat", "newfstatat", "fstat", "statx"] {
            assert_eq!(calls.made(name), 0, "{name}, {shown}");
        }
        for name in ["read", "readv", "recvmsg", "writev", "sendmsg", "sendfile"] {
            assert_eq!(calls.made(name), 0, "{name}, {shown}");
        }
        assert_eq!(calls.made("close"), connections, "{shown}");
        // Accepting a connection and handing it over is work, but not that of a request.
        let waits = ["epoll_wait", "epoll_pwait"];
        let known = ["recvfrom", "sendto", "close"].into_iter().chain(waits);
        let known: usize = known.map(|name| calls.made(name)).sum();
        let all: usize = calls.0.values().map(|count| count.0).sum();
        assert!(all - known <= 16 * (connections + 1), "{shown}");
    }
}

#[test]
fn strace_sees_no_file_opened_for_a_small_hot_one() {
    if !tool("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut strace = Command::new("strace");
    // With -D the child that we stop is the program, and not strace.
    strace.args(["-D", "-f", "-e", "trace=recvfrom,sendto,sendfile,openat2"]);
    strace.arg("-o").arg(&trace).arg(env!("CARGO_BIN_EXE_weft")).arg(repository("site"));
    let server = Weft::start(strace.args(["--listen", "127.0.0.1:0", "--no-log"]));
    let begin = std::time::Instant::now();
    let mut client = server.client();
    for _ in 0..500 {
        assert_eq!(client.get("/style.css").status, 200);
    }
    let seconds = begin.elapsed().as_secs() as usize + 1;
    let trace = || fs::read_to_string(&trace).unwrap();
    let calls = |name: &str| trace().lines().filter(|line| line.contains(name)).count();
    until("the trace is whole", || calls(" sendto(") >= 500);
    assert_eq!((calls(" recvfrom("), calls(" sendto("), calls(" sendfile(")), (500, 500, 0));
    // The file is looked at again once a second, with three neighbours that it might have; and
    // the first look may be made twice, here and in the pool.
    let opened = calls(" openat2(");
    assert!(opened <= 4 * (seconds + 2), "the file was opened {opened} times");
    server.stop();
}
