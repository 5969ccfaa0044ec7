//! Arguments.

use super::*;

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
        "--tls-profile NAME",
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
        let stop = "weft: SIGTERM: the server stops; requests in progress have 10s\n\
                    weft: the server has stopped\n";
        assert_eq!(output.stderr, expected + stop, "nothing else is logged");
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
