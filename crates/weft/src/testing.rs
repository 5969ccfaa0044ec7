//! Calls applications without a socket, and runs test servers on a free port.
//!
//! ```
//! use weft::{Request, Response, testing};
//!
//! async fn hello(_: Request) -> Response { Response::text("Hello\n") }
//!
//! let response = testing::get(hello, "/");
//! assert_eq!(response.status, 200);
//! response.assert_text("Hello\n");
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::sync::watch;

use crate::app::{Application, BoxApplication};
use crate::error::{Error, ErrorKind};
use crate::hooks::Hooks;
use crate::message::body::Body;
use crate::message::connection::RequestContext;
use crate::message::payload::{Part, Parts, Payload};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::net::address::LocalAddress;
use crate::peer::Peer;
use crate::server::Server;
use crate::server::handle::ServerHandle;
use weft_proto::headers::Headers;
use weft_proto::http1::framing;
use weft_proto::http1::parse::{self, Limits};

/// Parses a request as the engine does. The bytes after the head are the body.
///
/// # Panics
/// If the head is invalid or incomplete.
pub fn request(bytes: impl Into<Bytes>) -> Request {
    let mut text = bytes.into();
    let limits = Limits { request_line: 65_000, head: 65_000, fields: 1_000 };
    let mut parsed = parse::ParsedHead::new();
    let length = parsed.read(&text, &limits).expect("a valid head").expect("a complete head");
    let body = text.split_off(length);
    let framed = framing::request(&parsed, &text).expect("a valid head");
    let names = (framed.authority, framed.local);
    let headers = Headers::new(text, parsed.fields);
    let head = RequestHead::new(parsed.method, parsed.version, parsed.target, names, headers);
    let (_, shutdown) = watch::channel(None);
    Request::new(head, Body::from(body), RequestContext::new(Arc::default(), Arc::new(shutdown)))
}

/// Calls an application with a `GET` request for `target`, and reads the response to its end.
///
/// # Panics
/// If the target is not valid, or the application's body fails.
pub fn get(app: impl Application, target: &str) -> TestResponse {
    call(app, request(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")))
}

/// Calls an application with a request, and reads the response to its end.
///
/// # Panics
/// If the application's body fails.
pub fn call(app: impl Application, request: Request) -> TestResponse {
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
        TestResponse { status, headers: headers.into_vec(), body }
    })
}

/// A server for tests, on a free port of 127.0.0.1 and with one worker. When it is stopped or
/// dropped, a panic of the application becomes a panic of the test.
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use weft::{Request, Response, testing::TestServer};
///
/// let server = TestServer::start(async |_: Request| Response::text("Hello\n"));
/// let mut client = TcpStream::connect(server.address()).unwrap();
/// client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
/// let mut response = String::new();
/// client.read_to_string(&mut response).unwrap();
/// assert!(response.ends_with("\r\n\r\nHello\n"));
/// server.stop();
/// ```
#[derive(Debug)]
pub struct TestServer {
    handle: Option<ServerHandle>,
    address: SocketAddr,
    panics: Panics,
}

/// Messages of the application's panics.
#[derive(Clone, Debug, Default)]
struct Panics(Arc<Mutex<Vec<String>>>);

impl Hooks for Panics {
    fn on_error(&self, _: &Peer, error: &Error) {
        if error.kind() == ErrorKind::Panicked {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }
    }
}

impl TestServer {
    /// Starts a server for this application, with the default settings.
    ///
    /// The application is boxed, because the compiler translates the whole server again for each
    /// type of application, which would take most of the time of a build of many tests.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(app: impl Application + Clone + Send + 'static) -> TestServer {
        TestServer::from_server(Server::new(BoxApplication::new(app)))
    }

    /// Starts a configured server, which must have no address and no hooks yet.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn from_server<A: Application + 'static>(server: Server<A>) -> TestServer {
        let panics = Panics::default();
        let hooks = panics.clone();
        let server = server.workers(1).hooks(move || hooks.clone());
        let handle = server.listen("127.0.0.1:0").and_then(Server::start).expect("a server");
        let LocalAddress::Tcp(address) = handle.addresses()[0] else {
            unreachable!("the address is TCP")
        };
        TestServer { handle: Some(handle), address, panics }
    }

    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of a path on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stops the server when all requests are answered, at the latest after ten seconds.
    ///
    /// # Panics
    /// If the application has panicked.
    pub fn stop(mut self) {
        self.shutdown(Duration::from_secs(10));
    }

    fn shutdown(&mut self, grace: Duration) {
        let Some(handle) = self.handle.take() else { return };
        handle.shutdown(grace);
        let panics = self.panics.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Do not panic during a panic: that would abort the process.
        if let Some(first) = panics.first().filter(|_| !std::thread::panicking()) {
            panic!("{first}");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

/// A response with its complete body.
#[derive(Debug)]
pub struct TestResponse {
    /// Status code.
    pub status: StatusCode,
    /// Fields set by the application.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body.
    pub body: Bytes,
}

impl TestResponse {
    /// Returns the value of the first field with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| value.to_str().ok())
    }

    /// Asserts that the body is `text`.
    ///
    /// # Panics
    /// If the body differs.
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
    fn panic_of_the_application_becomes_a_panic_of_the_test() {
        async fn odd(request: Request) -> Response {
            assert!(request.path() != "/odd", "the path is odd");
            Response::text("ok")
        }
        for (path, expected) in [("/", None), ("/odd", Some("the path is odd"))] {
            let server = TestServer::start(odd);
            let mut client = std::net::TcpStream::connect(server.address()).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
            let ended = std::thread::spawn(|| server.stop()).join();
            let message = ended.err().map(|panic| panic.downcast::<String>().unwrap());
            assert_eq!(message.is_some(), expected.is_some());
            assert!(message.is_none_or(|message| message.contains(expected.unwrap())));
        }
    }
}
