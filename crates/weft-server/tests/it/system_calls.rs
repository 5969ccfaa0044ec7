//! The number of system calls of the program, counted by strace.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::traced::Traced;
use crate::common::{Weft, has_tool, until};

/// Waits until files are old enough to be cached.
fn settle(folder: &Path) {
    let changed = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().ctime();
    let newest = fs::read_dir(folder).unwrap().map(changed).max().unwrap_or_default();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    until("all files are older than 3 s", || now() >= newest + 3);
}

#[test]
fn first_opening_looks_for_precompressed_files_only_if_a_coding_is_accepted() {
    if !has_tool("strace") {
        return;
    }
    const FILES: usize = 100;
    let site = tempfile::tempdir().unwrap();
    for number in 0..=FILES {
        let name = format!("{number}.css");
        fs::write(site.path().join(name), "a { color: red }\n".repeat(100)).unwrap();
    }
    settle(site.path());
    let names = ["sendto", "openat2", "fstat", "newfstatat", "statx", "preadv2", "pread64"];
    let traced = Traced::start(&names, &[site.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let mut client = traced.server.client();
    assert_eq!(client.get(&format!("/{FILES}.css")).status, 200);
    let mut get_all = |fields: &str, coding: Option<&str>| {
        for number in 0..FILES {
            client.send(format!("GET /{number}.css HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            let response = client.response();
            assert_eq!((response.status, response.header("content-encoding")), (200, coding));
            assert_eq!(response.header("vary"), Some("accept-encoding"));
        }
    };
    let first = traced.during(names, FILES, || get_all("", None));
    let [_, opened, fstats, newfstatats, statxs, reads, blocking_reads] = first;
    let (stats, reads) = (fstats + newfstatats + statxs, reads + blocking_reads);
    // A lookup for which the kernel has not everything in memory is made again on another thread,
    // and the directory is opened again each second.
    assert!((FILES..FILES + FILES / 4).contains(&opened), "{first:?}");
    assert!((2 * FILES..2 * FILES + FILES / 2).contains(&stats), "{first:?}");
    assert!((FILES..FILES + FILES / 4).contains(&reads), "{first:?}");
    let [_, opened] = traced.during(["sendto", "openat2"], FILES, || {
        get_all("Accept-Encoding: gzip\r\n", Some("gzip"));
    });
    assert!(opened >= 4 * FILES, "{opened} calls for a file and three precompressed ones");
    traced.server.stop();
}

#[test]
fn download_of_a_resident_file_is_hardly_probed() {
    if !has_tool("strace") {
        return;
    }
    const MIB: usize = 48;
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("a.bin"), vec![b'a'; MIB << 20]).unwrap();
    settle(site.path());
    let folder = site.path().to_str().unwrap();
    let names = ["sendto", "preadv2", "sendfile"];
    let traced = Traced::start(&names, &[folder, "--listen", "127.0.0.1:0"]);
    let mut client = traced.server.client();
    let [_, probes, sent] = traced.during(names, 1, || {
        assert_eq!(client.get("/a.bin").body.len(), MIB << 20);
    });
    // 17 calls for the first 2 MiB, and two for each of the others; without the wide distance,
    // eight.
    assert!(probes <= 17 + 3 * MIB, "{probes} probes, {sent} calls that send");
    assert!(sent >= MIB / 2, "{sent} calls that send");
    traced.server.stop();
}

/// Pages of the file may be evicted during a wait, and the event loop must not read them from the
/// disk.
#[test]
fn a_file_is_probed_again_when_its_client_was_slow() {
    if !has_tool("strace") {
        return;
    }
    const MIB: usize = 32;
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("a.bin"), vec![b'a'; MIB << 20]).unwrap();
    settle(site.path());
    let folder = site.path().to_str().unwrap();
    let traced = Traced::start(&["preadv2", "sendfile"], &[folder, "--listen", "127.0.0.1:0"]);
    let mut client = traced.server.client();
    client.send("GET /a.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    // Without a wait, what was found is sent first.
    until("the file is probed after a call that could not send", || {
        client.body(16 << 10);
        let trace = traced.trace();
        let mut calls = trace.lines().zip(trace.lines().skip(1));
        calls.any(|(call, next)| call.contains("EAGAIN") && next.contains(" preadv2("))
    });
    traced.server.stop();
}

#[test]
fn deadlines_pass_without_a_timer_of_the_kernel() {
    if !has_tool("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-D", "-f", "-e", "trace=timerfd_create"]);
    strace.args(["-e", "inject=timerfd_create:error=EMFILE", "-o"]).arg(&trace);
    strace.arg(env!("CARGO_BIN_EXE_weft")).arg(folder.path());
    let server = Weft::start(strace.args(["--listen", "127.0.0.1:0", "--head-timeout", "1s"]));
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\n");
    assert_eq!(client.response().status, 408);
    let trace = || fs::read_to_string(&trace).unwrap();
    until("the failure is in the trace", || trace().contains("EMFILE"));
    server.stop();
}

/// Kernels before 5.6 do not have the call, and some seccomp profiles of containers refuse it.
#[test]
fn files_are_served_where_openat2_is_refused() {
    if !has_tool("strace") {
        return;
    }
    const REQUESTS: usize = 200;
    let tree = tempfile::tempdir().unwrap();
    let (site, deep) = (tree.path().join("site"), tree.path().join("site/a/b/c"));
    fs::create_dir_all(&deep).unwrap();
    fs::write(tree.path().join("secret"), "SECRET").unwrap();
    fs::write(deep.join("file.txt"), "FILE").unwrap();
    symlink("a/b", site.join("inside")).unwrap();
    symlink("../secret", site.join("outside")).unwrap();
    symlink("loop", site.join("loop")).unwrap();
    settle(&deep);
    let start = |inject: Option<&str>| {
        let trace = tree.path().join(format!("trace-{}", inject.unwrap_or("none")));
        let mut strace = Command::new("strace");
        strace.args(["-D", "-f", "-e", "trace=openat2,openat", "-o"]).arg(&trace);
        strace.args(inject.map(|error| format!("-einject=openat2:error={error}")));
        strace.arg(env!("CARGO_BIN_EXE_weft")).arg(&site);
        (Weft::start(strace.args(["--listen", "127.0.0.1:0", "--workers", "1"])), trace)
    };
    for inject in [None, Some("ENOSYS"), Some("EPERM")] {
        let (server, trace) = start(inject);
        let mut client = server.client();
        for (path, status) in [
            ("/a/b/c/file.txt", 200),
            ("/inside/c/file.txt", 200),
            ("/outside", 404),
            ("/loop", 404),
            ("/a/b/c/none", 404),
            ("/a/b/c/file.txt/more", 404),
        ] {
            assert_eq!(client.get(path).status, status, "{path} with {inject:?}");
        }
        let count = |call: &str| {
            let trace = fs::read_to_string(&trace).unwrap();
            trace.lines().filter(|line| line.contains(call)).count()
        };
        let before = count("openat(");
        for _ in 0..REQUESTS {
            assert_eq!(client.get("/a/b/c/file.txt").body, b"FILE");
        }
        server.stop();
        let refusals = count("(INJECTED)");
        assert_eq!(refusals > 0, inject.is_some() && !cfg!(weft_portable), "{inject:?}");
        // The cached file is revalidated each second, by a walk of four components.
        assert!(count("openat(") - before < REQUESTS, "{inject:?}");
    }
}

#[test]
fn close_notify_is_sent_with_the_response() {
    if !has_tool("strace") || !has_tool("curl") {
        return;
    }
    const CONNECTIONS: usize = 20;
    let site = tempfile::tempdir().unwrap();
    // In memory: an open file is sent before the end of the connection is known.
    fs::write(site.path().join("a.txt"), "A\n").unwrap();
    settle(site.path());
    let keys = tempfile::tempdir().unwrap();
    let path = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("crt"), certificate.cert.pem()).unwrap();
    fs::write(path("key"), certificate.signing_key.serialize_pem()).unwrap();
    let (crt, key) = (path("crt"), path("key"));
    let names = ["close", "sendmsg", "epoll_wait"];
    let folder = site.path().to_str().unwrap();
    let tls = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
    let traced = Traced::start(&names, &[&[folder], &tls[..]].concat());
    let url = format!("https://localhost:{}/a.txt", traced.server.tls_address().port());
    let get = || {
        let mut curl = Command::new("curl");
        curl.args(["-sSk", "--ipv4", "--http1.1", "--max-time", "30", &url]);
        let output = curl.args(["-H", "Connection: close"]).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"A\n"[..]));
    };
    get();
    let before = traced.trace().len();
    traced.during(names, CONNECTIONS, || (0..CONNECTIONS).for_each(|_| get()));
    let trace = traced.trace();
    let count = |is_counted: &dyn Fn(&str) -> bool| {
        trace[before..].lines().filter(|line| is_counted(line)).count()
    };
    // Tickets are sent before the response if the request arrives later than the end of the
    // handshake.
    let sent = count(&|line| line.contains(" sendmsg("));
    assert!((2 * CONNECTIONS..=3 * CONNECTIONS + 3).contains(&sent), "{sent} calls that send");
    let alerts = count(&|line| line.contains(" sendmsg(") && line.ends_with(" = 24"));
    assert_eq!(alerts, 0, "close_notify was sent alone");
    // Neither the delivery of the connection nor a step of a handshake that is alone polls for
    // events.
    let polls = count(&|line| line.contains(" epoll_wait(") && line.contains(", 0) "));
    assert!(polls < CONNECTIONS, "{polls} waits without a timeout");
    traced.server.stop();
}
