//! SCGI and uwsgi: requests that an application gets, and its responses.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::common::{PATIENCE, Program, Weft, has_tool, raw_upstream, until, weft};

/// Variables in the order of the head, and the body.
type Received = (Vec<(String, String)>, Vec<u8>);

/// Reads a request of uwsgi: variables behind their size, and the body.
fn read_uwsgi(stream: &mut TcpStream) -> Option<Received> {
    let mut begin = [0; 4];
    stream.read_exact(&mut begin).ok()?;
    let [modifier1, low, high, modifier2] = begin;
    assert_eq!((modifier1, modifier2), (0, 0));
    let mut head = vec![0; u16::from_le_bytes([low, high]).into()];
    stream.read_exact(&mut head).unwrap();
    let (mut texts, mut rest) = (Vec::new(), &head[..]);
    while let [low, high, others @ ..] = rest {
        let (text, others) = others.split_at(u16::from_le_bytes([*low, *high]).into());
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = others;
    }
    assert_eq!((texts.len() % 2, rest.len()), (0, 0), "{texts:?}");
    let variables: Vec<_> =
        texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    let length = variables.iter().find(|(name, _)| name == "CONTENT_LENGTH");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    Some((variables, body))
}

/// Reads a request of SCGI: a netstring of variables. The first variable is the length of the body.
fn read_scgi(stream: &mut TcpStream) -> Option<Received> {
    let mut length = String::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        match byte[0] {
            b':' => break,
            digit => length.push(digit.into()),
        }
    }
    let mut head = vec![0; length.parse::<usize>().unwrap() + 1];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head.pop(), Some(b','));
    assert_eq!(head.pop(), Some(0));
    let texts = head.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text));
    let texts: Vec<String> = texts.map(std::borrow::Cow::into_owned).collect();
    assert_eq!(texts.len() % 2, 0, "{texts:?}");
    let variables: Vec<_> =
        texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(variables[0].0, "CONTENT_LENGTH");
    let mut body = vec![0; variables[0].1.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some((variables, body))
}

/// Starts an application that sends these bytes and closes the connection. Returns the requests
/// that it gets.
fn application(
    form: &str,
    keys: &str,
    response: &'static [u8],
) -> (Weft, Arc<Mutex<Vec<Received>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let requests = received.clone();
    let read_request = if form == "scgi" { read_scgi } else { read_uwsgi };
    let address = raw_upstream(move |_, mut stream| {
        let Some(request) = read_request(&mut stream) else { return };
        requests.lock().unwrap().push(request);
        stream.write_all(response).unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weft.toml");
    let limits = "[limits]\nmax_head_bytes = 65000\n";
    let route = format!("{limits}[hosts.\"*\"]\n\"/app/\" = {{ {form} = \"{address}\"{keys} }}\n");
    fs::write(&file, route).unwrap();
    let mut command = weft([Path::new("--config"), &file]);
    command.args(["--listen", "127.0.0.1:0", "--workers", "1", "--no-log"]);
    (Weft::start(&mut command), received)
}

/// Sends a request and returns the response, in lower case.
fn exchange(server: &Weft, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    // Fails for a response that is aborted.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).to_ascii_lowercase()
}

#[test]
fn applications_get_variables_and_body() {
    let response = b"Status: 201\nContent-Type: a/b\nContent-Length: 5\n\nhello";
    let keys = ", environment = [\"OWN=set here\", \"SCGI=2\", \"SERVER_NAME=own\"]";
    let (server, received) = application("scgi", keys, response);
    let body = "0123456789".repeat(20_000);
    let sized = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (method, rest, length) in
        [("POST", &*sized, 200_000), ("PUT", &*chunked, 200_000), ("GET", "\r\n", 0)]
    {
        let head = format!(
            "{method} /app/a%20b/c?q=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: b\r\n"
        );
        let found = exchange(&server, &(head + rest));
        assert!(found.starts_with("http/1.1 201 ") && found.ends_with("\r\n\r\nhello"), "{found}");
        let (variables, body) = received.lock().unwrap().remove(0);
        assert_eq!(body.len(), length, "{method}");
        assert_eq!(variables[1], ("SCGI".to_owned(), "1".to_owned()));
        for (name, expected) in [
            ("CONTENT_LENGTH", &*length.to_string()),
            ("SCGI", "1"),
            ("REQUEST_METHOD", method),
            ("REQUEST_URI", "/app/a%20b/c?q=1"),
            ("SCRIPT_NAME", "/app"),
            ("PATH_INFO", "/a b/c"),
            ("QUERY_STRING", "q=1"),
            ("HTTP_X_A", "b"),
            ("OWN", "set here"),
            ("SERVER_NAME", "own"),
        ] {
            let values: Vec<_> = variables.iter().filter(|(known, _)| known == name).collect();
            assert_eq!(values, [&(name.to_owned(), expected.to_owned())], "{method}");
        }
        assert!(!variables.iter().any(|(name, _)| name == "REDIRECT_STATUS"), "it is PHP's");
    }
}

/// A variable that ends early would make the rest of a path other variables.
#[test]
fn paths_with_nul_are_refused() {
    let (server, received) = application("scgi", "", b"Content-Type: a/b\n\n");
    let target = "/app/a%00REMOTE_USER%00root%00";
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let found = exchange(&server, &request);
    assert!(found.starts_with("http/1.1 400 "), "{found}");
    assert!(received.lock().unwrap().is_empty());
}

/// Each row: the bytes of an application, and begin and end of the response.
#[test]
fn responses_end_with_the_connection_or_their_length() {
    let cases: [(&'static [u8], &str, &str); 9] = [
        (b"Content-Type: a/b\n\nabc", "http/1.1 200 ", "abc\r\n0\r\n\r\n"),
        (b"Content-Type: a/b\r\n\r\n", "http/1.1 200 ", "\r\n\r\n"),
        (b"Content-Length: 2\nStatus: 201\n\nabcd", "http/1.1 201 ", "\r\n\r\nab"),
        (b"Status: 204\n\nabc", "http/1.1 204 ", "\r\n\r\n"),
        (b"Location: http://b/\n\n", "http/1.1 302 ", ""),
        (b"Content-Type: a/b\n", "http/1.1 502 ", ""),
        (b"no head\n\n", "http/1.1 502 ", ""),
        (b"", "http/1.1 502 ", ""),
        (b"HTTP/1.1 200 OK\r\n\r\n", "http/1.1 502 ", ""),
    ];
    for (response, begin, end) in cases {
        let (server, _) = application("scgi", "", response);
        let found = exchange(&server, "GET /app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let case = String::from_utf8_lossy(response);
        assert!(found.starts_with(begin) && found.ends_with(end), "{case:?}: {found}");
    }
    for keys in ["", ", buffer_responses = false"] {
        let (server, _) = application("scgi", keys, b"Content-Length: 9\nStatus: 200\n\nabc");
        let found = exchange(&server, "GET /app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let is_complete = found.contains("content-length: 3") || found.ends_with("0\r\n\r\n");
        assert!(!is_complete, "a truncated response: {found}");
    }
}

#[test]
fn applications_of_uwsgi_get_variables_and_body() {
    let response = b"HTTP/1.1 201 Created\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello";
    let (server, received) = application("uwsgi", ", environment = [\"OWN=set here\"]", response);
    let body = "0123456789".repeat(20_000);
    let chunked =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (method, rest, length) in [("PUT", &*chunked, 200_000), ("GET", "\r\n", 0)] {
        let head = format!("{method} /app/a%20b?q=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        let found = exchange(&server, &(head + rest));
        assert!(found.starts_with("http/1.1 201 ") && found.ends_with("\r\n\r\nhello"), "{found}");
        let (variables, body) = received.lock().unwrap().remove(0);
        assert_eq!(body.len(), length, "{method}");
        for (name, expected) in [
            ("REQUEST_METHOD", method),
            ("REQUEST_URI", "/app/a%20b?q=1"),
            ("SCRIPT_NAME", "/app"),
            ("PATH_INFO", "/a b"),
            ("QUERY_STRING", "q=1"),
            ("OWN", "set here"),
        ] {
            let values: Vec<_> = variables.iter().filter(|(known, _)| known == name).collect();
            assert_eq!(values, [&(name.to_owned(), expected.to_owned())], "{method}");
        }
        assert!(!variables.iter().any(|(name, _)| name == "SCGI" || name == "REDIRECT_STATUS"));
    }
}

/// Each row: the bytes of an application, and begin and end of the response.
#[test]
fn responses_of_uwsgi_have_a_status_line_or_a_status() {
    let cases: [(&'static [u8], &str, &str); 6] = [
        (
            b"HTTP/1.0 404 Not Found\r\nContent-Type: a/b\r\n\r\nabc",
            "http/1.1 404 ",
            "abc\r\n0\r\n\r\n",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", "http/1.1 200 ", "abc\r\n0\r\n\r\n"),
        (b"Status: 201\nContent-Length: 2\n\nabcd", "http/1.1 201 ", "\r\n\r\nab"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "http/1.1 502 ", ""),
        (b"HTTP/1.1 200 OK\r\n", "http/1.1 502 ", ""),
        (b"", "http/1.1 502 ", ""),
    ];
    for (response, begin, end) in cases {
        let (server, _) = application("uwsgi", "", response);
        let found = exchange(&server, "GET /app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let case = String::from_utf8_lossy(response);
        assert!(found.starts_with(begin) && found.ends_with(end), "{case:?}: {found}");
    }
}

/// The size of the variables has 16 bits, and a query is in two of them.
#[test]
fn requests_beyond_the_size_of_uwsgi_are_refused() {
    let (server, received) = application("uwsgi", "", b"Status: 200\n\nabc");
    let (one, two) = ("v".repeat(25_000), "w".repeat(30_000));
    for (length, status) in [(0, "200"), (7_000, "431")] {
        let request = format!(
            "GET /app/?{} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-A: {one}\r\nX-B: {two}\r\n\r\n",
            "q".repeat(length)
        );
        let found = exchange(&server, &request);
        assert!(found.starts_with(&format!("http/1.1 {status} ")), "{length}: {found}");
    }
    assert_eq!(received.lock().unwrap().len(), 1);
}

// -- uWSGI

/// Application of WSGI, which responds with variables and the length of the body.
const WSGI: &str = r#"
def application(environ, start_response):
    body = environ["wsgi.input"].read()
    if environ["PATH_INFO"] == "/broken":
        raise ValueError("on purpose")
    if environ["PATH_INFO"] == "/large":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"%06d\n" % number for number in range(100000))
    start_response("201 Made", [("Content-Type", "text/plain"), ("X-Own", "a")])
    names = "REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "REMOTE_ADDR", "HTTP_X_A"
    return [" ".join([environ.get(name, "-") for name in names] + [str(len(body))]).encode()]
"#;

/// uWSGI itself, with an application in Python, by both of its protocols.
#[test]
fn serves_an_application_in_uwsgi() {
    if !has_tool("uwsgi") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("app.py"), WSGI).unwrap();
    let mut uwsgi = Command::new("uwsgi");
    uwsgi.args(["--plugin", "python3", "--need-app", "--wsgi-file"]).arg(path("app.py"));
    uwsgi.arg("--uwsgi-socket").arg(path("uwsgi")).arg("--scgi-socket").arg(path("scgi"));
    // The Python of the system, without the modules of another one.
    let mut uwsgi = Program::start(uwsgi.env_remove("PYTHONPATH").env_remove("PYTHONHOME"));
    until("uWSGI has the application", || {
        assert!(uwsgi.is_running(), "{}", uwsgi.stderr());
        uwsgi.stderr().contains("spawned uWSGI worker")
    });
    let route =
        |form: &str| format!("\"/{form}/\" = {{ {form} = \"unix:{}\" }}\n", path(form).display());
    let config = format!("[hosts.\"*\"]\n{}{}", route("uwsgi"), route("scgi"));
    fs::write(path("weft.toml"), config).unwrap();
    let mut command = weft([Path::new("--config"), &path("weft.toml")]);
    let server = Weft::start(command.args(["--listen", "127.0.0.1:0", "--no-log"]));
    let body = "0123456789".repeat(20_000);
    let large: String = (0..100_000).map(|number| format!("{number:06}\n")).collect();
    for form in ["uwsgi", "scgi"] {
        for (method, name, fields, status, expected) in [
            ("GET", "a%20b/c?q=1", "X-A: v\r\n\r\n", 201, " /a b/c q=1 127.0.0.1 v 0"),
            (
                "POST",
                "x",
                &format!("Content-Length: {}\r\n\r\n{body}", body.len()),
                201,
                " /x  127.0.0.1 - 200000",
            ),
            (
                "PUT",
                "x",
                "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
                201,
                " /x  127.0.0.1 - 3",
            ),
            ("GET", "large", "\r\n", 200, &*large),
            ("GET", "broken", "\r\n", 502, "502 bad gateway\n"),
        ] {
            let head =
                format!("{method} /{form}/{name} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
            let response = exchange(&server, &format!("{head}{fields}"));
            let case = format!("{method} /{form}/{name}");
            assert!(
                response.starts_with(&format!("http/1.1 {status} ")),
                "{case}: {response:.200}"
            );
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            let body = match head.contains("transfer-encoding: chunked") {
                true => dechunked(body),
                false => body.to_owned(),
            };
            let expected = match status {
                201 => format!("{} /{form}{expected}", method.to_lowercase()),
                _ => expected.to_owned(),
            };
            assert!(body == expected, "{case}: {body:.200}");
        }
    }
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
