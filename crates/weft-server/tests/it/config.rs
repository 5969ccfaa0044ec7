//! The configuration file: checks of valid and invalid files, and servers configured by files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    Client, Program, ProgramOutput, Response, Weft, has_tool, repository, run, weft,
};
use tempfile::TempDir;

/// Creates a temporary directory with these files.
pub(crate) fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    folder
}

/// Runs `weft` in a working directory until it exits.
pub(crate) fn run_in(folder: &Path, arguments: &[&str]) -> ProgramOutput {
    Program::start(weft(arguments).current_dir(folder)).wait_with_output()
}

/// Reads the files of a corpus: path, text, and the leading lines that start with `prefix`, without
/// it.
fn corpus(kind: &str, prefix: &str) -> Vec<(PathBuf, String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(kind);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let expected = text.lines().map_while(|line| line.strip_prefix(prefix));
        let expected: Vec<String> = expected.map(str::to_owned).collect();
        assert!(!expected.is_empty(), "{}: no expected lines", path.display());
        files.push((path, text, expected));
    }
    assert!(files.len() >= 5, "the corpus is incomplete");
    files
}

// -- `weft check`

#[test]
fn check_accepts_valid_files_and_prints_their_settings() {
    let folder = folder_with(&[
        ("site/a.txt", "A\n"),
        ("site/index.html", ""),
        ("logs/old.log", ""),
        ("networks", "192.0.2.0/24\n"),
    ]);
    for (path, text, expected) in corpus("good", "#> ") {
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        let output = run_in(folder.path(), &["check", "weft.toml"]);
        assert_eq!((output.status, &*output.stdout, &*output.stderr), (Ok(0), "", ""), "{path:?}");
        let printed = run_in(folder.path(), &["check", "weft.toml", "--print"]).stdout;
        for line in expected {
            assert!(printed.contains(&line), "{path:?}: {line}\n{printed}");
        }
        // The printed configuration is a file with the same settings.
        fs::write(folder.path().join("printed.toml"), &printed).unwrap();
        let again = run_in(folder.path(), &["check", "--print", "printed.toml"]);
        assert_eq!((&*again.stdout, &*again.stderr), (&*printed, ""), "{path:?}");
    }
}

/// Certificates are ordered for names of hosts if there are TLS listeners, and nothing else is set.
#[test]
fn tls_listeners_without_certificates_order_them() {
    let folder = folder_with(&[("site/a.txt", "A\n")]);
    for (tls, host, is_automatic) in [
        ("listen = \":443\"", "example.org", true),
        ("listen = \":443\"\nself_signed = true", "example.org", false),
        ("self_signed = true", "example.org", false),
    ] {
        let text = format!(
            "[acme]\nstate = \"state\"\nephemeral_state = true\n[tls]\n{tls}\n\
             [hosts.\"{host}\"]\n\"/\" = \"-> site\"\n"
        );
        fs::write(folder.path().join("weft.toml"), &text).unwrap();
        let output = run_in(folder.path(), &["check", "weft.toml", "--print"]);
        let is_printed = output.stdout.contains("certificates = \"auto\"");
        assert_eq!(is_printed, is_automatic, "{text}\n{}{}", output.stdout, output.stderr);
    }
    for host in ["*", "localhost", "*.example.org"] {
        let text = format!("[tls]\nlisten = \":443\"\n[hosts.\"{host}\"]\n\"/\" = \"-> site\"\n");
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        let output = run_in(folder.path(), &["check", "weft.toml"]);
        assert!(output.stderr.contains("this needs `certificates` in [tls]"), "{host}: {output:?}");
    }
}

#[test]
fn check_reports_errors_with_their_location() {
    let folder = folder_with(&[("site/a.txt", "A\n")]);
    for (path, text, expected) in corpus("bad", "#! ") {
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        for arguments in [&["check", "weft.toml"][..], &["--config", "weft.toml"]] {
            let output = run_in(folder.path(), arguments);
            assert_eq!((output.status, &*output.stdout), (Ok(1), ""), "{path:?}");
            let reported: Vec<&str> = output.stderr.lines().collect();
            let full_line = |line: &String| match line.starts_with(':') {
                true => format!("weft: weft.toml{line}"),
                false => format!("weft: {line}"),
            };
            let expected: Vec<String> = expected.iter().map(full_line).collect();
            assert_eq!(reported, expected, "{path:?}");
        }
    }
}

#[test]
fn rejects_invalid_arguments() {
    let folder = folder_with(&[("check/a.txt", "A\n"), ("weft.toml", ""), ("nginx.conf", "")]);
    for (arguments, status, expected) in [
        (
            &["check"][..],
            2,
            "`check` needs the file to be checked; a folder of that name is ./check",
        ),
        (&["check", "nothing.toml"], 1, "cannot read nothing.toml: No such file or directory"),
        (&["check", "check"], 1, "check has no file *.toml"),
        (&["check", "a", "b"], 2, "\"b\""),
        (
            &["weft.toml"],
            2,
            "weft.toml is a file, not a directory; `weft --config weft.toml` reads",
        ),
        (
            &["check/a.txt"],
            2,
            "check/a.txt is a file, not a directory; `weft --config check/a.txt` reads",
        ),
        (&["nginx.conf"], 2, "`weft import nginx nginx.conf` translates it"),
        (&["-p", "80000"], 2, "cannot parse argument \"80000\""),
        (&["-c", "nothing.toml"], 1, "cannot read nothing.toml: No such file"),
        (&["--strict"], 2, "--strict belongs to `weft check FILE`"),
        (
            &["--max-body-bytes", "10m"],
            2,
            "--max-body-bytes: expected a size such as 16MiB or 500kB, found \"10m\"; write 10MiB",
        ),
        (&["--config", "nothing.toml"], 1, "cannot read nothing.toml: No such file"),
        (&["--config", "a", "--config", "b"], 2, "--config is given twice"),
        (&["--print"], 2, "--print belongs to `weft check FILE`"),
        (&["--lsiten", ":80"], 2, "invalid option '--lsiten'; did you mean --listen?"),
        (&["--max-body-bytes", "16M"], 2, "--max-body-bytes: expected a size such as 16MiB"),
        (&["--idle-timeout", "20"], 2, "--idle-timeout: expected a time such as 20s"),
        (&["--idle-timeout", "1h", "--idle-timeout", "x"], 2, "--idle-timeout: expected a time"),
        (
            &["--disconnect", "x"],
            2,
            "--disconnect: expected cancel or cancel_at_eof or detach, found \"x\"",
        ),
        (&["--header", "x"], 2, "--header: expected NAME: VALUE or PATTERN=NAME: VALUE"),
        (&["--route", "x"], 2, "--route: expected `HOST/PREFIX -> FOLDER`, or"),
        (&["--route", "a:80/ -> ."], 2, "--route: `a:80` is neither"),
        (&["--route", "/ -> .", "--route", "/ -> check"], 2, "the route `/` is given twice"),
        (&["--route", "/a/ -> nothing"], 1, "--route: cannot serve nothing: No such file"),
        (&["--log-format", "%h %y"], 2, "--log-format: expected h, l, u, t, r, s"),
        (&["--log-format", "common"], 2, "--log-format: expected combined, json, json with names"),
        (&["--log-level", "all"], 2, "--log-level: expected error or warn or info or debug"),
        (&["--log", "nothing/a.log"], 1, "cannot open the access log nothing/a.log: No such file"),
        (&["--error-log", "check"], 1, "cannot open the error log check: Is a directory"),
        (&["--config", "weft.toml", "--listen", "x"], 2, "--listen: `x` is no address"),
    ] {
        let ProgramOutput { status: code, stdout, stderr } = run_in(folder.path(), arguments);
        assert_eq!((code, &*stdout), (Ok(status), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    }
}

#[test]
fn example_configuration_is_valid() {
    let folder = folder_with(&[]);
    let example = fs::read_to_string(repository("deploy/weft.toml")).unwrap();
    let root = folder.path().to_str().unwrap();
    let text = example.replace("/srv/", &format!("{root}/srv/"));
    let text = text.replace("/etc/weft/", &format!("{root}/"));
    let text = text.replace("/var/log/weft/", &format!("{root}/"));
    let file = folder.path().join("weft.toml");
    fs::write(&file, text).unwrap();
    let check = || run([Path::new("check"), &file]);
    let ProgramOutput { status, stderr, .. } = check();
    assert_eq!(status, Ok(1));
    assert_eq!(stderr.lines().count(), 8, "seven directories and the certificates: {stderr}");
    for name in ["www", "app", "download", "cgi-bin", "lists", "net", "default"] {
        assert!(stderr.contains(&format!("{root}/srv/{name}: No such file")), "{stderr}");
        fs::create_dir_all(folder.path().join("srv").join(name)).unwrap();
    }
    fs::write(folder.path().join("srv/app/index.html"), "app").unwrap();
    write_certificate(folder.path(), "example.org");
    write_certificate(folder.path(), "example.net");
    let ProgramOutput { status, stdout, stderr } = check();
    assert_eq!((status, &*stdout, &*stderr), (Ok(0), "", ""));
}

/// Writes a self-signed certificate and its key to a directory.
fn write_certificate(folder: &Path, name: &str) {
    let certified = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    fs::write(folder.join(format!("{name}.crt")), certified.cert.pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), certified.signing_key.serialize_pem()).unwrap();
}

// -- servers with a configuration file

/// Starts a server for this configuration file, in a directory with several sites.
fn serve(config: &str, more: &[&str]) -> (TempDir, Weft) {
    let folder = folder_with(&[
        ("www/index.html", "www"),
        ("www/app.txt", "www app.txt"),
        ("www/sub/index.html", "www sub"),
        ("app/index.html", "app"),
        ("app/x.txt", "app x"),
        ("app/sub/x.css", "app css"),
        ("app/sub/index.html", "app sub"),
        ("other/index.html", "other"),
        ("weft.toml", config),
    ]);
    let file = folder.path().join("weft.toml");
    let mut command = weft([Path::new("--config"), &file]);
    let server =
        Weft::start(command.args(["--listen", "127.0.0.1:0", "--workers", "1"]).args(more));
    (folder, server)
}

fn get(client: &mut Client, host: &str, target: &str) -> Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

/// Returns the status, and the body of a 200 or 410, otherwise the `Location`.
fn summary(response: &Response) -> (u16, String) {
    let text = match response.status {
        200 | 410 => String::from_utf8(response.body.clone()).unwrap(),
        _ => response.header("location").unwrap_or_default().to_owned(),
    };
    (response.status, text)
}

const SITES: &str = r#"
listen = ["127.0.0.1:1"]

[log]
access = "none"

[hosts."example.org www.example.org"]
"/" = "-> www"
"/app/" = { files = "app", fallback = "index.html", cache = { "*" = "1h", "*.css" = "1d" }, headers = { X-A = "b" } }
"/app/old" = "<< https://example.org/new/"
"/buenos días/" = "-> app"
"/here" = { redirect = "/", status = 307 }
"/gone" = { respond = "gone", status = 410 }

[hosts."*.example.org"]
"/" = "-> app"

[hosts."only.example"]
"/only" = "-> app"

[hosts."*"]
"/" = "-> other"
"#;

#[test]
fn selects_routes_by_host_and_prefix() {
    let (_folder, server) = serve(SITES, &[]);
    let client = &mut server.client();
    for (host, target, status, text) in [
        // Hosts.
        ("example.org", "/", 200, "www"),
        ("EXAMPLE.org.:8080", "/", 200, "www"),
        ("www.example.org", "/", 200, "www"),
        ("a.example.org", "/", 200, "app"),
        ("a.b.example.org", "/x.txt", 200, "app x"),
        ("example.org.evil", "/", 200, "other"),
        ("127.0.0.1", "/", 200, "other"),
        ("other", "http://example.org/", 200, "www"),
        ("only.example", "/", 404, ""),
        ("only.example", "/only/x.txt", 200, "app x"),
        // Prefixes.
        ("example.org", "/app/", 200, "app"),
        ("example.org", "/app/x.txt", 200, "app x"),
        ("example.org", "/app.txt", 200, "www app.txt"),
        ("example.org", "/app/what/ever", 200, "app"),
        ("example.org", "/sub/", 200, "www sub"),
        ("example.org", "/app/sub/", 200, "app sub"),
        ("example.org", "/buenos%20d%C3%ADas/x.txt", 200, "app x"),
        // Missing trailing slashes.
        ("example.org", "/app", 301, "/app/"),
        ("example.org", "/app?a=b", 301, "/app/?a=b"),
        ("example.org", "/%61pp", 301, "/app/"),
        ("example.org", "/buenos%20d%C3%ADas", 301, "/buenos%20d%C3%ADas/"),
        ("example.org", "/app/sub", 301, "/app/sub/"),
        ("example.org", "/%61pp/sub?q", 301, "/%61pp/sub/?q"),
        ("example.org", "/sub", 301, "/sub/"),
        // Redirects.
        ("example.org", "/app/old", 301, "https://example.org/new/"),
        ("example.org", "/app/old/", 301, "https://example.org/new/"),
        ("example.org", "/app/old/a/b?c=d&e", 301, "https://example.org/new/a/b?c=d&e"),
        ("example.org", "/app/old/%0d%0aX:y", 301, "https://example.org/new/%0d%0aX:y"),
        ("example.org", "/app/older", 200, "app"),
        ("example.org", "/here/a?b", 307, "/a?b"),
        ("example.org", "/here//evil.example", 307, "/evil.example"),
        ("example.org", "/here/\\evil.example", 307, "/%5Cevil.example"),
        ("example.org", "/gone/x", 410, "gone"),
        // Encoded, duplicate and dot segments do not bypass a route.
        ("example.org", "/%61pp/old/a", 301, "https://example.org/new/a"),
        ("example.org", "//app//old/a", 301, "https://example.org/new/a"),
        ("example.org", "/x/../app/./old/a", 301, "https://example.org/new/a"),
        ("example.org", "/app/%2e%2E/gone", 410, "gone"),
        ("example.org", "/app/..%2Fapp/old", 400, ""),
        ("example.org", "/app%2Fold", 400, ""),
        ("example.org", "/app/../../../app.txt", 200, "www app.txt"),
    ] {
        let response = get(client, host, target);
        assert_eq!(summary(&response), (status, text.to_owned()), "{host} {target}");
    }
    let page = get(client, "example.org", "/app/sub/x.css");
    assert_eq!(page.header("cache-control"), Some("max-age=86400"));
    assert_eq!(page.header("x-a"), Some("b"));
    assert_eq!(get(client, "example.org", "/app/").header("cache-control"), Some("max-age=3600"));
    client.send("POST /app HTTP/1.1\r\nHost: example.org\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 405, "no redirect for a method that is not allowed");
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.response().body, b"other", "HTTP/1.0 without Host");
    server.stop();
}

#[test]
fn unknown_host_without_fallback_is_404() {
    let (_folder, server) = serve("[hosts.a]\n\"/\" = \"-> www\"\n", &[]);
    let client = &mut server.client();
    assert_eq!(get(client, "a", "/").status, 200);
    assert_eq!(get(client, "b", "/").status, 404);
    server.stop();
}

#[test]
fn options_override_the_file() {
    let (folder, server) = serve(SITES, &["--spa", "x.txt", "--log", "stdout"]);
    assert!(server.announcement.contains("/weft.toml on http://127.0.0.1:"));
    let client = &mut server.client();
    let nothing = get(client, "a.example.org", "/nothing");
    assert_eq!(
        summary(&nothing),
        (200, "app x".to_owned()),
        "options apply to routes without their own value"
    );
    assert_eq!(
        get(client, "example.org", "/app/nothing").body,
        b"app",
        "values of a route take precedence"
    );
    assert_eq!(server.stop().stdout.lines().count(), 2, "--log overrides the file");

    // A directory and routes of the command line are added to the directory and routes of the file,
    // or replace them.
    let www = folder.path().join("www");
    let route = format!("example.org www.example.org/gone/ -> {}", www.display());
    let (_folder, server) = serve(SITES, &["--route", &route, "--", www.to_str().unwrap()]);
    let client = &mut server.client();
    assert_eq!(get(client, "elsewhere", "/").body, b"www");
    assert_eq!(get(client, "example.org", "/gone/app.txt").body, b"www app.txt");
    assert_eq!(get(client, "example.org", "/app/").body, b"app");
    server.stop();
}

#[test]
fn serves_routes_of_the_command_line() {
    let folder = folder_with(&[("www/index.html", "www"), ("api/index.html", "api")]);
    let routes = ["/old/ << https://example.org/", "example.org/api/ -> api", "* / -> www"];
    let arguments = |routes: &[&'static str]| {
        let mut arguments = vec!["--listen", "127.0.0.1:0", "--workers", "1"];
        arguments.extend(routes.iter().flat_map(|route| ["--route", route]));
        arguments
    };
    let server = Weft::start(weft(arguments(&routes)).current_dir(folder.path()));
    assert!(server.announcement.starts_with("weft: serving 3 routes on "));
    let client = &mut server.client();
    assert_eq!(get(client, "a", "/").body, b"www");
    assert_eq!(get(client, "example.org", "/api/").body, b"api");
    assert_eq!(get(client, "example.org", "/").status, 404);
    let old = get(client, "a", "/old/x?y");
    assert_eq!(summary(&old), (301, "https://example.org/x?y".to_owned()));
    server.stop();

    // Routes and a directory can be combined.
    let mut command = weft(arguments(&routes[..1]));
    let server = Weft::start(command.arg("www").current_dir(folder.path()));
    assert_eq!(get(&mut server.client(), "a", "/").body, b"www");
    assert_eq!(get(&mut server.client(), "a", "/old").status, 301);
    server.stop();
}

#[test]
fn applies_limits_of_the_file() {
    let config = "[limits]\nmax_request_line_bytes = 64\nserver_name = \"x\"\n\
                  [hosts.\"*\"]\n\"/\" = \"-> www\"\n";
    let (_folder, server) = serve(config, &[]);
    let client = &mut server.client();
    let response = get(client, "a", "/");
    assert_eq!((response.status, response.header("server")), (200, Some("x")));
    assert_eq!(get(client, "a", &"/x".repeat(32)).status, 414);
    server.stop();
    let (_folder, server) = serve(config, &["--max-request-line-bytes", "1KiB"]);
    assert_eq!(get(&mut server.client(), "a", &"/x".repeat(32)).status, 404);
    server.stop();
}

#[test]
fn applies_certificates_of_the_file() {
    if !has_tool("curl") {
        return;
    }
    let folder = folder_with(&[("one/a.txt", "1\n"), ("two/a.txt", "2\n")]);
    write_certificate(folder.path(), "one.example");
    write_certificate(folder.path(), "two.example");
    let config = r#"
[tls]
listen = ["127.0.0.1:0"]
certificates = [
  { cert = "one.example.crt", key = "one.example.key" },
  { cert = "two.example.crt", key = "two.example.key" },
]
profile = "modern"
[hosts."one.example"]
"/" = "-> one"
[hosts."two.example"]
"/" = "-> two"
"#;
    let file = folder.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    // Paths are relative to the directory of the file, independent of the working directory.
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    let address = server.addresses()[0].strip_prefix("https://127.0.0.1:").unwrap().to_owned();
    let fetch = |name: &str, more: &[&str]| {
        let mut command = Command::new("curl");
        let url = format!("https://{name}:{address}/a.txt");
        let resolve = format!("{name}:{address}:127.0.0.1");
        let trusted = folder.path().join(format!("{name}.crt"));
        command.args(["-sS", "--max-time", "30", "--resolve", &resolve, &url, "--cacert"]);
        String::from_utf8(command.arg(trusted).args(more).output().unwrap().stdout).unwrap()
    };
    assert_eq!(fetch("one.example", &[]), "1\n");
    assert_eq!(fetch("two.example", &[]), "2\n");
    assert_eq!(fetch("two.example", &["--tls-max", "1.2"]), "", "TLS 1.3 only");
    server.stop();
}
