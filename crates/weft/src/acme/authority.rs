//! Requests to the authority, by the client of the proxy.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde::Deserialize;
use weft_proto::semantics::date::parse_http_date;

use crate::apps::proxy::{OwnRequest, RemoteServer};

/// Maximum size of a response: certificate chains have some 10 KiB.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which the TLS configuration of a server is kept: the system's authorities may change.
const SERVER_TIME: Duration = Duration::from_secs(3_600);

/// Maximum number of servers that are kept. An authority has one or two.
const MAX_SERVERS: usize = 16;

/// Servers of authorities, which all clients share, because it takes long to read the certificate
/// authorities of the system.
#[derive(Default)]
pub(super) struct AuthorityServers {
    ca: Option<PathBuf>,
    known: Mutex<HashMap<String, KnownServer>>,
}

struct KnownServer {
    server: Arc<RemoteServer>,
    since: Instant,
}

impl AuthorityServers {
    pub(super) fn new(ca: Option<PathBuf>) -> AuthorityServers {
        AuthorityServers { ca, known: Mutex::default() }
    }

    /// Returns the server for a URL without a path.
    fn get(&self, url: &str, now: Instant) -> Result<Arc<RemoteServer>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, it| now.saturating_duration_since(it.since) < SERVER_TIME);
        if let Some(known) = known.get(url) {
            return Ok(known.server.clone());
        }
        if known.len() >= MAX_SERVERS {
            known.clear();
        }
        let server = Arc::new(RemoteServer::new(url.parse()?, self.ca.as_deref())?);
        known.insert(url.to_owned(), KnownServer { server: server.clone(), since: now });
        Ok(server)
    }
}

/// HTTP client of the ACME protocol.
#[derive(Clone)]
pub(super) struct AuthorityClient {
    servers: Arc<AuthorityServers>,
    timeout: Duration,
    retry_after: Arc<Mutex<Option<Duration>>>,
    issuer: Arc<Mutex<Option<String>>>,
}

impl AuthorityClient {
    /// Creates a client whose requests end within `timeout`, and within 30 s.
    pub(super) fn new(servers: Arc<AuthorityServers>, timeout: Duration) -> AuthorityClient {
        let timeout = timeout.min(TIMEOUT);
        AuthorityClient { servers, timeout, retry_after: Arc::default(), issuer: Arc::default() }
    }

    /// Returns the delay that the authority required with its last error, if it did.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_retry_after(&self, delay: Option<Duration>) {
        *self.retry_after.lock().unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// Returns the domain name of the authority, if an authorization had it.
    pub(super) fn issuer(&self) -> Option<String> {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (head, body) = request.into_parts();
        let server = head.uri.scheme().zip(head.uri.authority());
        let (scheme, authority) =
            server.ok_or_else(|| Error::Other(format!("{}: no absolute URL", head.uri).into()))?;
        let url = format!("{scheme}://{authority}");
        // Without the path, which may differ for each order: lines with the same reason are summed up.
        let failed = |reason: String| Error::Other(format!("{url}: {reason}").into());
        let server = self.servers.get(&url, Instant::now()).map_err(failed)?;
        let body = whole(body).await;
        let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let fields: Vec<_> = fields.filter(|(name, _)| *name != "user-agent").collect();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let request = OwnRequest { method: &head.method, target, fields: &fields, body: &body };
        let received =
            server.send(&request, MAX_RESPONSE_BYTES, self.timeout).await.map_err(failed)?;
        let mut response = Response::builder().status(received.head.status);
        for (name, value) in received.head.headers.iter() {
            response = response.header(name, value);
        }
        if let Some(issuer) = issuer(&received.body) {
            *self.issuer.lock().unwrap_or_else(PoisonError::into_inner) = Some(issuer);
        }
        let status = received.head.status;
        let refusal = refusal(&head.method, status, &received.body);
        let response = response.body(BodyWrapper::from(received.body))?;
        if status.is_client_error() || status.is_server_error() {
            let delay = response.headers().get(RETRY_AFTER);
            self.set_retry_after(delay.and_then(|value| delay_of(value.as_bytes())));
        }
        match refusal {
            Some(reason) => Err(failed(reason)),
            None => Ok(response.into()),
        }
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

/// Returns the reason for responses that the library does not expect: it reads a directory of any
/// status, and errors in JSON only.
fn refusal(method: &Method, status: StatusCode, body: &[u8]) -> Option<String> {
    if status.is_redirection() {
        return Some(format!("the status is {status}; redirects are not followed"));
    }
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let problem = serde_json::from_slice::<instant_acme::Problem>(body).ok();
    match (method, problem) {
        (&Method::POST, Some(_)) => None,
        (_, Some(problem)) => Some(format!("the status is {status}: {problem}")),
        (_, None) => Some(format!("the status is {status}")),
    }
}

/// Parses `Retry-After` (RFC 9110 §10.2.3).
fn delay_of(value: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let then = parse_http_date(text.as_bytes(), now)?;
    Some(Duration::from_secs(then.saturating_sub(now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_shared_for_an_hour_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let certified = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(&ca, certified.cert.pem()).unwrap();
        let servers = AuthorityServers::new(Some(ca.clone()));
        let (url, now) = ("https://a.example", Instant::now());
        let first = servers.get(url, now).unwrap();
        std::fs::remove_file(&ca).unwrap();
        assert!(Arc::ptr_eq(&first, &servers.get(url, now + SERVER_TIME / 2).unwrap()));
        assert!(servers.get(url, now + SERVER_TIME).is_err(), "the file is read again");
        std::fs::write(&ca, certified.cert.pem()).unwrap();
        for number in 0..3 * MAX_SERVERS {
            servers.get(&format!("https://n{number}.example"), now).unwrap();
        }
        assert!(servers.known.lock().unwrap().len() <= MAX_SERVERS);
    }

    #[test]
    fn unexpected_responses_have_a_reason() {
        let problem = br#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}"#;
        for (method, status, body, expected) in [
            (Method::GET, 200, &b""[..], None),
            (Method::POST, 400, problem, None),
            (
                Method::GET,
                429,
                problem,
                Some(
                    "the status is 429 Too Many Requests: API error: too many \
                     (urn:ietf:params:acme:error:rateLimited)",
                ),
            ),
            (Method::HEAD, 503, b"", Some("the status is 503 Service Unavailable")),
            (Method::POST, 502, b"<html>", Some("the status is 502 Bad Gateway")),
            (
                Method::GET,
                301,
                b"",
                Some("the status is 301 Moved Permanently; redirects are not followed"),
            ),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let found = refusal(&method, status, body);
            assert_eq!(found.as_deref(), expected, "{method} {status}");
        }
    }
}
