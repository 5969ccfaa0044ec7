//! Requests to the authority, by the client of the proxy.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Request, Response};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde::Deserialize;
use weft_proto::semantics::date::parse_http_date;

use crate::apps::proxy::{OwnRequest, RemoteServer};

/// Maximum size of a response: certificate chains have some 10 KiB.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP client of the ACME protocol.
#[derive(Clone)]
pub(super) struct AuthorityClient {
    ca: Option<PathBuf>,
    retry_after: Arc<Mutex<Option<Duration>>>,
    issuer: Arc<Mutex<Option<String>>>,
}

impl AuthorityClient {
    pub(super) fn new(ca: Option<PathBuf>) -> AuthorityClient {
        AuthorityClient { ca, retry_after: Arc::default(), issuer: Arc::default() }
    }

    /// Returns the delay that the authority required with its last error, if it did.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        self.retry_after.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the domain name of the authority, if an authorization had it.
    pub(super) fn issuer(&self) -> Option<String> {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, body) = request.into_parts();
        let url = head.uri.to_string();
        let failed = |reason: String| Error::Other(format!("{url}: {reason}").into());
        let server = head.uri.scheme().zip(head.uri.authority());
        let (scheme, authority) =
            server.ok_or_else(|| failed("it is no absolute URL".to_owned()))?;
        let upstream = format!("{scheme}://{authority}").parse().map_err(failed)?;
        let server = RemoteServer::new(upstream, self.ca.as_deref()).map_err(failed)?;
        let body = whole(body).await;
        let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fields: Vec<_> = fields.filter(|(name, _)| *name != "user-agent").collect();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let request = OwnRequest { method: &head.method, target, fields: &fields, body: &body };
        let received = server.send(&request, MAX_RESPONSE_BYTES, TIMEOUT).await.map_err(failed)?;
        let mut response = Response::builder().status(received.head.status);
        for (name, value) in received.head.headers.iter() {
            response = response.header(name, value);
        }
        if let Some(issuer) = issuer(&received.body) {
            *self.issuer.lock().unwrap_or_else(PoisonError::into_inner) = Some(issuer);
        }
        let response = response.body(BodyWrapper::from(received.body))?;
        if response.status().is_client_error() || response.status().is_server_error() {
            let delay =
                response.headers().get(RETRY_AFTER).and_then(|value| delay(value.as_bytes()));
            *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner) = delay;
        }
        Ok(response.into())
    }
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

/// Returns a body that is in memory.
async fn whole(mut body: BodyWrapper<Bytes>) -> Bytes {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()).unwrap_or_default()
}

/// Returns the first domain name of an authority in its challenges (`dns-persist-01`), which the
/// library does not parse.
fn issuer(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Authorization {
        challenges: Vec<Challenge>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Challenge {
        #[serde(default)]
        issuer_domain_names: Vec<String>,
    }
    let authorization: Authorization = serde_json::from_slice(body).ok()?;
    authorization.challenges.into_iter().flat_map(|challenge| challenge.issuer_domain_names).next()
}

/// Parses `Retry-After` (RFC 9110 §10.2.3).
fn delay(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let then = parse_http_date(text.as_bytes(), now)?;
    Some(Duration::from_secs(then.saturating_sub(now)))
}
