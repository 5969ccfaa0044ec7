//! Unix sockets to listen on, with the mode and the owner of their files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::common::{
    Client, HAS_CONTROL_SOCKET, Program, Signal, Weft, report_skipped, run, until, weft,
};

#[test]
fn unix_listener_has_its_mode_and_a_reload_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("w.toml"), folder.path().join("a b.sock"));
    let write = |settings: &str| {
        let listen = format!("listen = [\"unix:{}{settings}\"]\n", socket.display());
        fs::write(&file, format!("{listen}[hosts.\"*\"]\n\"/\" = {{ respond = \"one\" }}\n"))
            .unwrap();
    };
    write(" mode=0666");
    let server = Weft::start(weft(["--no-log", "--config"]).arg(&file));
    let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o666);
    let mut client = Client::unix(&socket);
    assert_eq!(client.get("/").body, b"one");
    write(" mode=0600");
    let pid = server.id().to_string();
    if HAS_CONTROL_SOCKET {
        let output = run(["reload", "--pid", &pid]);
        assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    } else {
        server.signal(Signal::HUP);
        until("the mode has changed", || mode() != 0o666);
    }
    assert_eq!(mode(), 0o600);
    // The socket is the same.
    assert_eq!(client.get("/").body, b"one");
    assert_eq!(Client::unix(&socket).get("/").body, b"one");
    server.stop();
    until("the file is removed", || !socket.exists());
    for (settings, expected) in [
        (" mode=9", "expected a mode such as 0660, found \"9\""),
        (" owner=nobody-here", "cannot set the mode and the owner of unix:"),
    ] {
        write(settings);
        let output = Program::start(weft(["--config"]).arg(&file)).wait_with_output();
        assert_eq!(output.status, Ok(1), "{settings}");
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

/// Root gives the file to another user before it becomes one itself.
#[test]
fn unix_listener_has_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return report_skipped("only root can change the owner of a file");
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("w.toml"), folder.path().join("a.sock"));
    let listen = format!("listen = [\"unix:{} mode=0660 owner=nobody\"]\n", socket.display());
    fs::write(&file, format!("{listen}[hosts.\"*\"]\n\"/\" = {{ respond = \"\" }}\n")).unwrap();
    let server = Weft::start(weft(["--no-log", "--config"]).arg(&file));
    let found = fs::metadata(&socket).unwrap();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = users.lines().find(|line| line.starts_with("nobody:")).unwrap();
    let ids: Vec<u32> = nobody.split(':').skip(2).take(2).map(|id| id.parse().unwrap()).collect();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (ids[0], ids[1], 0o660));
    server.stop();
}
