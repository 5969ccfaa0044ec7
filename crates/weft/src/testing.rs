//! Call an application without a socket.
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

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::sync::watch;

use crate::app::Application;
use crate::body::Body;
use crate::h1::framing;
use crate::h1::parse::{self, Limits};
use crate::headers::Headers;
use crate::request::{Head, Peer, Request, Shared};
use crate::response::{Payload, Response};

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
    Request::new(head, Body::from(body), Shared::new(Peer::default(), never))
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
        let Response { status, headers, payload } = app.call(request).await;
        let body = match payload {
            Payload::Body(body) => body.collect(usize::MAX).await.expect("the application's body"),
            Payload::File(file) => file.read().expect("the application's file"),
            Payload::Parts { .. } => unreachable!("only the engine makes parts of a file"),
            Payload::Upgrade(_) => Bytes::new(),
        };
        Reply { status, headers: headers.into_vec(), body }
    })
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
