//! Requests of tests, and the ways to send them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use crate::app::Application;
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::peer::Peer;
use crate::server::blocking::is_polled_by_tokio;
use crate::settings::Settings;
use crate::testing::connection::{Sent, TestConnection};
use crate::testing::response::{StreamedResponse, TestResponse};

/// Maximum time for a complete response.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// A request of a test. The engine serves it over a connection in memory, so that the response is
/// complete: with ranges, without a body for `HEAD`, and with an error in place of a response whose
/// length is wrong.
///
/// ```
/// use weft::testing::TestRequest;
/// use weft::{Request, Response};
///
/// async fn greet(request: Request) -> weft::Result<Response> {
///     let peer = request.peer().address();
///     let name = request.into_body().collect(100).await?;
///     let name = String::from_utf8_lossy(&name).into_owned();
///     Ok(Response::text(format!("Hello {name} from {}\n", peer.unwrap().ip())))
/// }
///
/// let request = TestRequest::post("/greet").body("Ada").peer(([192, 0, 2, 1], 80));
/// request.call(greet).assert_text("Hello Ada from 192.0.2.1\n");
/// ```
///
/// In an async test, `.send(greet).await` is the same as `.call(greet)`, and
/// [`open`](TestRequest::open) returns a response that is read piece by piece.
#[derive(Debug)]
pub struct TestRequest {
    method: Method,
    target: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    peer: Peer,
    settings: Settings,
    deadline: Duration,
    prepared: Option<Request>,
}

impl TestRequest {
    /// Creates a request. In the target, blanks and other bytes that a target cannot contain are
    /// percent-encoded.
    ///
    /// # Panics
    /// If the target has a fragment, which clients do not send.
    pub fn new(method: Method, target: &str) -> TestRequest {
        assert!(!target.contains('#'), "a request target has no fragment: {target:?}");
        TestRequest {
            method,
            target: encode_target(target),
            fields: Vec::new(),
            body: Bytes::new(),
            peer: Peer::default(),
            settings: Settings::default(),
            deadline: DEFAULT_DEADLINE,
            prepared: None,
        }
    }

    /// Creates a `GET` request.
    pub fn get(target: &str) -> TestRequest {
        TestRequest::new(Method::GET, target)
    }

    /// Creates a `HEAD` request.
    pub fn head(target: &str) -> TestRequest {
        TestRequest::new(Method::HEAD, target)
    }

    /// Creates a `POST` request.
    pub fn post(target: &str) -> TestRequest {
        TestRequest::new(Method::POST, target)
    }

    /// Creates a `PUT` request.
    pub fn put(target: &str) -> TestRequest {
        TestRequest::new(Method::PUT, target)
    }

    /// Creates a `DELETE` request.
    pub fn delete(target: &str) -> TestRequest {
        TestRequest::new(Method::DELETE, target)
    }

    /// Adds a field. Without a field `Host`, the host is `test`.
    ///
    /// # Panics
    /// If the name or the value is not valid.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> TestRequest {
        let name = name.as_ref();
        let field = HeaderName::from_bytes(name.as_bytes()).ok();
        let field = field.zip(HeaderValue::from_bytes(value.as_ref()).ok());
        self.fields.push(field.unwrap_or_else(|| panic!("the field {name:?} is not valid")));
        self
    }

    /// Sets the body to a value as JSON, with its `Content-Type`.
    ///
    /// ```
    /// use weft::testing::TestRequest;
    /// use weft::{Request, Response};
    ///
    /// async fn sum(request: Request) -> weft::Result<Response> {
    ///     let numbers: Vec<i32> = request.json().await?;
    ///     Ok(Response::json(numbers.iter().sum::<i32>()))
    /// }
    ///
    /// let response = TestRequest::post("/").json([1, 2]).call(sum);
    /// assert_eq!(response.json::<i32>(), 3);
    /// ```
    ///
    /// # Panics
    /// If the value cannot be written as JSON.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json<T: serde::Serialize>(self, value: T) -> TestRequest {
        let text = serde_json::to_vec(&value).expect("the value can be written as JSON");
        self.header("content-type", "application/json").body(text)
    }

    /// Returns the request, for a test that calls a handler itself.
    ///
    /// ```
    /// use weft::Request;
    /// use weft::testing::TestRequest;
    ///
    /// async fn greet(request: Request) -> String { format!("Hello {}", request.path()) }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let request = TestRequest::get("/Ada").into_request();
    /// assert_eq!(greet(request).await, "Hello /Ada");
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the head is not valid.
    pub fn into_request(self) -> Request {
        let Sent { bytes, peer, prepared, .. } = self.into_sent();
        prepared.unwrap_or_else(|| {
            let mut request = crate::testing::request(bytes);
            if let Some(address) = peer.address() {
                request.set_peer(address);
            }
            request
        })
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Bytes>) -> TestRequest {
        TestRequest { body: body.into(), ..self }
    }

    /// Sets the address of the client.
    pub fn peer(self, address: impl Into<SocketAddr>) -> TestRequest {
        let peer = Peer { address: Some(address.into()), ..self.peer };
        TestRequest { peer, ..self }
    }

    /// Sets the limits and timeouts of the server.
    pub fn settings(self, settings: Settings) -> TestRequest {
        TestRequest { settings, ..self }
    }

    /// Sets the maximum time for a complete response.
    ///
    /// Default 30 s.
    pub fn deadline(self, deadline: Duration) -> TestRequest {
        TestRequest { deadline, ..self }
    }

    /// Sends the request to an application, and reads the response to its end. It blocks the
    /// thread; in an async test, use [`send`](TestRequest::send).
    ///
    /// # Panics
    /// Like [`send`](TestRequest::send), and in a task or test of a tokio runtime.
    #[track_caller]
    pub fn call(self, app: impl Application) -> TestResponse {
        assert!(
            !is_polled_by_tokio(),
            "this call blocks the thread of a tokio runtime: in an async test, use \
             `TestRequest::get(target).send(app).await`"
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("an event loop").block_on(self.send(app))
    }

    /// Sends the request to an application, and reads the response to its end.
    ///
    /// # Panics
    /// If the application panics, if the response is cut short, because a part of it was sent when
    /// it failed, or if it does not end before the [`deadline`](TestRequest::deadline).
    pub async fn send(self, app: impl Application) -> TestResponse {
        let deadline = self.deadline;
        let response = async { self.open_in_scope(app).await.collect().await };
        match tokio::time::timeout(deadline, response).await {
            Ok(response) => response,
            Err(_) => panic!(
                "the response has not ended after {deadline:?}: read an endless one, such as \
                 events, by `TestRequest::open`"
            ),
        }
    }

    /// Sends the request to an application, and reads the head of the response. The body is read
    /// piece by piece.
    ///
    /// ```
    /// # #[cfg(feature = "sse")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use weft::testing::TestRequest;
    /// use weft::{Request, Response, sse};
    ///
    /// async fn ticks(request: Request) -> Response {
    ///     let (events, response) = sse::channel(&request);
    ///     tokio::task::spawn_local(async move {
    ///         let _ = events.send(sse::Event::data("tick")).await;
    ///         std::future::pending::<()>().await; // A clock that ticks only once.
    ///     });
    ///     response
    /// }
    ///
    /// let mut response = TestRequest::get("/").open(ticks).await;
    /// let piece = response.next(Duration::from_secs(5)).await.unwrap();
    /// assert_eq!(piece.unwrap(), "data: tick\n\n");
    /// assert!(response.next(Duration::from_millis(20)).await.is_err());
    /// # }
    /// # #[cfg(not(feature = "sse"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Panics
    /// If the application panics, or if there is no response before the
    /// [`deadline`](TestRequest::deadline).
    pub async fn open(self, app: impl Application + 'static) -> StreamedResponse<'static> {
        let deadline = self.deadline;
        match tokio::time::timeout(deadline, self.open_in_scope(app)).await {
            Ok(response) => response,
            Err(_) => panic!("there is no response after {deadline:?}"),
        }
    }

    async fn open_in_scope<'a>(self, app: impl Application + 'a) -> StreamedResponse<'a> {
        StreamedResponse::receive(TestConnection::open(app, self.into_sent())).await
    }

    fn into_sent(self) -> Sent {
        let TestRequest { method, target, fields, body, peer, settings, prepared, .. } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        if !fields.iter().any(|(name, _)| name == "host") {
            head.extend_from_slice(b"Host: test\r\n");
        }
        for (name, value) in &fields {
            push_field(&mut head, name.as_str(), value.as_bytes());
        }
        let has_length = |(name, _): &(HeaderName, HeaderValue)| {
            name == "content-length" || name == "transfer-encoding"
        };
        let may_have_body = !matches!(method, Method::GET | Method::HEAD | Method::DELETE);
        if (may_have_body || !body.is_empty()) && !fields.iter().any(has_length) {
            push_field(&mut head, "content-length", body.len().to_string().as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head.extend_from_slice(&body);
        Sent { method, bytes: head, peer, settings, prepared }
    }
}

/// The application gets the request as it is, with the changes and the extensions that it has.
impl From<Request> for TestRequest {
    fn from(request: Request) -> TestRequest {
        let head = request.head();
        let sent = TestRequest::new(head.received_method().clone(), head.target());
        let fields = sent_fields(head);
        let peer = request.connection_peer().clone();
        let settings = Settings {
            max_request_line_bytes: 65_000,
            max_head_bytes: 65_000,
            max_fields: 1_000,
            ..Settings::default()
        };
        TestRequest { fields, peer, settings, prepared: Some(request), ..sent }
    }
}

/// The fields of a request without those about its body, which the engine does not receive.
fn sent_fields(head: &RequestHead) -> Vec<(HeaderName, HeaderValue)> {
    let is_about_body = |name: &HeaderName| {
        ["content-length", "transfer-encoding", "expect"].contains(&name.as_str())
    };
    let field = |(name, value): (&[u8], &[u8])| {
        let name = HeaderName::from_bytes(name).expect("a name of a valid head");
        (name, HeaderValue::from_bytes(value).expect("a value of a valid head"))
    };
    head.headers().iter_bytes().map(field).filter(|(name, _)| !is_about_body(name)).collect()
}

fn push_field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Percent-encodes the blanks and the control characters of a target.
fn encode_target(target: &str) -> String {
    let mut encoded = String::with_capacity(target.len());
    for character in target.chars() {
        match character {
            ' ' | '\x7f' | '\0'..='\x1f' => {
                write!(encoded, "%{:02X}", u32::from(character)).expect("a string has space");
            }
            _ => encoded.push(character),
        }
    }
    encoded
}
