//! Clients that shut down their sending direction after a request, as `nc -N` does. They still get
//! the response (RFC 9112 §9.6).

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::common::external::words;
use crate::common::{self, PATIENCE, Weft, raw_upstream, read_head, until, weft};

/// Time after which an upstream or a script responds, so that the server reads the end of the input
/// before.
const DELAY: Duration = Duration::from_millis(100);

/// Starts a server with slow applications and with files that it has not read yet.
fn serve(limits: &str) -> (tempfile::TempDir, Weft) {
    let upstream = raw_upstream(|_, mut stream| {
        read_head(&mut stream);
        std::thread::sleep(DELAY);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
        std::thread::sleep(DELAY);
        let _ = stream.write_all(b"k");
    });
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("site")).unwrap();
    fs::write(path("site/small.txt"), "ok").unwrap();
    fs::write(path("site/large.txt"), words(1 << 20)).unwrap();
    fs::write(
        path("slow.cgi"),
        "#!/bin/sh\nsleep 0.1\nprintf 'Content-Type: text/plain\\nContent-Length: 2\\n\\nok'\n",
    )
    .unwrap();
    fs::set_permissions(path("slow.cgi"), fs::Permissions::from_mode(0o755)).unwrap();
    let config = format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n{limits}\n[hosts.\"*\"]\n\
         \"/\" = \"-> site\"\n\"/up\" = \">> http://{upstream}\"\n\"/cgi\" = \"=> slow.cgi\"\n"
    );
    fs::write(path("weft.toml"), config).unwrap();
    let server = Weft::start(weft(["--config"]).arg(path("weft.toml")));
    (folder, server)
}

/// Sends a request, shuts the sending direction down, and returns all that is received.
fn half_closed(server: &Weft, target: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let fields = "Host: a\r\nAccept-Encoding: br";
    write!(stream, "GET {target} HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    String::from_utf8_lossy(&received).into_owned()
}

#[test]
fn half_closed_clients_get_their_responses() {
    for target in ["/up", "/cgi", "/small.txt", "/large.txt"] {
        let (_folder, server) = serve("");
        let received = half_closed(&server, target);
        assert!(received.starts_with("HTTP/1.1 200 "), "{target}: {received:.100}");
        let is_complete = match target {
            "/large.txt" => received.contains("\r\ncontent-encoding: br\r\n"),
            _ => received.ends_with("\r\n\r\nok"),
        };
        assert!(is_complete, "{target}: {received:.300}");
        server.stop();
    }
}

/// The same clients count as gone if the configuration says so.
#[test]
fn half_closed_clients_may_count_as_gone() {
    let (_folder, server) = serve("limits.disconnect = \"cancel_at_eof\"");
    for target in ["/up", "/cgi"] {
        assert_eq!(half_closed(&server, target), "", "{target}");
    }
    server.stop();
}

/// An upstream whose client has left by a reset, behind the end of its input, is not kept waiting.
#[test]
fn reset_behind_the_end_of_the_input_ends_the_request() {
    let (sender, events) = mpsc::channel();
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        sender.send("request").unwrap();
        assert_eq!(read_head(&mut stream), None);
        sender.send("end").unwrap();
    });
    let route = format!("/ >> http://{upstream}/");
    let server = Weft::start(&mut weft(["--route", &route, "--listen", "127.0.0.1:0", "--no-log"]));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(events.recv_timeout(PATIENCE), Ok("request"));
    std::thread::sleep(DELAY);
    common::reset_on_close(&stream);
    drop(stream);
    assert_eq!(events.recv_timeout(PATIENCE), Ok("end"));
    server.stop();
}

/// Starts an upstream that accepts a tunnel, reports the end of its input, and then waits for
/// longer than the test.
fn tunnel_upstream() -> (SocketAddr, mpsc::Receiver<&'static str>) {
    let (sender, events) = mpsc::channel();
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        let fields = "Connection: upgrade\r\nUpgrade: echo\r\n";
        let _ = write!(stream, "HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        sender.send("end").unwrap();
        std::thread::sleep(3 * PATIENCE);
    });
    (upstream, events)
}

/// A tunnel whose client has left by a reset, behind the end of its input, ends at once. A client
/// that is only half-closed keeps it.
#[test]
fn reset_behind_the_end_of_the_input_ends_a_tunnel() {
    for is_reset in [true, false] {
        let (upstream, events) = tunnel_upstream();
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("access.log");
        let config = format!(
            "listen = \"127.0.0.1:0\"\nlog = {{ access = \"access.log\", format = \"{{event}}\" }}\n\
             [hosts.\"*\"]\n\"/\" = \">> http://{upstream}\"\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let server = Weft::start(weft(["--config"]).arg(folder.path().join("weft.toml")));
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            .unwrap();
        assert!(read_head(&mut stream).is_some_and(|head| head.contains(" 101 ")));
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(events.recv_timeout(PATIENCE), Ok("end"));
        let has_ended = || fs::read_to_string(&log).unwrap_or_default().contains("tunnel");
        if is_reset {
            common::reset_on_close(&stream);
            drop(stream);
            until("the tunnel has ended", has_ended);
        } else {
            std::thread::sleep(3 * DELAY);
            assert!(!has_ended());
        }
        server.stop();
    }
}

/// Requests of clients that may have left wait behind all others for a connection to the upstream,
/// and yield their places in a full queue. Requests of clients that stay do not.
#[test]
fn queued_requests_of_half_closed_clients_yield_to_others() {
    const MAX_QUEUED: usize = 4;
    for is_half_closed in [true, false] {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let upstream = raw_upstream(move |_, mut stream| {
            while read_head(&mut stream).is_some() {
                let _ = released.lock().unwrap().recv_timeout(PATIENCE);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n[hosts.\"*\"]\n\
             \"/\" = {{ proxy = \"http://{upstream}\", max_connections = 1, \
             max_queued = {MAX_QUEUED}, queue_timeout = \"60s\" }}\n"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let server = Weft::start(weft(["--config"]).arg(folder.path().join("weft.toml")));
        let (sender, statuses) = mpsc::channel();
        let request = |is_half_closed| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            if is_half_closed {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            let sender = sender.clone();
            std::thread::spawn(move || {
                let head = read_head(&mut stream).unwrap_or_default();
                let _ = sender.send((head.contains(" 200 "), is_half_closed));
            });
        };
        // One is in progress, the queue is full, and one is refused.
        (0..=1 + MAX_QUEUED).for_each(|_| request(is_half_closed));
        let next = || statuses.recv_timeout(PATIENCE).unwrap();
        assert_eq!(next(), (false, is_half_closed));
        // The server notices the ends of their input.
        std::thread::sleep(DELAY);
        request(false);
        // In place of a client that stays, a half-closed client is refused.
        assert_eq!(next(), (false, is_half_closed));
        release.send(()).unwrap();
        assert_eq!(next(), (true, is_half_closed), "the request in progress");
        release.send(()).unwrap();
        assert_eq!(next(), (true, false), "the client that stays is the next one");
        drop(release);
        server.stop();
    }
}

/// The password is `open sesame`. Its verification takes much longer than a request.
const SLOW_USER: &str = "alice:$6$rounds=300000$weftweft$qJ4huEmy8b.hpaDwAUd1ElnWCnlSbWdlZMjHRb/\
                         soAS50IFBcENmrgCbKS2ga6rTYzlexT9bXfhEvp6hfQyWp0\n";

/// Verifications of one client that may run and wait.
const MAX_VERIFICATIONS: usize = 1 + 16;

/// Starts a login with a password.
fn log_in(server: &Weft, password: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let credentials = STANDARD.encode(format!("alice:{password}"));
    let fields = format!("Host: a\r\nConnection: close\r\nAuthorization: Basic {credentials}");
    write!(stream, "GET / HTTP/1.1\r\n{fields}\r\n\r\n").unwrap();
    stream
}

/// Logins of clients that may have left wait behind all others, and yield their places in a full
/// queue. Logins of clients that stay do not.
#[test]
fn logins_of_half_closed_clients_yield_to_others() {
    for is_half_closed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("users"), SLOW_USER).unwrap();
        fs::write(path("index.html"), "ok").unwrap();
        let config = "listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n[hosts.\"*\"]\n\
                      \"/\" = { files = \".\", basic_auth = \"users\" }\n";
        fs::write(path("weft.toml"), config).unwrap();
        let server = Weft::start(weft(["--config"]).arg(path("weft.toml")));
        let count = 40;
        let (sender, refusals) = mpsc::channel();
        for number in 0..count {
            let mut stream = log_in(&server, &format!("wrong {number}"));
            if is_half_closed {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            let sender = sender.clone();
            std::thread::spawn(move || {
                let head = read_head(&mut stream).unwrap_or_default();
                head.contains(" 503 ").then(|| sender.send(()));
            });
        }
        // The queue is full.
        for _ in MAX_VERIFICATIONS..count {
            refusals.recv_timeout(PATIENCE).unwrap();
        }
        // The server may notice an end of input later than the login behind it.
        let head = || read_head(&mut log_in(&server, "open sesame")).unwrap();
        let mut heads = (0..10).map(|_| head());
        let is_admitted = heads.any(|head| head.contains(" 200 "));
        assert_eq!(is_admitted, is_half_closed);
        server.stop();
    }
}
