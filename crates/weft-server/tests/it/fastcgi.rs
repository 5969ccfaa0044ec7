//! FastCGI: scripts that PHP-FPM runs, and responses of an application that the test makes up.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use crate::common::external::PhpFpm;
use crate::common::{PATIENCE, Weft, raw_upstream, until, weft};
use tempfile::TempDir;

// -- a site with PHP

struct PhpSite {
    server: Weft,
    _fpm: PhpFpm,
    _folder: TempDir,
}

/// Files beneath the root. `show.php` prints the variables of the request and its body.
const SHOW: &str = "<?php
foreach (['REQUEST_METHOD', 'REQUEST_URI', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'DOCUMENT_ROOT', 'PATH_INFO',
    'QUERY_STRING', 'CONTENT_LENGTH', 'CONTENT_TYPE', 'SERVER_NAME', 'HTTPS', 'HTTP_X_A', 'HTTP_PROXY',
    'OWN'] as $name) {
  if (isset($_SERVER[$name])) {
    echo $name, '=', str_replace($_SERVER['DOCUMENT_ROOT'], 'ROOT', $_SERVER[$name]), \"\\n\";
  }
}
echo 'body ', strlen(file_get_contents('php://input')), \"\\n\";
";

const FILES: [(&str, &str); 12] = [
    ("show.php", SHOW),
    ("index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'];"),
    ("style.css", "p { color: teal }"),
    ("upper.PHP", "<?php echo 'text of a script';"),
    ("photo.jpg", "<?php echo 'a program in an image';"),
    ("blog/index.php", "<?php echo 'blog';"),
    ("static/index.html", "<h1>static</h1>"),
    ("missing.php", "<?php http_response_code(404); header('X-Own: 1'); echo 'own page';"),
    ("moved.php", "<?php header('Location: /elsewhere');"),
    ("large.php", "<?php for ($i = 0; $i < 1000; $i++) echo str_repeat(chr(97 + $i % 26), 1000);"),
    ("broken.php", "<?php error_log('the application reports'); undefined_function();"),
    ("not-changed.php", "<?php http_response_code(304); header('ETag: \"1\"');"),
];

impl PhpSite {
    /// Serves the files with these keys in the table of the route; `None` without PHP-FPM.
    #[track_caller]
    fn serve(keys: &str) -> Option<PhpSite> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for (name, text) in FILES {
            let file = root.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let fpm = PhpFpm::start(folder.path())?;
        let php = format!("unix:{}", fpm.socket.display());
        let route =
            format!("[hosts.\"*\"]\n\"/\" = {{ files = \"root\", php = \"{php}\"{keys} }}\n");
        let file = folder.path().join("weft.toml");
        fs::write(&file, route).unwrap();
        let mut command = weft([Path::new("--config"), &file]);
        command.args(["--listen", "127.0.0.1:0", "--workers", "2", "--no-log"]);
        Some(PhpSite { server: Weft::start(&mut command), _fpm: fpm, _folder: folder })
    }

    /// Sends a request and returns the response in one line: status, some fields, body.
    #[track_caller]
    fn ask(&self, method: &str, target: &str, body: &str) -> String {
        let length = match body {
            "" => String::new(),
            body => format!("Content-Length: {}\r\n", body.len()),
        };
        summary(&exchange(
            &self.server,
            &format!(
                "{method} {target} HTTP/1.1\r\nHost: a\r\n{length}Connection: close\r\n\r\n{body}"
            ),
        ))
    }
}

/// Sends a request and returns all bytes of the response.
fn exchange(server: &Weft, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    response(stream)
}

/// Returns all bytes that the server sends.
fn response(mut stream: TcpStream) -> String {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Returns the status, the fields that matter here, and the body, separated by ` | `.
fn summary(response: &str) -> String {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap();
    let own = ["x-own", "location", "etag", "allow"];
    let mut fields = head.lines().filter(|line| {
        own.iter().any(|name| line.to_ascii_lowercase().starts_with(&format!("{name}: ")))
    });
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        dechunked(body)
    } else {
        body.to_owned()
    };
    let lower_case = |field: &str| match field.split_once(": ") {
        Some((name, value)) => format!("{}: {value} | ", name.to_ascii_lowercase()),
        None => format!("{field} | "),
    };
    let fields = fields.by_ref().map(lower_case).collect::<String>();
    format!("{status} | {fields}{}", body.trim_end().replace('\n', ", "))
}

fn dechunked(mut body: &str) -> String {
    let mut data = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        data.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    data
}

#[test]
fn serves_scripts_and_files_of_a_folder() {
    let Some(site) = PhpSite::serve(", environment = [\"OWN=set here\"]") else { return };
    for (method, target, body, expected) in [
        (
            "GET",
            "/show.php?a=b",
            "",
            "200 | REQUEST_METHOD=GET, REQUEST_URI=/show.php?a=b, SCRIPT_NAME=/show.php, \
             SCRIPT_FILENAME=ROOT/show.php, DOCUMENT_ROOT=ROOT, QUERY_STRING=a=b, SERVER_NAME=a, \
             OWN=set here, body 0",
        ),
        (
            "POST",
            "/show.php/in/fo",
            "0123456789",
            "200 | REQUEST_METHOD=POST, REQUEST_URI=/show.php/in/fo, SCRIPT_NAME=/show.php, \
             SCRIPT_FILENAME=ROOT/show.php, DOCUMENT_ROOT=ROOT, PATH_INFO=/in/fo, QUERY_STRING=, \
             CONTENT_LENGTH=10, SERVER_NAME=a, OWN=set here, body 10",
        ),
        ("GET", "/", "", "200 | front /"),
        ("GET", "/blog/", "", "200 | blog"),
        ("GET", "/blog", "", "301 | location: /blog/ | *"),
        ("GET", "/static/", "", "200 | etag: * | <h1>static</h1>"),
        ("GET", "/style.css", "", "200 | etag: * | p { color: teal }"),
        ("GET", "/missing.php", "", "404 | x-own: 1 | own page"),
        ("GET", "/moved.php", "", "302 | location: /elsewhere | "),
        ("GET", "/not-changed.php", "", "304 | etag: \"1\" | "),
        ("HEAD", "/index.php", "", "200 | "),
        // An image with a program in it is never run, and the text of a script never sent.
        ("GET", "/photo.jpg", "", "200 | etag: * | <?php echo 'a program in an image';"),
        ("GET", "/photo.jpg/x.php", "", "404 | *"),
        ("GET", "/photo.jpg%2fx.php", "", "404 | *"),
        ("GET", "/photo.jpg%00.php", "", "4*"),
        ("GET", "/show%2ephp", "", "200 | REQUEST_METHOD=GET*"),
        ("GET", "/show.PHP", "", "404 | *"),
        // Its text may have passwords, although PHP-FPM would refuse to run it.
        ("GET", "/upper.PHP", "", "404 | *"),
        ("GET", "/none.php", "", "404 | *"),
        ("GET", "/none", "", "404 | *"),
        ("POST", "/style.css", "x", "405 | allow: GET, HEAD | *"),
        ("TRACE", "/show.php", "", "405 | *"),
    ] {
        assert_matches(&site.ask(method, target, body), expected, &format!("{method} {target}"));
    }
    let body = site.ask("GET", "/large.php", "");
    assert_eq!(body.len(), "200 | ".len() + 1_000_000);
    let upload = "x".repeat(1_000_000);
    let response = site.ask("POST", "/show.php", &upload);
    assert!(response.ends_with("body 1000000"), "{response}");
    assert_matches(&site.ask("GET", "/broken.php", ""), "500 | *", "a fatal error");
    until("the messages of the script are logged", || {
        let log = site.server.stderr();
        log.contains("the application reports") && log.contains("undefined_function")
    });
}

/// A body of unknown length is received before the script gets its length.
#[test]
fn chunked_bodies_get_a_length() {
    let Some(site) = PhpSite::serve("") else { return };
    let request = "POST /show.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                   Connection: close\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let response = summary(&exchange(&site.server, request));
    assert!(response.contains("CONTENT_LENGTH=11, "), "{response}");
    assert!(response.ends_with("body 11"), "{response}");
}

#[test]
fn front_controller_handles_all_other_paths() {
    let Some(site) = PhpSite::serve(", fallback = \"index.php\"") else { return };
    for (method, target, expected) in [
        ("GET", "/posts/2024?page=2", "200 | front /posts/2024?page=2"),
        ("POST", "/login", "200 | front /login"),
        ("DELETE", "/posts/1", "200 | front /posts/1"),
        ("GET", "/style.css", "200 | etag: * | p { color: teal }"),
        ("GET", "/blog/", "200 | blog"),
        ("GET", "/none.php", "200 | front /none.php"),
        ("GET", "/.git/config", "200 | front /.git/config"),
        ("GET", "/photo.jpg/x.php", "200 | front /photo.jpg/x.php"),
    ] {
        assert_matches(&site.ask(method, target, ""), expected, &format!("{method} {target}"));
    }
}

/// Compares with a pattern, in which `*` stands for any text.
#[track_caller]
fn assert_matches(found: &str, pattern: &str, case: &str) {
    let (start, others) = pattern.split_once('*').unwrap_or((pattern, ""));
    let mut rest = found.strip_prefix(start);
    for part in others.split('*') {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
    }
    let is_end = rest.is_some_and(|rest| rest.is_empty() || pattern.ends_with('*'));
    assert!(is_end, "{case}: {found:?} is not {pattern:?}");
}

// -- an application that the test makes up

/// A request as an application receives it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Received {
    variables: BTreeMap<String, String>,
    body: Vec<u8>,
    keeps_connection: bool,
}

/// Reads the records of a request; `None` at the end of the connection.
fn read_request(stream: &mut TcpStream) -> Option<Received> {
    let (mut params, mut received) = (Vec::new(), Received::default());
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let [version, kind, _, id, high, low, padding, _] = header;
        assert_eq!((version, id, padding), (1, 1, 0));
        let mut content = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        stream.read_exact(&mut content).ok()?;
        match (kind, content.is_empty()) {
            (1, _) => received.keeps_connection = content[2] == 1,
            (4, _) => params.extend(content),
            (5, false) => received.body.extend(content),
            (5, true) => break,
            _ => panic!("a record of type {kind}"),
        }
    }
    let mut rest = &params[..];
    while !rest.is_empty() {
        let [name, value] = [(); 2].map(|()| {
            let length;
            (length, rest) = match rest {
                [short @ 0..128, others @ ..] => (usize::from(*short), others),
                [a, b, c, d, others @ ..] => {
                    (u32::from_be_bytes([a & 127, *b, *c, *d]) as usize, others)
                }
                _ => panic!("a length"),
            };
            length
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        received.variables.insert(text(&rest[..name]), text(&rest[name..name + value]));
        rest = &rest[name + value..];
    }
    Some(received)
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

const END: [u8; 16] = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Requests that an application has received, each with the number of its connection.
type Requests = Arc<Mutex<Vec<(usize, Received)>>>;

/// Starts an application that sends these bytes after each request. Returns the requests.
fn application(
    keys: &str,
    response: impl Fn() -> Vec<u8> + Send + Sync + 'static,
) -> (Weft, Requests) {
    let received = Requests::default();
    let requests = received.clone();
    let address = raw_upstream(move |connection, mut stream| {
        while let Some(request) = read_request(&mut stream) {
            let is_kept = request.keeps_connection;
            requests.lock().unwrap().push((connection, request));
            let is_lost = stream.write_all(&response()).is_err();
            if is_lost || !is_kept {
                return;
            }
        }
    });
    (serve(&format!("fastcgi = \"{address}\"{keys}")), received)
}

/// Starts a server whose route `/app/` has these keys.
fn serve(keys: &str) -> Weft {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    fs::write(&file, format!("[hosts.\"*\"]\n\"/app/\" = {{ {keys} }}\n")).unwrap();
    let mut command = weft([Path::new("--config"), &file]);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1", "--no-log"]);
    Weft::start(&mut command)
}

const GET: &str = "GET /app/a%20b?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn applications_get_the_path_and_all_of_the_body() {
    let response = || [record(6, b"Content-Type: a/b\r\n\r\nhello"), END.to_vec()].concat();
    let (server, received) = application("", response);
    let body = "0123456789".repeat(20_000);
    let length = body.len();
    let request = format!(
        "POST /app/a%20b/c?q=1 HTTP/1.1\r\nHost: h\r\nX-Long: {}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}",
        "v".repeat(200)
    );
    assert_eq!(summary(&exchange(&server, &request)), "200 | hello");
    let (_, request) = received.lock().unwrap().remove(0);
    assert_eq!((request.body.len(), request.keeps_connection), (length, false));
    assert_eq!(request.body, body.as_bytes());
    let variable = |name: &str| request.variables.get(name).map(String::as_str);
    for (name, expected) in [
        ("SCRIPT_NAME", Some("/app")),
        ("PATH_INFO", Some("/a b/c")),
        ("REQUEST_URI", Some("/app/a%20b/c?q=1")),
        ("CONTENT_LENGTH", Some("200000")),
        ("SCRIPT_FILENAME", None),
        ("GATEWAY_INTERFACE", Some("CGI/1.1")),
        // PHP refuses to run without it if it was built or configured so.
        ("REDIRECT_STATUS", Some("200")),
    ] {
        assert_eq!(variable(name), expected, "{name}");
    }
    assert_eq!(variable("HTTP_X_LONG").unwrap().len(), 200);
}

#[test]
fn applications_name_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a b.txt"), "a file").unwrap();
    let keys = format!(", accel = {{ \"/p/\" = \"{}\" }}", folder.path().display());
    for (named, expected) in [
        ("/p/a%20b.txt", "200 | x-own: 1 | a file"),
        ("/p/../a%20b.txt", "404 | 404 Not Found"),
        ("/a%20b.txt", "502 | 502 Bad Gateway"),
    ] {
        let head =
            format!("Content-Type: a/b\r\nX-Own: 1\r\nX-Accel-Redirect: {named}\r\n\r\nbody");
        let response = move || [record(6, head.as_bytes()), END.to_vec()].concat();
        let (server, _) = application(&keys, response);
        let found = summary(&exchange(&server, GET));
        let others: Vec<_> = found.split(" | ").filter(|it| !it.starts_with("etag: ")).collect();
        assert_eq!(others.join(" | "), expected);
    }
}

#[test]
fn connections_are_kept_only_if_configured() {
    for (keys, expected) in [("", [0, 1, 2]), (", max_idle_connections = 2", [0, 0, 0])] {
        let response =
            || [record(6, b"Content-Length: 1\r\nStatus: 200\r\n\r\nx"), END.to_vec()].concat();
        let (server, received) = application(keys, response);
        for _ in 0..3 {
            assert_eq!(summary(&exchange(&server, GET)), "200 | x");
        }
        let received = received.lock().unwrap();
        let connections: Vec<usize> = received.iter().map(|(connection, _)| *connection).collect();
        assert_eq!(connections, expected, "{keys}");
    }
}

// -- clients that leave

/// WordPress runs its scheduled tasks by a request to itself, whose response it does not await.
#[test]
fn applications_get_requests_whose_clients_leave_at_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.php"), "").unwrap();
    for keys in [String::new(), format!(", root = \"{}\"", folder.path().display())] {
        let response = || [&record(6, b"Status: 200\r\n\r\nok")[..], &END].concat();
        let (server, received) = application(&keys, response);
        let get = "GET /app/a.php HTTP/1.1\r\nHost: h\r\n\r\n";
        let post = "POST /app/a.php HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab";
        for request in [get, post].repeat(20) {
            TcpStream::connect(server.address()).unwrap().write_all(request.as_bytes()).unwrap();
        }
        until("all requests have arrived", || received.lock().unwrap().len() == 40);
        let bytes: usize =
            received.lock().unwrap().iter().map(|(_, request)| request.body.len()).sum();
        assert_eq!(bytes, 20 * 2, "{keys}");
    }
}

/// A request waits for an application without its connection, but within the limit of the queue.
#[test]
fn requests_whose_clients_have_left_wait_within_the_queue() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let keys = ", max_connections = 1, max_queued = 4, queue_timeout = \"1m\"";
    let (server, received) = application(keys, move || {
        // Waits until the sender is dropped.
        let _ = released.lock().unwrap().recv();
        [&record(6, b"Status: 200\r\n\r\nok")[..], &END].concat()
    });
    let mut first = TcpStream::connect(server.address()).unwrap();
    first.write_all(GET.as_bytes()).unwrap();
    until("the application is busy", || received.lock().unwrap().len() == 1);
    for _ in 0..40 {
        TcpStream::connect(server.address()).unwrap().write_all(GET.as_bytes()).unwrap();
    }
    // One more than the queue has places, also if all of the others have lost theirs.
    let mut staying: Vec<_> =
        (0..5).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for client in &mut staying {
        client.write_all(GET.as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
    }
    let is_answered = |client: &TcpStream| client.peek(&mut [0]).is_ok();
    until("a client is refused", || staying.iter().any(is_answered));
    drop(release);
    let responses: Vec<_> = staying.into_iter().chain([first]).map(response).collect();
    let has_status =
        |status: &str| responses.iter().filter(|it| it[9..].starts_with(status)).count();
    assert!(has_status("503") >= 1, "{responses:?}");
    assert_eq!(has_status("200") + has_status("503"), 6, "{responses:?}");
    assert!(responses[5].starts_with("HTTP/1.1 200"), "{responses:?}");
    until("the queue is empty", || exchange(&server, GET).starts_with("HTTP/1.1 200"));
    let count = received.lock().unwrap().len();
    assert!(count <= 1 + 4 + 1, "{count} requests");
}

/// Once it has the request, an application is told that the client has left.
#[test]
fn connections_end_when_clients_leave() {
    let (sender, receiver) = mpsc::channel();
    let address = raw_upstream(move |_, mut stream| {
        assert!(read_request(&mut stream).is_some());
        sender.send("request").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        sender.send("end").unwrap();
    });
    let server = serve(&format!("fastcgi = \"{address}\""));
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.write_all(GET.as_bytes()).unwrap();
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("request"));
    crate::common::reset_on_close(&client);
    drop(client);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("end"));
}

// -- responses

/// Each row: the bytes of an application, the response of the server, and a part of the error log.
#[test]
fn responses_are_complete_or_errors() {
    let head = b"Content-Type: a/b\n\n";
    for (response, expected, logged) in [
        (vec![record(6, head), record(6, b"ab"), record(6, b"cd"), END.to_vec()], "200 | abcd", ""),
        (
            vec![record(7, b"careful\nagain\n"), record(6, head), record(7, b"more"), END.to_vec()],
            "200 | ",
            "careful",
        ),
        (vec![record(6, b"Content-Length: 2\nStatus: 201\n\nabcd"), END.to_vec()], "201 | ab", ""),
        (vec![record(6, b"Content-Type: a/b\n"), END.to_vec()], "502 | *", "without a head"),
        (vec![record(6, b"no head\n\n"), END.to_vec()], "502 | *", "no colon"),
        (vec![b"HTTP/1.1 200 OK\r\n\r\n".to_vec()], "502 | *", "not of FastCGI"),
        (vec![record(6, b"Content-Type")], "502 | *", "in the middle of the response head"),
        (vec![], "502 | *", "no response"),
        (vec![record(3, &[0, 0, 0, 0, 2, 0, 0, 0])], "503 | *", ""),
        (vec![record(3, &[0, 0, 0, 0, 3, 0, 0, 0])], "502 | *", "not a FastCGI responder"),
    ] {
        let bytes = response.concat();
        let sent = bytes.clone();
        let (server, _) = application("", move || sent.clone());
        let case = format!("{:?}", String::from_utf8_lossy(&bytes));
        assert_matches(&summary(&exchange(&server, GET)), expected, &case);
        until(&format!("{case} is logged as {logged:?}"), || server.stderr().contains(logged));
    }
}

/// A response that is shorter than its length, or has no end, is visibly cut.
#[test]
fn truncated_responses_are_visibly_cut() {
    for response in [
        [record(6, b"Content-Length: 9\nStatus: 200\n\nabc"), END.to_vec()].concat(),
        record(6, b"Content-Length: 9\nStatus: 200\n\nabc"),
        record(6, b"Content-Type: a/b\n\nabc"),
    ] {
        let sent = response.clone();
        let (server, _) = application(", buffer_responses = false", move || sent.clone());
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let is_complete = (text.contains("content-length: 3\r\n") && text.ends_with("abc"))
            || text.ends_with("\r\n0\r\n\r\n");
        assert!(text.starts_with("http/1.1 200") && !is_complete, "{text:?}");
    }
}
