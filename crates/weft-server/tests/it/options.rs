//! Options of routes, hosts and all hosts: what a client receives for each.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Client, PATIENCE, Response, Signal, Weft, run, until, weft};

/// The password of `alice` is `open sesame`.
const ALICE: &str = "alice:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n";

/// `alice:open sesame`.
const CREDENTIALS: &str = "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU=\r\n";

/// Responds with the fields of the request.
const SCRIPT: &str = "#!/bin/sh
text=$(env | grep ^HTTP_ | sort | tr '\\n' '|')
printf 'Content-Type: text/plain\\nContent-Length: %s\\n\\n%s' ${#text} \"$text\"
";

fn write(folder: &Path, config: &str) {
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.join("weft.toml"), config).unwrap();
}

/// Starts the server with a configuration, a password file `users`, and a directory `site`.
fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("site")).unwrap();
    fs::write(folder.path().join("site/a.txt"), "A\n").unwrap();
    fs::write(folder.path().join("users"), ALICE).unwrap();
    let script = folder.path().join("a.cgi");
    fs::write(&script, SCRIPT).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    write(folder.path(), config);
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Sends a request with additional field lines on a new connection, and returns the head of the
/// response.
fn send(server: &Weft, method: &str, target: &str, fields: &str) -> Response {
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"
    ));
    let head = client.head();
    let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
    Response { status: status.expect("a status"), head, body: Vec::new() }
}

/// The status, and the values of some fields, `-` for none.
fn summary(response: &Response, names: &[&str]) -> String {
    let values = names.iter().map(|name| response.header(name).unwrap_or("-"));
    [response.status.to_string()]
        .into_iter()
        .chain(values.map(str::to_owned))
        .collect::<Vec<_>>()
        .join(" | ")
}

#[test]
fn each_option_applies_to_every_kind_of_route() {
    let upstream = Weft::serve(&crate::common::repository("site"), &["--no-log"]);
    let proxy = format!("proxy = \"{}\"", upstream.url("/"));
    for kind in ["respond = \"A\"", "redirect = \"/b\"", "files = \"site\"", &proxy] {
        let (_folder, server) = serve(&format!(
            "[hosts.\"*\"]\n\
             \"/denied\" = {{ {kind}, deny = \"127.0.0.0/8\" }}\n\
             \"/allowed\" = {{ {kind}, allow = [\"127.0.0.1\", \"::1\"] }}\n\
             \"/others\" = {{ {kind}, allow = \"192.0.2.0/24\" }}\n\
             \"/rate\" = {{ {kind}, rate = \"1/h\" }}\n\
             \"/secret\" = {{ {kind}, basic_auth = \"users\", realm = \"the garden\" }}\n\
             \"/https\" = {{ {kind}, https_redirect = true }}\n\
             \"/fields\" = {{ {kind}, response_headers = {{ X-A = \"1\" }}, hsts = \"5m\" }}\n\
             \"/cors\" = {{ {kind}, cors = \"https://app.example\" }}\n"
        ));
        let get = |target: &str, fields: &str| send(&server, "GET", target, fields);
        let served = get("/allowed/", "").status;
        assert!([200, 301, 404].contains(&served), "{kind}: {served}");
        assert_eq!(get("/denied/", "").status, 403, "{kind}");
        assert_eq!(get("/denied", "").status, 403, "{kind}: before the redirect to a folder");
        assert_eq!(get("/%64enied/", "").status, 403, "{kind}");
        assert_eq!(get("/others/", "").status, 403, "{kind}");
        assert_eq!([get("/rate/", "").status, get("/rate/", "").status], [served, 429], "{kind}");
        assert_eq!(
            summary(&get("/secret/", ""), &["www-authenticate"]),
            "401 | Basic realm=\"the garden\", charset=\"UTF-8\"",
            "{kind}"
        );
        assert_eq!(get("/secret/", CREDENTIALS).status, served, "{kind}");
        assert_eq!(
            summary(&get("/https/x?y", ""), &["location"]),
            "308 | https://a/https/x?y",
            "{kind}"
        );
        assert_eq!(
            summary(&get("/fields/", ""), &["x-a", "strict-transport-security"]),
            format!("{served} | 1 | max-age=300"),
            "{kind}"
        );
        let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n";
        assert_eq!(
            summary(
                &send(&server, "OPTIONS", "/cors/", preflight),
                &["access-control-allow-origin"]
            ),
            "204 | https://app.example",
            "{kind}"
        );
        server.stop();
    }
}

#[test]
fn routes_inherit_options_of_their_host_and_of_all_hosts() {
    let (_folder, server) = serve(
        "[defaults]\n\
         response_headers = { X-A = \"defaults\", X-B = \"defaults\" }\n\
         security_headers = true\n\
         [hosts.\"*\"]\n\
         basic_auth = \"users\"\n\
         response_headers = { X-B = \"host\", X-C = \"host\" }\n\
         \"/\" = { respond = \"\" }\n\
         \"/own\" = { respond = \"\", response_headers = { x-c = \"route\" } }\n\
         \"/open\" = { respond = \"\", basic_auth = \"none\", remove_response_headers = [\"X-A\"], \
                       security_headers = false }\n",
    );
    let names = ["x-a", "x-b", "x-c", "x-frame-options"];
    for (target, fields, expected) in [
        ("/", "", "401 | defaults | host | host | SAMEORIGIN"),
        ("/", CREDENTIALS, "200 | defaults | host | host | SAMEORIGIN"),
        ("/own", CREDENTIALS, "200 | defaults | host | route | SAMEORIGIN"),
        ("/open", "", "200 | - | host | host | -"),
    ] {
        assert_eq!(summary(&send(&server, "GET", target, fields), &names), expected, "{target}");
    }
}

#[test]
fn compresses_responses_of_upstreams() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "a".repeat(10_000)).unwrap();
    let upstream = Weft::serve(folder.path(), &["--no-log", "--no-compress"]);
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{0}\", compress = true }}\n\
         \"/plain\" = {{ proxy = \"{0}\" }}\n",
        upstream.url("/")
    ));
    let get = |target| send(&server, "GET", target, "Accept-Encoding: gzip\r\n");
    assert_eq!(summary(&get("/a.txt"), &["content-encoding"]), "200 | gzip");
    assert_eq!(summary(&get("/plain/a.txt"), &["content-encoding"]), "200 | -");
}

#[test]
fn compresses_with_the_level_of_the_route() {
    let folder = tempfile::tempdir().unwrap();
    let words = (0_u64..20_000).map(|n| format!("{} ", n * n % 1_009));
    fs::write(folder.path().join("a.txt"), words.collect::<String>()).unwrap();
    let upstream = Weft::serve(folder.path(), &["--no-log", "--no-compress"]);
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\ngzip_level = 9\n\
         \"/1\" = {{ proxy = \"{0}\", compress = true, gzip_level = 1 }}\n\
         \"/2\" = {{ proxy = \"{0}\", compress = true, gzip_level = 2 }}\n\
         \"/9\" = {{ proxy = \"{0}\", compress = true }}\n\
         [hosts.\"default\"]\n\"/\" = {{ proxy = \"{0}\", compress = true }}\n",
        upstream.url("/")
    ));
    // The end of the connection is the end of the body.
    let length = |target: &str, host: &str| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let fields = format!("Host: {host}\r\nAccept-Encoding: gzip\r\n");
        write!(stream, "GET {target}/a.txt HTTP/1.0\r\n{fields}\r\n").unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let text = String::from_utf8_lossy(&response).to_ascii_lowercase();
        assert!(
            text.starts_with("http/1.1 200 ") && text.contains("\r\ncontent-encoding: gzip\r\n")
        );
        response.len()
    };
    let lengths = ["/1", "/2", "/9"].map(|target| length(target, "a"));
    let default = length("", "default");
    println!("{default} of {lengths:?}");
    assert!(lengths[0] > lengths[1] && lengths[1] > lengths[2], "{lengths:?}");
    // The pauses of the upstream, at which compressed bytes are flushed, cost some bytes.
    let differences = lengths.map(|length| length.abs_diff(default));
    assert!(differences[1] < differences[0].min(differences[2]), "{default} of {lengths:?}");
}

#[test]
fn reload_keeps_the_rates_of_clients_and_follows_changed_options() {
    // With several workers, one of them could still have the former routes.
    let config = |status| {
        format!(
            "workers = 1\n\
             [hosts.\"*\"]\n\
             \"/rate\" = {{ respond = \"\", rate = \"1/h\" }}\n\
             \"/\" = {{ respond = \"\", status = {status} }}\n"
        )
    };
    let (folder, server) = serve(&config(200));
    let status = |target| send(&server, "GET", target, "").status;
    assert_eq!([status("/rate"), status("/rate")], [200, 429]);
    write(folder.path(), &config(202));
    server.signal(Signal::HUP);
    until("the reload is in effect", || status("/") == 202);
    assert_eq!(status("/rate"), 429);
    write(folder.path(), &config(203).replace("1/h", "2/h"));
    server.signal(Signal::HUP);
    until("the reload is in effect", || status("/") == 203);
    assert_eq!([status("/rate"), status("/rate"), status("/rate")], [200, 200, 429]);
}

#[test]
fn follows_changes_of_the_password_file() {
    let (folder, server) =
        serve("[hosts.\"*\"]\nbasic_auth = \"users\"\n\"/\" = { respond = \"\" }\n");
    let status = || send(&server, "GET", "/", CREDENTIALS).status;
    assert_eq!(status(), 200);
    fs::write(folder.path().join("users"), "# nobody\n").unwrap();
    until("the changed file is in effect", || status() == 401);
    fs::write(folder.path().join("users"), "alice:plain\n").unwrap();
    until("the invalid file is reported", || {
        status();
        server.stderr().contains("the former content stays in effect")
    });
    fs::write(folder.path().join("users"), ALICE).unwrap();
    until("the file is in effect again", || status() == 200);
}

#[test]
fn options_of_the_command_line_apply_to_all_routes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "A\n").unwrap();
    let server = Weft::serve(folder.path(), &["--no-log", "--deny", "127.0.0.1", "--hsts", "1m"]);
    let response = send(&server, "GET", "/a.txt", "");
    assert_eq!(summary(&response, &["strict-transport-security"]), "403 | max-age=60");
}

#[test]
fn reports_invalid_options() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("old"), "bob:$apr1$x$y\n").unwrap();
    for (option, expected) in [
        ("alow = \"::1\"", "did you mean `allow`?"),
        ("allow = \"10.0.0.0/33\"", "expected an address"),
        ("rate = \"10\"", "expected a rate such as 10/s"),
        ("cors = \"app.example\"", "expected an origin"),
        ("hsts = 5", "expected a time"),
        ("response_headers = { Date = \"x\" }", "the server sets date itself"),
        ("response_headers = [\"x\"]", "expected NAME: VALUE"),
        ("canonical_host = \"a b\"", "expected a host"),
        ("remove_request_headers = \"Host\"", "host cannot be changed: the key `host`"),
        ("forward_auth_headers = \"X-Forwarded-For\"", "keeps the field of a trusted proxy"),
        ("request_headers = { Connection = \"close\" }", "applies to one connection"),
        ("cors_methods = \"put\"", "expected a method such as PUT"),
        ("max_body_bytes = \"1M\"", "expected a size"),
        ("request_timeout = 5", "expected a time"),
        ("basic_auth = \"missing\"", "cannot read"),
        ("basic_auth = \"old\"", "line 1: expected a hash"),
    ] {
        for place in [
            format!("[defaults]\n{option}\n[hosts.\"*\"]\n\"/\" = {{ respond = \"\" }}\n"),
            format!("[hosts.\"*\"]\n{option}\n\"/\" = {{ respond = \"\" }}\n"),
            format!("[hosts.\"*\"]\n\"/\" = {{ respond = \"\", {option} }}\n"),
        ] {
            let file = folder.path().join("weft.toml");
            fs::write(&file, &place).unwrap();
            let output = run([Path::new("check"), &file]);
            assert_eq!(output.status, Ok(1), "{place}");
            assert!(output.stderr.contains(expected), "{place}\n{}", output.stderr);
        }
    }
}

/// Each row: the limits of the server and of the route, the size of a body, and the status.
#[test]
fn size_of_request_bodies_is_limited_on_every_kind_of_route() {
    let upstream = Weft::serve(&crate::common::repository("site"), &["--no-log"]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("a.cgi");
    fs::write(&script, "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 405\\n\\n'\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for kind in [
        format!("proxy = \"{}\"", upstream.url("/")),
        format!("cgi = \"{}\"", script.display()),
        "files = \"site\"".to_owned(),
    ] {
        let (_folder, server) = serve(&format!(
            "[limits]\nmax_body_bytes = 1000\n[hosts.\"*\"]\n\
             \"/\" = {{ {kind} }}\n\
             \"/small\" = {{ {kind}, max_body_bytes = 10 }}\n\
             \"/large\" = {{ {kind}, max_body_bytes = \"1MiB\" }}\n"
        ));
        let is_files = kind.starts_with("files");
        for (target, bytes, expected) in [
            // A directory does not read the body.
            ("/", 1_001, if is_files { 405 } else { 413 }),
            ("/", 1_000, 405),
            ("/small/", 11, 413),
            ("/small/", 10, 405),
            ("/large/", 1_001, 405),
            ("/large/", (1 << 20) + 1, 413),
        ] {
            let fields = format!("Content-Length: {bytes}\r\n");
            let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
            let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            client.send([head.as_bytes(), &vec![b'a'; bytes.min(2_000)]].concat());
            if bytes > 2_000 {
                // The refusal does not wait for the rest.
                assert!(client.head()[0].contains(&expected.to_string()), "{kind} {target}");
                continue;
            }
            let status = client.head()[0].split(' ').nth(1).unwrap().to_owned();
            assert_eq!(status, expected.to_string(), "{kind} {target} {bytes}");
        }
        // One warning in ten seconds, with the name of the key.
        let warning = "with 413: the body is larger than";
        until("a warning", || server.stderr().contains(warning));
        assert!(server.stderr().contains("`max_body_bytes` of its route"), "{}", server.stderr());
        server.stop();
    }
}

#[test]
fn request_timeout_ends_slow_applications() {
    let upstream =
        crate::common::raw_upstream(
            |_, mut stream| {
                while crate::common::read_head(&mut stream).is_some() {}
            },
        );
    let (_folder, server) = serve(&format!(
        "[defaults]\nrequest_timeout = \"50ms\"\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"http://{upstream}/\" }}\n\
         \"/fast\" = {{ respond = \"\" }}\n"
    ));
    assert_eq!(send(&server, "GET", "/", "").status, 503);
    assert_eq!(send(&server, "GET", "/fast", "").status, 200);
}

/// Responds with the lines of a request's head, joined by `|`.
fn echo_upstream() -> std::net::SocketAddr {
    crate::common::raw_upstream(|_, mut stream| {
        while let Some(head) = crate::common::read_head(&mut stream) {
            let text = head.trim_end().replace("\r\n", "|");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            std::io::Write::write_all(&mut stream, (head + &text).as_bytes()).unwrap();
        }
    })
}

#[test]
fn upstreams_and_scripts_get_changed_fields() {
    let upstream = echo_upstream();
    let (_folder, server) = serve(&format!(
        "[defaults]\nrequest_headers = {{ X-Real-IP = \"set\", X-All = \"1\" }}\n\
         [hosts.\"*\"]\nremove_request_headers = \"Cookie\"\n\
         \"/\" = {{ proxy = \"http://{upstream}/\", via = \"\" }}\n\
         \"/any\" = {{ proxy = \"http://{upstream}/\", field_names = \"any\", host = \"b:81\", via = \"\" }}\n\
         \"/own\" = {{ proxy = \"http://{upstream}/\", request_headers = {{ X-All = \"2\" }}, via = \"\" }}\n\
         \"/cgi\" = {{ cgi = \"a.cgi\" }}\n"
    ));
    let sent =
        "X-Real-IP: spoofed\r\nX_Real_IP: spoofed\r\nX_All: spoofed\r\nCookie: a=b\r\nX-Own: c\r\n";
    let set = "x-own: c|x-real-ip: set";
    for (target, expected) in [
        ("/", format!("GET / HTTP/1.1|host: a|{set}|x-all: 1")),
        ("/any/", format!("GET / HTTP/1.1|host: b:81|{set}|x-all: 1")),
        ("/own/", "GET / HTTP/1.1|host: a|x-own: c|x-all: 2|x-real-ip: set".to_owned()),
        ("/cgi/", "HTTP_HOST=a|HTTP_X_ALL=1|HTTP_X_OWN=c|HTTP_X_REAL_IP=set|".to_owned()),
    ] {
        let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{sent}\r\n"));
        let body = String::from_utf8(client.response().body).unwrap();
        let lines = body
            .split('|')
            .filter(|line| !line.starts_with("x-forwarded-") && !line.starts_with("forwarded:"));
        assert_eq!(lines.collect::<Vec<_>>().join("|"), expected, "{target}");
    }
}

#[test]
fn cors_permits_configured_methods_fields_and_cookies() {
    let (folder, server) = serve(
        "[defaults]\ncors = \"https://app.example\"\n[hosts.\"*\"]\n\
         \"/\" = { respond = \"\" }\n\
         \"/own\" = { respond = \"\", cors_methods = [\"PUT\", \"PURGE\"], cors_headers = [\"X-A\"], \
                      cors_credentials = true, cors_max_age = \"1h\" }\n",
    );
    let preflight = "Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n";
    let names =
        ["methods", "headers", "credentials"].map(|it| format!("access-control-allow-{it}"));
    let names = [&*names[0], &names[1], &names[2], "access-control-max-age"];
    for (target, expected) in [
        ("/", "204 | PUT, PATCH, DELETE | authorization, content-type | - | -"),
        ("/own", "204 | PUT, PURGE | x-a | true | 3600"),
    ] {
        let response = send(&server, "OPTIONS", target, preflight);
        assert_eq!(summary(&response, &names), expected, "{target}");
    }
    let file = folder.path().join("any.toml");
    let config =
        "[hosts.\"*\"]\ncors = \"*\"\ncors_credentials = true\n\"/\" = { respond = \"\" }\n";
    fs::write(&file, config).unwrap();
    let output = run([Path::new("check"), &file]);
    assert!(output.stderr.contains("cannot be combined with the origin *"), "{}", output.stderr);
}
