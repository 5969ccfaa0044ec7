//! Warnings of `weft check`, and errors that it finds besides the syntax.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, kill_process};

use crate::common::{OF_ROOT, Program, Signal, Weft, has_tool, until, weft};
use crate::config::{folder_with, run_in};

/// Each row: the file, and the warnings. They are no errors, unless `--strict` is given, but have
/// an exit status of their own.
#[test]
fn check_warns_of_probably_unintended_values() {
    for (text, expected) in [
        ("\"/\" = \"<< /\"\n", &[":2:7: warning: the redirect of `/` leads back to itself"][..]),
        ("\"/\" = \"<< /new/\"\n", &[":2:7: warning: the redirect of `/` leads back to itself"]),
        ("\"/\" = \"<< /new/\"\n\"/new\" = { respond = \"\" }\n", &[]),
        (
            "\"/a\" = \"<< /b/\"\n\"/b\" = \"<< http://a.example/a\"\n",
            &[
                ":2:8: warning: the redirect of `/a/` leads back to itself",
                ":3:8: warning: the redirect of `/b/` leads back to itself",
            ],
        ),
        ("\"/a\" = \"<< /b/\"\n\"/b\" = \"<< http://b.example/a\"\n", &[]),
        ("\"/\" = \"<< http://a.example:8080/\"\n", &[]),
        // TLS may be in front of this server.
        ("\"/\" = \"<< https://a.example/\"\n", &[]),
        (
            "\"/\" = { files = \"site\", fallback = \"/index.html\" }\n",
            &[":2:7: warning: the fallback site/index.html does not exist; 404 in its place"],
        ),
        ("\"/\" = { files = \"site\", fallback = \"/a.txt\" }\n", &[]),
        (
            "\"/\" = { respond = \"\", burst = 1, realm = \"x\" }\n",
            &[
                ":2:7: warning: `burst` has no effect without `rate`",
                ":2:7: warning: `realm` has no effect without `basic_auth`",
            ],
        ),
        (
            "\"/\" = { respond = \"\", gzip_level = 1 }\n",
            &[":2:7: warning: `gzip_level` has no effect without `compress`"],
        ),
        ("\"/\" = { respond = \"\", gzip_level = 1, compress = true }\n", &[]),
        (
            "\"/\" = { respond = \"\", accel = { \"/\" = \".\" } }\n",
            &[":2:7: warning: `accel` has no effect on a route without upstreams and scripts"],
        ),
        (
            "\"/\" = { respond = \"\", intercept_errors = true, sub_filter_once = false }\n",
            &[
                ":2:7: warning: `intercept_errors` has no effect without `error_pages`",
                ":2:7: warning: `sub_filter_types` and `sub_filter_once` have no effect without \
                 `sub_filter`",
            ],
        ),
        (
            "\"/\" = { respond = \"$host\" }\n",
            &[
                ":2:7: warning: `$host`, a variable of nginx, is sent as it is; its value is {host} here",
            ],
        ),
        (
            "\"/\" = { respond = \"\" }\n[status]\nlisten = \"127.0.0.1:1\"\nconfig_changes = \"unix\"\n",
            &[
                ":4:10: warning: `config_changes = \"unix\"` has no effect without a Unix socket in `listen`",
            ],
        ),
        ("rate = \"1/s\"\n\"/\" = { respond = \"\", burst = 1 }\n", &[]),
        (
            "\"/\" = { respond = \"\", rate_key = \"{host}\", bandwidth_after = \"1MB\" }\n",
            &[
                ":2:7: warning: `bandwidth_after` has no effect without `bandwidth`",
                ":2:7: warning: `rate_key` has no effect without `rate`",
            ],
        ),
        (
            "\"/\" = { respond = \"\", client_cert_required = true }\n",
            &[
                ":2:7: warning: `client_cert_required` refuses all requests without `client_ca` in [tls]",
            ],
        ),
        (
            "\"/\" = { proxy = \"http://a/\", ca = \"site/a.txt\" }\n",
            &[":2:7: warning: `ca` has no effect without an upstream https://"],
        ),
        (
            "burst = 3\nrealm = \"a\"\n\"/\" = { respond = \"\" }\n",
            &[
                ":1:8: warning: `burst` has no effect without `rate`",
                ":1:8: warning: `realm` has no effect without `basic_auth`",
            ],
        ),
        ("burst = 3\n\"/\" = { respond = \"\", rate = \"1/s\" }\n", &[]),
    ] {
        let text = format!("[hosts.\"a.example\"]\n{text}");
        let folder = folder_with(&[("w.toml", &text), ("site/a.txt", "a")]);
        let output = run_in(folder.path(), &["check", "w.toml"]);
        let expected: Vec<String> = expected.iter().map(|it| format!("weft: w.toml{it}")).collect();
        assert_eq!(output.stderr.lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(output.status, Ok(if expected.is_empty() { 0 } else { 3 }), "{text}");
        let strict = run_in(folder.path(), &["check", "--strict", "w.toml"]);
        assert_eq!(strict.status, Ok(i32::from(!expected.is_empty())), "{text}");
    }
}

/// Each row: the listener, the hosts with their redirect, and true if it leads back to itself.
#[test]
fn check_warns_of_redirects_to_the_own_listener() {
    for (listen, host, to, expected) in [
        ("127.0.0.1:8080", "*", "http://127.0.0.1:8080/", true),
        ("127.0.0.1:8080", "*", "http://127.0.0.1:8081/", false),
        ("127.0.0.1:8080", "*", "http://192.0.2.1:8080/", false),
        ("127.0.0.1:80", "*", "http://127.0.0.1/", true),
        (":8080", "*", "http://localhost:8080/", true),
        ("0.0.0.0:8080", "*", "http://127.0.0.1:8080/", true),
        (":8080", "*", "http://[::1]:8080/", true),
        ("127.0.0.1:8080", "a.example", "http://127.0.0.1:8080/", false),
    ] {
        let text = format!("listen = [\"{listen}\"]\n[hosts.\"{host}\"]\n\"/\" = \"<< {to}\"\n");
        let other = format!("{text}[hosts.\"127.0.0.1\"]\n\"/\" = {{ respond = \"\" }}\n");
        let is_to_other = expected && to.contains("//127.0.0.1");
        // Without another host, and with a host for the address.
        for (text, expected) in [(text, expected), (other, expected && !is_to_other)] {
            let folder = folder_with(&[("w.toml", &text)]);
            let output = run_in(folder.path(), &["check", "w.toml"]);
            let is_warned = output.stderr.contains("the redirect of `/` leads back to itself");
            assert_eq!(is_warned, expected, "{text}{}", output.stderr);
        }
    }
}

/// A host has keys for its routes. If a route opts out of one key, other keys have no effect there.
/// These keys are not printed, so that the printed file has no warnings.
#[test]
fn printed_file_has_no_keys_without_effect() {
    let folder = folder_with(&[
        (
            "w.toml",
            "[defaults]\nrate = \"1/s\"\nrate_key = \"{host}\"\nburst = 5\nbandwidth = \"1MB\"\n\
             bandwidth_after = \"2MB\"\nbasic_auth = \"users\"\nrealm = \"R\"\n\
             [hosts.a]\n\"/\" = { respond = \"\" }\n\
             \"/free\" = { respond = \"\", rate = \"none\", bandwidth = 0, basic_auth = \"none\" }\n",
        ),
        ("users", ""),
    ]);
    let printed = run_in(folder.path(), &["check", "--print", "w.toml"]);
    assert_eq!((&*printed.stderr, printed.status), ("", Ok(0)));
    fs::write(folder.path().join("printed.toml"), &printed.stdout).unwrap();
    let again = run_in(folder.path(), &["check", "--strict", "--print", "printed.toml"]);
    assert_eq!((again.stdout, &*again.stderr, again.status), (printed.stdout, "", Ok(0)));
}

/// Each row: the destinations of the logs, and the error.
#[test]
fn check_tests_the_directories_of_logs() {
    let folder = folder_with(&[("logs/old.log", "")]);
    for (log, expected) in [
        ("access = \"logs/new.log\"\nerror = \"logs/old.log\"", ""),
        ("access = \"new.log\"", ""),
        (
            "access = \"missing/a.log\"",
            "weft: w.toml:2:10: cannot open the access log missing/a.log: No such file or directory (os error 2)\n",
        ),
        (
            "error = \"logs/old.log/a.log\"",
            "weft: w.toml:2:9: cannot open the error log logs/old.log/a.log: Not a directory (os error 20)\n",
        ),
        (
            "error = \"logs\"",
            "weft: w.toml:2:9: cannot open the error log logs: Is a directory (os error 21)\n",
        ),
    ] {
        let text = format!("[log]\n{log}\n[hosts.a]\n\"/\" = {{ respond = \"\" }}\n");
        fs::write(folder.path().join("w.toml"), text).unwrap();
        let output = run_in(folder.path(), &["check", "w.toml"]);
        assert_eq!(
            (&*output.stderr, output.status),
            (expected, Ok(i32::from(!expected.is_empty())))
        );
    }
    assert!(!folder.path().join("logs/new.log").exists());
}

/// Each row: the options, and true if the start hints at listings, for a person at a terminal.
#[test]
fn start_with_a_folder_without_index_hints_at_listings() {
    if !has_tool("script") {
        return;
    }
    let folder = folder_with(&[("empty/a.txt", ""), ("site/index.html", "")]);
    let hint = "empty has no index.html; with --list, its files are listed";
    for (options, expected) in [
        ("empty", true),
        ("empty --index a.txt", false),
        ("empty --list", false),
        ("empty --spa /a.txt", false),
        ("site", false),
    ] {
        let program = weft([""; 0]).get_program().to_str().unwrap().to_owned();
        let command = format!("{program} {options} --listen 127.0.0.1:0 --pid-file pid");
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).current_dir(folder.path());
        let terminal = Program::start(&mut script);
        let read_pid = || fs::read_to_string(folder.path().join("pid")).ok()?.trim().parse().ok();
        until("the server serves", || {
            read_pid().is_some() && terminal.stdout().contains("serving")
        });
        let pid = read_pid().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let output = terminal.wait_with_output().stdout;
        assert_eq!(output.contains(hint), expected, "{options}: {output}");
    }
}

/// Writes a certificate that is valid in these years, and its key.
fn write_certificate(folder: &Path, from: i32, to: i32) {
    let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(folder.join("a.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(folder.join("a.key"), key.serialize_pem()).unwrap();
}

const SECURE: &str = "[tls]\nlisten = [\"127.0.0.1:0\"]\n\
    certificates = [{ cert = \"a.crt\", key = \"a.key\" }]\n[hosts.a]\n\"/\" = { respond = \"\" }\n";

#[test]
fn check_and_start_warn_of_invalid_certificates() {
    let folder = folder_with(&[("w.toml", SECURE)]);
    for (from, to, expected) in [
        (2001, 2002, "the certificate a.crt has expired: 2002-01-01T00:00:00Z"),
        (2060, 2070, "the certificate a.crt is not valid before 2060-01-01T00:00:00Z"),
        (2001, 2060, ""),
    ] {
        write_certificate(folder.path(), from, to);
        let output = run_in(folder.path(), &["check", "w.toml"]);
        let line = match expected {
            "" => String::new(),
            _ => format!("weft: w.toml:3:17: warning: {expected}\n"),
        };
        let status = if expected.is_empty() { 0 } else { 3 };
        assert_eq!((output.status, output.stderr), (Ok(status), line));
        let server = Weft::start(weft(["--config", "w.toml"]).current_dir(folder.path()));
        if !expected.is_empty() {
            until("a warning", || server.stderr().contains(&format!("w.toml:3:17: {expected}")));
        }
        server.signal(Signal::TERM);
        drop(server);
    }
}

#[test]
fn check_explains_certificates_of_version_1() {
    if !has_tool("openssl") {
        return;
    }
    let folder = folder_with(&[("w.toml", SECURE)]);
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(folder.path()).output();
        assert!(output.unwrap().status.success(), "{arguments}");
    };
    openssl("req -newkey rsa:2048 -nodes -subj /CN=a -keyout a.key -out a.csr");
    openssl("x509 -req -in a.csr -signkey a.key -days 2 -out a.crt");
    let output = run_in(folder.path(), &["check", "w.toml"]);
    let expected = "weft: w.toml:3:17: the certificate in a.crt is of X.509 version 1, which has no \
                    names; create one of version 3, with subjectAltName\n";
    assert_eq!((output.status, &*output.stderr), (Ok(1), expected));
}

#[test]
fn check_has_the_permissions_of_the_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder_with(&[("w.toml", &format!("user = \"nobody\"\n{SECURE}"))]);
    write_certificate(folder.path(), 2001, 2060);
    use std::os::unix::fs::PermissionsExt;
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set_mode(folder.path(), 0o755).unwrap();
    assert_eq!(run_in(folder.path(), &["check", "w.toml"]).stderr, "");
    set_mode(&folder.path().join("a.key"), 0o600).unwrap();
    let output = run_in(folder.path(), &["check", "w.toml"]);
    assert_eq!(output.status, Ok(1));
    assert!(output.stderr.contains("cannot read a.key: Permission denied"), "{}", output.stderr);
    // Users can open a directory that they cannot use.
    set_mode(&folder.path().join("a.key"), 0o644).unwrap();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    let config = "user = \"nobody\"\n[hosts.\"*\"]\n\"/\" = \"-> site\"\n";
    fs::write(folder.path().join("w.toml"), config).unwrap();
    for (mode, expected) in [(0o755, ""), (0o700, "cannot serve site: Permission denied")] {
        set_mode(&site, mode).unwrap();
        let output = run_in(folder.path(), &["check", "w.toml"]);
        assert_eq!(output.status, Ok(i32::from(!expected.is_empty())), "{}", output.stderr);
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

/// Lines on standard error have a time and a level if it is no terminal. A server of root warns
/// unless it becomes another user.
#[test]
fn servers_of_root_warn_in_lines_with_time_and_level() {
    let is_root = rustix::process::geteuid().is_root();
    for (user, expected) in [("", is_root), ("user = \"nobody\"\n", false)] {
        if !is_root && !user.is_empty() {
            continue;
        }
        let folder = folder_with(&[]);
        let text = format!(
            "{user}listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\"/\" = {{ respond = \"\" }}\n"
        );
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(["--no-log", "--config"]).arg(folder.path().join("weft.toml"));
        let mut server = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&server);
        let mut lines = Vec::new();
        for line in BufReader::new(server.stderr.take().unwrap()).lines() {
            lines.push(line.unwrap());
            // Warnings are behind the line about the start, and before the one about the stop.
            if lines.len() == 1 {
                kill_process(pid, Signal::TERM).unwrap();
            }
        }
        assert!(server.wait().unwrap().success(), "{lines:?}");
        let has_warning = lines.iter().any(|line| line.contains(OF_ROOT));
        assert_eq!(has_warning, expected, "{user:?}: {lines:?}");
        for line in lines {
            let (time, rest) = line.split_once(' ').expect("a time");
            assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{line}");
            assert!(["info: ", "warn: "].iter().any(|level| rest.starts_with(level)), "{line}");
        }
    }
}
