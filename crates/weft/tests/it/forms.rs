//! Forms and uploads, tested over real sockets.
#![cfg(feature = "form")]

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};

use crate::common::{Client, boxed_server, stop, until};
use weft::form;
use weft::server::ServerHandle;
use weft::{Application, Error, ErrorKind, Request, Response, Settings};

fn start(app: impl Application + Clone + Send + 'static) -> ServerHandle {
    let settings = Settings { max_body_bytes: 1 << 30, ..Settings::default() };
    let server = boxed_server(app).settings(settings).workers(1);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Responds with a line for each part: its name, file names, type and content. Files are stored in
/// temporary files first.
async fn list(settings: form::FormSettings, request: Request) -> Result<Response, Error> {
    if request.path() == "/ok" {
        return Ok(Response::text("ok"));
    }
    let mut form = settings.multipart(request)?;
    let mut lines = String::new();
    while let Some(part) = form.next().await? {
        if part.name() == "skipped" {
            continue;
        }
        let (name, file_name) = (part.name().to_owned(), part.file_name().map(str::to_owned));
        let (safe, content_type) = (part.safe_file_name(), part.content_type().map(str::to_owned));
        let text = match file_name {
            Some(_) => fs::read_to_string(part.into_file().await?.path()).unwrap(),
            None => part.text().await?,
        };
        writeln!(lines, "{name}: {file_name:?} {safe:?} {content_type:?} {text:?}").unwrap();
    }
    Ok(Response::text(lines))
}

/// An application that runs `list`, and the kinds of the errors that it returned.
fn listing(
    settings: form::FormSettings,
) -> (impl Application + Clone + Send + 'static, Arc<Mutex<Vec<ErrorKind>>>) {
    let errors = Arc::<Mutex<Vec<ErrorKind>>>::default();
    let recorded = errors.clone();
    let app = move |request: Request| {
        let (settings, recorded) = (settings.clone(), recorded.clone());
        async move {
            let result = list(settings, request).await;
            if let Err(error) = &result {
                recorded.lock().unwrap().push(error.kind());
            }
            result
        }
    };
    (app, errors)
}

/// Settings with small limits, used by most tests.
fn small() -> form::FormSettings {
    form::FormSettings {
        max_bytes: Some(1_000),
        max_fields: 2,
        max_field_bytes: 10,
        max_all_fields_bytes: 15,
        max_files: 2,
        max_file_bytes: 20,
        max_part_head_bytes: 100,
        max_part_fields: 3,
        temp_dir: None,
    }
}

fn field(name: &str, value: &str) -> String {
    part(&format!("name=\"{name}\""), value)
}

fn file(name: &str, file_name: &str, content: &str) -> String {
    part(&format!("name=\"{name}\"; filename=\"{file_name}\""), content)
}

fn part(parameters: &str, content: &str) -> String {
    format!("--x\r\nContent-Disposition: form-data; {parameters}\r\n\r\n{content}\r\n")
}

const HEAD: &str =
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=\"x\"\r\n";

/// A request with a multipart body of `parts`.
fn post(parts: &[String]) -> String {
    let body = parts.concat() + "--x--\r\n";
    format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The same request with chunked framing.
fn post_chunked(parts: &[String], chunk_bytes: usize) -> String {
    let body = parts.concat() + "--x--\r\n";
    let chunks = body
        .as_bytes()
        .chunks(chunk_bytes)
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), std::str::from_utf8(chunk).unwrap()));
    let chunks: String = chunks.collect();
    format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

#[test]
fn parses_a_form_with_any_framing() {
    let (app, _) = listing(small());
    let server = start(app);
    let parts = [
        field("title", "A\r\n--note"),
        file("skipped", "s", "not looked at"),
        file("file", "f.txt", "\r\n--y\r\n"),
        field("empty", ""),
    ];
    let expected = "title: None None None \"A\\r\\n--note\"\n\
        file: Some(\"f.txt\") Some(\"f.txt\") None \"\\r\\n--y\\r\\n\"\n\
        empty: None None None \"\"\n";
    let mut client = Client::connect(&server);
    for request in [post(&parts), post_chunked(&parts, 1), post_chunked(&parts, 7)] {
        client.send(&request);
        assert_eq!(client.response().text(), expected);
    }
    // In small writes.
    let request = post(&parts);
    for piece in request.as_bytes().chunks(9) {
        client.send(piece);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.response().text(), expected);
    client.assert_open("/ok");
    stop(server);
}

#[test]
fn rejects_invalid_and_oversized_parts_and_keeps_the_connection() {
    let (app, _) = listing(small());
    let server = start(app);
    let long_head = format!("name=\"{}\"", "n".repeat(100));
    for (parts, expected) in [
        (vec![field("a", "0123456789"), field("b", "01234")], "200"),
        (vec![file("a", "f", "01234567890123456789"), file("b", "f", "")], "200"),
        (vec![field("a", "01234567890")], "413 Payload Too Large: a field is larger than 10 bytes"),
        (vec![field("skipped", "01234567890")], "413 Payload Too Large: a field is larger"),
        (
            vec![field("a", "0123456789"), field("b", "012345")],
            "413 Payload Too Large: the fields are larger than 15 bytes",
        ),
        (
            vec![field("a", ""), field("b", ""), field("c", "")],
            "413 Payload Too Large: more than 2 fields",
        ),
        (
            vec![file("a", "f", "012345678901234567890")],
            "413 Payload Too Large: a file is larger than 20 bytes",
        ),
        (
            vec![file("a", "", ""), file("b", "", ""), file("c", "", "")],
            "413 Payload Too Large: more than 2 files",
        ),
        (
            vec![part(&long_head, "")],
            "413 Payload Too Large: the head of a part is larger than 100 bytes",
        ),
        (vec![part("filename=f", "")], "400 Bad Request: a part of the form has no name"),
        (
            vec![field("a", "").replace("form-data", "x")],
            "400 Bad Request: the Content-Disposition of a part is not form-data",
        ),
        (vec!["--x\r\n\r\n\r\n".into()], "400 Bad Request: a part has no Content-Disposition"),
        (vec!["--x y\r\n".into()], "400 Bad Request: something follows a boundary"),
        (vec!["--x\r\n\0: a\r\n".into()], "400 Bad Request: "),
    ] {
        for request in [post(&parts), post_chunked(&parts, 50)] {
            let mut client = Client::connect_and_send(&server, request);
            let response = client.response();
            let status = expected.split_once(' ').map_or(expected, |(status, _)| status);
            assert_eq!(response.status.to_string(), status, "{parts:?}: {}", response.text());
            if response.status != 200 {
                assert!(response.text().starts_with(expected), "{}", response.text());
            }
            client.assert_open("/ok");
        }
    }
    stop(server);
}

#[test]
fn rejects_bodies_that_are_not_multipart_forms() {
    let (app, errors) = listing(small());
    let server = start(app);
    for (content_type, body, expected) in [
        (
            "text/plain",
            "a",
            "415 Unsupported Media Type: expected a form as multipart/form-data, and Content-Type says text/plain",
        ),
        (
            "multipart/form-data",
            "a",
            "400 Bad Request: the Content-Type of the form has no boundary",
        ),
        ("multipart/form-data; boundary=", "a", "400 Bad Request: the boundary of the form is"),
        ("multipart/form-data; boundary=x", "", "400 Bad Request: the form ends before its last"),
        ("multipart/form-data; a=b; boundary=x", "--x--", "200"),
        (
            "multipart/form-data; boundary=x",
            "--x-",
            "400 Bad Request: the form ends before its last",
        ),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n");
        let length = body.len();
        let request = format!("{head}Content-Length: {length}\r\n\r\n{body}");
        let mut client = Client::connect_and_send(&server, request);
        let response = client.response();
        let actual = format!("{} {}", response.status, response.text());
        let status = expected.split_once(' ').map_or(expected, |(status, _)| status);
        assert_eq!(response.status.to_string(), status, "{content_type}, {body}: {actual}");
        assert!(status == "200" || response.text().starts_with(expected), "{actual}");
        client.assert_open("/ok");
    }
    assert_eq!(errors.lock().unwrap()[0], ErrorKind::MediaTypeUnsupported);
    stop(server);
}

#[test]
fn form_over_the_total_limit_closes_the_connection() {
    let (app, errors) = listing(form::FormSettings { max_file_bytes: u64::MAX, ..small() });
    let server = start(app);
    let parts = [file("a", "f", &"x".repeat(100_000))];
    for request in [post(&parts), post_chunked(&parts, 10_000)] {
        let mut client = Client::connect_and_send(&server, request);
        let response = client.response();
        assert_eq!((response.status, response.header("connection")), (413, Some("close")));
        client.assert_closed();
    }
    assert_eq!(*errors.lock().unwrap(), [ErrorKind::BodyTooLarge; 2]);
    stop(server);
}

#[test]
fn provides_file_names_as_sent_and_sanitized() {
    let (app, _) = listing(form::FormSettings { max_files: 100, ..small() });
    let server = start(app);
    for (parameters, names) in [
        (r#"filename="../../x""#, r#"Some("../../x") Some("x")"#),
        (r#"filename="C:\a\b.txt""#, r#"Some("C:\\a\\b.txt") Some("b.txt")"#),
        (r#"filename="a\"b.txt""#, r#"Some("a\"b.txt") Some("ab.txt")"#),
        (r#"filename="a%22b.txt""#, r#"Some("a%22b.txt") Some("a%22b.txt")"#),
        (r#"filename="..""#, r#"Some("..") None"#),
        (r#"filename="""#, r#"Some("") None"#),
        ("filename=\"días.txt\"", r#"Some("días.txt") Some("días.txt")"#),
        ("filename*=UTF-8''..%2Fd%C3%ADas", r#"Some("../días") Some("días")"#),
        ("filename*=UTF-8''a%00b", r#"Some("a\0b") Some("ab")"#),
        ("filename*=UTF-8''a; filename=b", r#"Some("b") Some("b")"#),
    ] {
        let parts = [part(&format!("name=f; {parameters}"), "")];
        let mut client = Client::connect_and_send(&server, post(&parts));
        assert_eq!(client.response().text(), format!("f: {names} None \"\"\n"), "{parameters}");
    }
    for parameters in ["filename=\"a\0b\"", "filename=\"a\rb\"", "filename=\"a"] {
        let mut client =
            Client::connect_and_send(&server, post(&[part(&format!("name=f; {parameters}"), "")]));
        assert_eq!(client.response().status, 400, "{parameters:?}");
        client.assert_open("/ok");
    }
    stop(server);
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn removes_the_temporary_file_when_the_client_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let (app, errors) = listing(form::FormSettings {
        max_bytes: None,
        max_file_bytes: 1 << 30,
        temp_dir: Some(path.clone()),
        ..small()
    });
    let server = start(app);
    let head = format!("{HEAD}Content-Length: 2000000\r\n\r\n");
    let partial = part("name=a; filename=f", &"x".repeat(1_000_000));
    let mut client = Client::connect_and_send(&server, head + &partial);
    let size = |entry: io::Result<fs::DirEntry>| entry.ok()?.metadata().ok().map(|m| m.len());
    until("the file is partly written", || {
        fs::read_dir(&path).unwrap().any(|entry| size(entry) > Some(500_000))
    });
    client.half_close();
    assert_eq!(client.response().status, 400);
    drop(client);
    until("the file is removed", || files_in(&path) == 0);
    assert_eq!(*errors.lock().unwrap(), [ErrorKind::BodyIncomplete]);
    stop(server);
}

#[test]
fn removes_temporary_files_on_drop_unless_persisted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let server = start(move |request: Request| {
        let path = path.clone();
        async move {
            let keep = request.path() == "/keep";
            let settings =
                form::FormSettings { temp_dir: Some(path.clone()), ..Default::default() };
            let mut form = settings.multipart(request)?;
            let part = form.next().await?.expect("a file");
            let file = part.into_file().await?;
            assert_eq!(fs::read(file.path()).unwrap().len() as u64, file.length());
            assert_eq!(files_in(&path), 1);
            if keep {
                file.persist(path.join("kept")).await?;
            }
            Ok::<_, Error>(Response::text("ok"))
        }
    });
    let path = folder.path();
    let request = post(&[file("a", "f", "content")]);
    let mut client = Client::connect_and_send(&server, &request);
    assert_eq!(client.response().text(), "ok");
    until("the file is removed", || files_in(path) == 0);
    client.send(request.replacen("POST /", "POST /keep", 1));
    assert_eq!(client.response().text(), "ok");
    assert_eq!(fs::read(path.join("kept")).unwrap(), b"content");
    assert_eq!(files_in(path), 1);
    stop(server);
}
