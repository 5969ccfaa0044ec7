//! The configuration file: what is said of good and bad ones, and what is served by them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Client, Ended, Program, Response, Weft, repository, run, tool, weft};
use tempfile::TempDir;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    folder
}

/// Runs `weft` in a folder.
fn run_in(folder: &Path, arguments: &[&str]) -> Ended {
    Program::start(weft(arguments).current_dir(folder)).end()
}

/// The files of a corpus, each with what its first lines say behind the mark.
fn corpus(kind: &str, mark: &str) -> Vec<(PathBuf, String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(kind);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let expected = text.lines().map_while(|line| line.strip_prefix(mark));
        let expected: Vec<String> = expected.map(str::to_owned).collect();
        assert!(!expected.is_empty(), "{}: nothing is expected of it", path.display());
        files.push((path, text, expected));
    }
    assert!(files.len() >= 5, "the corpus is not where it was");
    files
}

// -- what `weft check` says

#[test]
fn good_files_come_to_what_they_say() {
    let place = folder(&[("site/a.txt", "A\n")]);
    for (path, text, expected) in corpus("good", "#> ") {
        fs::write(place.path().join("weft.toml"), text).unwrap();
        let ended = run_in(place.path(), &["check", "weft.toml"]);
        assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (Ok(0), "", ""), "{path:?}");
        let printed = run_in(place.path(), &["check", "weft.toml", "--print"]).stdout;
        for line in expected {
            assert!(printed.contains(&line), "{path:?}: {line}\n{printed}");
        }
        // What is printed is a file that says the same.
        fs::write(place.path().join("printed.toml"), &printed).unwrap();
        let again = run_in(place.path(), &["check", "--print", "printed.toml"]);
        assert_eq!((&*again.stdout, &*again.stderr), (&*printed, ""), "{path:?}");
    }
}

#[test]
fn of_bad_files_it_says_what_is_wrong_and_where() {
    let place = folder(&[("site/a.txt", "A\n")]);
    for (path, text, expected) in corpus("bad", "#! ") {
        fs::write(place.path().join("weft.toml"), text).unwrap();
        for arguments in [&["check", "weft.toml"][..], &["--config", "weft.toml"]] {
            let ended = run_in(place.path(), arguments);
            assert_eq!((ended.status, &*ended.stdout), (Ok(1), ""), "{path:?}");
            let said: Vec<&str> = ended.stderr.lines().collect();
            let whole = |line: &String| match line.starts_with(':') {
                true => format!("weft: weft.toml{line}"),
                false => format!("weft: {line}"),
            };
            let expected: Vec<String> = expected.iter().map(whole).collect();
            assert_eq!(said, expected, "{path:?}");
        }
    }
}

#[test]
fn what_is_no_use_of_it_is_refused() {
    let place = folder(&[("check/a.txt", "A\n"), ("weft.toml", "")]);
    for (arguments, status, expected) in [
        (
            &["check"][..],
            2,
            "`check` needs the file to be checked; a folder of that name is ./check",
        ),
        (&["check", "nothing.toml"], 1, "cannot read nothing.toml: No such file or directory"),
        (&["check", "check"], 1, "cannot read check: Is a directory"),
        (&["check", "a", "b"], 2, "\"b\""),
        (&["--config", "nothing.toml"], 1, "cannot read nothing.toml: No such file"),
        (&["--config", "a", "--config", "b"], 2, "--config is given twice"),
        (&["--print"], 2, "--print belongs to `weft check FILE`"),
        (&["--lsiten", ":80"], 2, "invalid option '--lsiten'; did you mean --listen?"),
        (&["--max-body-bytes", "16M"], 2, "--max-body-bytes: expected a size such as 16MiB"),
        (&["--idle-timeout", "20"], 2, "--idle-timeout: expected a time such as 20s"),
        (&["--idle-timeout", "1h", "--idle-timeout", "x"], 2, "--idle-timeout: expected a time"),
        (&["--disconnect", "x"], 2, "--disconnect: expected cancel or detach, found \"x\""),
        (&["--header", "x"], 2, "--header: expected NAME: VALUE or PATTERN=NAME: VALUE"),
        (&["--route", "x"], 2, "--route: expected `HOST/PREFIX -> FOLDER`, or"),
        (&["--route", "a:80/ -> ."], 2, "--route: `a:80` is neither"),
        (&["--route", "/ -> .", "--route", "/ -> check"], 2, "the prefix `/` is given twice"),
        (&["--route", "/a/ -> nothing"], 1, "--route: cannot serve nothing: No such file"),
        (&["--log-format", "%h %y"], 2, "--log-format: expected h, l, u, t, r, s"),
        (&["--log-format", "common"], 2, "--log-format: expected combined, json or a pattern"),
        (&["--log-level", "all"], 2, "--log-level: expected error or warn or info or debug"),
        (&["--log", "nothing/a.log"], 1, "cannot open the access log nothing/a.log: No such file"),
        (&["--error-log", "check"], 1, "cannot open the error log check: Is a directory"),
        (&["--config", "weft.toml", "--listen", "x"], 2, "--listen: `x` is no address"),
    ] {
        let Ended { status: ended, stdout, stderr } = run_in(place.path(), arguments);
        assert_eq!((ended, &*stdout), (Ok(status), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_example_is_good_once_its_folders_and_certificates_are_there() {
    let place = folder(&[]);
    let example = fs::read_to_string(repository("deploy/weft.toml")).unwrap();
    let root = place.path().to_str().unwrap();
    let text = example.replace("/srv/", &format!("{root}/srv/"));
    let text = text.replace("/etc/weft/", &format!("{root}/"));
    let file = place.path().join("weft.toml");
    fs::write(&file, text).unwrap();
    let check = || run([Path::new("check"), &file]);
    let Ended { status, stderr, .. } = check();
    assert_eq!(status, Ok(1));
    assert_eq!(stderr.lines().count(), 8, "seven folders and the certificates: {stderr}");
    for name in ["www", "app", "download", "cgi-bin", "lists", "net", "default"] {
        assert!(stderr.contains(&format!("{root}/srv/{name}: No such file")), "{stderr}");
        fs::create_dir_all(place.path().join("srv").join(name)).unwrap();
    }
    certify(place.path(), "example.org");
    certify(place.path(), "example.net");
    let Ended { status, stdout, stderr } = check();
    assert_eq!((status, &*stdout, &*stderr), (Ok(0), "", ""));
}

/// Puts a certificate and its key into a folder.
fn certify(folder: &Path, name: &str) {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    fs::write(folder.join(format!("{name}.crt")), made.cert.pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
}

// -- what is served

/// A folder with sites and a file, and the server of that.
fn serve(config: &str, more: &[&str]) -> (TempDir, Weft) {
    let place = folder(&[
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
    let file = place.path().join("weft.toml");
    let mut command = weft([Path::new("--config"), &file]);
    let server =
        Weft::start(command.args(["--listen", "127.0.0.1:0", "--workers", "1"]).args(more));
    (place, server)
}

fn ask(client: &mut Client, host: &str, target: &str) -> Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

/// The status, and the body of a 200 or the place to go to.
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
fn hosts_and_prefixes_choose_what_answers() {
    let (_place, server) = serve(SITES, &[]);
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
        // Slashes that are missing.
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
        // No way around a rule.
        ("example.org", "/%61pp/old/a", 301, "https://example.org/new/a"),
        ("example.org", "//app//old/a", 301, "https://example.org/new/a"),
        ("example.org", "/x/../app/./old/a", 301, "https://example.org/new/a"),
        ("example.org", "/app/%2e%2E/gone", 410, "gone"),
        ("example.org", "/app/..%2Fapp/old", 404, ""),
        ("example.org", "/app%2Fold", 404, ""),
        ("example.org", "/app/../../../app.txt", 200, "www app.txt"),
    ] {
        let response = ask(client, host, target);
        assert_eq!(summary(&response), (status, text.to_owned()), "{host} {target}");
    }
    let page = ask(client, "example.org", "/app/sub/x.css");
    assert_eq!(page.header("cache-control"), Some("max-age=86400"));
    assert_eq!(page.header("x-a"), Some("b"));
    assert_eq!(ask(client, "example.org", "/app/").header("cache-control"), Some("max-age=3600"));
    client.send("POST /app HTTP/1.1\r\nHost: example.org\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().status, 405, "only who may go on is sent there");
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.response().body, b"other", "a client of old names no host");
    server.stop();
}

#[test]
fn where_nobody_answers_for_a_host_it_is_not_found() {
    let (_place, server) = serve("[hosts.a]\n\"/\" = \"-> www\"\n", &[]);
    let client = &mut server.client();
    assert_eq!(ask(client, "a", "/").status, 200);
    assert_eq!(ask(client, "b", "/").status, 404);
    server.stop();
}

#[test]
fn options_go_before_the_file() {
    let (place, server) = serve(SITES, &["--spa", "x.txt", "--log", "stdout"]);
    assert!(server.announcement.contains("/weft.toml on http://127.0.0.1:"));
    let client = &mut server.client();
    let nothing = ask(client, "a.example.org", "/nothing");
    assert_eq!(summary(&nothing), (200, "app x".to_owned()), "where the route says nothing else");
    assert_eq!(ask(client, "example.org", "/app/nothing").body, b"app", "what a route says stays");
    assert_eq!(server.stop().stdout.lines().count(), 2, "it writes the log after all");

    // A folder and routes stand beside those of the file, or in their place.
    let www = place.path().join("www");
    let route = format!("example.org www.example.org/gone/ -> {}", www.display());
    let (_place, server) = serve(SITES, &["--route", &route, "--", www.to_str().unwrap()]);
    let client = &mut server.client();
    assert_eq!(ask(client, "elsewhere", "/").body, b"www");
    assert_eq!(ask(client, "example.org", "/gone/app.txt").body, b"www app.txt");
    assert_eq!(ask(client, "example.org", "/app/").body, b"app");
    server.stop();
}

#[test]
fn routes_stand_on_the_command_line() {
    let place = folder(&[("www/index.html", "www"), ("api/index.html", "api")]);
    let routes = ["/old/ << https://example.org/", "example.org/api/ -> api", "* / -> www"];
    let arguments = |routes: &[&'static str]| {
        let mut arguments = vec!["--listen", "127.0.0.1:0", "--workers", "1"];
        arguments.extend(routes.iter().flat_map(|route| ["--route", route]));
        arguments
    };
    let server = Weft::start(weft(arguments(&routes)).current_dir(place.path()));
    assert!(server.announcement.starts_with("weft: serving 3 routes on "));
    let client = &mut server.client();
    assert_eq!(ask(client, "a", "/").body, b"www");
    assert_eq!(ask(client, "example.org", "/api/").body, b"api");
    assert_eq!(ask(client, "example.org", "/").status, 404);
    let old = ask(client, "a", "/old/x?y");
    assert_eq!(summary(&old), (301, "https://example.org/x?y".to_owned()));
    server.stop();

    // With a folder they are besides it.
    let mut command = weft(arguments(&routes[..1]));
    let server = Weft::start(command.arg("www").current_dir(place.path()));
    assert_eq!(ask(&mut server.client(), "a", "/").body, b"www");
    assert_eq!(ask(&mut server.client(), "a", "/old").status, 301);
    server.stop();
}

#[test]
fn limits_are_those_of_the_file() {
    let config = "[limits]\nmax_request_line_bytes = 64\nserver_name = \"x\"\n\
                  [hosts.\"*\"]\n\"/\" = \"-> www\"\n";
    let (_place, server) = serve(config, &[]);
    let client = &mut server.client();
    let response = ask(client, "a", "/");
    assert_eq!((response.status, response.header("server")), (200, Some("x")));
    assert_eq!(ask(client, "a", &"/x".repeat(32)).status, 414);
    server.stop();
    let (_place, server) = serve(config, &["--max-request-line-bytes", "1KiB"]);
    assert_eq!(ask(&mut server.client(), "a", &"/x".repeat(32)).status, 404);
    server.stop();
}

#[test]
fn certificates_are_those_of_the_file() {
    if !tool("curl") {
        return;
    }
    let place = folder(&[("one/a.txt", "1\n"), ("two/a.txt", "2\n")]);
    certify(place.path(), "one.example");
    certify(place.path(), "two.example");
    let config = r#"
[tls]
listen = ["127.0.0.1:0"]
certificates = [
  { cert = "one.example.crt", key = "one.example.key" },
  { cert = "two.example.crt", key = "two.example.key" },
]
min_version = "1.3"
[hosts."one.example"]
"/" = "-> one"
[hosts."two.example"]
"/" = "-> two"
"#;
    let file = place.path().join("weft.toml");
    fs::write(&file, config).unwrap();
    // Paths begin in the folder of the file, wherever it is started.
    let server = Weft::start(&mut weft([Path::new("--config"), &file]));
    let address = server.addresses()[0].strip_prefix("https://127.0.0.1:").unwrap().to_owned();
    let get = |name: &str, more: &[&str]| {
        let mut command = Command::new("curl");
        let url = format!("https://{name}:{address}/a.txt");
        let resolve = format!("{name}:{address}:127.0.0.1");
        let trusted = place.path().join(format!("{name}.crt"));
        command.args(["-sS", "--max-time", "30", "--resolve", &resolve, &url, "--cacert"]);
        String::from_utf8(command.arg(trusted).args(more).output().unwrap().stdout).unwrap()
    };
    assert_eq!(get("one.example", &[]), "1\n");
    assert_eq!(get("two.example", &[]), "2\n");
    assert_eq!(get("two.example", &["--tls-max", "1.2"]), "", "it is too old");
    server.stop();
}
