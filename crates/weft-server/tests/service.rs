//! As a service: whom it runs as, the file with its number, and what a service manager gives
//! and is told.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Client, PATIENCE, Program, Signal, Weft, run, skipped, until, weft};
use tempfile::TempDir;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

/// What the kernel says of a process or a thread, by the name of the line.
fn status(of: &str, name: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

// -- users

/// Whether only root can do this and we are not root.
fn is_ordinary_user() -> bool {
    let is_ordinary = !rustix::process::geteuid().is_root();
    if is_ordinary {
        skipped("only root can become another user");
    }
    is_ordinary
}

/// The numbers of the user `nobody` and its group.
fn nobody() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("nobody:")).expect("there is nobody");
    let mut fields = line.split(':').skip(2).map(|number| number.parse().unwrap());
    (fields.next().unwrap(), fields.next().unwrap())
}

#[test]
fn all_threads_become_the_user_once_the_sockets_are_there() {
    if is_ordinary_user() {
        return;
    }
    let (uid, gid) = nobody();
    let site = folder(&[("a.txt", "A\n"), ("secret.txt", "B\n")]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = site.path().join("secret.txt");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let socket = site.path().join("socket");
    let socket_address = format!("unix:{}", socket.display());
    // Only root may make files in this folder, and so the socket.
    let server = Weft::serve(
        site.path(),
        &["--user", "nobody", "--listen", &socket_address, "--umask", "000", "--workers", "2"],
    );
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o777);
    let id = server.id().to_string();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap();
        let thread = format!("{id}/task/{thread}");
        assert_eq!(status(&thread, "Uid"), [uid; 4]);
        assert_eq!(status(&thread, "Gid"), [gid; 4]);
        assert_eq!(status(&thread, "Groups"), [gid]);
        assert_eq!(status(&thread, "Umask"), [0]);
        threads += 1;
    }
    assert!(threads >= 3, "{threads}");
    assert_eq!(server.client().get("/a.txt").status, 200);
    assert_eq!(server.client().get("/secret.txt").status, 403);
    assert_eq!(Client::unix(&socket).get("/a.txt").status, 200);
    server.stop();
}

#[test]
fn another_user_cannot_start_it_as_a_third() {
    if is_ordinary_user() {
        return;
    }
    let site = folder(&[]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, expected) in [
        (&["--user", "nobody-here"][..], "weft: there is no user `nobody-here`\n"),
        (&["--user", "nobody", "--group", "none-here"], "weft: there is no group `none-here`\n"),
        (&["--group", "nogroup"], "weft: `group` needs `user`, too\n"),
    ] {
        let folder = site.path().to_str().unwrap();
        let ended = run([&[folder, "--listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!((ended.status, &*ended.stderr), (Ok(1), expected));
    }
}

// -- the pid file

#[test]
fn the_file_has_the_number_and_goes_with_the_program() {
    let site = folder(&[("a.txt", "A\n")]);
    let file = site.path().join("weft.pid");
    // Longer than what will be in it.
    fs::write(&file, "12345678901234567890\nand more\n").unwrap();
    let server = Weft::serve(site.path(), &["--pid-file", file.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", server.id()));
    server.stop();
    assert!(!file.exists());
}

#[test]
fn a_link_in_place_of_the_file_is_not_followed() {
    let site = folder(&[("precious", "keep me\n")]);
    let [precious, file] = ["precious", "weft.pid"].map(|name| site.path().join(name));
    std::os::unix::fs::symlink(&precious, &file).unwrap();
    let arguments = [site.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--pid-file"];
    let ended = run(arguments.iter().copied().chain([file.to_str().unwrap()]));
    assert_eq!(ended.status, Ok(1));
    assert!(ended.stderr.starts_with("weft: cannot write "), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "keep me\n");
}

// -- the service manager

/// Starts the program as a service manager does: with these sockets, from descriptor 3 on.
fn start_with(site: &Path, names: &str, sockets: &[OwnedFd], more: &[&str]) -> Program {
    let high = |socket| rustix::io::fcntl_dupfd_cloexec(socket, 30).unwrap();
    let sockets: Vec<OwnedFd> = sockets.iter().map(high).collect();
    let mut script = String::new();
    for (number, socket) in sockets.iter().enumerate() {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
        script.push_str(&format!("exec {}<&{}; ", 3 + number, socket.as_raw_fd()));
    }
    // The shell becomes the program, so that its number is the program's.
    script.push_str("LISTEN_PID=$$ exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weft")]).arg(site).args(more);
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    Program::start(&mut command)
}

#[test]
fn it_serves_on_the_sockets_of_a_service_manager() {
    let site = folder(&[("a.txt", "A\n")]);
    let path = site.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let [address, tls_address] = [&tcp, &tls].map(|socket| socket.local_addr().unwrap());
    let sockets = [tcp.into(), tls.into(), unix.into()];
    let server = start_with(site.path(), "web:tls:local", &sockets, &["--tls-self-signed"]);
    let server = Weft::announced(server);
    // No other address, though nobody asked for one.
    let socket = format!("unix:{}", path.display());
    let expected = [format!("http://{address}"), format!("https://{tls_address}"), socket];
    assert_eq!(server.addresses(), expected);
    assert_eq!(Client::tcp(address).get("/a.txt").body, b"A\n");
    assert_eq!(Client::tcp(tls_address).get("/a.txt").status, 400);
    assert_eq!(Client::unix(&path).get("/a.txt").body, b"A\n");
    server.stop();
    assert!(path.exists(), "the file is the service manager's");
}

#[test]
fn a_socket_for_the_status_is_none_for_the_site() {
    let site = folder(&[("a.txt", "A\n")]);
    let status = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = status.local_addr().unwrap();
    // The site has the address that was asked for, beside the one that was given.
    let more = ["--listen", "127.0.0.1:0"];
    let server = Weft::announced(start_with(site.path(), "status", &[status.into()], &more));
    let expected = format!("; status at http://{address}\n");
    assert!(server.announcement.ends_with(&expected), "{}", server.announcement);
    assert_eq!(server.client().get("/a.txt").body, b"A\n");
    assert_eq!(Client::tcp(address).get("/metrics").status, 200);
    assert_eq!(Client::tcp(address).get("/a.txt").status, 404);
    server.stop();
}

#[test]
fn what_is_no_socket_to_listen_on_is_refused() {
    let site = folder(&[]);
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let ended = start_with(site.path(), "odd", &[socket.into()], &[]).end();
    assert_eq!(ended.status, Ok(1));
    let expected = "weft: cannot listen on the socket `odd` of the service manager: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
}

#[test]
fn the_service_manager_is_told_of_all_that_happens() {
    let place =
        folder(&[("weft.toml", "listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \"-> .\"\n")]);
    let path = place.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = weft(["--config", "weft.toml"]);
    let server = Weft::start(command.current_dir(&place).env("NOTIFY_SOCKET", &path));
    let ready = format!("READY=1\nMAINPID={}\n", server.id());
    assert_eq!(told(), ready);
    server.signal(Signal::HUP);
    let reloading = told();
    let (word, time) = reloading.split_once("MONOTONIC_USEC=").expect("since when");
    assert_eq!(word, "RELOADING=1\n");
    let microseconds: u64 = time.trim().parse().unwrap();
    assert!(Duration::from_micros(microseconds) > Duration::ZERO);
    assert_eq!(told(), ready);
    server.signal(Signal::USR2);
    let successor = told();
    let successor = successor.strip_prefix("READY=1\nMAINPID=").expect("who serves");
    let id: i32 = successor.trim().parse().unwrap();
    assert_ne!(id, server.id() as i32);
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, Signal::TERM).unwrap();
    assert_eq!(told(), "STOPPING=1\n");
    until("it ends", || rustix::process::test_kill_process(id).is_err());
    // The first process has nothing left to do since the other serves.
    let ended = server.end();
    assert_eq!(ended.status, Ok(0), "{}", ended.stderr);
}
