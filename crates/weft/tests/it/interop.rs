//! HTTP/2 interoperability with external programs: h2spec and Chromium. A test is skipped if its
//! program is not installed; see `has_tool`.
#![cfg(all(feature = "tls", feature = "websocket"))]

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::common::{boxed_server, has_tool, stop};
use http::{StatusCode, Version};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use weft::hooks::Record;
use weft::tls::{Identity, Tls, TlsSettings};
use weft::{BoxApplication, Hooks, Method, Request, Response, Server, websocket};

/// Upper bound on waiting for an external program. Long enough never to expire on a busy machine.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(300);

fn tls() -> Tls {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let identity = Identity::pem(cert.pem(), signing_key.serialize_pem());
    Tls::new(TlsSettings { identities: vec![identity], ..TlsSettings::default() }).unwrap()
}

// -- h2spec

/// Hooks that send the status of each response to the test.
struct Statuses(Mutex<Sender<StatusCode>>);

impl Hooks for Statuses {
    fn on_response(&self, record: &Record<'_>) {
        let _ = self.0.lock().unwrap().send(record.status);
    }
}

/// Reads the body before it responds, because frames after a complete response are not checked
/// for errors any more. Ignores errors of the body.
async fn reader(mut request: Request) -> Response {
    while let Ok(Some(_)) = request.body().chunk().await {}
    Response::text("some bytes for the windows\n")
}

/// Runs all cases of h2spec, including the strict ones.
#[test]
fn passes_h2spec() {
    if !has_tool("h2spec") {
        return;
    }
    let (sender, statuses) = channel();
    let server = boxed_server(reader).workers(1);
    let server = server.hooks(move || Statuses(Mutex::new(sender.clone())));
    let server = server.listen("127.0.0.1:0").unwrap().listen_tls("127.0.0.1:0", &tls()).unwrap();
    let server = server.start().unwrap();
    let port = |at: usize| server.addresses()[at].address().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    for (options, port, expected) in [
        (&["--tls", "--insecure"][..], port(1), &[][..]),
        // On a port that also accepts HTTP/1, an invalid preface is a malformed HTTP/1 request and
        // gets a 400. RFC 9113 §3.4 applies to connections known to be HTTP/2.
        (&[], port(0), &["http2/3.5 Sends invalid connection preface"]),
    ] {
        let report = folder.path().join("report");
        let mut command = Command::new("h2spec");
        command.args(["--strict", "--host", "127.0.0.1", "--port", &port, "--timeout", "10"]);
        command.arg("--junit-report").arg(&report).args(options);
        // Each case has its own timeout. The exit status only tells that there are failures.
        let output = command.output().expect("h2spec runs").stdout;
        let output = String::from_utf8_lossy(&output);
        let report = std::fs::read_to_string(report).expect("a report");
        let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
        assert_eq!(cases.len(), 146, "{options:?}: {output}");
        let has_failure =
            |case: &&str| ["<failure", "<error", "<skipped"].iter().any(|tag| case.contains(tag));
        let name =
            |case| format!("{} {}", attribute(case, "package"), attribute(case, "classname"));
        let failed: Vec<String> = cases.into_iter().filter(has_failure).map(name).collect();
        assert_eq!(failed, expected, "{options:?}: {output}");
    }
    stop(server);
    // No request may cause a server error.
    let statuses: Vec<StatusCode> = statuses.iter().collect();
    assert!(statuses.contains(&StatusCode::OK));
    assert_eq!(statuses.iter().find(|status| status.is_server_error()), None);
}

fn attribute<'a>(tag: &'a str, name: &str) -> &'a str {
    let (_, rest) = tag.split_once(&format!("{name}=\"")).expect("the attribute");
    rest.split('"').next().expect("its value")
}

// -- chromium

/// A child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails if the process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a WebSocket to its origin, sends a short and a long message, closes it, and reports the
/// results by a POST.
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

/// Path and version of a request; for a report also its text.
type Seen = (String, Version, String);

async fn echo(request: Request, seen_requests: Sender<Seen>) -> weft::Result<Response> {
    let (path, version) = (request.path().to_owned(), request.version());
    let report_to_test =
        |text| seen_requests.send((path.clone(), version, text)).expect("the test receives");
    if request.method() == Method::POST {
        let report = request.into_body().collect(1_000).await?;
        report_to_test(String::from_utf8(report.to_vec()).expect("reports are text"));
        return Ok(Response::text("thank you\n"));
    }
    report_to_test(String::new());
    Ok(match path.as_str() {
        "/" => Response::html(PAGE),
        "/socket" => websocket::accept(&request, async |mut socket| {
            while let Ok(Some(message)) = socket.receive().await {
                socket.send(message).await.expect("the page receives");
            }
        }),
        _ => Response::not_found(),
    })
}

/// The browser opens the WebSocket as a stream of its existing connection (RFC 8441).
#[test]
fn chromium_opens_a_websocket_over_http_2() {
    if !has_tool("chromium") {
        return;
    }
    let (sender, seen_requests): (_, Receiver<Seen>) = channel();
    let sender = Mutex::new(sender);
    let server = Server::per_worker(move || {
        let sender = sender.lock().unwrap().clone();
        let app = BoxApplication::new(move |request| echo(request, sender.clone()));
        async move { app }
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
        let browser = KillOnDrop(command.spawn().expect("chromium runs"));
        let report = format!("{protocol} días 300000 true 1000");
        for (path, text) in [("/", ""), ("/socket", ""), ("/report", &report)] {
            let next = loop {
                let next =
                    seen_requests.recv_timeout(BROWSER_TIMEOUT).expect("the page sends a request");
                // The browser requests the favicon at any time.
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
