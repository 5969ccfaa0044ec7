//! Unix sockets.

use super::*;

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
