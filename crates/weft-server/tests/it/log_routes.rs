//! Access logs of hosts and routes: inheritance, conditions, and their change at a reload.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{Client, Signal, Weft, raw_upstream, read_head, until, weft};

/// A server with a configuration in a folder of its own.
struct Site {
    folder: TempDir,
    server: Weft,
}

impl Site {
    fn start(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        write_config(folder.path(), config);
        let file = folder.path().join("weft.toml");
        let server = Weft::start(&mut weft([Path::new("--config"), &file]));
        Site { folder, server }
    }

    /// Sends a request on a new connection; returns the status.
    fn request(&self, host: &str, target: &str, agent: &str) -> u16 {
        let mut client = self.server.client();
        send(&mut client, host, target, agent)
    }

    fn reload(&self, config: &str) {
        write_config(self.folder.path(), config);
        let reloads = || self.server.stderr().matches("the configuration was reloaded").count();
        let before = reloads();
        self.server.signal(Signal::HUP);
        until("the configuration is reloaded", || reloads() > before);
    }

    /// Returns the lines of a log, joined by commas.
    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().collect::<Vec<_>>().join(", ")
    }

    /// Stops the server, so that all lines are written.
    fn stop(self) -> TempDir {
        self.server.stop();
        self.folder
    }
}

fn write_config(folder: &Path, config: &str) {
    let config = format!("listen = \"127.0.0.1:0\"\nworkers = 1\n{config}");
    fs::write(folder.join("weft.toml"), config).unwrap();
}

fn send(client: &mut Client, host: &str, target: &str, agent: &str) -> u16 {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\n\r\n"));
    client.response().status
}

fn lines(folder: &TempDir, name: &str) -> String {
    let text = fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    text.lines().collect::<Vec<_>>().join(", ")
}

#[test]
fn each_request_has_a_line_in_the_logs_of_its_route() {
    let site = Site::start(
        "log = { access = \"all.log\", format = \"%{host}x%{target}x %s\" }\n\
         [hosts.a]\n\
         access_log = \"a.log\"\n\
         \"/\" = { respond = \"a\" }\n\
         \"/quiet\" = { respond = \"b\", access_log = false }\n\
         \"/all\" = { respond = \"c\", access_log = true }\n\
         \"/two\" = { respond = \"d\", access_log = [true, { to = \"two.log\", format = \"%s %{route}x\" }] }\n\
         [hosts.b]\n\
         \"/\" = { respond = \"a\" }\n\
         [hosts.c]\n\
         access_log = { format = \"c %s\" }\n\
         \"/\" = { respond = \"a\" }\n\
         \"/none\" = { respond = \"a\", access_log = \"none\" }\n",
    );
    for (host, target) in [
        ("a", "/x"),
        ("a", "/quiet"),
        ("a", "/all"),
        ("a", "/two"),
        ("b", "/"),
        ("c", "/"),
        ("c", "/none"),
    ] {
        assert_eq!(site.request(host, target, "x"), 200, "{host} {target}");
    }
    assert_eq!(site.request("d", "/", "x"), 404);
    let mut client = site.server.client();
    // The connection had a request of a route with another log.
    assert_eq!(send(&mut client, "a", "/y", "x"), 200);
    client.send("BAD\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let folder = site.stop();
    // Lines of different buffers are not ordered.
    let all = lines(&folder, "all.log");
    let mut all: Vec<&str> = all.split(", ").collect();
    all.sort_unstable();
    assert_eq!(all, ["-- 400", "a/all 200", "a/two 200", "b/ 200", "c 200", "d/ 404"]);
    assert_eq!(lines(&folder, "a.log"), "a/x 200, a/y 200");
    assert_eq!(lines(&folder, "two.log"), "200 /two/");
}

#[test]
fn a_route_inherits_the_logs_of_its_host_and_of_the_defaults() {
    let site = Site::start(
        "log = { access = \"none\", format = \"%{target}x\" }\n\
         [defaults]\n\
         access_log = \"defaults.log\"\n\
         [snippets.quiet]\n\
         access_log = false\n\
         [hosts.a]\n\
         \"/\" = { respond = \"a\" }\n\
         \"/quiet\" = { respond = \"a\", use = \"quiet\" }\n\
         [hosts.b]\n\
         access_log = \"b.log\"\n\
         \"/b\" = { respond = \"a\" }\n\
         \"/c\" = { respond = \"a\", access_log = \"c.log\" }\n",
    );
    for (host, target) in [("a", "/a"), ("a", "/quiet"), ("b", "/b"), ("b", "/c")] {
        assert_eq!(site.request(host, target, "x"), 200, "{host} {target}");
    }
    // The log of requests without a route is none.
    assert_eq!(site.request("c", "/d", "x"), 404);
    let folder = site.stop();
    for (name, expected) in [("defaults.log", "/a"), ("b.log", "/b"), ("c.log", "/c")] {
        assert_eq!(lines(&folder, name), expected, "{name}");
    }
}

#[test]
fn conditions_select_the_requests_that_are_logged() {
    let slow = raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            std::thread::sleep(Duration::from_millis(60));
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let site = Site::start(&format!(
        "log = {{ access = \"none\", format = \"%{{target}}x\" }}\n\
         [defaults]\n\
         access_log = [\n\
           {{ to = \"errors.log\", status = [\"4xx\", \"502-503\"] }},\n\
           {{ to = \"slow.log\", min_duration = \"50ms\" }},\n\
           {{ to = \"slowest.log\", min_duration = \"10m\" }},\n\
           {{ to = \"people.log\", skip_agents = [\"probe\", \"Bot/\"] }},\n\
           {{ to = \"slow-errors.log\", status = \"4xx\", min_duration = \"10m\" }},\n\
         ]\n\
         [hosts.\"*\"]\n\
         \"/\" = {{ respond = \"a\" }}\n\
         \"/404\" = {{ respond = \"a\", status = 404 }}\n\
         \"/501\" = {{ respond = \"a\", status = 501 }}\n\
         \"/503\" = {{ respond = \"a\", status = 503 }}\n\
         \"/slow\" = \">> http://{slow}/\"\n"
    ));
    for (target, agent) in [
        ("/200", "x"),
        ("/404", "kube-probe/1.0"),
        ("/501", "A Bot/1"),
        ("/503", "bot"),
        ("/slow", "x"),
    ] {
        site.request("a", target, agent);
    }
    let folder = site.stop();
    assert_eq!(lines(&folder, "errors.log"), "/404, /503");
    // Others may be slow on a loaded machine.
    assert!(lines(&folder, "slow.log").ends_with("/slow"));
    assert_eq!(lines(&folder, "slowest.log"), "");
    assert_eq!(lines(&folder, "people.log"), "/200, /503, /slow");
    assert_eq!(lines(&folder, "slow-errors.log"), "");
}

#[test]
fn a_sample_has_its_share_and_all_kept_statuses() {
    let site = Site::start(
        "log = { access = \"none\", format = \"%s\" }\n\
         [defaults]\n\
         access_log = { to = \"a.log\", sample = \"10%\", keep_status = \"5xx\" }\n\
         [hosts.\"*\"]\n\
         \"/\" = { respond = \"a\" }\n\
         \"/500\" = { respond = \"a\", status = 500 }\n",
    );
    let mut client = site.server.client();
    for number in 0..1_000 {
        let target = if number % 100 == 0 { "/500" } else { "/" };
        send(&mut client, "a", target, "x");
    }
    let folder = site.stop();
    let log = lines(&folder, "a.log");
    assert_eq!(log.matches("500").count(), 10);
    let sampled = log.matches("200").count();
    assert!((95..=103).contains(&sampled), "{sampled}");
}

#[test]
fn sigusr1_reopens_the_logs_of_all_routes() {
    let site = Site::start(
        "log = { access = \"all.log\", format = \"%{target}x\" }\n\
         [hosts.\"*\"]\n\
         \"/\" = { respond = \"a\" }\n\
         \"/a\" = { respond = \"a\", access_log = \"a.log\" }\n",
    );
    let path = |name: &str| site.folder.path().join(name);
    assert_eq!((site.request("a", "/", "x"), site.request("a", "/a", "x")), (200, 200));
    for name in ["all.log", "a.log"] {
        until("the line is written", || !site.log(name).is_empty());
        fs::rename(path(name), path(&format!("{name}.old"))).unwrap();
    }
    site.server.signal(Signal::USR1);
    until("the logs are reopened", || path("all.log").exists() && path("a.log").exists());
    assert_eq!((site.request("a", "/", "x"), site.request("a", "/a", "x")), (200, 200));
    let folder = site.stop();
    for (name, expected) in [("all.log", "/"), ("a.log", "/a")] {
        assert_eq!(lines(&folder, name), expected);
        assert_eq!(lines(&folder, &format!("{name}.old")), expected);
    }
}

#[test]
fn a_reload_changes_the_logs() {
    let config = |log: &str, route: &str| {
        format!(
            "log = {{ {log} }}\n[hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n\
             \"/a\" = {{ respond = \"a\", access_log = {route} }}\n"
        )
    };
    let one = config("access = \"all.log\", format = \"one %{target}x\"", "\"a.log\"");
    let two = config(
        "access = \"all.log\", format = \"two %{target}x\", error = \"error.log\", level = \"info\"",
        "\"b.log\"",
    );
    let site = Site::start(&one);
    let mut client = site.server.client();
    let mut request = |target| assert_eq!(send(&mut client, "a", target, "x"), 200);
    request("/");
    request("/a");
    write_config(site.folder.path(), &two);
    site.server.signal(Signal::HUP);
    until("the new error log has the reload", || {
        site.log("error.log").contains("info: the configuration was reloaded")
    });
    until("the router is replaced", || {
        request("/a");
        !site.log("b.log").is_empty()
    });
    request("/");
    let is_open = |name: &str| {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", site.server.id())).unwrap();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        targets.into_iter().any(|target| target == site.folder.path().join(name))
    };
    until("the former log is closed", || !is_open("a.log"));
    assert!(is_open("b.log") && is_open("all.log"));
    let before = site.log("error.log").matches("reloaded").count();
    write_config(site.folder.path(), &config("access = \"none\", error = \"error.log\"", "false"));
    site.server.signal(Signal::HUP);
    until("the logs are removed", || site.log("error.log").matches("reloaded").count() > before);
    until("the logs are closed", || {
        request("/");
        request("/a");
        !is_open("all.log") && !is_open("b.log")
    });
    let folder = site.stop();
    assert_eq!(lines(&folder, "a.log").split(", ").next(), Some("one /a"));
    assert_eq!(lines(&folder, "b.log").split(", ").next(), Some("two /a"));
    let all = lines(&folder, "all.log");
    assert!(all.starts_with("one /, two /"), "{all}");
}

/// A configuration whose logs cannot be opened changes nothing.
#[test]
fn a_reload_with_a_log_that_cannot_be_opened_is_refused() {
    let config = |log: &str| {
        format!(
            "log = {{ access = \"all.log\", format = \"%{{target}}x\" }}\n[hosts.\"*\"]\n\
             \"/\" = {{ respond = \"a\", access_log = \"{log}\" }}\n"
        )
    };
    let site = Site::start(&config("a.log"));
    write_config(site.folder.path(), &config("missing/a.log"));
    site.server.signal(Signal::HUP);
    until("the reload is refused", || {
        site.server.stderr().contains("the configuration was not reloaded")
    });
    assert!(site.server.stderr().contains("missing/a.log: No such file or directory"));
    assert_eq!(site.request("a", "/", "x"), 200);
    let folder = site.stop();
    assert_eq!(lines(&folder, "a.log"), "/");
}

/// Reloads during requests. Each request has one line in one of the logs.
#[test]
fn reloads_lose_no_line() {
    let config = |name: &str| {
        format!(
            "log = {{ access = \"{name}-all.log\", format = \"%{{target}}x\" }}\n\
             [hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n\
             \"/a\" = {{ respond = \"a\", access_log = \"{name}.log\" }}\n"
        )
    };
    let site = Site::start(&config("1"));
    let is_done = AtomicBool::new(false);
    let (site, is_done) = (&site, &is_done);
    let sent: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = ["/", "/a"]
            .map(|target| {
                scope.spawn(move || {
                    let mut client = site.server.client();
                    let mut count = 0;
                    while !is_done.load(Relaxed) {
                        assert_eq!(send(&mut client, "a", target, "x"), 200);
                        count += 1;
                    }
                    count
                })
            })
            .into();
        for name in ["2", "3", "1", "2"] {
            site.reload(&config(name));
        }
        is_done.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    site.server.signal(Signal::TERM);
    let total = || -> usize {
        let count = |name: &str| site.log(name).split(", ").filter(|line| !line.is_empty()).count();
        ["1.log", "2.log", "3.log", "1-all.log", "2-all.log", "3-all.log"]
            .into_iter()
            .map(count)
            .sum()
    };
    until("all lines are written", || total() >= sent);
    assert_eq!(total(), sent);
}

#[test]
fn files_share_a_thread_that_no_daemon_delays() {
    let folder = tempfile::tempdir().unwrap();
    // A daemon that reads nothing: its queue is full after some messages.
    let _daemon = UnixDatagram::bind(folder.path().join("daemon")).unwrap();
    let mut config = "log = { access = \"syslog:unix:daemon\", format = \"%s\" }\n\
                      [hosts.\"*\"]\n\"/\" = { respond = \"a\" }\n"
        .to_owned();
    for number in 0..40 {
        config.push_str(&format!(
            "[hosts.h{number}]\naccess_log = \"h{number}.log\"\n\"/\" = {{ respond = \"a\" }}\n"
        ));
    }
    let daemon = format!("syslog:unix:{}", folder.path().join("daemon").display());
    let site = Site::start(&config.replace("syslog:unix:daemon", &daemon));
    let mut client = site.server.client();
    for _ in 0..2_000 {
        send(&mut client, "other", "/", "a");
    }
    for number in 0..40 {
        send(&mut client, &format!("h{number}"), "/", "a");
    }
    for number in 0..40 {
        until("the line is written", || site.log(&format!("h{number}.log")) == "200");
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", site.server.id())).unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    let mut writers: Vec<_> = names.filter(|name| name.contains("log")).collect();
    writers.sort();
    assert_eq!(writers, ["weft access log\n", "weft error log\n", "weft logs\n"]);
}
