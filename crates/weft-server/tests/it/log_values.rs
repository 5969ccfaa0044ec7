//! Values in lines of the access log that come from routes, authentication, upstreams and TLS.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;

use tempfile::TempDir;

use crate::common::{self, Client, Weft, has_tool, raw_upstream, read_head, until, weft};

/// The password of `alice` is `open sesame`.
const ALICE: &str = "alice:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n";

/// `alice:open sesame`.
const CREDENTIALS: &str = "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU=\r\n";

/// A server with a log in this format.
struct LoggedServer {
    folder: TempDir,
    server: Weft,
}

impl LoggedServer {
    fn start(format: &str, config: &str) -> LoggedServer {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("users"), ALICE).unwrap();
        let format = format.replace('"', "\\\"");
        let config = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n\
             log = {{ access = \"access.log\", format = \"{format}\" }}\n{config}"
        );
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let file = folder.path().join("weft.toml");
        let server = Weft::start(&mut weft([Path::new("--config"), &file]));
        LoggedServer { folder, server }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    /// Sends a request with additional field lines on a new connection; returns the status.
    fn request(&self, target: &str, fields: &str) -> u16 {
        let mut client = self.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        client.response().status
    }

    /// Stops the server and returns the lines of its log.
    fn lines(self) -> Vec<String> {
        self.server.stop();
        let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

/// An upstream that sends `ok` with a field that contains a quote.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            let response = "HTTP/1.1 203 OK\r\nX-Cache: a\"b\r\nX-Request-Id: 7\r\n\
                            Content-Length: 2\r\n\r\nok";
            stream.write_all(response.as_bytes()).unwrap();
        }
    })
}

#[test]
fn lines_have_values_of_route_user_upstream_and_response() {
    let (upstream, dead) = (upstream(), common::unused_address());
    let server = LoggedServer::start(
        "%s|%u|%{route}x|%{upstream.address}x|%{upstream.status}x|%{upstream.attempts}x|\
         %{upstream.retry_reason}x|%{X-Cache}o|%{X-B}o|%{request_id}x",
        &format!(
            "[hosts.\"*\"]\n\
             \"/\" = {{ respond = \"a\", response_headers = {{ X-B = \"1\" }} }}\n\
             \"/app/\" = {{ proxy = \"http://{upstream}/\", basic_auth = \"users\" }}\n\
             \"/two/\" = \">> http://{dead}/ http://{upstream}/\"\n\
             \"/dead/\" = \">> http://{dead}/\"\n"
        ),
    );
    assert_eq!(server.request("/app/a", CREDENTIALS), 203);
    assert_eq!(server.request("/app/a", ""), 401);
    assert_eq!(server.request("/two/", ""), 203);
    assert_eq!(server.request("/dead/", ""), 502);
    assert_eq!(server.request("/b", ""), 200);
    let mut client = server.client();
    client.send("BAD\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(
        server.lines(),
        [
            &*format!("203|alice|/app/|{upstream}|203|1|-|a\\\"b|-|7"),
            "401|-|/app/|-|-|-|-|-|-|-",
            &*format!("203|-|/two/|{upstream}|203|2|unreachable|a\\\"b|-|7"),
            &*format!("502|-|/dead/|{dead}|-|3|unreachable|-|-|-"),
            "200|-|/|-|-|-|-|-|1|-",
            "400|-|-|-|-|-|-|-|-|-",
        ]
    );
}

/// The values of a request do not reach the line of the next one on the same connection.
#[test]
fn values_belong_to_one_request_of_a_connection() {
    let upstream = upstream();
    let server = LoggedServer::start(
        "%r %u %{upstream.status}x",
        &format!(
            "[hosts.\"*\"]\n\"/\" = {{ respond = \"a\" }}\n\
             \"/app/\" = {{ proxy = \"http://{upstream}/\", basic_auth = \"users\" }}\n"
        ),
    );
    let mut client = server.client();
    for (target, status) in [("/app/", 203), ("/", 200), ("/app/", 203)] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{CREDENTIALS}\r\n"));
        assert_eq!(client.response().status, status);
    }
    client.send("BAD\r\n\r\n");
    assert_eq!(client.response().status, 400);
    assert_eq!(
        server.lines(),
        [
            "GET /app/ HTTP/1.1 alice 203",
            "GET / HTTP/1.1 - -",
            "GET /app/ HTTP/1.1 alice 203",
            "BAD - -",
        ]
    );
}

#[test]
fn times_of_an_upstream_include_its_delays() {
    const DELAY: std::time::Duration = std::time::Duration::from_millis(30);
    let upstream = raw_upstream(|_, mut stream| {
        while read_head(&mut stream).is_some() {
            std::thread::sleep(DELAY);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").unwrap();
            std::thread::sleep(DELAY);
            stream.write_all(b"b").unwrap();
        }
    });
    for buffering in ["true", "false"] {
        let server = LoggedServer::start(
            "%{upstream.queue_time}x %{upstream.connect_time}x %{upstream.header_time}x %{upstream.response_time}x",
            &format!(
                "[hosts.\"*\"]\n\"/\" = {{ proxy = \"http://{upstream}/\", \
                 buffer_responses = {buffering} }}\n"
            ),
        );
        assert_eq!(server.request("/", ""), 200);
        let lines = server.lines();
        let times: Vec<f64> = lines[0].split(' ').map(|time| time.parse().unwrap()).collect();
        let [queue, connect, header, response] = times[..] else { panic!("{lines:?}") };
        let delay = DELAY.as_secs_f64();
        assert_eq!(queue, 0.0, "{lines:?}");
        assert!(connect + delay <= header && header <= response, "{lines:?}");
        assert!(connect + 2.0 * delay <= response, "{lines:?}");
    }
}

/// A request whose client disconnects has the upstream that did not respond.
#[test]
fn cancelled_requests_have_their_upstream() {
    let (waiting, is_waiting) = mpsc::channel();
    let upstream = raw_upstream(move |_, mut stream| {
        assert!(read_head(&mut stream).is_some());
        waiting.send(()).unwrap();
        // Until the server closes the connection.
        read_head(&mut stream);
    });
    let server = LoggedServer::start(
        "%s %{upstream.address}x %{upstream.status}x",
        &format!("[hosts.\"*\"]\n\"/\" = \">> http://{upstream}/\"\n"),
    );
    let mut client = server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    is_waiting.recv_timeout(common::LONG_PATIENCE).unwrap();
    client.leave();
    let log = server.folder.path().join("access.log");
    until("the line is written", || !fs::read_to_string(&log).unwrap().is_empty());
    assert_eq!(server.lines(), [format!("499 {upstream} -")]);
}

#[test]
fn json_has_the_chosen_members_over_tls() {
    if !has_tool("curl") {
        return;
    }
    let server = LoggedServer::start(
        "json status ua=header.User-Agent tls.version tls.server_name version path query scheme",
        "[tls]\nlisten = \"127.0.0.1:0\"\nself_signed = true\n\
         [hosts.\"*\"]\n\"/\" = { respond = \"a\" }\n",
    );
    let port = server.server.tls_address().port();
    let mut curl = Command::new("curl");
    curl.args(["-sk", "--tlsv1.3", "-A", "x\"y", "--resolve", &format!("a.test:{port}:127.0.0.1")]);
    let output = curl.arg(format!("https://a.test:{port}/p?q")).output().unwrap();
    assert_eq!(output.stdout, b"a", "{output:?}");
    assert_eq!(server.client().get("/").status, 200);
    let lines = server.lines();
    assert_eq!(
        lines[0].replace("HTTP/1.1", "HTTP/2.0"),
        r#"{"status":200,"ua":"x\"y","tls_version":"TLSv1.3","tls_server_name":"a.test","version":"HTTP/2.0","path":"/p","query":"q","scheme":"https"}"#
    );
    assert_eq!(
        lines[1],
        r#"{"status":200,"ua":null,"tls_version":null,"tls_server_name":null,"version":"HTTP/1.1","path":"/","query":null,"scheme":"http"}"#
    );
}

#[test]
fn formats_have_the_placeholders_of_other_keys() {
    let server = LoggedServer::start(
        "{{x} {client_ip} {user} \"{method} {uri}\" {path}|{query.b}|{query.z}|{cookie.c}|{host}:{port}|\
         {header.X-A}|%s",
        "[hosts.\"*\"]\n\"/\" = { respond = \"ok\" }\n\"/b\" = { respond = \"\", basic_auth = \"users\" }\n",
    );
    assert_eq!(server.request("/a%20b?a=1&b=x+%22y", "Cookie: a=b; c=d%22\r\nX-A: e\r\n"), 200);
    assert_eq!(server.request("/b", CREDENTIALS), 200);
    assert_eq!(
        server.lines(),
        [
            "{x} 127.0.0.1 - \"GET /a%20b?a=1&b=x+%22y\" /a%20b|x \\\"y|-|d%22|a:80|e|200",
            "{x} 127.0.0.1 alice \"GET /b\" /b|-|-|-|a:80|-|200",
        ]
    );
}

#[test]
fn lines_have_groups_of_the_patterns_of_path_and_host() {
    let server = LoggedServer::start(
        "{re.1} {re.id} {re.7} {host.1} {host.sub} {uri} {rest}",
        "[hosts.\"~ ^(?<sub>[a-z]+)[.]example$\"]\n\
         \"~ ^/u/(?<id>[^/]+)\" = { respond = \"a\" }\n\
         \"/\" = { respond = \"b\" }\n\
         \"/w/\" = { respond = \"d\" }\n\
         [hosts.\"*\"]\n\
         \"~ ^/v/(.*)$\" = { respond = \"c\" }\n",
    );
    let mut client = server.client();
    for (target, host) in [
        ("/u/a%20b/c", "ab.example"),
        ("/x", "CD.example"),
        ("/w/y%20z?q", "cd.example"),
        ("/v/", "a"),
        ("/x", "a"),
    ] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response();
    }
    drop(client);
    let expected = [
        "a%20b a%20b - ab ab /u/a%20b/c /u/a%20b/c",
        "- - - cd cd /x /x",
        "- - - cd cd /w/y%20z?q /y%20z",
        " - - - - /v/ /v/",
        "- - - - - /x -",
    ];
    assert_eq!(server.lines(), expected);
}
