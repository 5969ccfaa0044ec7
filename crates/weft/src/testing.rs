//! Call an application without a socket, or over one that a test has for itself.
//!
//! ```
//! use weft::{Request, Response, testing};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello\n") }
//!
//! let reply = testing::get(hello, "/");
//! assert_eq!(reply.status, 200);
//! reply.assert_text("Hello\n");
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::sync::watch;

use crate::app::Application;
use crate::error::{Error, ErrorKind};
use crate::hooks::Hooks;
use crate::message::body::Body;
use crate::message::request::{Head, Request, Shared};
use crate::message::response::{Part, Parts, Payload, Response};
use crate::net::listen::Bound;
use crate::peer::Peer;
use crate::proto::headers::Headers;
use crate::proto::http1::framing;
use crate::proto::http1::parse::{self, Limits};
use crate::server::{Running, Server};

/// A request as the engine would make it of these bytes; what follows the head is the body.
///
/// # Panics
/// If that is no valid head.
pub fn request(bytes: impl Into<Bytes>) -> Request {
    let mut text = bytes.into();
    let limits = Limits { request_line: 65_000, head: 65_000, fields: 1_000 };
    let mut parsed = parse::Head::new();
    let length = parsed.read(&text, &limits).expect("a valid head").expect("a whole head");
    let body = text.split_off(length);
    let framed = framing::request(&parsed, &text).expect("a valid head");
    let names = (framed.authority, framed.local);
    let headers = Headers::new(text, parsed.fields);
    let head = Head::new(parsed.method, parsed.version, parsed.target, names, headers);
    let (_, never) = watch::channel(None);
    Request::new(head, Body::from(body), Shared::new(Peer::default(), Arc::new(never)))
}

/// What an application answers to a `GET` of this target.
///
/// # Panics
/// If the target is not valid, or the application's body fails.
pub fn get(app: impl Application, target: &str) -> Reply {
    call(app, request(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")))
}

/// What an application answers to a request.
///
/// # Panics
/// If the application's body fails.
pub fn call(app: impl Application, request: Request) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("an event loop");
    runtime.block_on(async {
        let Response { status, headers, payload, .. } = app.call(request).await;
        let body = match payload {
            Payload::Body(body) => body.collect(usize::MAX).await.expect("the application's body"),
            Payload::File(file) => file.read().expect("the application's file"),
            Payload::Parts(parts) => {
                let Parts { parts, end, .. } = *parts;
                let read = |part: Part| [part.head, part.file.read().expect("the file").into()];
                parts.into_iter().flat_map(read).chain([end]).collect::<Vec<_>>().concat().into()
            }
            Payload::Upgrade(_) => Bytes::new(),
        };
        Reply { status, headers: headers.into_vec(), body }
    })
}

/// A server for a test: on a free port of 127.0.0.1, with one worker. When it is stopped or
/// dropped, a panic of the application becomes one of the test.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use weft::{Request, Response, testing::TestServer};
///
/// let server = TestServer::start(async |_: Request| Response::text("Hello\n"));
/// let mut client = TcpStream::connect(server.address()).unwrap();
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
/// let mut came = String::new();
/// client.read_to_string(&mut came).unwrap();
/// assert!(came.ends_with("\r\n\r\nHello\n"));
/// server.stop();
/// ```
#[derive(Debug)]
pub struct TestServer {
    running: Option<Running>,
    address: SocketAddr,
    panics: Panics,
}

/// What the application's panics said.
#[derive(Clone, Debug, Default)]
struct Panics(Arc<Mutex<Vec<String>>>);

impl Hooks for Panics {
    fn error(&self, _: &Peer, error: &Error) {
        if error.kind() == ErrorKind::Panicked {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }
    }
}

impl TestServer {
    /// A server of this application, with the default settings.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(app: impl Application + Clone + Send + 'static) -> TestServer {
        TestServer::of(Server::new(app))
    }

    /// A server that is set up in some other way; it has no address and no hooks yet.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of<A: Application + 'static>(server: Server<A>) -> TestServer {
        let panics = Panics::default();
        let hooks = panics.clone();
        let server = server.workers(1).hooks(move || hooks.clone());
        let running = server.listen("127.0.0.1:0").and_then(Server::start).expect("a server");
        let Bound::Tcp(address) = running.addresses()[0] else { unreachable!("it is of TCP") };
        TestServer { running: Some(running), address, panics }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops it when all is answered, ten seconds later at most.
    ///
    /// # Panics
    /// If the application has.
    pub fn stop(mut self) {
        self.end(Duration::from_secs(10));
    }

    fn end(&mut self, grace: Duration) {
        let Some(running) = self.running.take() else { return };
        running.shutdown(grace);
        let panics = self.panics.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One panic at a time: another would end the process.
        if let Some(first) = panics.first().filter(|_| !std::thread::panicking()) {
            panic!("{first}");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// A response that was read to its end.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// The fields that the application set.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// The value of the first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| value.to_str().ok())
    }

    /// Checks the body.
    ///
    /// # Panics
    /// If it is another text.
    #[track_caller]
    pub fn assert_text(&self, text: &str) {
        assert_eq!(String::from_utf8_lossy(&self.body), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_panic_of_the_application_is_one_of_the_test() {
        async fn odd(request: Request) -> Response {
            assert!(request.path() != "/odd", "odd things are asked for");
            Response::text("ok")
        }
        for (path, expected) in [("/", None), ("/odd", Some("odd things are asked for"))] {
            let server = TestServer::start(odd);
            let mut client = std::net::TcpStream::connect(server.address()).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
            let ended = std::thread::spawn(|| server.stop()).join();
            let said = ended.err().map(|panic| panic.downcast::<String>().unwrap());
            assert_eq!(said.is_some(), expected.is_some());
            assert!(said.is_none_or(|said| said.contains(expected.unwrap())));
        }
    }
}
