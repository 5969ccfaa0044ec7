//! HTTP/2 as other programs speak it with an application. Where one is missing its test says so;
//! see `tool`.
#![cfg(all(feature = "tls", feature = "websocket"))]

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::{stop, tool};
use http::{StatusCode, Version};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::tls::{Identity, Settings as TlsSettings, Tls};
use weft::{Hooks, Method, Record, Request, Response, Server, websocket};

/// How long a test waits for a program that has much to do: not to be met, however busy the
/// machine is.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

fn tls() -> Tls {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity = Identity::pem(cert.pem(), signing_key.serialize_pem());
    Tls::new(TlsSettings { identities: vec![identity], ..TlsSettings::default() }).unwrap()
}

// -- h2spec

/// Tells the test how requests were answered.
struct Statuses(Mutex<Sender<StatusCode>>);

impl Hooks for Statuses {
    fn answered(&self, record: &Record<'_>) {
        let _ = self.0.lock().unwrap().send(record.status);
    }
}

/// Reads the body before it answers: a request is over when its response is, and what comes
/// behind that is no fault any more. What is wrong with the body is not its concern.
async fn reader(mut request: Request) -> Response {
    while let Ok(Some(_)) = request.body().chunk().await {}
    Response::text("some bytes for the windows\n")
}

/// All of h2spec's cases, the strict ones included.
#[test]
fn h2spec_finds_no_fault() {
    if !tool("h2spec") {
        return;
    }
    let (sender, statuses) = channel();
    let server = Server::new(reader).workers(1);
    let server = server.hooks(move || Statuses(Mutex::new(sender.clone())));
    let server = server.listen("127.0.0.1:0").unwrap().listen_tls("127.0.0.1:0", &tls()).unwrap();
    let server = server.start().unwrap();
    let port = |at: usize| server.addresses()[at].address().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    for (options, port, expected) in [
        (&["--tls", "--insecure"][..], port(1), &[][..]),
        // Where HTTP/1 is spoken as well, the wrong preface is a malformed request of HTTP/1, and
        // is told so by a 400. RFC 9113 §3.4 is about a connection known to be one of HTTP/2.
        (&[], port(0), &["http2/3.5 Sends invalid connection preface"]),
    ] {
        let report = folder.path().join("report");
        let mut command = Command::new("h2spec");
        command.args(["--strict", "--host", "127.0.0.1", "--port", &port, "--timeout", "10"]);
        command.arg("--junit-report").arg(&report).args(options);
        // Each case has its time-out. The status says only whether there are faults.
        let said = command.output().expect("h2spec runs").stdout;
        let said = String::from_utf8_lossy(&said);
        let report = std::fs::read_to_string(report).expect("a report");
        let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
        assert_eq!(cases.len(), 146, "{options:?}: {said}");
        let has_fault =
            |case: &&str| ["<failure", "<error", "<skipped"].iter().any(|tag| case.contains(tag));
        let name =
            |case| format!("{} {}", attribute(case, "package"), attribute(case, "classname"));
        let faulty: Vec<String> = cases.into_iter().filter(has_fault).map(name).collect();
        assert_eq!(faulty, expected, "{options:?}: {said}");
    }
    stop(server);
    // However strange the requests are, the server's part in that is nothing.
    let statuses: Vec<StatusCode> = statuses.iter().collect();
    assert!(statuses.contains(&StatusCode::OK));
    assert_eq!(statuses.iter().find(|status| status.is_server_error()), None);
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let (_, behind) = tag.split_once(&format!("{name}=\"")).expect("the attribute");
    behind.split('"').next().expect("its value")
}

// -- chromium

/// A program that is killed with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a WebSocket to where it came from, says something short, something long, and goodbye,
/// and reports what it saw.
const PAGE: &str = r#"<!DOCTYPE html><title>Echo</title><script>
const seen = [performance.getEntriesByType("navigation")[0].nextHopProtocol];
const socket = new WebSocket(`wss://${location.host}/socket`);
socket.onopen = () => socket.send("días");
socket.onmessage = ({data}) => {
    seen.push(data.length > 9 ? `${data.length}` : data);
    seen.length == 2 ? socket.send("x".repeat(300000)) : socket.close(1000);
};
socket.onclose = ({wasClean, code}) => {
    seen.push(wasClean, code);
    fetch("/report", {method: "POST", body: seen.join(" ")});
};
</script>"#;

/// The path and the version of a request; for a report what it says.
type Asked = (String, Version, String);

async fn echo(request: Request, asked: Sender<Asked>) -> weft::Result<Response> {
    let (path, version) = (request.path().to_owned(), request.version());
    let tell = |text| asked.send((path.clone(), version, text)).expect("the test listens");
    if request.method() == Method::POST {
        let report = request.into_body().collect(1_000).await?;
        tell(String::from_utf8(report.to_vec()).expect("reports are text"));
        return Ok(Response::text("thank you\n"));
    }
    tell(String::new());
    Ok(match path.as_str() {
        "/" => Response::html(PAGE),
        "/socket" => websocket::accept(&request, async |mut socket| {
            while let Ok(Some(message)) = socket.receive().await {
                socket.send(message).await.expect("the page listens");
            }
        }),
        _ => Response::not_found(),
    })
}

/// A browser opens a WebSocket as a stream of the connection that it has (RFC 8441).
#[test]
fn chromium_opens_a_websocket_over_http_2() {
    if !tool("chromium") {
        return;
    }
    let (sender, asked): (_, Receiver<Asked>) = channel();
    let sender = Mutex::new(sender);
    let server = Server::per_worker(move || {
        let sender = sender.lock().unwrap().clone();
        async move { Ok(move |request| echo(request, sender.clone())) }
    });
    let server = server.workers(1).listen_tls("127.0.0.1:0", &tls()).unwrap().start().unwrap();
    let address = server.addresses()[0].address().unwrap().to_string();
    for (options, version, protocol) in
        [(&[][..], Version::HTTP_2, "h2"), (&["--disable-http2"], Version::HTTP_11, "http/1.1")]
    {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking"]);
        command.args(["--disable-component-update", "--disable-sync"]);
        command.args(["--remote-debugging-port=0", "--ignore-certificate-errors"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(options).arg(format!("https://{address}/"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let browser = Running(command.spawn().expect("chromium runs"));
        let report = format!("{protocol} días 300000 true 1000");
        for (path, text) in [("/", ""), ("/socket", ""), ("/report", &report)] {
            let next = loop {
                let next = asked.recv_timeout(LONG_PATIENCE).expect("the page asks");
                // The browser looks for a picture of the page whenever it likes.
                if next.0 != "/favicon.ico" {
                    break next;
                }
            };
            assert_eq!(next, (path.to_owned(), version, text.to_owned()), "{options:?}");
        }
        drop(browser);
    }
    stop(server);
}
