//! Changes of the path of a request: `try_files`, `rewrite` and named routes.

use std::io::{Read, Write};

use std::process::Command;

use crate::common::{
    Client, Program, Response, Weft, has_tool, raw_upstream, read_head, report_missing_tool, until,
    weft,
};
use crate::config::{folder_with, run_in};
use crate::matching::{assert_outcomes, serve};

const SITE: &str = r#"
"/" = { files = "site", try_files = ["{path}", "{path}.html", "{path}/", "@app"] }
"@app" = { respond = "app {method} {path}?{query}" }
"/front/" = { files = "site", try_files = ["{path}", "/index.php?q={path}&{query}"] }
"= /index.php" = { respond = "php {query}" }
"/gone/" = { files = "site", try_files = ["{path}", "=410"] }
"/single/" = { files = "site/app", try_files = ["{path}", "/single/a.txt"] }
"/literal/" = { files = "site", try_files = ["/index.html", "/literal/about.html", "=404"] }
"/closed/" = { files = "site", try_files = ["/closed/nothing", "/admin/x"] }
"/admin/" = { respond = "denied", status = 403 }
"/loop/" = { files = "site", try_files = ["{path}", "/loop/x"] }
"/rest/" = { files = "site", try_files = ["/rest{rest}", "/rest{rest}/", "/rest/app/a.txt"] }
"/last/" = { files = "site", try_files = ["{path}", "/admin{rest}"] }
"/outside/" = { files = "site", try_files = ["{rest}", "{rest}/", "=404"] }
"/top/" = { files = "site/empty", try_files = ["{path}", "{path}/", "@app"] }
"/unknown/" = { files = "site", try_files = ["{path}", "/admin%2Fx"] }
'~ ^/item/(\d+)$' = { files = "site", try_files = ["/item-{re.1}.txt", "/front/{re.1}?"] }
"#;

#[test]
fn first_path_that_exists_is_served() {
    let (_folder, server) = serve(SITE);
    assert_outcomes(
        &server,
        &[
            ("GET /app/a.txt", "200 a"),
            ("GET /about", "200 about"),
            ("GET /about.html", "200 about"),
            ("GET /about?x", "200 about"),
            // A folder is an element with a slash at its end only.
            ("GET /", "200 index"),
            ("GET /docs", "301 /docs/"),
            ("GET /docs?x", "301 /docs/?x"),
            ("GET /docs/", "200 docs"),
            ("GET /both", "200 both.html"),
            ("GET /both/", "200 both/index"),
            ("GET /empty/", "200 app GET /empty/?"),
            // A redirect to the slash would loop with an application that removes it.
            ("GET /empty", "200 app GET /empty?"),
            ("GET /empty?x", "200 app GET /empty?x"),
            ("GET /root", "200 app GET /root?"),
            ("GET /top/", "200 app GET /top/?"),
            ("GET /top/file", "200 "),
            // The last element.
            ("GET /none?a=b", "200 app GET /none?a=b"),
            ("GET /a%20b%3F/c", "200 app GET /a b?/c?"),
            ("GET /.hidden", "200 app GET /.hidden?"),
            ("POST /none", "200 app POST /none?"),
            ("GET /front/x%26y?a", "200 php q=/front/x%26y&a"),
            ("GET /front/app/a.txt", "200 a"),
            ("GET /front", "200 php q=/front"),
            ("GET /gone/x", "410 410 Gone"),
            ("GET /rest/about.html", "200 about"),
            ("GET /rest/docs", "301 /rest/docs/"),
            ("GET /rest/docs/", "200 docs"),
            ("GET /rest", "301 /rest/"),
            ("GET /rest/none", "200 a"),
            ("GET /rest/empty", "200 a"),
            ("GET /last/none?x", "403 denied"),
            ("GET /outside/about.html", "404 404 Not Found"),
            ("GET /outside/outside/about.html", "200 about"),
            ("GET /single/a.txt", "200 a"),
            ("GET /single/x/y", "200 a"),
            ("GET /literal/x", "200 about"),
            ("GET /item/1", "200 one"),
            ("GET /item/2?x", "200 php q=/front/2"),
            // Another route keeps its rules, and no spelling of a path avoids them.
            ("GET /closed/x", "403 denied"),
            ("GET /unknown/x", "400"),
            ("GET /@app", "200 app GET /@app?"),
        ],
    );
    let mut client = server.client();
    client
        .send("POST /about HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.header("allow")), (405, Some("GET, HEAD")));
    server.stop();
}

#[test]
fn loop_of_routes_ends_with_an_error() {
    let (_folder, server) = serve(SITE);
    assert_outcomes(&server, &[("GET /loop/a", "500 500 Internal Server Error"); 2]);
    let line = "routes of the host a pass /loop/x on in a loop; the response is 500";
    until("the loop is logged", || server.stderr().contains(line));
    assert_eq!(server.stderr().matches(line).count(), 1);
    server.stop();
}

/// Responds with the target and the body of a request.
fn echo() -> std::net::SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let target = head.split(' ').nth(1).expect("a target").to_owned();
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
            stream.read_exact(&mut body).unwrap();
            let text = format!("{target} {}", String::from_utf8(body).unwrap());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            stream.write_all((head + &text).as_bytes()).unwrap();
        }
    })
}

#[test]
fn upstream_gets_body_and_original_path() {
    let upstream = echo();
    let routes = "\"/\" = { files = \"site\", try_files = [\"{path}\", \"@app\"] }\n";
    let (_folder, server) = serve(&format!("{routes}\"@app\" = \">> http://{upstream}/x\""));
    let mut client = server.client();
    client.send("POST /a%2Fb?c HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().body, b"/x/a%2Fb?c body");
    server.stop();
}

#[test]
fn rewrite_replaces_the_path_of_the_target() {
    let upstream = echo();
    let (_folder, server) = serve(&format!(
        r#"
"/" = {{ proxy = "http://{upstream}/", rewrite = "/all{{path}}" }}
"/api/" = {{ proxy = "http://{upstream}/base", rewrite = "/v1{{rest}}" }}
"/dropped/" = {{ proxy = "http://{upstream}/", rewrite = "/x?" }}
"~ ^/u/([^/]+)/(.*)$" = {{ proxy = "http://{upstream}/", rewrite = "/users/{{re.2}}?id={{re.1}}&{{query}}" }}
"/value/" = {{ proxy = "http://{upstream}/", rewrite = "/x/{{query.p}}?" }}
"~ ^/glue/(.*)-(.*)$" = {{ proxy = "http://{upstream}/", rewrite = "/x/{{re.1}}{{re.2}}" }}
"= /exact" = {{ proxy = "http://{upstream}/other", rewrite = "/v2" }}
"/file/" = {{ files = "site", rewrite = "/about.html" }}
"/folder/" = {{ files = "site", rewrite = "/docs" }}
"#
    ));
    assert_outcomes(
        &server,
        &[
            ("GET /a%2Fb?c", "200 /all/a%2Fb?c"),
            ("GET /api/a?c", "200 /base/v1/a?c"),
            ("GET /api", "200 /base/v1/"),
            ("GET /dropped/a?c", "200 /x"),
            ("GET /u/a%2Fb%26/c%2Fd?e", "200 /users/c%2Fd?id=a/b%26&e"),
            ("GET /value/?p=a/b", "200 /x/a/b"),
            ("GET /value/?p=//a%3Fb%23c", "200 /x/a%3Fb%23c"),
            ("GET /value/?p=..", "400"),
            ("GET /value/?p=%2e%2e/a", "400"),
            ("GET /value/?p=a%5C..", "400"),
            ("GET /value/?p=a%00", "400"),
            ("GET /value/?p=%0d%0aX:y", "200 /x/%0D%0AX%3Ay"),
            ("GET /glue/a-b", "200 /x/ab"),
            ("GET /glue/.-.", "400"),
            ("GET /glue/a%2F-..", "400"),
            ("GET /exact", "200 /other/v2"),
            ("GET /file/x/y", "200 about"),
            ("GET /file", "200 about"),
            ("GET /folder/x", "301 /folder/docs/"),
        ],
    );
    server.stop();
}

/// The routes of [`LIKE_NGINX`] in nginx.
const NGINX: &str = r#"
index index.html;
absolute_redirect off;
location / { root site; try_files $uri $uri.html $uri/ @app; }
location @app { return 200 "app $uri"; }
location = /exact { return 200 exact; }
location ~ ^/re/(?<name>[^/]+)/(.*)$ { return 302 /to/$2?n=$name; }
location ~ \.php$ { return 200 "php $args"; }
location ~ ^/docs/x { return 200 pattern; }
location /docs/ { root site; }
location /gone/ { root site; try_files $uri =410; }
location /last/ { root site; try_files $uri /index.php?q=$uri; }
"#;

const LIKE_NGINX: &str = r#"
"/" = { files = "site", try_files = ["{path}", "{path}.html", "{path}/", "@app"] }
"@app" = { respond = "app {path}" }
"= /exact" = { respond = "exact" }
"~ ^/re/(?<name>[^/]+)/(.*)$" = { redirect = "/to/{re.2}?n={re.name}", status = 302 }
'~ \.php$' = { respond = "php {query}" }
"~ ^/docs/x" = { respond = "pattern" }
"/docs/" = "-> site/docs"
"/gone/" = { files = "site", try_files = ["{path}", "=410"] }
"/last/" = { files = "site", try_files = ["{path}", "/index.php?q={path}"] }
"#;

/// Each row: a request and the outcome of Weft; if nginx has another outcome, also that outcome and
/// the reason.
#[test]
fn nginx_has_the_same_outcomes() {
    if !has_tool("nginx") {
        return report_missing_tool("nginx");
    }
    let (folder, server) = serve(LIKE_NGINX);
    let at = folder.path().display();
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
         http {{ access_log off; default_type text/plain; client_body_temp_path {at}/b; \
         proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; \
         scgi_temp_path {at}/s; server {{ listen unix:{at}/socket; {} }} }}\n",
        NGINX.replace("root site", &format!("root {at}/site")),
    );
    let (file, socket) = (folder.path().join("nginx.conf"), folder.path().join("socket"));
    std::fs::write(&file, conf).unwrap();
    let mut nginx = Command::new("nginx");
    let mut nginx = Program::start(nginx.arg("-c").arg(&file).args(["-e", "stderr"]));
    until("nginx accepts connections", || {
        assert!(nginx.is_running(), "{}", nginx.stderr());
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    const FOLDER: &str = "a folder without an index does not exist";
    const ENCODED: &str = "groups keep the encoding of the path";
    const READINGS: &str = "servers read the path in different ways";
    for (request, expected, difference) in [
        ("GET /", "200 index", None),
        ("GET /about", "200 about", None),
        ("GET /about?x", "200 about", None),
        ("GET /docs", "301 /docs/", None),
        ("GET /docs/", "200 docs", None),
        ("GET /docs/xy", "200 pattern", None),
        ("GET /both", "200 both.html", None),
        ("GET /both/", "200 both/index", None),
        ("GET /empty", "200 app /empty", Some(("301 /empty/", FOLDER))),
        ("GET /empty/", "200 app /empty/", Some(("403", FOLDER))),
        ("GET /none/x", "200 app /none/x", None),
        ("GET /none%20x", "200 app /none x", None),
        ("POST /about", "405", None),
        ("POST /none", "200 app /none", None),
        ("GET /exact", "200 exact", None),
        ("GET /exact?x", "200 exact", None),
        ("GET //x/../%65xact", "200 exact", None),
        ("GET /exact/", "200 app /exact/", None),
        ("GET /exact%2F", "400", Some(("200 app /exact/", READINGS))),
        ("GET /x.php?y", "200 php y", None),
        ("GET /x.php%0A", "400", Some(("200 php ", READINGS))),
        ("GET /re/a/b?c", "302 /to/b?n=a", None),
        ("GET /re/a/b%20c", "302 /to/b%20c?n=a", Some(("302 /to/b c?n=a", ENCODED))),
        ("GET /re/a%2Fb/c", "302 /to/c?n=a/b", Some(("302 /to/b/c?n=a", ENCODED))),
        ("GET /re%2Fa/b", "400", Some(("302 /to/b?n=a", READINGS))),
        ("GET /gone/x", "410", None),
        ("GET /last/x?y", "200 php q=/last/x", None),
    ] {
        let outcome = |mut client: Client| {
            let fields = "Host: a\r\nContent-Length: 0\r\nConnection: close";
            client.send(format!("{request} HTTP/1.1\r\n{fields}\r\n\r\n"));
            shown(&client.response())
        };
        assert_eq!(outcome(server.client()), expected, "{request}");
        let (of_nginx, reason) = difference.unwrap_or((expected, "the same"));
        assert_eq!(outcome(Client::unix(&socket)), of_nginx, "{request} in nginx: {reason}");
    }
    server.stop();
}

/// Returns the status, and the target of a redirect or the body of a success.
fn shown(response: &Response) -> String {
    let status = response.status;
    match status {
        200 => format!("{status} {}", String::from_utf8_lossy(&response.body)),
        301 | 302 => format!("{status} {}", response.header("location").unwrap_or_default()),
        _ => status.to_string(),
    }
}

#[test]
fn file_is_the_response_to_all_requests() {
    let (folder, server) = serve(
        r#"
"/" = { respond_file = "site/about.html", status = 503 }
"/text/" = { respond_file = "site/about.html", content_type = "text/plain" }
"/json/" = { respond = "{}", content_type = "application/json" }
"#,
    );
    let send = |request: &str| {
        let mut client = server.client();
        client.send(format!("{request}\r\nHost: a\r\nConnection: close\r\n\r\n"));
        client.response()
    };
    for (request, status, media_type, body) in [
        ("GET /x/y?z HTTP/1.1", 503, "text/html; charset=utf-8", "about"),
        ("POST / HTTP/1.1\r\nContent-Length: 0", 503, "text/html; charset=utf-8", "about"),
        ("GET / HTTP/1.1\r\nRange: bytes=1-2", 503, "text/html; charset=utf-8", "about"),
        ("GET /text/ HTTP/1.1", 200, "text/plain", "about"),
        ("GET /text/ HTTP/1.1\r\nRange: bytes=1-2", 206, "text/plain", "bo"),
        ("GET /json/ HTTP/1.1", 200, "application/json", "{}"),
    ] {
        let response = send(request);
        let found = (response.status, response.header("content-type"), &*response.body);
        assert_eq!(found, (status, Some(media_type), body.as_bytes()), "{request}");
        assert_eq!(response.header("etag").is_some(), status < 500 && body != "{}", "{request}");
    }
    std::fs::write(folder.path().join("site/about.html"), "changed").unwrap();
    until("the changed file is read", || send("GET / HTTP/1.1").body == b"changed");
    server.stop();
}

#[test]
fn unused_names_are_reported() {
    let config = "[hosts.\"*\"]\n\"/\" = { respond = \"\" }\n\"@app\" = { respond = \"\" }\n";
    let folder = folder_with(&[("weft.toml", config)]);
    let output = run_in(folder.path(), &["check", "weft.toml"]);
    let expected = "weft: weft.toml:3:10: warning: no `try_files`, `split` or `error_pages` leads to the route @app\n";
    assert_eq!((output.status, &*output.stderr), (Ok(3), expected));
}

/// A reload replaces the routes while requests are passed on.
#[test]
fn reload_changes_the_route_that_requests_are_passed_to() {
    let config = |text: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n[hosts.\"*\"]\n\
             \"/\" = {{ files = \".\", try_files = [\"{{path}}\", \"@app\"] }}\n\
             \"@app\" = {{ respond = \"{text}\" }}\n"
        )
    };
    let folder = folder_with(&[("weft.toml", &config("former"))]);
    let server = Weft::start(weft(["--config"]).arg(folder.path().join("weft.toml")));
    let text = || {
        let mut client = Client::tcp(server.address());
        String::from_utf8(client.get("/x").body).unwrap()
    };
    assert_eq!(text(), "former");
    std::fs::write(folder.path().join("weft.toml"), config("newer")).unwrap();
    server.signal(rustix::process::Signal::HUP);
    until("the reload is in effect", || text() == "newer");
    server.stop();
}

const REWRITES: &str = r#"
"/" = { files = "site", response_headers = { X-Route = "/" } }
"/old/" = { rewrite = "/new{rest}", rate = "1/h", burst = 2 }
"/new/" = { respond = "new {path}?{query} {rest}\n" }
"= /start" = { rewrite = "/about.html?" }
'~ ^/user/(\d+)$' = { rewrite = "/new/profile?id={re.1}&{query}" }
"/secret/" = { rewrite = "/closed/" }
"/closed/" = { respond = "", status = 403 }
"/loop/" = { rewrite = "/loop/x" }
"/dots/" = { rewrite = "/new/{query.a}/x" }
"POST /form" = { rewrite = "/new/posted" }
"#;

#[test]
fn rewrite_alone_leads_to_the_route_of_the_path() {
    let (_folder, server) = serve(REWRITES);
    assert_outcomes(
        &server,
        &[
            ("GET /old/a%20b?c", "200 new /new/a b?c /a b"),
            ("GET /start?x", "200 about"),
            ("GET /user/17", "200 new /new/profile?id=17 /profile"),
            ("GET /user/17?a=b", "200 new /new/profile?id=17&a=b /profile"),
            // The rules of both routes apply.
            ("GET /secret/x", "403 403 Forbidden"),
            ("GET /old/", "200 new /new/? /"),
            ("GET /old/", "429 429 Too Many Requests"),
            ("GET /loop/", "500 500 Internal Server Error"),
            ("GET /dots/?a=..", "400"),
            ("POST /form", "200 new /new/posted? /posted"),
            ("GET /form", "405 405 Method Not Allowed"),
        ],
    );
    until("the loop is logged", || server.stderr().contains("pass /loop/x on in a loop"));
}
