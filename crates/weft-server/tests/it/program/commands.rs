//! Commands beside the server: passwords, manual pages, completions, and commands of other servers.

use std::fs::File;

use super::*;
use crate::common::{Program, has_tool};

#[test]
fn commands_of_other_servers_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let run_in = |arguments: &[&str]| {
        let mut command = weft(arguments);
        Program::start(command.current_dir(folder.path())).wait_with_output()
    };
    for (arguments, expected) in [
        (&["run"][..], "there is no command or folder `run`; it is `weft --config FILE`"),
        (&["validate"], "there is no command or folder `validate`; it is `weft check FILE`"),
        (&["file-server", "--listen", ":80"], "it is `weft [DIR] --listen ADDR`"),
        (&["-t"], "there is no option -t; it is `weft check FILE`"),
        (&["-s", "reload"], "there is no option -s; it is `weft reload FILE`, `weft stop FILE`"),
        (&["-x"], "invalid option '-x'"),
    ] {
        let output = run_in(arguments);
        assert_eq!(output.status, Ok(2), "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(expected), "{arguments:?}: {}", output.stderr);
    }
    // A folder of that name is served.
    fs::create_dir(folder.path().join("run")).unwrap();
    let server = Weft::start(weft(["run", "--listen", "127.0.0.1:0"]).current_dir(folder.path()));
    server.stop();
}

/// The printed line is one of a password file.
#[test]
fn hash_password_prints_a_line_of_a_password_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let hash = |name: &str, password: &str| {
        fs::write(path("password"), password).unwrap();
        let mut command = weft(["hash-password", name]);
        let stdin = File::open(path("password")).unwrap();
        Program::start_with_stdin(&mut command, stdin).wait_with_output()
    };
    let output = hash("ann", "open sesame\nnot read");
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    fs::write(path("users"), output.stdout).unwrap();
    fs::write(path("index.html"), "ok").unwrap();
    let mut command = weft([".", "--basic-auth", "users", "--listen", "127.0.0.1:0"]);
    let server = Weft::start(command.current_dir(folder.path()));
    // ann:open sesame, and ann:open.
    for (credentials, status) in [("YW5uOm9wZW4gc2VzYW1l", 200), ("YW5uOm9wZW4=", 401)] {
        let mut client = server.client();
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n\r\n"
        ));
        assert_eq!(client.response().status, status);
    }
    let longest = "a".repeat(72);
    for (name, password, expected) in [
        ("ann", &*longest, None),
        ("ann", &format!("{longest}a"), Some("longer than 72 bytes")),
        ("ann", "", Some("the password is empty")),
        ("a:b", "x", Some("has no colon")),
    ] {
        let output = hash(name, password);
        assert_eq!(output.status, Ok(i32::from(expected.is_some())), "{name} {}", output.stderr);
        assert!(output.stderr.contains(expected.unwrap_or_default()), "{}", output.stderr);
    }
}

#[test]
fn manual_pages_and_completions_are_valid() {
    for page in ["weft", "weft.toml"] {
        let output = run(["man", page]);
        assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
        assert!(output.stdout.starts_with(".TH WEFT"), "{}", output.stdout);
    }
    for (arguments, expected) in
        [(["man", "nginx"], "`man` needs"), (["completions", "sh"], "bash")]
    {
        let output = run(arguments);
        assert_eq!(output.status, Ok(2));
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    for shell in ["zsh", "fish"] {
        let script = run(["completions", shell]).stdout;
        assert!(script.contains("hash-password") && script.contains("tls-cert"), "{script}");
    }
    if !has_tool("bash") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("script"), run(["completions", "bash"]).stdout).unwrap();
    for (words, expected) in
        [("weft che", "check\n"), ("weft --tls-cer", "--tls-cert\n"), ("weft . che", "\n")]
    {
        let script = format!(
            "source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _weft; \
             echo \"${{COMPREPLY[*]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).current_dir(folder.path());
        let output = Program::start(&mut bash).wait_with_output();
        assert_eq!((&*output.stdout, &*output.stderr), (expected, ""), "{words}");
    }
}
