//! Reloads and upgrades: what changes, what stays, and that no client notices.

mod common;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Client, LONG_PATIENCE, PATIENCE, Signal, Weft, raw, read_head, until, weft};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, kill_process, test_kill_process};
use tempfile::TempDir;

/// A folder with a configuration, and the program that serves it and may have followers.
struct Site {
    folder: TempDir,
    server: Weft,
    address: SocketAddr,
}

/// Says where the process that serves is known.
const PID_FILE: &str = "pid";

impl Site {
    fn start(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["--config", "weft.toml", "--pid-file", PID_FILE, "--no-log"]);
        let server = Weft::start(command.current_dir(folder.path()));
        let address = server.address();
        Site { folder, server, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn said(&self) -> String {
        self.server.stderr()
    }

    fn configure(&self, config: &str) {
        fs::write(self.path("weft.toml"), config).unwrap();
    }

    /// Has the program reload this configuration, and waits until it has said what came of it.
    fn reload(&self, config: &str) -> String {
        self.configure(config);
        self.after(Signal::HUP, "reloaded")
    }

    /// What is said after a signal, up to a line with these words.
    fn after(&self, signal: Signal, words: &str) -> String {
        let before = self.said().len();
        kill_process(self.pid(), signal).unwrap();
        until(words, || {
            let said = self.said();
            said[before..].contains(words) && said.ends_with('\n')
        });
        self.said()[before..].to_owned()
    }

    /// The process that serves now.
    fn pid(&self) -> Pid {
        pid(&self.path(PID_FILE)).expect("the file has a number")
    }

    /// Has another process take over, and waits until it serves.
    fn upgrade(&self) {
        let former = self.pid();
        kill_process(former, Signal::USR2).unwrap();
        until("another process serves", || {
            pid(&self.path(PID_FILE)).is_some_and(|now| now != former)
        });
    }

    fn client(&self) -> Client {
        Client::tcp(self.address)
    }

    fn get(&self, target: &str) -> String {
        text(&mut self.client(), target)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let Some(last) = pid(&self.path(PID_FILE)) else { return };
        // It may have ended, as it should have.
        let _ = kill_process(last, Signal::KILL);
    }
}

fn pid(file: &Path) -> Option<Pid> {
    // It may be between two numbers.
    let number = fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()?;
    Pid::from_raw(number)
}

fn text(client: &mut Client, target: &str) -> String {
    String::from_utf8(client.get(target).body).unwrap()
}

/// A configuration that answers everything with a text.
fn saying(text: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = {{ respond = \"{text}\" }}\n")
}

// -- reloads

#[test]
fn a_reload_changes_what_is_answered_on_connections_that_stay() {
    let site = Site::start(&saying("one"));
    let mut client = site.client();
    assert_eq!(text(&mut client, "/"), "one");
    assert_eq!(site.reload(&saying("two")), "weft: the configuration was reloaded\n");
    until("the other text", || text(&mut client, "/") == "two");
    assert_eq!(site.get("/"), "two");
}

#[test]
fn a_bad_configuration_changes_nothing_and_is_told() {
    let site = Site::start(&saying("one"));
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
            saying("two").replace("]\n[hosts", &format!(", \"{taken}\"]\n[hosts")),
            &*format!("weft: cannot listen on {taken}: Address already in use (os error 98)\n"),
        ),
    ] {
        let said = site.reload(&config);
        let last = "weft: the configuration was not reloaded; the one before counts\n";
        assert_eq!(said, format!("{expected}{last}"), "{config}");
        assert_eq!(text(&mut client, "/"), "one");
        assert_eq!(site.get("/"), "one");
    }
}

#[test]
fn sockets_come_and_go_and_those_that_stay_are_not_touched() {
    let site = Site::start(&saying("one"));
    let mut client = site.client();
    assert_eq!(text(&mut client, "/"), "one");
    let socket = site.path("socket");
    let more = saying("two").replace(":0\"]", ":0\", \"unix:socket\"]");
    site.reload(&more);
    assert_eq!(text(&mut Client::unix(&socket), "/"), "two");
    site.reload(&saying("three"));
    until("the socket is gone", || !socket.exists());
    until("the other text", || text(&mut client, "/") == "three");
    assert_eq!(site.get("/"), "three");
}

#[test]
fn an_address_goes_over_to_tls_and_back() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let rest = "[hosts.\"*\"]\n\"/\" = { respond = \"hello\" }\n";
    let plain = format!("listen = [\"{address}\"]\n{rest}");
    let secure = format!("[tls]\nself_signed = true\nlisten = [\"{address}\"]\n{rest}");
    let site = Site::start(&plain);
    assert_eq!(site.get("/"), "hello");
    site.reload(&secure);
    until("TLS is wanted", || site.client().get("/").status == 400);
    site.reload(&plain);
    until("it is wanted no more", || site.client().get("/").status == 200);
}

#[test]
fn limits_count_for_new_connections() {
    let site = Site::start(&saying("one"));
    let mut former = site.client();
    let long = format!("/{}", "x".repeat(200));
    assert_eq!(former.get(&long).status, 200);
    site.reload(&saying("one").replace("[hosts", "[limits]\nmax_request_line_bytes = 100\n[hosts"));
    until("the limit counts", || site.client().get(&long).status == 414);
    assert_eq!(former.get(&long).status, 200);
}

#[test]
fn what_a_process_cannot_change_of_itself_is_told() {
    let site = Site::start(&saying("one"));
    let said = site.reload(&format!("workers = 1\n{}", saying("two")));
    let waits = "weft: what changed in `workers` counts from the next start or upgrade\n";
    assert_eq!(said, format!("{waits}weft: the configuration was reloaded\n"));
    until("the rest counts", || site.get("/") == "two");
}

#[test]
fn a_folder_that_was_replaced_is_served_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for release in ["1", "2"] {
        fs::create_dir(path(release)).unwrap();
        fs::write(path(release).join("index.html"), release).unwrap();
    }
    let current = path("current");
    let link = |to: &str| {
        // As deployments do it: at no time is there none.
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
    until("the other folder is served", || site.get("/") == "2");
}

#[test]
fn connections_to_upstreams_outlast_a_reload() {
    let upstream = raw(|number, mut stream| {
        while read_head(&mut stream).is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            stream.write_all(answer.as_bytes()).unwrap();
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
    until("the reload counts", || site.get("/text/") == "two");
    assert_eq!(site.get("/"), "0");
}

/// An upstream that agrees to an upgrade and sends back what comes.
fn echo() -> SocketAddr {
    raw(|_, mut stream| {
        read_head(&mut stream).expect("a request");
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                       Upgrade: echo\r\n\r\n";
        stream.write_all(agreed).unwrap();
        // To the end of the connection, however that comes.
        let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    })
}

#[test]
fn tunnels_outlast_reloads_and_upgrades() {
    let config =
        format!("listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \">> http://{}/\"\n", echo());
    let mut site = Site::start(&config);
    let mut client = site.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.head()[0], "HTTP/1.1 101 Switching Protocols");
    let mut says = |text: &str| {
        client.send(text);
        assert_eq!(client.body(text.len()), text.as_bytes());
    };
    says("before");
    site.reload(&saying("other"));
    until("routes are others", || site.get("/") == "other");
    says("after a reload");
    site.upgrade();
    says("after an upgrade");
    drop(client);
    // Now there is nothing that the first process has to wait for.
    assert!(site.server.status().success(), "{}", site.said());
}

// -- upgrades

#[test]
fn term_bounds_what_a_process_that_was_replaced_waits_for() {
    let tunnel = format!("\"/tunnel/\" = \">> http://{}/\"\n", echo());
    let mut site = Site::start(&format!("drain_timeout = \"100ms\"\n{}{tunnel}", saying("one")));
    let (mut tunnel, mut client) = (site.client(), site.client());
    tunnel.send("GET /tunnel/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(tunnel.head()[0], "HTTP/1.1 101 Switching Protocols");
    client.get("/");
    site.upgrade();
    // The successor serves a moment before this process knows.
    until("it is replaced", || client.get("/").header("connection") == Some("close"));
    site.server.signal(Signal::TERM);
    assert!(site.server.status().success(), "{}", site.said());
    tunnel.assert_closed();
    assert_eq!(site.get("/"), "one");
}

#[test]
fn an_upgrade_that_fails_changes_nothing() {
    let site = Site::start(&saying("one"));
    let first = site.pid();
    site.configure("listen = 1\n");
    let said = site.after(Signal::USR2, "the upgrade failed");
    assert!(said.starts_with("weft: weft.toml:1:10: expected a list of texts"), "{said}");
    assert!(said.ends_with(": it ended before it served\n"), "{said}");
    assert_eq!((site.pid(), &*site.get("/")), (first, "one"));
    site.configure(&saying("two"));
    site.upgrade();
    until("the successor serves", || site.get("/") == "two");
}

#[test]
fn an_upgrade_that_fails_late_leaves_the_file_of_a_socket() {
    let config = saying("one").replace(":0\"]", ":0\", \"unix:socket\"]");
    let site = Site::start(&config);
    let socket = site.path("socket");
    // It has the sockets when it looks for the folder.
    site.configure(&format!("{config}\"/none/\" = \"-> none\"\n"));
    let said = site.after(Signal::USR2, "the upgrade failed");
    assert!(said.ends_with(": it ended before it served\n"), "{said}");
    assert_eq!(text(&mut Client::unix(&socket), "/"), "one");
    site.configure(&config);
    site.upgrade();
    assert_eq!(text(&mut Client::unix(&socket), "/"), "one");
}

#[test]
fn a_stop_during_an_upgrade_stops_both() {
    let mut site = Site::start(&saying("one"));
    let first = site.pid();
    // The successor waits for a configuration that nobody writes.
    let config = site.path("weft.toml");
    fs::remove_file(&config).unwrap();
    mkfifoat(CWD, &config, Mode::RWXU).unwrap();
    kill_process(first, Signal::USR2).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", first.as_raw_nonzero());
    let successor = || fs::read_to_string(&children).unwrap().trim().parse().ok();
    until("there is a successor", || successor().is_some());
    let successor = Pid::from_raw(successor().unwrap()).unwrap();
    kill_process(first, Signal::TERM).unwrap();
    assert!(site.server.status().success(), "{}", site.said());
    until("it has ended, too", || test_kill_process(successor).is_err());
}

#[test]
fn the_file_of_a_unix_socket_goes_with_the_last_process() {
    let config = saying("one").replace(":0\"]", ":0\", \"unix:socket\"]");
    let mut site = Site::start(&config);
    let socket = site.path("socket");
    site.upgrade();
    assert!(site.server.status().success(), "{}", site.said());
    assert_eq!(text(&mut Client::unix(&socket), "/"), "one");
    let last = site.pid();
    kill_process(last, Signal::TERM).unwrap();
    until("it has ended", || test_kill_process(last).is_err());
    assert!(!socket.exists());
    assert!(!site.path(PID_FILE).exists());
}

// -- clients that ask all the time

/// What clients have seen.
#[derive(Default)]
struct Seen {
    answers: AtomicUsize,
    /// The longest time that an answer took.
    longest: Mutex<Duration>,
    stop: AtomicBool,
}

struct Load {
    seen: Arc<Seen>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Clients that keep their connections, and as many that do not.
    fn start(address: SocketAddr, of_each_kind: usize) -> Load {
        let seen = Arc::<Seen>::default();
        let client = |number| {
            let seen = seen.clone();
            std::thread::spawn(move || ask(address, number % 2 == 0, &seen))
        };
        let clients = (0..2 * of_each_kind).map(client).collect();
        Load { seen, clients }
    }

    fn answers(&self) -> usize {
        self.seen.answers.load(SeqCst)
    }

    /// Waits until so many more requests were answered.
    fn more(&self, count: usize) {
        let start = (Instant::now(), self.answers());
        while self.answers() < start.1 + count {
            assert!(start.0.elapsed() < LONG_PATIENCE, "nothing is answered any more");
            assert!(self.clients.iter().all(|client| !client.is_finished()), "a request failed");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(self) -> (usize, Duration) {
        self.seen.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("no request of this client failed");
        }
        (self.seen.answers.load(SeqCst), *self.seen.longest.lock().unwrap())
    }
}

/// Asks until it is to stop; a request that is not answered whole is a panic.
fn ask(address: SocketAddr, keeps: bool, seen: &Seen) {
    let mut kept: Option<Client> = None;
    while !seen.stop.load(SeqCst) {
        let start = Instant::now();
        let mut client = kept.take().unwrap_or_else(|| Client::tcp(address));
        let close = if keeps { "" } else { "Connection: close\r\n" };
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{close}\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.body.len()), (200, 3));
        let mut longest = seen.longest.lock().unwrap();
        *longest = start.elapsed().max(*longest);
        drop(longest);
        seen.answers.fetch_add(1, SeqCst);
        if keeps && response.header("connection") != Some("close") {
            kept = Some(client);
        } else {
            client.assert_closed();
        }
    }
}

#[test]
fn no_request_fails_through_twenty_reloads() {
    let site = Site::start(&saying("000"));
    let load = Load::start(site.address, 4);
    load.more(200);
    for number in 1..=20 {
        let text = format!("{number:03}");
        site.reload(&saying(&text));
        until("the reload counts", || site.get("/") == text);
        load.more(50);
    }
    let (answers, longest) = load.stop();
    println!("{answers} requests, the longest took {longest:?}");
}

#[test]
fn no_request_fails_through_five_upgrades() {
    for more in ["", "[limits]\nreuse_port = true\n"] {
        let config = |text: &str| saying(text).replace("[hosts", &format!("{more}[hosts"));
        let mut site = Site::start(&config("000"));
        let load = Load::start(site.address, 4);
        load.more(200);
        for number in 1..=5 {
            let text = format!("{number:03}");
            site.configure(&config(&text));
            site.upgrade();
            until("the successor serves", || site.get("/") == text);
            load.more(50);
        }
        let (answers, longest) = load.stop();
        println!("{answers} requests, the longest took {longest:?}");
        assert!(site.server.status().success(), "{}", site.said());
    }
}

#[test]
fn a_connection_at_rest_may_ask_once_more_after_an_upgrade() {
    let site = Site::start(&saying("one"));
    let mut client = site.client();
    client.get("/");
    site.upgrade();
    // The successor serves a moment before this process knows.
    until("the last response says so", || client.get("/").header("connection") == Some("close"));
    client.assert_closed();
}

// -- many hosts

#[test]
fn a_thousand_hosts_are_reloaded_while_others_are_served() {
    let config = |text: &str| {
        let mut config = saying(text);
        for host in 0..1_000 {
            config.push_str(&format!(
                "[hosts.\"h{host}.example.org\"]\n\"/\" = \"-> .\"\n\"/{text}/\" = \"<< /x/\"\n"
            ));
        }
        config
    };
    let site = Site::start(&config("one"));
    let load = Load::start(site.address, 2);
    load.more(200);
    let start = Instant::now();
    site.reload(&config("two"));
    until("the reload counts", || site.get("/") == "two");
    println!("reloaded within {:?}", start.elapsed());
    load.more(200);
    let (answers, longest) = load.stop();
    println!("{answers} requests, the longest took {longest:?}");
}

// -- ends

#[test]
fn quit_waits_for_what_is_under_way_and_term_only_for_a_while() {
    let signals = [Signal::QUIT, Signal::TERM];
    for (signals, is_whole) in [(&signals[..1], true), (&signals[1..], false), (&signals, false)] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("large"), vec![b'x'; 64 << 20]).unwrap();
        // The client stands still for longer than that, but is not cut for it.
        let clocks = ["--no-log", "--drain-timeout", "100ms", "--stall-timeout", "10m"];
        let server = Weft::serve(folder.path(), &clocks);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut bytes = vec![0; 1 << 20];
        stream.read_exact(&mut bytes).unwrap();
        let address = server.address();
        for &signal in signals {
            server.signal(signal);
            until("it is heard", || TcpStream::connect(address).is_err());
        }
        if !is_whole {
            // The client waits longer than the server does.
            let ended = server.end();
            assert_eq!(ended.status, Ok(0), "{}", ended.stderr);
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
        assert_eq!(total > 64 << 20, is_whole, "{total}");
    }
}
