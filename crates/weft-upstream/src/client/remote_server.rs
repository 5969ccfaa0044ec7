//! Requests of the server's own, such as those for keys and certificates.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use weft::{Method, StatusCode};
use weft_proto::ErrorKind;
use weft_proto::http1::client::ResponseHead;
use weft_proto::http1::whole_response::ResponseReader;

use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::INPUT_BYTES;
use crate::head::field_filter::{push_any_field, push_field};
use crate::health::upstream_health::{FailurePolicy, UpstreamHealth};
use crate::tls;
use crate::url::http_version::HttpVersion;
use crate::url::upstream_url::UpstreamUrl;

/// Maximum size of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// A resource of another server, which is fetched with a connection of its own.
pub struct RemoteResource {
    server: RemoteServer,
    /// Path and query.
    target: String,
}

impl RemoteResource {
    /// # Errors
    /// If the URL is `https`, and the system has no certificate authorities.
    pub fn new(url: UpstreamUrl, target: String) -> Result<RemoteResource, String> {
        RemoteServer::new(url, None).map(|server| RemoteResource { server, target })
    }

    /// Fetches the resource, of at most `max_bytes`, within `time`.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub async fn fetch(&self, max_bytes: usize, time: Duration) -> Result<Vec<u8>, String> {
        let fields = [("accept", &b"application/json"[..])];
        let request =
            OwnRequest { method: &Method::GET, target: &self.target, fields: &fields, body: b"" };
        let fetched = self.server.send(&request, max_bytes, time).await;
        let fetched = fetched.and_then(|response| match response.head.status {
            StatusCode::OK => Ok(response.body),
            status => Err(format!("the status is {status}")),
        });
        fetched.map_err(|reason| format!("cannot fetch {self}: {reason}"))
    }
}

/// Another server that the server sends requests to, with a connection for each of them.
pub struct RemoteServer(Upstream);

impl RemoteServer {
    /// Trusts the authorities in the file `ca` for an `https` URL, or those of the system.
    ///
    /// # Errors
    /// If the authorities cannot be read, or the host is not a valid name for a certificate.
    pub fn new(url: UpstreamUrl, ca: Option<&Path>) -> Result<RemoteServer, String> {
        let tls = if url.is_tls() {
            Some(tls::client_config(ca, None, &[], HttpVersion::Http1)?)
        } else {
            None
        };
        own_upstream(url, tls).map(RemoteServer)
    }

    /// Sends a request and returns the response, whose body has at most `max_bytes`, within `time`.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub async fn send(
        &self,
        request: &OwnRequest<'_>,
        max_bytes: usize,
        time: Duration,
    ) -> Result<OwnResponse, String> {
        send(&self.0, request, max_bytes, time).await
    }
}

/// A request of the server's own.
pub struct OwnRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Path and query, behind the path of the upstream's URL.
    pub target: &'a str,
    /// Names and values of the fields.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// Content of the request.
    pub body: &'a [u8],
}

/// The response to a request of the server's own.
pub struct OwnResponse {
    /// Head of the response.
    pub head: ResponseHead,
    /// Content of the response.
    pub body: Vec<u8>,
}

/// Creates an upstream whose health is not considered.
fn own_upstream(url: UpstreamUrl, tls: Option<Arc<ClientConfig>>) -> Result<Upstream, String> {
    if url.is_h2c() {
        return Err(format!("{url}: expected http:// or https://"));
    }
    let (window, down_time) = (Duration::from_secs(1), Duration::ZERO);
    let policy = FailurePolicy {
        max_failures: 1,
        max_failure_rate: None,
        window,
        down_time,
        slow_start: Duration::ZERO,
    };
    Upstream::new(url, UpstreamHealth::new(policy, Instant::now()), &tls)
}

async fn send(
    upstream: &Upstream,
    request: &OwnRequest<'_>,
    max_bytes: usize,
    time: Duration,
) -> Result<OwnResponse, String> {
    let sent = timeout(time, try_send(upstream, request, max_bytes, time)).await;
    sent.unwrap_or_else(|_| Err("timed out".to_owned()))
}

async fn try_send(
    upstream: &Upstream,
    request: &OwnRequest<'_>,
    max_bytes: usize,
    time: Duration,
) -> Result<OwnResponse, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut connection = upstream.connect(time).await.map_err(failed)?;
    connection.write_all(&compose(&upstream.url, request)).await.map_err(failed)?;
    connection.flush().await.map_err(failed)?;
    let mut reader = ResponseReader::new(request.method, MAX_HEAD_BYTES, max_bytes);
    let mut is_at_end = false;
    loop {
        let read =
            reader.read(&mut connection.input, is_at_end).map_err(|error| match error.kind() {
                ErrorKind::BodyTooLarge => format!("it is larger than {max_bytes} bytes"),
                _ => error.reason().to_owned(),
            });
        if let Some((head, body)) = read? {
            return Ok(OwnResponse { head, body });
        }
        let filled = poll_fn(|cx| connection.poll_fill(cx, INPUT_BYTES, INPUT_BYTES)).await;
        is_at_end = filled.map_err(failed)? == 0;
    }
}

/// Composes a request, after which the connection closes.
fn compose(url: &UpstreamUrl, request: &OwnRequest<'_>) -> Vec<u8> {
    let OwnRequest { method, target, fields, body } = request;
    let mut out = format!("{method} {}{target} HTTP/1.1\r\n", url.path).into_bytes();
    push_field(&mut out, "host", url.authority.as_bytes());
    push_field(&mut out, "user-agent", b"weft");
    for (name, value) in *fields {
        push_any_field(&mut out, name.as_bytes(), value);
    }
    if !body.is_empty() {
        push_field(&mut out, "content-length", body.len().to_string().as_bytes());
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
    out.extend_from_slice(body);
    out
}

impl std::fmt::Display for RemoteResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.server.0.url, self.target)
    }
}
