//! `weft reload`, `stop` and `upgrade`, which wait for the result, and `watch`, which reloads
//! changed files.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use crate::common::{
    Client, PATIENCE, Program, ProgramOutput, Signal, Weft, has_tool, run, until, weft,
};
use tempfile::TempDir;

/// A server of a configuration in a folder.
struct Site {
    folder: TempDir,
    server: Weft,
}

impl Site {
    fn start(config: &str) -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("w.toml"), config).unwrap();
        let mut command = weft(["--config", "w.toml", "--no-log"]);
        let server = Weft::start(command.current_dir(folder.path()));
        Site { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, config: &str) {
        fs::write(self.path("w.toml"), config).unwrap();
    }

    /// Runs `weft reload` with these arguments.
    fn reload(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = weft(["reload"]);
        Program::start(command.args(arguments).current_dir(self.folder.path())).wait_with_output()
    }

    fn get(&self, target: &str) -> (u16, String) {
        let response = self.server.client().get(target);
        (response.status, String::from_utf8(response.body).unwrap())
    }
}

fn text(text: &str) -> String {
    format!("listen = [\"127.0.0.1:0\"]\n[hosts.\"*\"]\n\"/\" = {{ respond = \"{text}\" }}\n")
}

#[test]
fn reload_reports_the_result_by_its_exit_status() {
    let site = Site::start(&text("one"));
    let pid = site.server.id().to_string();
    let missing = "\"/none/\" = \"-> none\"\n";
    let cannot_serve = "cannot serve none: No such file or directory (os error 2)";
    for (config, status, expected, served) in [
        (text("two"), 0, String::new(), "two"),
        (
            format!("{}{missing}", text("three")),
            3,
            format!(
                "weft: w.toml:4:12: {cannot_serve}\n\
                 weft: the configuration was reloaded, without the parts above\n"
            ),
            "three",
        ),
        (
            format!("strict_start = true\n{}{missing}", text("four")),
            1,
            format!(
                "weft: w.toml:5:12: {cannot_serve}\n\
                 weft: the configuration was not reloaded; the previous one stays in effect\n"
            ),
            "three",
        ),
        (
            "lisen = 1\n".to_owned(),
            1,
            "weft: w.toml:1:1: unknown key `lisen`; did you mean `listen`?\n\
             weft: the configuration was not reloaded; the previous one stays in effect\n"
                .to_owned(),
            "three",
        ),
        (
            format!("{}\"@unused\" = {{ respond = \"\" }}\n", text("five")),
            0,
            "weft: w.toml:4:13: warning: no `try_files`, `split` or `error_pages` leads to the route @unused\n"
                .to_owned(),
            "five",
        ),
    ] {
        site.write(&config);
        let output = site.reload(&["--pid", &pid]);
        assert_eq!((output.status, &*output.stderr), (Ok(status), &*expected), "{config}");
        // The result is final: the next request is served by it.
        assert_eq!(site.get("/"), (200, served.to_owned()));
    }
}

#[test]
fn reload_finds_the_server_by_its_pid_file() {
    let site = Site::start(&format!("pid_file = \"pid\"\n{}", text("one")));
    site.write(&format!("pid_file = \"pid\"\n{}", text("two")));
    let output = site.reload(&["w.toml"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    assert_eq!(site.get("/").1, "two");
    // Also if the rest of the file is invalid.
    site.write("pid_file = \"pid\"\nlisen = 1\n");
    let output = site.reload(&["--config", "w.toml"]);
    assert_eq!(output.status, Ok(1));
    assert!(
        output.stderr.starts_with("weft: w.toml:2:1: unknown key `lisen`"),
        "{}",
        output.stderr
    );
    let own = std::process::id().to_string();
    fs::write(site.path("no-pid.toml"), text("a")).unwrap();
    fs::write(site.path("gone.toml"), format!("pid_file = \"gone\"\n{}", text("a"))).unwrap();
    for (arguments, status, expected) in [
        (&["no-pid.toml"][..], 1, "The configuration has no `pid_file`; give the PID as --pid PID"),
        (&["gone.toml"], 1, "cannot read the PID of the server in gone: No such file"),
        (&["--pid", &own], 1, "no server of weft has this PID"),
        (&[], 2, "`reload` needs --pid PID or the configuration file"),
        (&["--pid", "x"], 2, "x"),
    ] {
        let output = site.reload(arguments);
        assert_eq!(output.status, Ok(status), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{arguments:?}: {}", output.stderr);
    }
    assert_eq!(
        run(["--pid", "1"]).stderr,
        "weft: --pid belongs to `weft reload`, `stop` and `upgrade`; try --help\n"
    );
}

/// After an upgrade, the successor has a PID of its own, and serves its reloads.
#[test]
fn reload_reaches_the_successor_of_an_upgrade() {
    let config = |word: &str| format!("pid_file = \"pid\"\n{}", text(word));
    let site = Site::start(&config("one"));
    let first = fs::read_to_string(site.path("pid")).unwrap();
    site.server.signal(Signal::USR2);
    let pid = || fs::read_to_string(site.path("pid")).unwrap_or_default();
    until("the successor serves", || pid().ends_with('\n') && pid() != first);
    site.write(&config("two"));
    let output = site.reload(&["w.toml"]);
    let successor: i32 = pid().trim().parse().unwrap();
    let served = site.get("/");
    let successor = rustix::process::Pid::from_raw(successor).unwrap();
    rustix::process::kill_process(successor, Signal::KILL).unwrap();
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    assert_eq!(served.1, "two");
}

/// Another user can connect to the socket, but has no reload: it could make the server read files
/// while they are written.
#[test]
fn another_user_cannot_reload() {
    if !has_tool("setpriv") || !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::start(&text("one"));
    site.write(&text("two"));
    let pid = site.server.id().to_string();
    // The program is not readable for other users in some folders, so a copy of it runs.
    let copy = site.path("copy");
    fs::copy(env!("CARGO_BIN_EXE_weft"), &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(site.folder.path(), open).unwrap();
    let as_user = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups"]).arg(&copy);
        Program::start(command.args(["reload", "--pid", &pid])).wait_with_output()
    };
    let refused = as_user("65534");
    assert_eq!(refused.status, Ok(1));
    assert!(
        refused.stderr.contains("this user is neither its user nor root"),
        "{}",
        refused.stderr
    );
    assert_eq!(site.get("/").1, "one");
    assert_eq!(as_user("0").status, Ok(0));
    assert_eq!(site.get("/").1, "two");
}

/// Clients that connect and send nothing, or something else, do not delay a reload, and get no
/// result.
#[test]
fn silent_clients_do_not_delay_the_next_reload() {
    let site = Site::start(&text("one"));
    let pid = site.server.id();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let name = format!("weft-{}-{pid}", namespace.display());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let result_of = |sent: &str| {
        let mut client = UnixStream::connect_addr(&address).expect("a connection");
        client.write_all(sent.as_bytes()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        move || {
            let mut result = String::new();
            // A server that disconnects a client without reading resets the connection.
            let _ = client.read_to_string(&mut result);
            result
        }
    };
    let silent: Vec<_> = (0..20).map(|_| result_of("")).collect();
    let others =
        ["reloa", "Reload\n", "\n", "quit\n", "reload reload reload reload\n"].map(result_of);
    site.write(&text("two"));
    assert_eq!(site.reload(&["--pid", &pid.to_string()]).status, Ok(0));
    assert_eq!(site.get("/").1, "two");
    for mut result in silent.into_iter().chain(others) {
        assert_eq!(result(), "");
    }
    site.write(&text("three"));
    assert_eq!(result_of("reload\n")(), "complete\n");
    assert_eq!(site.get("/").1, "three");
}

// -- other requests

/// Runs a command with these arguments in a folder.
fn control(folder: &TempDir, arguments: &[&str]) -> ProgramOutput {
    let mut command = weft(arguments);
    Program::start(command.current_dir(folder.path())).wait_with_output()
}

/// The command ends when the server has ended, with the request that it was sending.
#[test]
fn stop_waits_until_the_server_has_stopped() {
    let site = Site::start(&format!("pid_file = \"pid\"\n{}", text("one")));
    assert_eq!(site.get("/").1, "one");
    let Site { folder, server } = site;
    let output = control(&folder, &["stop", "w.toml"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    let output = server.wait_with_output();
    assert_eq!(output.status, Ok(0));
    for line in
        ["`weft stop`: the server stops; requests in progress have 10s", "the server has stopped"]
    {
        assert!(output.stderr.contains(line), "{}", output.stderr);
    }
    assert!(!folder.path().join("pid").exists());
    let output = control(&folder, &["stop", "w.toml"]);
    assert_eq!(output.status, Ok(1));
    assert!(
        output.stderr.contains("cannot read the PID of the server in pid"),
        "{}",
        output.stderr
    );
}

/// The command ends when the successor serves, or with the reason that it does not.
#[test]
fn upgrade_waits_until_the_successor_serves() {
    let site = Site::start(&format!("pid_file = \"pid\"\n{}", text("one")));
    let pid = || fs::read_to_string(site.path("pid")).unwrap().trim().to_owned();
    let first = pid();
    site.write("lisen = 1\n");
    let output = control(&site.folder, &["upgrade", "--pid", &first]);
    assert_eq!(output.status, Ok(1));
    let failure = "the upgrade failed, and the process continues to serve";
    assert!(output.stderr.contains(failure), "{}", output.stderr);
    assert_eq!((site.get("/").1, pid()), ("one".to_owned(), first.clone()));
    site.write(&format!("pid_file = \"pid\"\n{}", text("two")));
    let output = control(&site.folder, &["upgrade", "w.toml"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    assert_ne!(pid(), first);
    assert_eq!(site.get("/").1, "two");
    assert_eq!(control(&site.folder, &["stop", "w.toml"]).status, Ok(0));
}

// -- watched files

#[test]
fn watch_reloads_changed_files_and_logs_a_broken_one_once() {
    let watched = |word: &str| format!("watch = true\n{}", text(word));
    let site = Site::start(&watched("one"));
    site.write(&watched("two"));
    until("the change is served", || site.get("/").1 == "two");
    site.write("watch = true\nlisen = 1\n");
    let count = |text: &str| site.server.stderr().matches(text).count();
    until("the error is logged", || count("was not reloaded") == 1);
    assert_eq!(site.get("/").1, "two");
    // Another change takes effect, and the broken text was reported only once in between.
    site.write(&watched("three"));
    until("the change is served", || site.get("/").1 == "three");
    assert_eq!((count("unknown key `lisen`"), count("was not reloaded")), (1, 1));
    // Without `watch`, files are no longer watched.
    site.write(&text("four"));
    until("the change is served", || site.get("/").1 == "four");
    let before = count("have changed");
    site.write(&text("five"));
    site.server.signal(Signal::HUP);
    until("the reload is served", || site.get("/").1 == "five");
    assert_eq!(count("have changed"), before);
}

/// Kubernetes replaces the link `..data` of a mounted ConfigMap.
#[test]
fn watch_follows_the_links_of_a_config_map() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let version = |number: u32, word: &str| {
        let name = format!("..version{number}");
        fs::create_dir(path(&name)).unwrap();
        fs::write(path(&name).join("w.toml"), format!("watch = true\n{}", text(word))).unwrap();
        symlink(&name, path("..new")).unwrap();
        fs::rename(path("..new"), path("..data")).unwrap();
    };
    version(1, "one");
    symlink("..data/w.toml", path("w.toml")).unwrap();
    let mut command = weft(["--config", "w.toml", "--no-log"]);
    let server = Weft::start(command.current_dir(folder.path()));
    let get = || String::from_utf8(Client::tcp(server.address()).get("/").body).unwrap();
    assert_eq!(get(), "one");
    version(2, "two");
    until("the new version is served", || get() == "two");
}
