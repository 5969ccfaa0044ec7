//! The reverse proxy, with real and misbehaving clients and upstreams.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{
    Client, PATIENCE, Program, Signal, Weft, has_tool, raw_upstream, read_head, run, until,
    unused_address, weft,
};
use crate::proxy_app::{Balance, Check, CheckTarget, ForwardedNames, Host, Proxy, ProxySettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::testing::TestServer;
use weft::{Body, HeaderName, LocalAddress, Request, Response, StatusCode, header};

// -- proxies and upstreams

/// Starts a proxy to these upstreams.
fn start_proxy(urls: &str, change: impl FnOnce(&mut ProxySettings)) -> TestServer {
    let upstreams = ProxySettings::parse_upstreams(urls).unwrap();
    let mut settings = ProxySettings { upstreams, ..ProxySettings::default() };
    change(&mut settings);
    TestServer::start(Proxy::new(settings, Arc::default()).unwrap())
}

fn http_url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// Returns an address with a free port, for an external program.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Returns a handler that responds to each request on a connection with these bytes.
fn respond_with(bytes: &'static [u8]) -> impl Fn(usize, TcpStream) + Send + Sync + 'static {
    move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            stream.write_all(bytes).unwrap();
        }
    }
}

/// Responds with the received request as text: method and target, fields, body, trailers.
async fn echo(mut request: Request) -> Response {
    let mut text = format!("{} {}\n", request.method(), request.target());
    for (name, value) in request.headers().iter() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value));
    }
    text.push('\n');
    while let Some(chunk) = request.body().chunk().await.unwrap() {
        text += &String::from_utf8_lossy(&chunk);
    }
    if let Some(trailers) = request.body().trailers() {
        for (name, value) in trailers.iter() {
            text += &format!("\ntrailer {name}: {}", String::from_utf8_lossy(value));
        }
    }
    Response::text(text).with_header(header::SET_COOKIE, "a=1").with_header(header::SET_COOKIE, "b")
}

// -- a client that reads to the end of the connection

/// The response that a client received before the end of its connection.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedResponse {
    status: u16,
    /// Field lines in lower case, without `Date` and `Server`; an interim response is one entry.
    fields: Vec<String>,
    body: String,
    is_complete: bool,
}

/// Sends a request with `Connection: close` and reads the response to the end of the connection.
fn send_request(server: SocketAddr, request: &str) -> ReceivedResponse {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    read_response(&mut stream, request.starts_with("HEAD"))
}

fn get(server: SocketAddr, target: &str) -> ReceivedResponse {
    send_request(server, &format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
}

fn read_response(stream: &mut TcpStream, head_only: bool) -> ReceivedResponse {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {}", bytes.escape_ascii()),
    }
    parse(&bytes, head_only)
}

fn parse(bytes: &[u8], head_only: bool) -> ReceivedResponse {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let fields: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    if (100..200).contains(&status) && status != 101 {
        let rest = parse(body.as_bytes(), head_only);
        let interim = format!("{status}: {}", fields.join(", "));
        return ReceivedResponse { fields: [vec![interim], rest.fields].concat(), ..rest };
    }
    let length = fields.iter().find_map(|field| field.strip_prefix("content-length: "));
    let (body, is_complete) = if head_only || [204, 304].contains(&status) {
        (body.to_owned(), body.is_empty())
    } else if fields.iter().any(|field| field == "transfer-encoding: chunked") {
        dechunk(body)
    } else if let Some(length) = length {
        (body.to_owned(), body.len() == length.parse::<usize>().unwrap())
    } else {
        (body.to_owned(), true)
    };
    let varies = |field: &String| field.starts_with("date: ") || field.starts_with("server: ");
    let fields = fields.into_iter().filter(|field| !varies(field)).collect();
    ReceivedResponse { status, fields, body, is_complete }
}

/// Decodes a chunked body; returns the data followed by the trailers, and true if the body is
/// complete.
fn dechunk(mut text: &str) -> (String, bool) {
    let mut data = String::new();
    loop {
        let Some((size, rest)) = text.split_once("\r\n") else { return (data, false) };
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return match rest.strip_suffix("\r\n") {
                Some(trailers) => (data + trailers, true),
                None => (data, false),
            };
        }
        let Some((chunk, rest)) = rest.split_at_checked(size + 2) else { return (data, false) };
        data += &chunk[..size];
        text = rest;
    }
}

// -- requests and responses

#[test]
fn forwards_requests_with_forwarding_fields() {
    let upstream = TestServer::start(echo);
    let at = upstream.address();
    for (path, request, expected) in [
        (
            "/",
            "GET /a%20b/?c=d HTTP/1.1\r\nHost: h:1\r\nAccept: x\r\nConnection: close\r\n\r\n",
            "GET /a%20b/?c=d\nhost: h:1\naccept: x\n\n",
        ),
        (
            "/p/q/",
            "DELETE /a?b HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
             X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nConnection: close\r\n\r\n",
            "DELETE /p/q/a?b\nhost: h\n\n",
        ),
        (
            "/",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "POST /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            "GET /\nhost: h\ncontent-length: 5\n\nhello",
        ),
        (
            "/",
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\nTE: trailers\r\n\
             Connection: close, te\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
            "PUT /\nhost: h\ntrailer: x-t\ntransfer-encoding: chunked\nte: trailers\nconnection: te\n\
             \nhello\ntrailer x-t: 1",
        ),
        (
            "/",
            "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             2\r\nhe\r\n0\r\n\r\n",
            "GET /\nhost: h\ntransfer-encoding: chunked\n\nhe",
        ),
    ] {
        let proxy = start_proxy(&format!("http://{at}{path}"), |settings| {
            settings.request_trailers = [HeaderName::from_static("x-t")].into();
        });
        let response = send_request(proxy.address(), request);
        // Added fields; only the host depends on the request.
        let host = if request.contains("h:1") { "h:1" } else { "h" };
        let added = [
            "x-forwarded-for: 127.0.0.1".to_owned(),
            "x-forwarded-proto: http".to_owned(),
            format!("x-forwarded-host: {host}"),
            format!("forwarded: for=127.0.0.1;host=\"{host}\";proto=http"),
            "via: 1.1 weft".to_owned(),
        ];
        let (head, body) = response.body.split_once("\n\n").unwrap();
        let (ours, mut rest): (Vec<&str>, Vec<&str>) =
            head.lines().partition(|line| added.iter().any(|field| field == line));
        assert_eq!(ours.len(), added.len(), "{head}");
        rest.extend(["", body]);
        assert_eq!(rest.join("\n"), expected);
        assert_eq!((response.status, response.is_complete), (200, true));
        let cookies = response.fields.iter().filter(|field| field.starts_with("set-cookie"));
        assert_eq!(cookies.cloned().collect::<Vec<_>>(), ["set-cookie: a=1", "set-cookie: b"]);
        assert!(response.fields.contains(&"via: 1.1 weft".to_owned()), "{:?}", response.fields);
    }
}

/// Each row: if the client is trusted, the setting, and the names of its fields, each with the value
/// `evil`; then the names that reach the upstream with that value.
#[test]
fn drops_fields_that_upstreams_would_trust() {
    use ForwardedNames::{Any, Plain, Underscores};
    let upstream = TestServer::start(echo);
    for (is_trusted, field_names, names, expected) in [
        (false, Plain, "X-Other Accept sec-x cookie2 c s x", "x-other accept sec-x cookie2 c s x"),
        // Names that upstreams fold to others.
        (false, Plain, "X_Forwarded_For X_Other X-A_B _ a.b !#$%&'*+.^`|~ Content_Length", ""),
        (true, Plain, "X_Forwarded_For X_Other", ""),
        (false, Underscores, "X_Other X-A_B a.b_c", "x_other x-a_b"),
        (false, Any, "X_Other a.b ~", "x_other a.b ~"),
        (
            false,
            Any,
            "X_Forwarded_For x.forwarded-proto X_forwarded.host forwarded Host_ ",
            "host_",
        ),
        (
            false,
            Any,
            "Content_Length Transfer_Encoding Proxy_Authorization te_ Connection.",
            "te_ connection.",
        ),
        (false, Any, "Client_Cert X_SSL_Client_Verify ssl.client_cert", ""),
        // Fields about the client and its certificate.
        (false, Plain, "X-Forwarded-For X-Forwarded-Port X-Forwarded-Ssl X-Forwarded-User", ""),
        (false, Plain, "X-Real-IP True-Client-IP CF-Connecting-IP Client-IP X-Client-IP", ""),
        (false, Plain, "X-Scheme Front-End-Https X-Original-URL X-Rewrite-URL X-Host", ""),
        (
            false,
            Any,
            "X_Real_IP x.real.ip true_client_ip x-real-ip_ X-Realip",
            "x-real-ip_ x-realip",
        ),
        (
            true,
            Plain,
            "X-Real-IP True-Client-IP X-Scheme X-Original-URL",
            "x-real-ip true-client-ip x-scheme x-original-url",
        ),
        (false, Plain, "Client-Cert client-cert-chain X-SSL-Client-Verify SSL-CLIENT-S-DN", ""),
        (false, Plain, "X-Client-Cert X-Forwarded-Client-Cert X-Amzn-Mtls-Clientcert-Leaf", ""),
        (
            true,
            Plain,
            "Client-Cert X-SSL-Verified X-Forwarded-Port",
            "client-cert x-ssl-verified x-forwarded-port",
        ),
    ] {
        let proxy = start_proxy(&upstream.url("/"), |settings| {
            settings.field_names = field_names;
            if is_trusted {
                settings.trusted = Some(vec!["127.0.0.0/8".parse().unwrap()]);
            }
        });
        let fields: String =
            names.split_whitespace().map(|name| format!("{name}: evil\r\n")).collect();
        let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}Connection: close\r\n\r\n");
        let response = send_request(proxy.address(), &request);
        let seen = response.body.lines().filter_map(|line| line.strip_suffix(": evil"));
        let seen: Vec<&str> = seen.collect();
        assert_eq!(seen.join(" "), expected, "{is_trusted} {field_names:?} {names}");
    }
}

/// Each row: the setting, and the trailers that reach the upstream.
#[test]
fn forwards_only_listed_request_trailers() {
    const SENT: &str = "X-Checksum: 1\r\nX-Forwarded-For: 2\r\nX_Forwarded_For: 3\r\n\
        Forwarded: for=4\r\nAuthorization: 5\r\nContent-Type: 6\r\nCookie: 7\r\n\
        Client-Cert: 8\r\nx-checksum: 9\r\nHost: a\r\n";
    let upstream = TestServer::start(echo);
    for (listed, expected) in [
        (&[][..], ""),
        (&["x-other"], ""),
        (&["x-checksum", "x-other"], "\ntrailer x-checksum: 1\ntrailer x-checksum: 9"),
    ] {
        let proxy = start_proxy(&upstream.url("/"), |settings| {
            settings.request_trailers =
                listed.iter().map(|name| HeaderName::from_static(name)).collect();
        });
        let request = format!(
            "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             2\r\nhe\r\n0\r\n{SENT}\r\n"
        );
        let response = send_request(proxy.address(), &request);
        let (_, body) = response.body.split_once("\n\n").unwrap();
        assert_eq!(body, format!("he{expected}"), "{listed:?}");
    }
}

/// Each row: whether the body is received before it is sent. It has no content.
#[test]
fn forwards_trailers_of_empty_bodies() {
    let upstream = TestServer::start(echo);
    for is_buffered in [true, false] {
        let proxy = start_proxy(&upstream.url("/"), |settings| {
            settings.buffer_requests = is_buffered;
            settings.request_trailers = [HeaderName::from_static("x-t")].into();
        });
        let request = "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n";
        let response = send_request(proxy.address(), request);
        let (head, body) = response.body.split_once("\n\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{is_buffered}: {head}");
        assert_eq!(body, "\ntrailer x-t: 1", "{is_buffered}");
    }
}

/// The path of a route itself has a slash at its end for the upstream only if the URL has one.
#[test]
fn the_path_of_a_route_ends_as_the_url() {
    let upstream = TestServer::start(echo);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let url = |path| upstream.url(path);
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/hook\" = \">> {}\"\n\"/slash\" = \">> {}\"\n\"/root\" = \">> {}\"\n\"/\" = \">> {}\"\n",
        url("/hook"),
        url("/hook/"),
        url("/"),
        url("/app")
    );
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    for (target, seen) in [
        ("/hook", "/hook"),
        ("/hook?a=b", "/hook?a=b"),
        ("/hook/", "/hook/"),
        ("/hook/x", "/hook/x"),
        ("/slash", "/hook/"),
        ("/slash/", "/hook/"),
        ("/slash/x", "/hook/x"),
        ("/root", "/"),
        ("/root?a", "/?a"),
        ("/", "/app/"),
        ("/x", "/app/x"),
    ] {
        let response = get(server.address(), target);
        let first = response.body.lines().next().unwrap_or_default();
        assert_eq!((response.status, first), (200, &*format!("GET {seen}")), "{target}");
    }
}

#[test]
fn trace_is_not_forwarded() {
    let upstream = TestServer::start(echo);
    let proxy = start_proxy(&upstream.url("/"), |_| {});
    let request = "TRACE / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let response = send_request(proxy.address(), request);
    assert_eq!(response.status, 405);
    assert!(response.fields.iter().any(|field| field.starts_with("allow: get, ")));
}

/// `/admin/` is restricted, and the rest is forwarded. The upstream decodes paths and folds names.
#[test]
fn paths_do_not_pass_a_restricted_route() {
    let upstream = TestServer::start(echo);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n[hosts.\"*\"]\n\
         \"/admin/\" = {{ respond = \"restricted\", status = 403 }}\n\
         \"/\" = \">> {}\"\n",
        upstream.url("/")
    );
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    for (target, status, seen) in [
        ("/admin/secret", 403, ""),
        ("/x/%2e%2e//%61dmin/secret", 403, ""),
        ("/admin%2Fsecret", 400, ""),
        ("/x/..%2fadmin/secret", 400, ""),
        ("/x/..;/admin/secret", 400, ""),
        ("/admin;a=b/secret", 400, ""),
        ("/%5Cadmin\\secret", 400, ""),
        ("/x%00", 400, ""),
        ("http://h/admin%2Fsecret", 400, ""),
        // Identifiers with slashes, as of GitLab and npm, are forwarded unchanged.
        ("/api/projects/group%2Fadmin?a=%2F", 200, "/api/projects/group%2Fadmin?a=%2F"),
        ("/@scope%2fname", 200, "/@scope%2fname"),
        ("/a;b=c/%252e%252e%252fadmin", 200, "/a;b=c/%252e%252e%252fadmin"),
    ] {
        let response = get(server.address(), target);
        assert_eq!(response.status, status, "{target}: {}", response.body);
        let line = response.body.lines().next().unwrap_or_default();
        assert_eq!(line.strip_prefix("GET ").unwrap_or_default(), seen, "{target}");
    }
    let options = "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert_eq!(send_request(server.address(), options).status, 204);
    server.stop();
}

#[test]
fn host_can_be_that_of_the_upstream() {
    let upstream = TestServer::start(echo);
    let proxy = start_proxy(&upstream.url("/"), |settings| settings.host = Host::Upstream);
    let response = get(proxy.address(), "/");
    assert!(
        response.body.contains(&format!("\nhost: {}\n", upstream.address())),
        "{}",
        response.body
    );
    assert!(response.body.contains("\nx-forwarded-host: h\n"), "{}", response.body);
}

#[test]
fn forwards_responses_and_reuses_the_connection() {
    for (method, sent, expected) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", (200, "content-length: 2", "ab")),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", (200, "content-length: 0", "")),
        ("GET", "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nab", (404, "content-length: 2", "ab")),
        (
            "GET",
            "HTTP/1.1 599 Odd\r\nContent-Length: 2\r\n\r\nab",
            (599, "content-length: 2", "ab"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            (200, "transfer-encoding: chunked", "abc"),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n\
             1\r\na\r\n0\r\nX-T: 1\r\nSet-Cookie: no\r\n\r\n",
            (200, "transfer-encoding: chunked, trailer: x-t", "ax-t: 1\r\n"),
        ),
        ("GET", "HTTP/1.1 204 No\r\n\r\n", (204, "", "")),
        ("GET", "HTTP/1.1 304 No\r\nETag: \"e\"\r\n\r\n", (304, "etag: \"e\"", "")),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", (200, "content-length: 7", "")),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            (200, "transfer-encoding: chunked", ""),
        ),
        (
            "GET",
            "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "103: link: </a.css>, content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            (200, "102: , content-length: 0", ""),
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x-mine, keep-alive\r\nX-Mine: 1\r\n\
             Keep-Alive: timeout=1\r\nProxy-Authenticate: x\r\n\r\n",
            (200, "content-length: 0", ""),
        ),
    ] {
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let upstream = raw_upstream(move |number, stream| {
            count.fetch_add(1, SeqCst);
            respond_with(sent.as_bytes())(number, stream);
        });
        let proxy = start_proxy(&http_url(upstream), |settings| settings.via = String::new());
        // Twice: the second request shows data left on the connection by the first.
        for _ in 0..2 {
            let text = format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            let mut response = send_request(proxy.address(), &text);
            response.fields.retain(|field| field != "connection: close");
            let mut wanted: Vec<&str> =
                expected.1.split(", ").filter(|field| !field.is_empty()).collect();
            response.fields.sort();
            wanted.sort();
            assert_eq!(response.fields, wanted, "{sent}");
            let found = (response.status, &*response.body, response.is_complete);
            assert_eq!(found, (expected.0, expected.2, true), "{sent}");
        }
        assert_eq!(connections.load(SeqCst), 1, "the connection is reused: {sent}");
    }
}

#[test]
fn invalid_responses_are_a_bad_gateway() {
    const BIG: &str = "HTTP/1.1 200 OK\r\nX: ";
    let big: &'static [u8] =
        Box::leak([BIG.as_bytes(), &[b'x'; 70_000], b"\r\n\r\n"].concat().into());
    for (case, sent) in [
        ("nothing", &b""[..]),
        ("garbage", b"\x16\x03\x01 garbage\r\n\r\n"),
        ("partial head", b"HTTP/1.1 200 OK\r\nContent-"),
        ("another version", b"HTTP/3.7 200 OK\r\n\r\n"),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        ("a bad length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab"),
        (
            "length and chunks",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        ("oversized head", big),
        ("unrequested upgrade", b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            // The proxy may close the connection before all bytes are sent.
            let _ = stream.write_all(sent);
        });
        let proxy = start_proxy(&http_url(upstream), |_| {});
        let response = get(proxy.address(), "/");
        assert_eq!((response.status, response.is_complete), (502, true), "{case}");
        assert_eq!(response.body, "502 Bad Gateway\n", "{case}");
    }
    let response = get(start_proxy(&http_url(unused_address()), |_| {}).address(), "/");
    assert_eq!((response.status, &*response.body), (502, "502 Bad Gateway\n"));
}

#[test]
fn silent_upstreams_are_a_gateway_timeout() {
    let short_timeout = Duration::from_millis(50);
    let upstream = raw_upstream(|_, mut stream| while read_head(&mut stream).is_some() {});
    let slow =
        start_proxy(&http_url(upstream), |settings| settings.response_timeout = short_timeout);
    assert_eq!(get(slow.address(), "/").status, 504);
    // With a full accept queue, connection attempts are not completed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let full = listener.local_addr().unwrap();
    let connect_soon = || TcpStream::connect_timeout(&full, Duration::from_millis(100)).ok();
    let _taken: Vec<TcpStream> = std::iter::from_fn(connect_soon).collect();
    let slow = start_proxy(&http_url(full), |settings| settings.connect_timeout = short_timeout);
    assert_eq!(get(slow.address(), "/").status, 504);
}

#[test]
fn truncated_bodies_are_not_complete() {
    for (case, sent, silent) in [
        ("sized", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", false),
        ("chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", false),
        ("in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nab", false),
        ("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz", false),
        ("silent", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", true),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(sent.as_bytes()).unwrap();
            if silent {
                read_head(&mut stream);
            }
        });
        let patience = Duration::from_millis(50);
        let proxy = start_proxy(&http_url(upstream), |settings| settings.body_timeout = patience);
        let response = get(proxy.address(), "/");
        assert_eq!((response.status, response.is_complete), (200, false), "{case}");
        assert!("ab".starts_with(&response.body), "{case}: {}", response.body);
    }
}

#[test]
fn forwards_server_sent_events_without_delay() {
    let (send, receive) = std::sync::mpsc::channel::<&'static str>();
    let receive = Mutex::new(receive);
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for event in receive.lock().unwrap().iter() {
            stream.write_all(event.as_bytes()).unwrap();
        }
    });
    let proxy = start_proxy(&http_url(upstream), |_| {});
    let mut client = Client::tcp(proxy.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.head().contains(&"transfer-encoding: chunked".to_owned()));
    for _ in 0..3 {
        // Each event is sent after the previous one was received.
        send.send("data: 1\n\n").unwrap();
        assert_eq!(client.body(14), b"9\r\ndata: 1\n\n\r\n");
    }
    drop(send);
    assert_eq!(client.body(5), b"0\r\n\r\n");
}

#[test]
fn event_streams_are_exempt_from_body_timeout() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let trigger = Mutex::new(trigger);
    let upstream = raw_upstream(move |_, mut stream| {
        let is_events = read_head(&mut stream).unwrap().starts_with("GET /events ");
        let kind = if is_events { "Text/Event-Stream; charset=utf-8" } else { "text/plain" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked");
        stream.write_all(format!("{head}\r\n\r\n2\r\na\n\r\n").as_bytes()).unwrap();
        if is_events {
            trigger.lock().unwrap().recv().unwrap();
            stream.write_all(b"2\r\nb\n\r\n0\r\n\r\n").unwrap();
        }
        read_head(&mut stream);
    });
    let short_timeout = Duration::from_millis(50);
    let proxy = start_proxy(&http_url(upstream), |settings| settings.body_timeout = short_timeout);
    let mut client = Client::tcp(proxy.address());
    client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    assert_eq!(client.body(7), b"2\r\na\n\r\n");
    // Meanwhile the timeout applies to other responses.
    (0..2).for_each(|_| assert!(!get(proxy.address(), "/").is_complete));
    send.send(()).unwrap();
    assert_eq!(client.body(12), b"2\r\nb\n\r\n0\r\n\r\n");
}

#[test]
fn client_disconnect_closes_the_upstream_connection() {
    for head in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"] {
        let (send, disconnected) = std::sync::mpsc::channel();
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            stream.write_all(head.as_bytes()).unwrap();
            assert_eq!(read_head(&mut stream), None);
            send.send(()).unwrap();
        });
        let proxy = start_proxy(&http_url(upstream), |_| {});
        let mut client = Client::tcp(proxy.address());
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        if !head.is_empty() {
            client.head();
        }
        drop(client);
        disconnected.recv_timeout(PATIENCE).unwrap();
    }
}

// -- bodies of requests

#[test]
fn forwards_a_response_sent_before_the_request_body() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let (tell_count, count) = std::sync::mpsc::channel();
    let trigger = Mutex::new(trigger);
    let upstream = raw_upstream(move |_, mut stream| {
        read_head(&mut stream);
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nn").unwrap();
        trigger.lock().unwrap().recv().unwrap();
        stream.write_all(b"o").unwrap();
        // The proxy closes the connection after the response, possibly with a reset.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        tell_count.send(rest.len()).unwrap();
    });
    let proxy = start_proxy(&http_url(upstream), |settings| {
        settings.buffer_requests = false;
        settings.max_body_bytes = 1 << 30;
    });
    let mut client = Client::tcp(proxy.address());
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nbegin");
    assert!(client.head()[0].starts_with("HTTP/1.1 403 "));
    assert_eq!(client.body(1), b"n");
    client.send([b'x'; 10_000]);
    send.send(()).unwrap();
    assert_eq!(client.body(1), b"o");
    assert_eq!(count.recv_timeout(PATIENCE), Ok(0), "the rest of the body is not forwarded");
}

#[test]
fn slow_clients_do_not_cause_upstream_timeouts() {
    // The upstream sends the head of the response, or its body, after the complete request.
    let (head, body) = ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "yes");
    let complete = || format!("{head}{body}");
    // Longer than the usual delay of a responsive upstream on a loaded machine.
    let short_timeout = Duration::from_millis(500);
    // An upstream without support for `Expect` has one second to send a 100.
    let longer = Duration::from_millis(1_500);
    for (at_once, then, short_timeout, expect, early) in [
        ("", complete(), short_timeout, "", "bo"),
        (head, body.to_owned(), short_timeout, "", "bo"),
        ("", complete(), longer, "Expect: 100-continue\r\n", ""),
    ] {
        let upstream = raw_upstream(move |_, mut stream| {
            while let Some(head) = read_head(&mut stream) {
                stream.write_all(at_once.as_bytes()).unwrap();
                // Other requests get no complete response.
                if head.starts_with("POST ") {
                    stream.read_exact(&mut [0; 4]).unwrap();
                    stream.write_all(then.as_bytes()).unwrap();
                }
            }
        });
        let proxy = start_proxy(&http_url(upstream), |settings| {
            (settings.response_timeout, settings.body_timeout) = (short_timeout, short_timeout);
            settings.buffer_requests = false;
        });
        let mut client = Client::tcp(proxy.address());
        let fields = format!("Host: h\r\nContent-Length: 4\r\n{expect}");
        client.send(format!("POST / HTTP/1.1\r\n{fields}\r\n{early}"));
        if !expect.is_empty() {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
        }
        // Meanwhile other requests run into the timeout.
        for _ in 0..2 {
            let response = get(proxy.address(), "/");
            assert!(response.status == 504 || !response.is_complete, "{response:?}");
        }
        client.send(&"body"[early.len()..]);
        assert_eq!(client.response().body, b"yes", "{at_once}{expect}");
    }
}

#[test]
fn forwards_expect_100_continue() {
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    // An upstream that rejects the request before the body, one that sends a 100, and one that does
    // not support `Expect`.
    for (sends_continue, rejects) in [(false, true), (true, false), (false, false)] {
        let upstream = raw_upstream(move |_, mut stream| {
            let head = read_head(&mut stream).unwrap();
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            let mut body = [0; 4];
            if sends_continue {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
            if rejects {
                stream.write_all(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").unwrap();
                assert_eq!(stream.read(&mut body).unwrap_or(0), 0, "the body is not forwarded");
            } else {
                stream.read_exact(&mut body).unwrap();
                assert_eq!(&body, b"body");
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        let proxy = start_proxy(&http_url(upstream), |settings| settings.buffer_requests = false);
        let mut client = Client::tcp(proxy.address());
        client.send(request);
        if rejects {
            assert_eq!(client.response().status, 401);
        } else {
            assert_eq!(client.head(), ["HTTP/1.1 100 Continue"]);
            client.send("body");
            assert_eq!(client.response().status, 200);
        }
    }
}

#[test]
fn rejects_oversized_and_invalid_request_bodies() {
    let upstream = TestServer::start(async |mut request: Request| {
        while let Ok(Some(_)) = request.body().chunk().await {}
        Response::text("ok")
    });
    let proxy = start_proxy(&upstream.url("/"), |settings| settings.max_body_bytes = 9);
    for (body, status) in [
        ("Content-Length: 10\r\n\r\n0123456789", 413),
        ("Content-Length: 9\r\n\r\n012345678", 200),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n", 413),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\nzz\r\n", 400),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{body}");
        assert_eq!(send_request(proxy.address(), &request).status, status, "{body}");
    }
}

// -- connections

#[test]
fn retries_only_requests_that_are_safe_to_repeat() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab";
    let get = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    // The upstream closes a connection at its second request, or right after the first response.
    for (request, at_once, expected, expected_requests) in
        [(get, false, 200, 3), (post, false, 502, 2), (get, true, 200, 2), (post, true, 200, 2)]
    {
        let requests = Arc::new(AtomicUsize::new(0));
        let (count, closed) = (requests.clone(), Arc::new(AtomicBool::new(false)));
        let is_closed = closed.clone();
        let upstream = raw_upstream(move |_, mut stream| {
            read_head(&mut stream);
            count.fetch_add(1, SeqCst);
            stream.write_all(OK).unwrap();
            if !at_once && read_head(&mut stream).is_some() {
                count.fetch_add(1, SeqCst);
            }
            drop(stream);
            closed.store(true, SeqCst);
        });
        let proxy = start_proxy(&http_url(upstream), |_| {});
        assert_eq!(send_request(proxy.address(), get).status, 200);
        if at_once {
            until("the upstream has closed the connection", || is_closed.load(SeqCst));
        }
        assert_eq!(send_request(proxy.address(), request).status, expected, "{request}");
        assert_eq!(requests.load(SeqCst), expected_requests, "{request}");
    }
}

/// Each row: the field of the first response, the pause behind it in milliseconds, and the number of the
/// connection of the second request.
#[test]
fn idle_connections_are_used_only_as_long_as_the_upstream_keeps_them() {
    for (field, pause, expected) in [
        ("", 0, 0),
        ("Keep-Alive: timeout=3600, max=100\r\n", 0, 0),
        ("Keep-Alive: timeout=x\r\n", 0, 0),
        ("Keep-Alive: timeout=0\r\n", 0, 1),
        ("keep-alive: Timeout=1\r\n", 600, 1),
    ] {
        let upstream = raw_upstream(move |number, mut stream| {
            while read_head(&mut stream).is_some() {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{field}\r\n{number}");
                stream.write_all(head.as_bytes()).unwrap();
            }
        });
        let proxy = start_proxy(&http_url(upstream), |_| {});
        let post = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let first = send_request(proxy.address(), post);
        assert_eq!(first.body, "0");
        assert!(!first.fields.iter().any(|line| line.starts_with("keep-alive")));
        std::thread::sleep(Duration::from_millis(pause));
        let second = send_request(proxy.address(), post);
        assert_eq!(second.body, expected.to_string(), "{field:?}");
    }
}

#[test]
fn closes_idle_connections_after_keep_alive_timeout() {
    let open = Arc::new(AtomicUsize::new(0));
    let count = open.clone();
    let upstream = raw_upstream(move |number, stream| {
        count.fetch_add(1, SeqCst);
        respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(number, stream);
        count.fetch_sub(1, SeqCst);
    });
    let short_timeout = Duration::from_millis(50);
    let proxy =
        start_proxy(&http_url(upstream), |settings| settings.keep_alive_timeout = short_timeout);
    assert_eq!(get(proxy.address(), "/").status, 200);
    until("the connection is closed", || open.load(SeqCst) == 0);
}

#[test]
fn requests_queue_up_to_max_queued() {
    let (send, trigger) = std::sync::mpsc::channel::<()>();
    let trigger = Mutex::new(trigger);
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = arrived.clone();
    let upstream = raw_upstream(move |_, mut stream| {
        while read_head(&mut stream).is_some() {
            count.fetch_add(1, SeqCst);
            trigger.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let proxy = start_proxy(&http_url(upstream), |settings| {
        (settings.max_connections, settings.max_queued) = (1, 1);
        settings.queue_timeout = PATIENCE;
    });
    let address = proxy.address();
    let get_in_thread = || std::thread::spawn(move || get(address, "/").status);
    let first = get_in_thread();
    until("the first request has arrived", || arrived.load(SeqCst) == 1);
    // One of two more requests is queued, the other is rejected.
    let (second, third) = (get_in_thread(), get_in_thread());
    until("one of them has a response", || second.is_finished() || third.is_finished());
    send.send(()).unwrap();
    send.send(()).unwrap();
    assert_eq!(first.join().unwrap(), 200);
    let mut others = [second.join().unwrap(), third.join().unwrap()];
    others.sort();
    assert_eq!(others, [200, 503]);
    assert_eq!(arrived.load(SeqCst), 2);
}

#[test]
fn queue_timeout_is_a_503() {
    let upstream = raw_upstream(|_, mut stream| while read_head(&mut stream).is_some() {});
    let proxy = start_proxy(&http_url(upstream), |settings| {
        settings.max_connections = 1;
        settings.queue_timeout = Duration::from_millis(50);
    });
    let mut holder = Client::tcp(proxy.address());
    holder.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    until("a queued request is rejected", || {
        let address = proxy.address();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        // The request may have been forwarded before that of the holder: then it has no response.
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 503 ") && text.contains("retry-after: 1\r\n")
    });
}

// -- upgrades

/// Accepts upgrades to the protocol `shout`, which echoes text in upper case.
async fn shout(request: Request) -> Response {
    if !request.headers().list("upgrade").any(|name| name == b"shout") {
        return Response::text("no upgrade");
    }
    if request.path() == "/no" {
        return Response::text("refused").with_status(StatusCode::FORBIDDEN);
    }
    Response::upgrade("shout", async |mut connection| {
        let mut all = Vec::new();
        let mut buffer = [0; 1024];
        // Data is echoed immediately; the final text is sent after the end of the input.
        while let Ok(length @ 1..) = connection.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..length]);
            let upper = buffer[..length].to_ascii_uppercase();
            connection.write_all(&upper).await.unwrap();
        }
        let end = format!(" {} bytes", all.len());
        connection.write_all(end.as_bytes()).await.unwrap();
        let _ = AsyncWriteExt::shutdown(&mut connection).await;
    })
    .with_header(header::SEC_WEBSOCKET_PROTOCOL, "x")
}

#[test]
fn forwards_upgrades_and_half_closes() {
    let upstream = TestServer::start(shout);
    let proxy = start_proxy(&upstream.url("/"), |_| {});
    let fields = "Host: h\r\nConnection: Upgrade\r\nUpgrade: shout";
    let mut stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The first bytes are sent with the request.
    stream.write_all(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\nhello").as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in ["upgrade: shout", "connection: upgrade", "sec-websocket-protocol: x"] {
        assert_eq!(head.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line} in {head}");
    }
    let mut five = [0; 5];
    stream.read_exact(&mut five).unwrap();
    assert_eq!(&five, b"HELLO");
    stream.write_all(b" world").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, " WORLD 11 bytes");
    // A rejected upgrade and a request without an upgrade have ordinary responses.
    for (target, upgrade, expected) in [
        ("/no", "Upgrade: shout\r\nConnection: upgrade\r\n", (403, "refused")),
        ("/", "", (200, "no upgrade")),
    ] {
        let mut client = Client::tcp(proxy.address());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n"));
        let response = client.response();
        assert_eq!((response.status, &*response.body), (expected.0, expected.1.as_bytes()));
    }
}

#[tokio::test]
async fn forwards_http2_extended_connect_as_an_upgrade() {
    let upstream = TestServer::start(shout);
    let proxy = start_proxy(&upstream.url("/"), |_| {});
    let stream = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    while !client.is_extended_connect_protocol_enabled() {
        tokio::task::yield_now().await;
    }
    for (path, status, expected) in [("/", 200, "HELLO 5 bytes"), ("/no", 403, "refused")] {
        let mut request = http::Request::new(());
        *request.method_mut() = http::Method::CONNECT;
        *request.uri_mut() = format!("http://h{path}").parse().unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static("shout"));
        client = client.ready().await.unwrap();
        let (response, mut send) = client.send_request(request, false).unwrap();
        send.send_data("hello".into(), true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), status, "{path}");
        let (mut body, mut text) = (response.into_body(), String::new());
        while let Some(data) = body.data().await {
            text += std::str::from_utf8(&data.unwrap()).unwrap();
        }
        assert_eq!(text, expected, "{path}");
    }
}

#[test]
fn shutdown_closes_tunnels_after_the_grace_period() {
    let upstream = TestServer::start(shout);
    let upstreams = ProxySettings::parse_upstreams(&upstream.url("/")).unwrap();
    let settings = ProxySettings { upstreams, ..ProxySettings::default() };
    let proxy = Proxy::new(settings, Arc::default()).unwrap();
    let server = weft::Server::new(proxy).workers(1).listen("127.0.0.1:0").unwrap();
    let handle = server.start().unwrap();
    let LocalAddress::Tcp(address) = handle.addresses()[0] else { unreachable!("a TCP listener") };
    let mut client = Client::tcp(address);
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    let stopped = std::thread::spawn(move || handle.shutdown(Duration::from_secs(1)));
    // During the grace period the tunnel still works.
    client.send("still");
    assert_eq!(client.body(5), b"STILL");
    client.assert_closed();
    stopped.join().unwrap();
}

#[test]
fn tunnel_timeout_closes_silent_tunnels() {
    let upstream = TestServer::start(shout);
    let short_timeout = Duration::from_millis(50);
    let proxy = start_proxy(&upstream.url("/"), |settings| settings.tunnel_timeout = short_timeout);
    let mut client = Client::tcp(proxy.address());
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: shout\r\n\r\n");
    assert!(client.head()[0].starts_with("HTTP/1.1 101 "));
    client.assert_closed();
}

// -- several upstreams

/// Starts an upstream that responds with its name.
fn named(name: &'static str) -> TestServer {
    TestServer::start(async move |_: Request| Response::text(name))
}

#[test]
fn balances_requests_between_upstreams() {
    let (a, b, dead) = (named("a"), named("b"), http_url(unused_address()));
    let both = format!("{} {}", a.url("/"), b.url("/"));
    for (urls, balance, expected) in [
        (both.clone(), Balance::RoundRobin, [2, 2]),
        (both.clone(), Balance::LeastConnections, [2, 2]),
        (format!("{both} {dead}"), Balance::RoundRobin, [2, 2]),
        (format!("{both} weight=3"), Balance::RoundRobin, [1, 3]),
        (format!("{both} weight=3"), Balance::LeastConnections, [1, 3]),
        (format!("{both} backup"), Balance::RoundRobin, [4, 0]),
        (format!("{both} backup"), Balance::RandomTwo, [4, 0]),
        (format!("{dead} {} backup", b.url("/")), Balance::RoundRobin, [0, 4]),
    ] {
        let proxy = start_proxy(&urls, |settings| settings.balance = balance);
        let responses: Vec<ReceivedResponse> = (0..4).map(|_| get(proxy.address(), "/")).collect();
        assert!(responses.iter().all(|response| response.status == 200), "{responses:?}");
        let count = |name| responses.iter().filter(|response| response.body == name).count();
        assert_eq!([count("a"), count("b")], expected, "{urls} {balance:?}");
    }
}

#[test]
fn failed_upstreams_are_skipped_and_retried_after_down_time() {
    let is_healthy = Arc::new(AtomicBool::new(false));
    let visits = Arc::new(AtomicUsize::new(0));
    let (healthy, count) = (is_healthy.clone(), visits.clone());
    let upstream = raw_upstream(move |number, mut stream| {
        count.fetch_add(1, SeqCst);
        if healthy.load(SeqCst) {
            respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nodd")(number, stream);
        } else {
            read_head(&mut stream);
        }
    });
    let other = named("other");
    let change = |down_time| {
        move |settings: &mut ProxySettings| {
            (settings.max_failures, settings.down_time) = (3, down_time);
        }
    };
    let urls = format!("{} {}", http_url(upstream), other.url("/"));
    let long_down_time = start_proxy(&urls, change(PATIENCE * 10));
    for _ in 0..20 {
        assert_eq!(get(long_down_time.address(), "/").body, "other");
    }
    assert_eq!(visits.load(SeqCst), 3);
    let short_down_time = start_proxy(&urls, change(Duration::from_millis(20)));
    for _ in 0..6 {
        assert_eq!(get(short_down_time.address(), "/").body, "other");
    }
    is_healthy.store(true, SeqCst);
    until("the upstream gets requests again", || get(short_down_time.address(), "/").body == "odd");
    // All of several upstreams can be unavailable, but a single upstream is always tried.
    for (urls, status) in [
        (format!("{} {}", http_url(unused_address()), http_url(unused_address())), 503),
        (http_url(unused_address()), 502),
    ] {
        let proxy = start_proxy(&urls, change(PATIENCE * 10));
        (0..6).for_each(|_| drop(get(proxy.address(), "/")));
        assert_eq!(get(proxy.address(), "/").status, status, "{urls}");
    }
}

#[test]
fn health_checks_disable_and_enable_upstreams() {
    let is_healthy = Arc::new(AtomicBool::new(false));
    let healthy = is_healthy.clone();
    let upstream = TestServer::start(async move |request: Request| {
        match (request.path(), healthy.load(SeqCst)) {
            ("/p/health", false) => StatusCode::INTERNAL_SERVER_ERROR.into(),
            _ => Response::text("ok"),
        }
    });
    let proxy = start_proxy(&upstream.url("/p/"), |settings| {
        let interval = Duration::from_millis(10);
        let (target, timeout) = (CheckTarget::Path("/health".to_owned()), PATIENCE);
        settings.check = Some(Check { target, interval, timeout, ..Check::default() });
    });
    until("the upstream gets no requests", || get(proxy.address(), "/").status == 503);
    is_healthy.store(true, SeqCst);
    until("the upstream gets requests again", || get(proxy.address(), "/").status == 200);
}

// -- other kinds of connections

#[test]
fn waits_for_a_full_accept_queue_of_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // The accept queue has room for one connection.
    let _silent = UnixStream::connect(&path).unwrap();
    let proxy = start_proxy(&format!("unix:{}", path.display()), |settings| {
        settings.connect_timeout = Duration::from_millis(100);
    });
    assert_eq!(get(proxy.address(), "/").status, 504);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(|| {
                let mut stream = stream.unwrap();
                while read_head(&mut stream).is_some() {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                }
            });
        }
    });
    until("the queue has room", || get(proxy.address(), "/").status == 200);
}

#[test]
fn connects_over_unix_sockets_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(file("site")).unwrap();
    fs::write(file("site/a.txt"), "A\n").unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(file("crt"), certified.cert.pem()).unwrap();
    fs::write(file("key"), certified.signing_key.serialize_pem()).unwrap();
    let socket = file("socket");
    let (crt, key) = (file("crt"), file("key"));
    let options = ["--tls-cert", &crt, "--tls-key", &key, "--tls-listen", "127.0.0.1:0"];
    let listen = format!("unix:{socket}");
    let upstream = Weft::start(weft([file("site")]).args(options).args(["--listen", &listen]));
    let addresses = upstream.addresses();
    let port = addresses.iter().find_map(|it| it.strip_prefix("https://127.0.0.1:")).unwrap();
    for (url, is_trusted, status) in [
        (format!("unix:{socket}"), false, 200),
        (format!("unix:{socket}:/"), false, 200),
        (format!("https://localhost:{port}/"), true, 200),
        // Certificates for another name or of another authority are rejected.
        (format!("https://127.0.0.1:{port}/"), true, 502),
        (format!("https://localhost:{port}/"), false, 502),
    ] {
        let ca = if is_trusted { file("crt") } else { file("other") };
        let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        fs::write(file("other"), other.cert.pem()).unwrap();
        let proxy = start_proxy(&url, |settings| settings.ca = Some(ca.into()));
        let response = get(proxy.address(), "/a.txt");
        assert_eq!(response.status, status, "{url}");
        assert_eq!(response.body == "A\n", status == 200, "{url}");
    }
    upstream.stop();
}

/// Checks the files of a directory that another program serves behind the proxy.
fn assert_serves_files(url: &str, folder: &std::path::Path) {
    let proxy = start_proxy(url, |_| {});
    let mut client = Client::tcp(proxy.address());
    for file in ["small.txt", "large.bin", "small.txt"] {
        until("the upstream is up", || get(proxy.address(), "/small.txt").status == 200);
        let response = client.get(&format!("/{file}"));
        assert_eq!(response.status, 200, "{url}{file}");
        assert!(response.body == fs::read(folder.join(file)).unwrap(), "{url}{file}");
    }
    assert_eq!(client.get("/nothing").status, 404);
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("small.txt"), "small\n").unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    fs::write(folder.path().join("large.bin"), large).unwrap();
    folder
}

#[test]
fn python_http_server_as_upstream() {
    if !has_tool("python3") {
        return;
    }
    let (folder, address) = (files(), free_address());
    let mut command = Command::new("python3");
    command.args(["-m", "http.server", "--bind", "127.0.0.1", &address.port().to_string()]);
    let _python = Program::start(command.current_dir(folder.path()));
    assert_serves_files(&http_url(address), folder.path());
}

#[test]
fn nginx_as_upstream() {
    if !has_tool("nginx") {
        return;
    }
    let (folder, address) = (files(), free_address());
    let at = folder.path().display();
    let configuration = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; \
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen {address}; root {at}; }} }}\n"
    );
    fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
    let file = folder.path().join("nginx.conf");
    let _nginx = Program::start(Command::new("nginx").arg("-c").arg(&file).args(["-e", "stderr"]));
    assert_serves_files(&http_url(address), folder.path());
}

// -- the program

fn proxy_route(urls: &str) -> String {
    format!("/ >> {urls}")
}

#[test]
fn proxy_option_forwards_requests() {
    let upstream = TestServer::start(echo);
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&upstream.url("/p/")),
        "--listen",
        "127.0.0.1:0",
    ]));
    let response = server.client().get("/x");
    assert!(response.body.starts_with(b"GET /p/x\n"), "{}", response.body.escape_ascii());
    server.stop();
    let output = run(["--route", "/ >> nonsense"]);
    assert_eq!(output.status, Ok(2));
    let message = "nonsense: expected http://, https://, h2c:// or unix:/";
    assert!(output.stderr.contains(message), "{}", output.stderr);
}

#[test]
fn all_timeouts_can_be_never() {
    let checks = Arc::new(AtomicUsize::new(0));
    let check_count = checks.clone();
    let upstream = TestServer::start(async move |request: Request| {
        check_count.fetch_add(usize::from(request.path() == "/health"), SeqCst);
        Response::text("ok")
    });
    let never = |names: &[&str], between| {
        let settings = names.iter().map(|name| format!("{name} = \"never\""));
        settings.collect::<Vec<_>>().join(between)
    };
    let general = never(&["drain_timeout", "retire_timeout"], "\n");
    let limits = never(&["head_timeout", "idle_timeout", "stall_timeout", "linger_timeout"], "\n");
    let route_timeouts = never(
        &[
            "connect_timeout",
            "response_timeout",
            "body_timeout",
            "tunnel_timeout",
            "queue_timeout",
            "keep_alive_timeout",
            "failure_window",
            "down_time",
            "check_interval",
            "check_timeout",
        ],
        ", ",
    );
    let configuration = format!(
        "listen = \"127.0.0.1:0\"\n{general}\n[limits]\n{limits}\n[hosts.\"*\"]\n\
         \"/\" = {{ proxy = \"{}\", check = \"/health\", {route_timeouts} }}\n",
        upstream.url("/")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, configuration).unwrap();
    let server = Weft::start(weft(["--config"]).arg(&file));
    let mut client = server.client();
    (0..2).for_each(|_| assert_eq!(client.get("/").body, b"ok"));
    until("a health check is made", || checks.load(SeqCst) > 0);
    drop(client);
    let output = server.stop();
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
}

#[test]
fn killed_upstream_causes_no_failed_requests() {
    // A text is sent in one write with its head: a killed upstream has sent it completely or not at
    // all.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, "[hosts.\"*\"]\n\"/\" = { respond = \"small\\n\" }\n").unwrap();
    let upstreams = [(); 2].map(|()| {
        let options = ["--listen", "127.0.0.1:0", "--no-log", "--workers", "1"];
        Weft::start(weft(["--config"]).arg(&file).args(options))
    });
    let urls = upstreams.each_ref().map(|upstream| upstream.url("/")).join(" ");
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&urls),
        "--listen",
        "127.0.0.1:0",
        "--no-log",
        "--workers",
        "2",
    ]));
    let (address, done) = (server.address(), Arc::new(AtomicBool::new(false)));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (done, answered) = (done.clone(), answered.clone());
            std::thread::spawn(move || {
                let mut client = Client::tcp(address);
                while !done.load(SeqCst) {
                    let response = client.get("/");
                    assert_eq!((response.status, &*response.body), (200, &b"small\n"[..]));
                    answered.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    let wait_for_responses = |count| {
        let before = answered.load(SeqCst);
        let is_finished = || clients.iter().any(|client| client.is_finished());
        until("further requests succeed", || {
            answered.load(SeqCst) >= before + count || is_finished()
        });
    };
    wait_for_responses(500);
    upstreams[0].signal(Signal::KILL);
    wait_for_responses(500);
    done.store(true, SeqCst);
    let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
    let output = server.stop();
    assert!(clients.iter().all(Result::is_ok), "{}", output.stderr);
    // The failure may be in an exchange or in a connection attempt.
    let message = format!("weft: the upstream {}: ", upstreams[0].url("/"));
    assert!(output.stderr.contains(&message), "{}", output.stderr);
}

#[test]
fn memory_does_not_grow_with_body_size() {
    const BYTES: u64 = 256 << 20;
    // The upstream reads the body and responds with the same number of bytes.
    let upstream = TestServer::start(async |mut request: Request| {
        request.body().set_limit(u64::MAX);
        let mut bytes = 0;
        while let Some(chunk) = request.body().chunk().await.unwrap() {
            bytes += chunk.len() as u64;
        }
        Response::body(Body::from_http_body(Zeros(bytes)))
    });
    let upstream_url = upstream.url("/");
    let server = Weft::start(&mut weft([
        "--route",
        &proxy_route(&upstream_url),
        "--listen",
        "127.0.0.1:0",
        "--workers",
        "1",
        "--max-body-bytes",
        "1GiB",
    ]));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let part = vec![b'x'; 1 << 20];
    (0..BYTES >> 20).for_each(|_| stream.write_all(&part).unwrap());
    let head = read_head(&mut stream).unwrap();
    assert!(head.contains(&format!("content-length: {BYTES}\r\n")), "{head}");
    let received = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    assert_eq!(received, BYTES);
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 48 << 10, "{peak} KiB at most");
    server.stop();
}

/// A body of this number of zeros, in frames of up to 64 KiB.
struct Zeros(u64);

impl http_body::Body for Zeros {
    type Data = bytes::Bytes;
    type Error = weft::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, weft::Error>>> {
        static PART: [u8; 64 << 10] = [0; 64 << 10];
        let length = self.0.min(PART.len() as u64);
        self.0 -= length;
        let part = bytes::Bytes::from_static(&PART[..length as usize]);
        std::task::Poll::Ready((length > 0).then(|| Ok(http_body::Frame::data(part))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0)
    }
}
