//! The features of the program that docs/server.md documents.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::common::{
    self, Client, ProgramOutput, Response, Signal, Weft, report_skipped, repository, run, until,
    weft,
};
use tempfile::TempDir;

/// Creates a temporary directory with these files.
fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

fn small_site() -> TempDir {
    folder_with(&[("index.html", "<h1>top</h1>"), ("a.txt", "A\n")])
}

#[track_caller]
fn assert_serves(mut client: Client) {
    let response = client.get("/a.txt");
    assert_eq!((response.status, &response.body[..]), (200, &b"A\n"[..]));
}

/// Returns true if the machine has IPv6; otherwise reports the test as skipped.
fn has_ipv6() -> bool {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has_ipv6 {
        report_skipped("the machine has no IPv6");
    }
    has_ipv6
}

// -- the arguments

#[test]
fn prints_help_and_version_to_stdout() {
    let version = format!("weft {}\n", env!("CARGO_PKG_VERSION"));
    for (argument, begin) in [
        (
            "--help",
            "Serves files, and forwards requests to applications, over HTTP and HTTPS.\n\nUsage",
        ),
        ("-h", "Serves files, and forwards requests to applications"),
        ("--version", &version),
        ("-V", &version),
    ] {
        let ProgramOutput { status, stdout, stderr } = run([argument]);
        assert_eq!((status, &*stderr), (Ok(0), ""), "{argument}");
        assert!(stdout.starts_with(begin), "{argument}: {stdout}");
        assert!(stdout.ends_with('\n'), "{argument}: {stdout}");
    }
    for (group, begin) in [("logs", "Logs:\n  --log WHERE"), ("limits", "Limits (sizes")] {
        let help = run(["--help", group]);
        assert_eq!((help.status, &*help.stderr), (Ok(0), ""), "{group}");
        assert!(help.stdout.starts_with(begin), "{group}: {}", help.stdout);
    }
    let unknown = run(["--help", "log"]);
    let message = "weft: there is no group \"log\" of options; did you mean logs?; try --help\n";
    assert_eq!((unknown.status, &*unknown.stderr), (Ok(2), message));
    let help = run(["--help", "all"]).stdout;
    for option in [
        "--listen ADDR",
        "--workers N",
        "--index NAME",
        "--spa FILE",
        "--cache RULE",
        "--language TAG",
        "--compress, --no-compress",
        "--list",
        "--config FILE",
        "--route ROUTE",
        "--print",
        "--max-body-bytes SIZE",
        "--header FIELD",
        "--links WHERE",
        "--log WHERE",
        "--no-log",
        "--log-format FORMAT",
        "--error-log WHERE",
        "--log-level LEVEL",
        "--log-max-bytes SIZE",
        "--log-max-files N",
        "--tls-min-version VERSION",
        "--follow-links",
        "--tls-cert FILE",
        "--tls-key FILE",
        "--tls-self-signed",
        "--tls-listen ADDR",
        "--tls-tickets FILE",
        "--tls-client-ca FILE",
        "--help",
        "--version",
    ] {
        assert!(help.contains(option), "{option} is not in the help");
    }
    assert_eq!(run(["-V"]).stdout, version);
}

#[test]
fn startup_notice_contains_site_addresses_and_workers() {
    let site = small_site();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let plural = |n: usize| if n == 1 { "1 worker".to_owned() } else { format!("{n} workers") };
    for (arguments, workers) in [
        (&[][..], cpus),
        (&["--workers", "1"], 1),
        (&["--workers=2"], 2),
        (&["--workers", "1", "--workers", "3"], 3),
        (&["--workers", "17"], 17),
    ] {
        // Fewer connections than the descriptors of any machine, which would cause a warning.
        let arguments = [arguments, &["--max-connections", "500"]].concat();
        let server = Weft::serve(site.path(), &arguments);
        let port = server.address().port();
        assert_ne!(port, 0);
        let expected = format!(
            "weft: serving {} on http://127.0.0.1:{port} with {}\n",
            site.path().display(),
            plural(workers)
        );
        assert_eq!(server.announcement, expected);
        assert_eq!(worker_threads(&server), workers, "{arguments:?}");
        assert_serves(server.client());
        let output = server.stop();
        assert_eq!(output.stderr, expected, "nothing else is logged");
    }
}

/// Returns the number of worker threads, identified by their names.
fn worker_threads(server: &Weft) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    let number = |name: String| name.trim().strip_prefix("weft-").map(|n| n.parse::<usize>());
    names.filter(|name| matches!(number(name.clone()), Some(Ok(_)))).count()
}

#[test]
fn serves_the_current_directory_by_default() {
    let site = small_site();
    fs::create_dir(site.path().join("sub")).unwrap();
    fs::write(site.path().join("sub/a.txt"), "sub\n").unwrap();
    for (arguments, name, body) in [
        (&["--listen", "127.0.0.1:0"][..], ".", "A\n"),
        (&["--listen", "127.0.0.1:0", "."], ".", "A\n"),
        (&["sub", "--listen", "127.0.0.1:0"], "sub", "sub\n"),
        (&["--listen", "127.0.0.1:0", "--", "sub"], "sub", "sub\n"),
        (&["./sub/../sub/", "--listen=127.0.0.1:0"], "./sub/../sub/", "sub\n"),
    ] {
        let server = Weft::start(weft(arguments).current_dir(site.path()));
        let expected = format!("weft: serving {name} on ");
        assert!(server.announcement.starts_with(&expected), "{}", server.announcement);
        let response = server.client().get("/a.txt");
        assert_eq!(String::from_utf8_lossy(&response.body), body, "{arguments:?}");
        server.stop();
    }
}

#[test]
fn listens_on_loopback_port_8080_by_default() {
    let site = small_site();
    // If the port is in use, the program must report that.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 8080));
    match taken {
        Ok(free) => drop(free),
        Err(_) => {
            let output = run([site.path()]);
            let message = "weft: cannot listen on 127.0.0.1:8080: ";
            assert!(output.stderr.starts_with(message), "{}", output.stderr);
            return;
        }
    }
    let server = Weft::start(&mut weft([site.path()]));
    assert_eq!(server.addresses(), ["http://127.0.0.1:8080"]);
    assert_serves(server.client());
    server.stop();
}

#[test]
fn listens_on_several_tcp_and_unix_addresses() {
    let site = small_site();
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("weft socket");
    let unix = format!("unix:{}", socket.display());
    let mut command = weft([site.path()]);
    for address in ["127.0.0.1:0", &unix, "127.0.0.1:0", "127.0.0.2:0"] {
        command.args(["--listen", address]);
    }
    let server = Weft::start(&mut command);
    let announcement = server.announcement.clone();
    let on = announcement.split_once(" on ").unwrap().1;
    let ports: Vec<&str> = on.split("http://").skip(1).collect();
    assert_eq!(ports.len(), 3, "{announcement}");
    assert!(on.contains(&format!(" {unix} ")), "{announcement}");
    for (port, host) in ports.iter().zip(["127.0.0.1", "127.0.0.1", "127.0.0.2"]) {
        let address: SocketAddr = port.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(address.ip().to_string(), host);
        assert_serves(Client::tcp(address));
    }
    assert_serves(Client::unix(&socket));
    server.stop();
    assert!(!socket.exists(), "the socket file still exists");
}

#[test]
fn listens_on_ipv6_only() {
    if !has_ipv6() {
        return;
    }
    let site = small_site();
    let server = Weft::start(weft([site.path()]).args(["--listen", "[::1]:0"]));
    let address = server.address();
    assert_eq!(server.addresses(), [format!("http://[::1]:{}", address.port())]);
    assert_serves(Client::tcp(address));
    assert!(server.stop().stdout.starts_with("::1 - - ["));
}

#[test]
fn port_only_address_listens_on_all_interfaces() {
    let site = small_site();
    let server = Weft::start(weft([site.path()]).args(["--listen", ":0", "--workers", "1"]));
    let port = server.address().port();
    assert_serves(Client::tcp((Ipv4Addr::LOCALHOST, port).into()));
    if has_ipv6() {
        assert_eq!(server.addresses(), [format!("http://[::]:{port}")]);
        assert_serves(Client::tcp((Ipv6Addr::LOCALHOST, port).into()));
    }
    let log = server.stop().stdout;
    assert!(
        log.starts_with("127.0.0.1 - - ["),
        "IPv4-mapped client addresses are logged as IPv4: {log}"
    );
}

#[test]
fn listens_on_all_addresses_of_a_host_name() {
    let site = small_site();
    let server = Weft::start(weft([site.path()]).args(["--listen", "localhost:0"]));
    for address in server.addresses() {
        let address: SocketAddr = address.strip_prefix("http://").unwrap().parse().unwrap();
        assert!(address.ip().is_loopback(), "{address}");
        assert_serves(Client::tcp(address));
    }
    server.stop();
}

#[test]
fn reports_invalid_options_and_addresses_in_one_line() {
    let site = small_site();
    let at = |name: &str| site.path().join(name).into_os_string();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let listen = |address: &str| words(&["--listen", address]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = listener.local_addr().unwrap();
    let long = format!("unix:/{}", "n".repeat(200));
    let cases: [(Vec<OsString>, i32, &str); _] = [
        // Invalid options.
        (words(&["--bogus"]), 2, "'--bogus'"),
        (words(&["-x"]), 2, "'-x'"),
        (words(&["a", "b"]), 2, "\"b\""),
        (words(&["--no-log=1"]), 2, "'--no-log'"),
        (words(&["--listen"]), 2, "'--listen'"),
        (words(&["--workers"]), 2, "'--workers'"),
        (words(&["--workers", "0"]), 2, "from 1 to 1024"),
        (words(&["--workers", "1025"]), 2, "from 1 to 1024"),
        (words(&["--workers", "-1"]), 2, "\"-1\""),
        (words(&["--workers", "two"]), 2, "\"two\""),
        (words(&["--workers", "1.5"]), 2, "\"1.5\""),
        (words(&["--workers", "99999999999999999999"]), 2, "99999999999999999999"),
        (words(&["--workers="]), 2, "\"\""),
        (vec!["--listen".into(), OsStr::from_bytes(b"\xff:80").into()], 2, "is not valid UTF-8"),
        (words(&["--index"]), 2, "'--index'"),
        (words(&["--spa"]), 2, "'--spa'"),
        (words(&["--language"]), 2, "'--language'"),
        (vec!["--index".into(), OsStr::from_bytes(b"\xff").into()], 2, "is not valid UTF-8"),
        (words(&["--compress=1"]), 2, "'--compress'"),
        (words(&["--no-compress=1"]), 2, "'--no-compress'"),
        (words(&["--follow-links=1"]), 2, "'--follow-links'"),
        (words(&["--cache"]), 2, "'--cache'"),
        (words(&["--cache", ""]), 2, "--cache: \"\" is no time such as 90s, 5m, 1h or 7d"),
        (words(&["--cache", "60"]), 2, "--cache: \"60\" is no time"),
        (words(&["--cache", "*.css=1w!"]), 2, "--cache: \"1w!\" is no time"),
        (words(&["--cache", "one hour\nX: y"]), 2, "--cache: \"one hour\\nX: y\" is no time"),
        // A valid value does not hide an invalid one.
        (words(&["--cache", "1h", "--cache", "*.css="]), 2, "--cache: \"\" is no time"),
        // Invalid directories.
        (vec![at("nothing")], 1, "nothing: No such file or directory"),
        (vec![at("a.txt")], 2, "a.txt is a file, not a directory"),
        (words(&[""]), 1, "No such file or directory"),
        (vec![OsStr::from_bytes(b"\xff").into()], 1, "No such file or directory"),
        // Invalid addresses.
        (listen(""), 2, "expected host:port, :port, [v6]:port or unix:PATH"),
        (listen("8080"), 2, "`8080`"),
        (listen("localhost"), 2, "`localhost`"),
        (listen("localhost:http"), 2, "`localhost:http`"),
        (listen("127.0.0.1:65536"), 2, "`127.0.0.1:65536`"),
        (listen("127.0.0.1:-1"), 2, "`127.0.0.1:-1`"),
        (listen("::1:8080"), 2, "`::1:8080`"),
        (listen("http://127.0.0.1:0"), 2, "`http://127.0.0.1:0`"),
        (listen("[::1]"), 2, "`[::1]`"),
        (listen("unix:"), 2, "`unix:`"),
        // Addresses that cannot be bound. The last is reserved for documentation (RFC 5737).
        (listen(&taken.to_string()), 1, &format!("{taken}: Address already in use")),
        (listen("unix:/nonexistent/weft"), 1, "No such file or directory"),
        (listen(&long), 1, "name too long"),
        (listen("192.0.2.1:0"), 1, "192.0.2.1:0: "),
        // A valid address does not hide an invalid one.
        (words(&["--listen", "127.0.0.1:0", "--listen", "8080"]), 2, "`8080`"),
    ];
    for (arguments, code, part) in cases {
        let ProgramOutput { status, stdout, stderr } =
            common::Program::start(weft(&arguments).current_dir(site.path())).wait_with_output();
        assert_eq!((status, &*stdout), (Ok(code), ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("weft: "), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.ends_with('\n'), "{arguments:?}: {stderr}");
    }
}

// -- the files

#[test]
fn serves_the_site_of_the_repository() {
    let site = repository("site");
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("s");
    let unix = format!("unix:{}", socket.display());
    let server = Weft::serve(&site, &["--listen", &unix]);
    let mut files = Vec::new();
    list(&site, "", &mut files);
    assert!(files.len() >= 6, "too few files: {files:?}");
    for mut client in [server.client(), Client::unix(&socket)] {
        for name in &files {
            let response = client.get(&encoded(name));
            assert_eq!(response.status, 200, "{name}");
            assert!(
                response.body == fs::read(site.join(name)).unwrap(),
                "{name} has other contents"
            );
            let kind = response.header("content-type").expect("a type");
            assert_eq!(kind, content_type(name), "{name}");
        }
        for (target, status, name) in [
            ("/", 200, "index.html"),
            ("/guide/", 200, "guide/index.html"),
            ("/nothing", 404, "404.html"),
        ] {
            let response = client.get(target);
            assert_eq!(response.status, status, "{target}");
            assert!(
                response.body == fs::read(site.join(name)).unwrap(),
                "{target} has other contents"
            );
        }
        let response = client.get("/guide?a=b");
        let found = (response.status, response.header("location"));
        assert_eq!(found, (301, Some("/guide/?a=b")));
    }
    server.stop();
}

#[test]
fn options_for_files_take_effect() {
    let outer = folder_with(&[("out.txt", "out")]);
    let site = outer.path().join("site");
    fs::create_dir(&site).unwrap();
    let text = "many words, ".repeat(200);
    for (name, contents) in [
        ("index.html", "index"),
        ("start.html", "start"),
        ("app.html", "app"),
        ("about.html", "about"),
        ("about.html.de", "de"),
        ("about.html.ja", "ja"),
        ("a.css", "a"),
        ("a.css.gz", "gzip"),
        ("text.txt", &text),
    ] {
        fs::write(site.join(name), contents).unwrap();
    }
    std::os::unix::fs::symlink("../out.txt", site.join("link.txt")).unwrap();
    std::os::unix::fs::symlink("a.css", site.join("within.css")).unwrap();

    /// Options; target and request field; status, prefix of the body, and response field.
    type Case<'a> = (&'a [&'a str], &'a str, &'a str, u16, &'a str, (&'a str, Option<&'a str>));
    let cache = "cache-control";
    let (coding, gzip) = ("content-encoding", "Accept-Encoding: gzip");
    let (language, german) = ("content-language", "Accept-Language: de, ja;q=0.5");
    let cases: [Case; _] = [
        (&[], "/", "", 200, "index", (cache, None)),
        (&["--index", "start.html"], "/", "", 200, "start", (cache, None)),
        (&["--index", "none", "--index", "about.html"], "/", "", 200, "about", (cache, None)),
        (&["--index=start.html", "--index=index.html"], "/", "", 200, "start", (cache, None)),
        (&["--index", "none"], "/", "", 404, "", (cache, None)),
        (&[], "/users/17", "", 404, "", (cache, None)),
        (&["--spa", "app.html"], "/users/17", "", 200, "app", (cache, None)),
        (&["--spa", "app.html"], "/", "", 200, "index", (cache, None)),
        (&["--spa", "app.html"], "/b.css", "", 404, "", (cache, None)),
        (&["--spa", "index.html", "--spa", "app.html"], "/x", "", 200, "app", (cache, None)),
        (&["--spa", "none.html"], "/users/17", "", 404, "", (cache, None)),
        (&["--cache", "5m"], "/a.css", "", 200, "a", (cache, Some("max-age=300"))),
        (&["--cache", "*.css=1h"], "/a.css", "", 200, "a", (cache, Some("max-age=3600"))),
        (&["--cache", "*.css=1h"], "/", "", 200, "index", (cache, None)),
        (
            &["--cache=*.css=1h", "--cache=no-cache"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("no-cache")),
        ),
        (
            &["--cache=no-cache", "--cache=*.css=1h"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("max-age=3600")),
        ),
        (
            &["--cache", "/*.css=immutable"],
            "/a.css",
            "",
            200,
            "a",
            (cache, Some("max-age=31536000, immutable")),
        ),
        (
            &["--cache", "private, max-age=60"],
            "/",
            "",
            200,
            "index",
            (cache, Some("private, max-age=60")),
        ),
        (&["--cache", "5m"], "/nothing", "", 404, "", (cache, None)),
        (&[], "/about.html", german, 200, "about", (language, None)),
        (&["--language", "ja"], "/about.html", german, 200, "ja", (language, Some("ja"))),
        (
            &["--language=ja", "--language=de"],
            "/about.html",
            german,
            200,
            "de",
            (language, Some("de")),
        ),
        (&[], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--compress"], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--no-compress"], "/text.txt", gzip, 200, "many", (coding, None)),
        (&["--no-compress", "--compress"], "/text.txt", gzip, 200, "\x1f", (coding, Some("gzip"))),
        (&["--compress", "--no-compress"], "/text.txt", gzip, 200, "many", (coding, None)),
        (&["--no-compress"], "/a.css", gzip, 200, "gzip", (coding, Some("gzip"))),
        (&["--no-compress"], "/a.css", "Accept-Encoding: br", 200, "a", (coding, None)),
        (&[], "/link.txt", "", 404, "", (cache, None)),
        (&[], "/within.css", "", 200, "a", (cache, None)),
        (&["--follow-links"], "/link.txt", "", 200, "out", (cache, None)),
        (&["--follow-links"], "/../out.txt", "", 404, "", (cache, None)),
    ];
    for (options, target, field, status, prefix, (name, value)) in cases {
        let server = Weft::serve(&site, &[&["--workers", "1"], options].concat());
        let mut client = server.client();
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
        let response = client.response();
        let case = format!("{options:?} {target} {field}");
        assert_eq!(response.status, status, "{case}");
        assert_eq!(response.header(name), value, "{case}");
        assert!(response.body.starts_with(prefix.as_bytes()), "{case}: {:?}", response.body);
        server.stop();
    }
}

/// Lists the files below a directory, as paths relative to the site.
fn list(folder: &Path, prefix: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => list(&entry.path(), &format!("{name}/"), files),
            false => files.push(name),
        }
    }
}

fn encoded(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-._".contains(&b);
    let encode = |b: u8| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") };
    name.bytes().fold("/".to_owned(), |target, b| target + &encode(b))
}

fn content_type(name: &str) -> &str {
    match name.rsplit('.').next().unwrap() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        other => panic!("unexpected extension .{other}"),
    }
}

// -- stopping

const SIGNALS: [Signal; 2] = [Signal::INT, Signal::TERM];

#[test]
fn signal_stops_a_server_without_connections() {
    let site = small_site();
    for signal in SIGNALS {
        for workers in ["1", "4"] {
            let server = Weft::serve(site.path(), &["--workers", workers]);
            let address = server.address();
            server.signal(signal);
            let output = server.wait_with_output();
            assert_eq!((output.status, &*output.stdout), (Ok(0), ""), "{signal:?}, {workers}");
            assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
            assert!(TcpStream::connect(address).is_err(), "the listener is still open");
        }
    }
}

#[test]
fn signal_closes_idle_connections() {
    let site = small_site();
    for signal in SIGNALS {
        let server = Weft::serve(site.path(), &["--workers", "2"]);
        let mut clients: Vec<Client> = (0..5).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/a.txt").status, 200);
        }
        server.signal(signal);
        clients.iter_mut().for_each(Client::assert_closed);
        let output = server.wait_with_output();
        assert_eq!(output.status, Ok(0), "{signal:?}");
        assert_eq!(output.stdout.lines().count(), clients.len());
    }
}

/// Creates a file that is larger than the socket buffers of both sides.
fn large_file(site: &TempDir) -> Vec<u8> {
    let large: Vec<u8> = (0..24 << 20).map(|index| (index % 251) as u8).collect();
    fs::write(site.path().join("large"), &large).unwrap();
    large
}

#[test]
fn signal_lets_a_running_download_complete() {
    let site = small_site();
    let large = large_file(&site);
    for (signal, workers) in [(Signal::INT, "1"), (Signal::TERM, "2")] {
        let server = Weft::serve(site.path(), &["--workers", workers]);
        let address = server.address();
        let (mut idle, mut client) = (server.client(), server.client());
        assert_eq!(idle.get("/a.txt").status, 200);
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head()[0], "HTTP/1.1 200 OK");
        server.signal(signal);
        // The shutdown has started: idle connections are closed, active ones continue.
        until("the listener is closed", || TcpStream::connect(address).is_err());
        idle.assert_closed();
        assert!(client.body(large.len()) == large, "{signal:?}: unexpected contents");
        client.assert_closed();
        let output = server.wait_with_output();
        assert_eq!(output.status, Ok(0), "{signal:?}");
        let line = format!(" \"GET /large HTTP/1.1\" 200 {} \"-\" \"-\"\n", large.len());
        assert!(output.stdout.contains(&line), "{}", output.stdout);
        assert_eq!(output.stdout.lines().count(), 2, "{}", output.stdout);
    }
}

#[test]
fn last_response_announces_the_close() {
    let site = small_site();
    let large = large_file(&site);
    let server = Weft::serve(site.path(), &[]);
    let address = server.address();
    let mut client = server.client();
    // In one write, so that the start of the second request has been received.
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(client.head()[0], "HTTP/1.1 200 OK");
    server.signal(Signal::TERM);
    until("the listener is closed", || TcpStream::connect(address).is_err());
    assert!(client.body(large.len()) == large, "unexpected contents");
    client.send("\r\n");
    let response = client.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.assert_closed();
    assert_eq!(server.wait_with_output().status, Ok(0));
}

// -- Unix sockets

#[test]
fn replaces_a_stale_socket_file() {
    let site = small_site();
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("weft");
    let unix = format!("unix:{}", socket.display());
    let listen = ["--listen", &unix];

    let killed = Weft::start(weft([site.path()]).args(listen));
    killed.signal(Signal::KILL);
    assert_eq!(killed.wait_with_output().status, Err(Signal::KILL.as_raw()));
    assert!(socket.exists(), "a killed process does not remove its socket file");

    let server = Weft::start(weft([site.path()]).args(listen));
    assert_eq!(server.addresses(), [&*unix]);
    assert_serves(Client::unix(&socket));

    // The socket file of a running process is not replaced.
    let output = run([site.path().as_os_str()].into_iter().chain(listen.map(OsStr::new)));
    assert_eq!(output.status, Ok(1));
    assert!(output.stderr.contains("Address already in use"), "{}", output.stderr);
    assert_serves(Client::unix(&socket));

    let log = server.stop().stdout;
    assert!(log.lines().all(|line| line.starts_with("unix: - - [")), "{log}");
    assert!(!socket.exists(), "the socket file still exists");
}

#[test]
fn failed_start_leaves_no_socket_file() {
    let site = small_site();
    let socket = site.path().join("weft");
    let unix = format!("unix:{}", socket.display());
    let output = run([site.path().as_os_str()]
        .into_iter()
        .chain(["--listen", &unix, "--listen", "192.0.2.1:0"].map(OsStr::new)));
    assert_eq!(output.status, Ok(1));
    assert!(!socket.exists(), "the socket file still exists");
}

// -- the access log

/// A line of the log, in Apache's combined format.
#[derive(Debug)]
struct Line {
    host: String,
    request: String,
    status: String,
    bytes: String,
    referer: String,
    user_agent: String,
}

impl Line {
    /// Parses `host - - [date] "request line" status bytes "referer" "user agent"`; the escapes of
    /// the quoted parts are kept.
    fn parse(text: &str) -> Option<Line> {
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
        is_valid.then_some(Line { host, request, status, bytes, referer, user_agent })
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
fn log_of(requests: &[&[u8]]) -> (Vec<Response>, Vec<Line>) {
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
    let line = |line: &str| Line::parse(line).unwrap_or_else(|| panic!("torn: {line:?}"));
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
        let Line { host, request, status, bytes, referer, user_agent } = line;
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
        let line = Line::parse(text).unwrap_or_else(|| panic!("torn: {text:?}"));
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

#[test]
fn does_not_remove_a_file_that_is_not_a_socket() {
    let site = small_site();
    let file = site.path().join("notes.txt");
    fs::write(&file, "precious").unwrap();
    let listen = format!("--listen=unix:{}", file.display());
    let output = common::Program::start(weft([site.path()]).arg(listen)).wait_with_output();
    assert_eq!(output.status, Ok(1));
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("precious"));
}

#[test]
fn stop_serves_connections_in_the_accept_queue() {
    let site = small_site();
    for workers in ["1", "2"] {
        for round in 0..20 {
            let server = Weft::serve(site.path(), &["--workers", workers]);
            // While the process is stopped, the kernel completes the handshake and buffers the
            // request.
            server.signal(Signal::STOP);
            let mut client = server.client();
            client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            server.signal(Signal::TERM);
            server.signal(Signal::CONT);
            assert_eq!(client.response().status, 200, "round {round}, {workers} workers");
            drop(client);
            assert_eq!(server.wait_with_output().status, Ok(0));
        }
    }
}

#[test]
fn does_not_remove_the_socket_file_of_another_process() {
    let site = small_site();
    let socket = site.path().join("s");
    let listen = format!("--listen=unix:{}", socket.display());
    let first = Weft::start(weft([site.path()]).arg(&listen));
    fs::remove_file(&socket).unwrap();
    let second = Weft::start(weft([site.path()]).arg(&listen));
    first.stop();
    assert_eq!(Client::unix(&socket).get("/a.txt").status, 200);
    second.stop();
}

#[test]
fn second_signal_stops_immediately() {
    let site = small_site();
    fs::write(site.path().join("large"), vec![b'x'; 64 << 20]).unwrap();
    let server = Weft::serve(site.path(), &[]);
    let mut client = server.client();
    // A download that the client does not read keeps the server from exiting.
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    server.signal(Signal::INT);
    until("the listener is closed", || TcpStream::connect(server.address()).is_err());
    server.signal(Signal::INT);
    assert_eq!(server.wait_with_output().status, Ok(1));
}

#[test]
fn closed_stdout_and_stderr_do_not_stop_the_server() {
    let site = small_site();
    let socket = site.path().join("s");
    let mut command = weft([site.path()]);
    command.arg(format!("--listen=unix:{}", socket.display())).args(["--workers", "1"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    until("the server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let mut client = Client::unix(&socket);
    // More lines than the log buffers.
    let agent = "x".repeat(8_000);
    for _ in 0..300 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    until("the server exits", || child.try_wait().unwrap().is_some());
}
