//! Configuration reloads and upgrades of the program, without lost requests or connections.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{
    Client, LONG_PATIENCE, PATIENCE, Signal, Weft, raw_upstream, read_head, until, weft,
};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, kill_process, test_kill_process};
use tempfile::TempDir;

/// A directory with a configuration, and the first process that serves it; an upgrade starts
/// successors.
pub struct Site {
    folder: TempDir,
    pub server: Weft,
    address: SocketAddr,
}

/// File with the process ID of the serving process.
const PID_FILE: &str = "pid";

impl Site {
    fn start(config: &str) -> Site {
        Site::start_in(config, |_| ())
    }

    /// Starts the program in a directory after `prepare` has written its other files.
    pub fn start_in(config: &str, prepare: impl FnOnce(&Path)) -> Site {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["--config", "weft.toml", "--pid-file", PID_FILE, "--no-log"]);
        let server = Weft::start(command.current_dir(folder.path()));
        let address = server.address();
        Site { folder, server, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn stderr(&self) -> String {
        self.server.stderr()
    }

    pub fn write_config(&self, config: &str) {
        fs::write(self.path("weft.toml"), config).unwrap();
    }

    /// Reloads this configuration, waits until the result is logged, and returns the log lines.
    pub fn reload(&self, config: &str) -> String {
        self.write_config(config);
        self.log_after_signal(Signal::HUP, "reloaded")
    }

    /// Sends a signal and returns the log lines after it, up to a line that contains `text`.
    fn log_after_signal(&self, signal: Signal, text: &str) -> String {
        let before = self.stderr().len();
        kill_process(self.pid(), signal).unwrap();
        until(text, || {
            let stderr = self.stderr();
            stderr[before..].contains(text) && stderr.ends_with('\n')
        });
        self.stderr()[before..].to_owned()
    }

    /// Returns the process ID of the serving process.
    fn pid(&self) -> Pid {
        read_pid(&self.path(PID_FILE)).expect("a process ID in the PID file")
    }

    /// Starts an upgrade and waits until the successor serves.
    pub fn upgrade(&self) {
        let former = self.pid();
        kill_process(former, Signal::USR2).unwrap();
        until("the successor serves", || {
            read_pid(&self.path(PID_FILE)).is_some_and(|current| current != former)
        });
    }

    fn client(&self) -> Client {
        Client::tcp(self.address)
    }

    fn get(&self, target: &str) -> String {
        get_text(&mut self.client(), target)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let Some(last) = read_pid(&self.path(PID_FILE)) else { return };
        // The process may have exited already.
        let _ = kill_process(last, Signal::KILL);
    }
}

fn read_pid(file: &Path) -> Option<Pid> {
    // During an upgrade the file may be incomplete.
    let number = fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()?;
    Pid::from_raw(number)
}

fn get_text(client: &mut Client, target: &str) -> String {
    String::from_utf8(client.get(target).body).unwrap()
}

/// Returns a configuration that responds to all requests with a text.
fn text_config(text: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = {{ respond = \"{text}\" }}\n")
}

// -- reloads

#[test]
fn reload_applies_to_open_connections() {
    let site = Site::start(&text_config("one"));
    let mut client = site.client();
    assert_eq!(get_text(&mut client, "/"), "one");
    assert_eq!(site.reload(&text_config("two")), "weft: the configuration was reloaded\n");
    until("the new text is served", || get_text(&mut client, "/") == "two");
    assert_eq!(site.get("/"), "two");
}

#[test]
fn invalid_configuration_is_logged_and_not_applied() {
    let site = Site::start(&text_config("one"));
    let mut client = site.client();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (config, expected) in [
        (
            "lisen = 1\n".to_owned(),
            "weft: weft.toml:1:1: unknown key `lisen`; did you mean `listen`?\n",
        ),
        (
            "[hosts.\"*\"]\n\"/\" = \"-> nowhere\"\n".to_owned(),
            "weft: weft.toml:2:7: cannot serve nowhere: No such file or directory (os error 2)\n",
        ),
        (
            text_config("two").replace("]\n[hosts", &format!(", \"{taken}\"]\n[hosts")),
            &*format!("weft: cannot listen on {taken}: Address already in use (os error 98)\n"),
        ),
    ] {
        let log = site.reload(&config);
        let last = "weft: the configuration was not reloaded; the previous configuration stays in effect\n";
        assert_eq!(log, format!("{expected}{last}"), "{config}");
        assert_eq!(get_text(&mut client, "/"), "one");
        assert_eq!(site.get("/"), "one");
    }
}

#[test]
fn reload_adds_and_removes_listeners_and_keeps_others() {
    let site = Site::start(&text_config("one"));
    let mut client = site.client();
    assert_eq!(get_text(&mut client, "/"), "one");
    let socket = site.path("socket");
    let more = text_config("two").replace(":0\"]", ":0\", \"unix:socket\"]");
    site.reload(&more);
    assert_eq!(get_text(&mut Client::unix(&socket), "/"), "two");
    site.reload(&text_config("three"));
    until("the socket is removed", || !socket.exists());
    until("the new text is served", || get_text(&mut client, "/") == "three");
    assert_eq!(site.get("/"), "three");
}

#[test]
fn reload_switches_a_listener_to_tls_and_back() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let rest = "[hosts.\"*\"]\n\"/\" = { respond = \"hello\" }\n";
    let plain = format!("listen = [\"{address}\"]\n{rest}");
    let secure = format!("[tls]\nself_signed = true\nlisten = [\"{address}\"]\n{rest}");
    let site = Site::start(&plain);
    assert_eq!(site.get("/"), "hello");
    site.reload(&secure);
    until("TLS is required", || site.client().get("/").status == 400);
    site.reload(&plain);
    until("TLS is not required", || site.client().get("/").status == 200);
}

#[test]
fn reloaded_limits_apply_to_new_connections() {
    let site = Site::start(&text_config("one"));
    let mut former = site.client();
    let long = format!("/{}", "x".repeat(200));
    assert_eq!(former.get(&long).status, 200);
    site.reload(
        &text_config("one").replace("[hosts", "[limits]\nmax_request_line_bytes = 100\n[hosts"),
    );
    until("the limit applies", || site.client().get(&long).status == 414);
    assert_eq!(former.get(&long).status, 200);
}

#[test]
fn reload_logs_settings_that_need_a_restart() {
    let site = Site::start(&text_config("one"));
    let log = site.reload(&format!("workers = 1\n{}", text_config("two")));
    let not_applied = "weft: changes to `workers` take effect at the next start or upgrade\n";
    assert_eq!(log, format!("{not_applied}weft: the configuration was reloaded\n"));
    until("the other settings apply", || site.get("/") == "two");
}

#[test]
fn reload_reopens_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for release in ["1", "2"] {
        fs::create_dir(path(release)).unwrap();
        fs::write(path(release).join("index.html"), release).unwrap();
    }
    let current = path("current");
    let link = |to: &str| {
        // An atomic replacement, as deployment tools do it.
        std::os::unix::fs::symlink(path(to), path("next")).unwrap();
        fs::rename(path("next"), &current).unwrap();
    };
    link("1");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \"-> {}\"\n",
        current.display()
    );
    let site = Site::start(&config);
    assert_eq!(site.get("/"), "1");
    link("2");
    site.reload(&config);
    until("the other directory is served", || site.get("/") == "2");
}

#[test]
fn sighup_without_a_configuration_file_reopens_directories() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for release in ["1", "2"] {
        fs::create_dir(path(release)).unwrap();
        fs::write(path(release).join("index.html"), release).unwrap();
    }
    let current = path("current");
    std::os::unix::fs::symlink(path("1"), &current).unwrap();
    let mut command = weft(["--listen", "127.0.0.1:0", "--no-log"]);
    let mut server = Weft::start(command.arg(&current));
    let mut client = Client::tcp(server.address());
    assert_eq!(get_text(&mut client, "/"), "1");
    std::os::unix::fs::symlink(path("2"), path("next")).unwrap();
    fs::rename(path("next"), &current).unwrap();
    server.signal(Signal::HUP);
    let message = "weft: there is no configuration file and no certificate to reload; replaced \
                   directories were opened again\n";
    until("the result is logged", || !server.is_running() || server.stderr().contains(message));
    assert!(server.is_running(), "{}", server.stderr());
    until("the other directory is served", || get_text(&mut client, "/") == "2");
}

#[test]
fn reload_keeps_upstream_connections() {
    let upstream = raw_upstream(|number, mut stream| {
        while read_head(&mut stream).is_some() {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            stream.write_all(response.as_bytes()).unwrap();
        }
    });
    let config = |text: &str| {
        format!(
            "workers = 1\nlisten = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\
             \"/\" = \">> http://{upstream}/\"\n\"/text/\" = {{ respond = \"{text}\" }}\n"
        )
    };
    let site = Site::start(&config("one"));
    assert_eq!((&*site.get("/"), &*site.get("/text/")), ("0", "one"));
    site.reload(&config("two"));
    until("the reload applies", || site.get("/text/") == "two");
    assert_eq!(site.get("/"), "0");
}

/// Starts an upstream that accepts an upgrade and echoes all data.
fn echo() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        read_head(&mut stream).expect("a request");
        let response = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                       Upgrade: echo\r\n\r\n";
        stream.write_all(response).unwrap();
        // Echo until the connection ends, also with an error.
        let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    })
}

#[test]
fn tunnels_survive_reloads_and_upgrades() {
    let config =
        format!("listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \">> http://{}/\"\n", echo());
    let mut site = Site::start(&config);
    let mut client = site.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.head()[0], "HTTP/1.1 101 Switching Protocols");
    let mut assert_echoes = |text: &str| {
        client.send(text);
        assert_eq!(client.body(text.len()), text.as_bytes());
    };
    assert_echoes("before");
    site.reload(&text_config("other"));
    until("the new routes apply", || site.get("/") == "other");
    assert_echoes("after a reload");
    site.upgrade();
    assert_echoes("after an upgrade");
    drop(client);
    // The first process exits, as it has no other connections.
    assert!(site.server.wait().success(), "{}", site.stderr());
}

// -- upgrades

#[test]
fn sigterm_applies_drain_timeout_to_a_replaced_process() {
    let tunnel = format!("\"/tunnel/\" = \">> http://{}/\"\n", echo());
    let mut site =
        Site::start(&format!("drain_timeout = \"100ms\"\n{}{tunnel}", text_config("one")));
    let (mut tunnel, mut client) = (site.client(), site.client());
    tunnel.send("GET /tunnel/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(tunnel.head()[0], "HTTP/1.1 101 Switching Protocols");
    client.get("/");
    site.upgrade();
    // The successor serves shortly before this process starts to drain.
    until("the process drains", || client.get("/").header("connection") == Some("close"));
    site.server.signal(Signal::TERM);
    assert!(site.server.wait().success(), "{}", site.stderr());
    tunnel.assert_closed();
    assert_eq!(site.get("/"), "one");
}

#[test]
fn failed_upgrade_keeps_the_process_serving() {
    let site = Site::start(&text_config("one"));
    let first = site.pid();
    site.write_config("listen = 1\n");
    let log = site.log_after_signal(Signal::USR2, "the upgrade failed");
    assert!(
        log.starts_with("weft: SIGUSR2: an upgrade begins\nweft: weft.toml:1:10: expected a list")
    );
    assert!(log.ends_with(": it exited before it served\n"), "{log}");
    assert_eq!((site.pid(), &*site.get("/")), (first, "one"));
    site.write_config(&text_config("two"));
    site.upgrade();
    until("the successor serves", || site.get("/") == "two");
}

#[test]
fn failed_upgrade_keeps_unix_socket_files() {
    let config = text_config("one").replace(":0\"]", ":0\", \"unix:socket\"]");
    let site = Site::start(&config);
    let socket = site.path("socket");
    // The successor opens directories after it has received the sockets.
    let strict = format!("strict_start = true\n{config}\"/none/\" = \"-> none\"\n");
    site.write_config(&strict);
    let log = site.log_after_signal(Signal::USR2, "the upgrade failed");
    assert!(log.ends_with(": it exited before it served\n"), "{log}");
    assert_eq!(get_text(&mut Client::unix(&socket), "/"), "one");
    site.write_config(&config);
    site.upgrade();
    assert_eq!(get_text(&mut Client::unix(&socket), "/"), "one");
}

#[test]
fn stop_during_an_upgrade_stops_both_processes() {
    let mut site = Site::start(&text_config("one"));
    let first = site.pid();
    // The successor blocks on opening the configuration, a FIFO without a writer.
    let config = site.path("weft.toml");
    fs::remove_file(&config).unwrap();
    mkfifoat(CWD, &config, Mode::RWXU).unwrap();
    kill_process(first, Signal::USR2).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", first.as_raw_nonzero());
    let successor = || fs::read_to_string(&children).unwrap().trim().parse().ok();
    until("the successor is started", || successor().is_some());
    let successor = Pid::from_raw(successor().unwrap()).unwrap();
    kill_process(first, Signal::TERM).unwrap();
    assert!(site.server.wait().success(), "{}", site.stderr());
    until("the successor has exited", || test_kill_process(successor).is_err());
}

#[test]
fn last_process_removes_the_unix_socket_file() {
    let config = text_config("one").replace(":0\"]", ":0\", \"unix:socket\"]");
    let mut site = Site::start(&config);
    let socket = site.path("socket");
    site.upgrade();
    assert!(site.server.wait().success(), "{}", site.stderr());
    assert_eq!(get_text(&mut Client::unix(&socket), "/"), "one");
    let last = site.pid();
    kill_process(last, Signal::TERM).unwrap();
    until("the process has exited", || test_kill_process(last).is_err());
    assert!(!socket.exists());
    assert!(!site.path(PID_FILE).exists());
}

// -- clients under load

/// Statistics of all clients.
#[derive(Default)]
struct LoadStats {
    responses: AtomicUsize,
    /// Maximum time from the start of a request to the end of its response.
    max_latency: Mutex<Duration>,
    stop: AtomicBool,
}

struct Load {
    stats: Arc<LoadStats>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts this number of clients with keep-alive, and the same number with a new connection for
    /// each request.
    fn start(address: SocketAddr, of_each_kind: usize) -> Load {
        let stats = Arc::<LoadStats>::default();
        let client = |number| {
            let stats = stats.clone();
            std::thread::spawn(move || run_client(address, number % 2 == 0, &stats))
        };
        let clients = (0..2 * of_each_kind).map(client).collect();
        Load { stats, clients }
    }

    fn responses(&self) -> usize {
        self.stats.responses.load(SeqCst)
    }

    /// Waits for this number of further responses.
    fn wait_for_responses(&self, count: usize) {
        let (start, before) = (Instant::now(), self.responses());
        while self.responses() < before + count {
            assert!(start.elapsed() < LONG_PATIENCE, "no further responses");
            assert!(self.clients.iter().all(|client| !client.is_finished()), "a request failed");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(self) -> (usize, Duration) {
        self.stats.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("no request of this client failed");
        }
        (self.stats.responses.load(SeqCst), *self.stats.max_latency.lock().unwrap())
    }
}

/// Sends requests until `stop` is set; panics if a response is incomplete.
fn run_client(address: SocketAddr, keep_alive: bool, stats: &LoadStats) {
    let mut idle: Option<Client> = None;
    while !stats.stop.load(SeqCst) {
        let start = Instant::now();
        let mut client = idle.take().unwrap_or_else(|| Client::tcp(address));
        let close = if keep_alive { "" } else { "Connection: close\r\n" };
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{close}\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.body.len()), (200, 3));
        let mut max_latency = stats.max_latency.lock().unwrap();
        *max_latency = start.elapsed().max(*max_latency);
        drop(max_latency);
        stats.responses.fetch_add(1, SeqCst);
        if keep_alive && response.header("connection") != Some("close") {
            idle = Some(client);
        } else {
            client.assert_closed();
        }
    }
}

#[test]
fn no_request_fails_through_twenty_reloads() {
    let site = Site::start(&text_config("000"));
    let load = Load::start(site.address, 4);
    load.wait_for_responses(200);
    for number in 1..=20 {
        let text = format!("{number:03}");
        site.reload(&text_config(&text));
        until("the reload applies", || site.get("/") == text);
        load.wait_for_responses(50);
    }
    let (responses, max_latency) = load.stop();
    println!("{responses} requests, maximum latency {max_latency:?}");
}

#[test]
fn no_request_fails_through_five_upgrades() {
    for more in ["", "[limits]\nreuse_port = true\n"] {
        let config = |text: &str| text_config(text).replace("[hosts", &format!("{more}[hosts"));
        let mut site = Site::start(&config("000"));
        let load = Load::start(site.address, 4);
        load.wait_for_responses(200);
        for number in 1..=5 {
            let text = format!("{number:03}");
            site.write_config(&config(&text));
            site.upgrade();
            until("the successor serves", || site.get("/") == text);
            load.wait_for_responses(50);
        }
        let (responses, max_latency) = load.stop();
        println!("{responses} requests, maximum latency {max_latency:?}");
        assert!(site.server.wait().success(), "{}", site.stderr());
    }
}

#[test]
fn connection_without_a_request_survives_an_upgrade() {
    for more in ["", "defer_accept = false\n"] {
        let site = Site::start(&format!("{more}{}", text_config("one")));
        // With `defer_accept` it may wait in the kernel, until it sends a request.
        let mut client = site.client();
        site.upgrade();
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn idle_connection_is_closed_after_one_more_response() {
    let site = Site::start(&text_config("one"));
    let mut client = site.client();
    client.get("/");
    site.upgrade();
    // The successor serves shortly before this process starts to drain.
    until("the last response announces the close", || {
        client.get("/").header("connection") == Some("close")
    });
    client.assert_closed();
}

// -- many hosts

/// The workers serve during the reload: they respond to at least a tenth of the requests to which
/// they responded before in the same time.
#[test]
fn reloads_1000_hosts_under_load() {
    let config = |text: &str| {
        let mut config = text_config(text);
        for host in 0..1_000 {
            config.push_str(&format!(
                "[hosts.\"h{host}.example.org\"]\n\"/\" = \"-> .\"\n\"/{text}/\" = \"<< /x/\"\n"
            ));
        }
        config
    };
    let site = Site::start(&config("one"));
    let load = Load::start(site.address, 2);
    let rate = || {
        let (start, before) = (Instant::now(), load.responses());
        load.wait_for_responses(200);
        (load.responses() - before) as f64 / start.elapsed().as_secs_f64()
    };
    let rate_before = rate();
    let (start, before) = (Instant::now(), load.responses());
    site.reload(&config("two"));
    until("the reload applies", || site.get("/") == "two");
    let (took, responses) = (start.elapsed(), load.responses() - before);
    assert!(
        responses as f64 >= rate_before * took.as_secs_f64() / 10.0,
        "{responses} responses in {took:?}, before {rate_before} per second"
    );
    let status = |path: &str| {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: h999.example.org\r\n\r\n"));
        client.response().status
    };
    assert_eq!(["/one/", "/two/"].map(status), [404, 301], "the last host has its new routes");
    load.stop();
}

// -- stopping

#[test]
fn sigquit_waits_for_responses_and_sigterm_for_drain_timeout() {
    let signals = [Signal::QUIT, Signal::TERM];
    for (signals, is_complete) in [(&signals[..1], true), (&signals[1..], false), (&signals, false)]
    {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("large"), vec![b'x'; 64 << 20]).unwrap();
        // The client does not read for longer than the drain timeout; the stall timeout does not
        // apply.
        let options = ["--no-log", "--drain-timeout", "100ms", "--stall-timeout", "10m"];
        let server = Weft::serve(folder.path(), &options);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut bytes = vec![0; 1 << 20];
        stream.read_exact(&mut bytes).unwrap();
        let address = server.address();
        for &signal in signals {
            server.signal(signal);
            until("the listener is closed", || TcpStream::connect(address).is_err());
        }
        if !is_complete {
            // The server exits before the client continues to read.
            let output = server.wait_with_output();
            assert_eq!(output.status, Ok(0), "{}", output.stderr);
            let line = "requests in progress after `drain_timeout` (100ms) were cut";
            assert_eq!(output.stderr.contains(line), signals.len() == 1, "{}", output.stderr);
        }
        let mut total = bytes.len();
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => total += n,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(total > 64 << 20, is_complete, "{total}");
    }
}
