//! Requests to the authority.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Body;
use instant_acme::{BodyWrapper, BytesResponse, Error};
use serde::Deserialize;
use weft_proto::semantics::date::parse_http_date;

use crate::client::http_client::HttpClient;

/// Maximum size of a response: certificate chains have some 10 KiB.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// Time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP client of the ACME protocol.
#[derive(Clone)]
pub(crate) struct AuthorityClient {
    client: Arc<dyn HttpClient>,
    timeout: Duration,
    reported: Arc<Mutex<ReportedValues>>,
}

/// Values in the responses of an authority that the library does not return.
#[derive(Default)]
pub(crate) struct ReportedValues {
    /// Delay that the authority required with its last error.
    pub(crate) retry_after: Option<Duration>,
    /// Domain name of the authority in its challenges `dns-persist-01`.
    pub(crate) issuer: Option<String>,
}

impl AuthorityClient {
    /// Creates a client. Its requests end within `timeout`, and within 30 s.
    pub(crate) fn new(client: Arc<dyn HttpClient>, timeout: Duration) -> AuthorityClient {
        let timeout = timeout.min(TIMEOUT);
        AuthorityClient { client, timeout, reported: Arc::default() }
    }

    pub(crate) fn reported(&self) -> MutexGuard<'_, ReportedValues> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (mut head, body) = request.into_parts();
        let server = head.uri.scheme().zip(head.uri.authority());
        let (scheme, authority) =
            server.ok_or_else(|| Error::Other(format!("{}: no absolute URL", head.uri).into()))?;
        // The path is omitted. It may differ for each order, and lines with the same reason are
        // summed up.
        let url = format!("{scheme}://{authority}");
        let failed = |reason: String| Error::Other(format!("{url}: {reason}").into());
        head.headers.insert(USER_AGENT, HeaderValue::from_static("weft"));
        let method = head.method.clone();
        let request = Request::from_parts(head, whole(body).await);
        let response = self.client.send(request, MAX_RESPONSE_BYTES, self.timeout).await;
        let response = response.map_err(failed)?;
        let status = response.status();
        if let Some(issuer) = issuer(response.body()) {
            self.reported().issuer = Some(issuer);
        }
        if status.is_client_error() || status.is_server_error() {
            let delay = response.headers().get(RETRY_AFTER);
            self.reported().retry_after = delay.and_then(|value| delay_of(value.as_bytes()));
        }
        match refusal(&method, status, response.body()) {
            Some(reason) => Err(failed(reason)),
            None => Ok(response.map(BodyWrapper::from).into()),
        }
    }
}

impl instant_acme::HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

/// Returns the content of a body, which is in memory.
async fn whole(mut body: BodyWrapper<Bytes>) -> Bytes {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()).unwrap_or_default()
}

/// Returns the first domain name of the authority in the challenges `dns-persist-01` of an
/// authorization. The library does not parse these names.
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

/// Returns the reason why a response is an error that the library would not report: it ignores the
/// status of a directory, and expects that errors are in JSON.
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
