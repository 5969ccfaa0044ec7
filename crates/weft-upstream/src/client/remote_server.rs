//! Servers and resources that the program requests itself, such as keys and certificates.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Response;
use weft::{Method, StatusCode};

use super::own_request::{OwnRequest, ResponseLimits};
use crate::connect::upstream::Upstream;
use crate::health::upstream_health::{FailurePolicy, UpstreamHealth};
use crate::tls;
use crate::url::http_version::HttpVersion;
use crate::url::upstream_url::UpstreamUrl;

/// A server that the program sends requests to, each with a connection of its own.
pub struct RemoteServer(Upstream);

impl RemoteServer {
    /// Creates the client of a server. For an `https` URL, it trusts the authorities in the file
    /// `ca`, or the authorities of the system.
    ///
    /// # Errors
    /// If the authorities cannot be read, or the host is not a valid name for a certificate.
    pub fn new(url: UpstreamUrl, ca: Option<&Path>) -> Result<RemoteServer, String> {
        if url.is_h2c() {
            return Err(format!("{url}: expected http:// or https://"));
        }
        let tls = || tls::client_config(ca, None, &[], HttpVersion::Http1);
        let tls = url.is_tls().then(tls).transpose()?;
        // Requests of the program are sent whatever the health of the server is.
        let policy = FailurePolicy {
            max_failures: 1,
            max_failure_rate: None,
            window: Duration::from_secs(1),
            down_time: Duration::ZERO,
            slow_start: Duration::ZERO,
        };
        Upstream::new(url, UpstreamHealth::new(policy, Instant::now()), &tls).map(RemoteServer)
    }

    /// Sends a request and returns the response within `time`. The target is appended to the path
    /// of the server's URL. The body of the response has at most `max_bytes`.
    ///
    /// # Errors
    /// The reason why there is no complete response.
    pub async fn send(
        &self,
        request: &OwnRequest<'_>,
        max_bytes: usize,
        time: Duration,
    ) -> Result<Response<Vec<u8>>, String> {
        let target = format!("{}{}", self.0.url.path, request.target);
        let request = OwnRequest { target: &target, ..*request };
        let limits = ResponseLimits { max_bytes, time, is_lenient: false };
        request.send(&self.0, &limits, |_, _| false).await
    }
}

/// A resource of a [`RemoteServer`].
pub struct RemoteResource {
    server: RemoteServer,
    /// Path and query.
    target: String,
}

impl RemoteResource {
    /// Creates the client of a resource. For an `https` URL, it trusts the authorities of the
    /// system.
    ///
    /// # Errors
    /// If the URL is `https`, and the system has no certificate authorities.
    pub fn new(url: UpstreamUrl, target: String) -> Result<RemoteResource, String> {
        RemoteServer::new(url, None).map(|server| RemoteResource { server, target })
    }

    /// Fetches the resource, of at most `max_bytes`, within `time`.
    ///
    /// # Errors
    /// The reason why the resource is not available.
    pub async fn fetch(&self, max_bytes: usize, time: Duration) -> Result<Vec<u8>, String> {
        let fields = [("accept", &b"application/json"[..])];
        let (method, target) = (&Method::GET, &*self.target);
        let request = OwnRequest { method, target, host: None, fields: &fields, body: b"" };
        let fetched = self.server.send(&request, max_bytes, time).await;
        let fetched = fetched.and_then(|response| match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(format!("the status is {status}")),
        });
        fetched.map_err(|reason| format!("cannot fetch {self}: {reason}"))
    }
}

impl std::fmt::Display for RemoteResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.server.0.url, self.target)
    }
}
