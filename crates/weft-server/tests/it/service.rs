//! Running as a service: user and group, PID file, socket activation and notifications of the
//! service manager.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use crate::common::{
    Client, INHERITABLE_DESCRIPTORS, PATIENCE, Program, Signal, Weft, report_skipped, run, until,
    weft,
};
use tempfile::TempDir;

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

/// Returns the numbers of a line of `/proc/…/status` of a process or thread.
fn proc_status(process: &str, name: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap();
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

// -- users

/// Returns true if the test runs without root privileges, and reports it as skipped.
fn is_unprivileged() -> bool {
    let is_unprivileged = !rustix::process::geteuid().is_root();
    if is_unprivileged {
        report_skipped("only root can switch to another user");
    }
    is_unprivileged
}

/// Returns the user ID and group ID of the user `nobody`.
fn nobody_ids() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("nobody:")).expect("the user nobody");
    let mut fields = line.split(':').skip(2).map(|number| number.parse().unwrap());
    (fields.next().unwrap(), fields.next().unwrap())
}

#[test]
fn all_threads_switch_user_after_binding_sockets() {
    if is_unprivileged() {
        return;
    }
    let (uid, gid) = nobody_ids();
    let site = folder_with(&[("a.txt", "A\n"), ("secret.txt", "B\n")]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = site.path().join("secret.txt");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let socket = site.path().join("socket");
    let socket_address = format!("unix:{}", socket.display());
    // Only root may create files in this directory, including the socket.
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
        assert_eq!(proc_status(&thread, "Uid"), [uid; 4]);
        assert_eq!(proc_status(&thread, "Gid"), [gid; 4]);
        assert_eq!(proc_status(&thread, "Groups"), [gid]);
        assert_eq!(proc_status(&thread, "Umask"), [0]);
        threads += 1;
    }
    assert!(threads >= 3, "{threads}");
    assert_eq!(server.client().get("/a.txt").status, 200);
    assert_eq!(server.client().get("/secret.txt").status, 403);
    assert_eq!(Client::unix(&socket).get("/a.txt").status, 200);
    server.stop();
}

/// A check as root has the permissions of `user`.
#[test]
fn check_finds_sockets_of_upstreams_that_the_user_may_not_open() {
    if is_unprivileged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("fpm.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let file = folder.path().join("w.toml");
    let shown = socket.display();
    for (mode, user, expected) in [
        (0o660, "user = \"nobody\"\n", Some("its owner is root:root and its mode 0660")),
        (0o666, "user = \"nobody\"\n", None),
        (0o660, "", None),
    ] {
        fs::set_permissions(&socket, Permissions::from_mode(mode)).unwrap();
        let text = format!(
            "{user}log.access = \"none\"\n[hosts.\"*\"]\n\"/\" = {{ fastcgi = \"unix:{shown}\" }}\n"
        );
        fs::write(&file, text).unwrap();
        let output = run([Path::new("check"), &file]);
        let expected = expected
            .map(|reason| format!("the user nobody may not open the socket {shown}: {reason}"));
        assert_eq!(output.status, Ok(if expected.is_some() { 3 } else { 0 }), "{}", output.stderr);
        assert!(output.stderr.contains(&expected.unwrap_or_default()), "{}", output.stderr);
    }
}

#[test]
fn rejects_unknown_users_and_groups() {
    if is_unprivileged() {
        return;
    }
    let site = folder_with(&[]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (arguments, expected) in [
        (&["--user", "nobody-here"][..], "weft: there is no user `nobody-here`\n"),
        (&["--user", "nobody", "--group", "none-here"], "weft: there is no group `none-here`\n"),
        (&["--group", "nogroup"], "weft: `group` requires `user`\n"),
    ] {
        let folder = site.path().to_str().unwrap();
        let output = run([&[folder, "--listen", "127.0.0.1:0"], arguments].concat());
        assert_eq!((output.status, &*output.stderr), (Ok(1), expected));
    }
}

// -- the PID file

#[test]
fn pid_file_is_replaced_at_start_and_removed_at_stop() {
    let site = folder_with(&[("a.txt", "A\n")]);
    let file = site.path().join("weft.pid");
    // Longer than the new contents.
    fs::write(&file, "12345678901234567890\nand more\n").unwrap();
    let server = Weft::serve(site.path(), &["--pid-file", file.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", server.id()));
    server.stop();
    assert!(!file.exists());
}

#[test]
fn pid_file_does_not_follow_symlinks() {
    let site = folder_with(&[("precious", "keep me\n")]);
    let [precious, file] = ["precious", "weft.pid"].map(|name| site.path().join(name));
    std::os::unix::fs::symlink(&precious, &file).unwrap();
    let arguments = [site.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--pid-file"];
    let output = run(arguments.iter().copied().chain([file.to_str().unwrap()]));
    assert_eq!(output.status, Ok(1));
    assert!(output.stderr.starts_with("weft: cannot write "), "{}", output.stderr);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "keep me\n");
}

/// Root sends signals to the PID in the file, so only root may choose it.
#[test]
fn pid_file_belongs_to_root_if_the_user_is_changed() {
    if is_unprivileged() {
        return;
    }
    let site = folder_with(&[("a.txt", "A\n")]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = site.path().join("weft.pid");
    let arguments = ["--user", "nobody", "--pid-file", file.to_str().unwrap()];
    let nobody = nobody_ids().0;
    for former_owner in [None, Some(0), Some(nobody)] {
        if let Some(owner) = former_owner {
            fs::write(&file, "1\n").unwrap();
            std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
        }
        let mut former = fs::OpenOptions::new().write(true).open(&file).ok();
        let server = Weft::serve(site.path(), &arguments);
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o644), "{former_owner:?}");
        if let (Some(former), true) = (&mut former, former_owner == Some(nobody)) {
            former.write_all(b"1\n").unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", server.id()));
        // The process has no descriptor of the file.
        let descriptors = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        assert_eq!(targets.filter(|target| *target == file).count(), 0, "{former_owner:?}");
        let output = server.stop();
        assert!(output.stderr.contains("remains: "), "{}", output.stderr);
        // This user cannot remove a file from a directory of root.
        assert!(file.exists());
        fs::remove_file(&file).unwrap();
    }
}

/// In a directory of its user, the process can remove the file.
#[test]
fn pid_file_is_removed_from_a_directory_of_the_user() {
    if is_unprivileged() {
        return;
    }
    let site = folder_with(&[("a.txt", "A\n")]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = site.path().join("run");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(nobody_ids().0), None).unwrap();
    let file = folder.join("weft.pid");
    let arguments = ["--user", "nobody", "--pid-file", file.to_str().unwrap()];
    let server = Weft::serve(site.path(), &arguments);
    assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
    server.stop();
    assert!(!file.exists());
}

/// The successor has the changed user, and cannot write the file of root.
#[test]
fn upgrade_keeps_the_pid_file_of_root_and_warns() {
    if is_unprivileged() {
        return;
    }
    let site = folder_with(&[("a.txt", "A\n")]);
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = site.path().join("weft.pid");
    let arguments = ["--user", "nobody", "--pid-file", file.to_str().unwrap()];
    let server = Weft::serve(site.path(), &arguments);
    let id = server.id();
    server.signal(Signal::USR2);
    let warning = "keeps the PID of the process before the upgrade";
    until("the successor serves", || {
        let log = server.stderr();
        log.contains(warning) && log.contains("the PID of this process is ")
    });
    let log = server.stderr();
    let (_, successor) = log.split_once("the PID of this process is ").unwrap();
    let digits = successor.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let successor = rustix::process::Pid::from_raw(digits.parse().unwrap()).unwrap();
    let contents = fs::read_to_string(&file).unwrap();
    // Both processes share the output, so the second one has to exit first.
    rustix::process::kill_process(successor, Signal::TERM).unwrap();
    until("the successor exits", || rustix::process::test_kill_process(successor).is_err());
    assert_eq!(contents, format!("{id}\n"));
    assert_eq!(server.wait_with_output().status, Ok(0));
}

// -- the service manager

/// Starts the program like a service manager: with these sockets, starting at descriptor 3
/// (sd_listen_fds(3)).
pub fn start_with_sockets(
    site: &Path,
    names: &str,
    sockets: &[OwnedFd],
    options: &[&str],
) -> Program {
    let _exclusive = INHERITABLE_DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    let dup_above_30 = |socket| rustix::io::fcntl_dupfd_cloexec(socket, 30).unwrap();
    let sockets: Vec<OwnedFd> = sockets.iter().map(dup_above_30).collect();
    let mut script = String::new();
    for (number, socket) in sockets.iter().enumerate() {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
        script.push_str(&format!("exec {}<&{}; ", 3 + number, socket.as_raw_fd()));
    }
    // `exec` keeps the process ID, so that LISTEN_PID is the ID of the program.
    script.push_str("LISTEN_PID=$$ exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_weft")]).arg(site).args(options);
    command.env("LISTEN_FDS", sockets.len().to_string()).env("LISTEN_FDNAMES", names);
    Program::start(&mut command)
}

#[test]
fn serves_on_inherited_sockets() {
    let site = folder_with(&[("a.txt", "A\n")]);
    let path = site.path().join("socket");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    let [address, tls_address] = [&tcp, &tls].map(|socket| socket.local_addr().unwrap());
    let sockets = [tcp.into(), tls.into(), unix.into()];
    let server = start_with_sockets(site.path(), "web:tls:local", &sockets, &["--tls-self-signed"]);
    let server = Weft::from_program(server);
    // The default address is not added to the inherited sockets.
    let socket = format!("unix:{}", path.display());
    let expected = [format!("http://{address}"), format!("https://{tls_address}"), socket];
    assert_eq!(server.addresses(), expected);
    assert_eq!(Client::tcp(address).get("/a.txt").body, b"A\n");
    assert_eq!(Client::tcp(tls_address).get("/a.txt").status, 400);
    assert_eq!(Client::unix(&path).get("/a.txt").body, b"A\n");
    server.stop();
    assert!(path.exists(), "a socket file of the service manager is not removed");
}

#[test]
fn inherited_status_socket_does_not_serve_the_site() {
    let site = folder_with(&[("a.txt", "A\n")]);
    let status = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = status.local_addr().unwrap();
    // The site listens on the address of --listen only.
    let options = ["--listen", "127.0.0.1:0", "--status-host", "a"];
    let server =
        Weft::from_program(start_with_sockets(site.path(), "status", &[status.into()], &options));
    let expected = format!("; status at http://{address}\n");
    assert!(server.announcement.ends_with(&expected), "{}", server.announcement);
    assert_eq!(server.client().get("/a.txt").body, b"A\n");
    assert_eq!(Client::tcp(address).get("/metrics").status, 200);
    assert_eq!(Client::tcp(address).get("/a.txt").status, 404);
    server.stop();
}

#[test]
fn rejects_inherited_sockets_that_do_not_listen() {
    let site = folder_with(&[]);
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let output = start_with_sockets(site.path(), "odd", &[socket.into()], &[]).wait_with_output();
    assert_eq!(output.status, Ok(1));
    let expected = "weft: cannot listen on the socket `odd` of the service manager: ";
    assert!(output.stderr.starts_with(expected), "{}", output.stderr);
}

#[test]
fn notifies_service_manager_of_state_changes() {
    let folder = folder_with(&[(
        "weft.toml",
        "listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = \"-> .\"\n",
    )]);
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let recv_notification = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = weft(["--config", "weft.toml"]);
    let server = Weft::start(command.current_dir(&folder).env("NOTIFY_SOCKET", &path));
    let ready = format!("READY=1\nMAINPID={}\n", server.id());
    assert_eq!(recv_notification(), ready);
    server.signal(Signal::HUP);
    let reloading = recv_notification();
    let (word, time) = reloading.split_once("MONOTONIC_USEC=").expect("a time");
    assert_eq!(word, "RELOADING=1\n");
    let microseconds: u64 = time.trim().parse().unwrap();
    assert!(Duration::from_micros(microseconds) > Duration::ZERO);
    assert_eq!(recv_notification(), ready);
    server.signal(Signal::USR2);
    let successor = recv_notification();
    let successor = successor.strip_prefix("READY=1\nMAINPID=").expect("the new main process");
    let id: i32 = successor.trim().parse().unwrap();
    assert_ne!(id, server.id() as i32);
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, Signal::TERM).unwrap();
    assert_eq!(recv_notification(), "STOPPING=1\n");
    until("the successor exits", || rustix::process::test_kill_process(id).is_err());
    // The first process exits after the handover, as it has no connections.
    let output = server.wait_with_output();
    assert_eq!(output.status, Ok(0), "{}", output.stderr);
}
