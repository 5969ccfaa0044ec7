//! The end of the program.

use super::*;
use crate::common::external::pattern;

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
            assert_eq!(output.stderr.lines().count(), 3, "{}", output.stderr);
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
    let large = pattern(24 << 20);
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
