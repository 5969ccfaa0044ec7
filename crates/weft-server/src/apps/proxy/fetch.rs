//! Requests of the server's own for small resources, such as keys.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use weft::{Method, StatusCode};
use weft_proto::http1::client::{BodyPiece, BodyReader, HeadReader};

use super::connection::INPUT_BYTES;
use super::fields::push_field;
use super::health::{FailurePolicy, Health};
use super::tls;
use super::upstream::Upstream;
use super::url::UpstreamUrl;

/// Maximum size of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// A resource of another server, which is fetched with a connection of its own.
pub(crate) struct RemoteResource {
    upstream: Upstream,
    /// Path and query.
    target: String,
}

impl RemoteResource {
    /// # Errors
    /// If the URL is `https`, and the system has no certificate authorities.
    pub(crate) fn new(url: UpstreamUrl, target: String) -> Result<RemoteResource, String> {
        let tls = if url.is_tls() { Some(tls::config(None)?) } else { None };
        // The health of the server is not considered.
        let policy = FailurePolicy {
            max_failures: 1,
            window: Duration::from_secs(1),
            down_time: Duration::ZERO,
        };
        let upstream = Upstream::new(url, Health::new(policy, Instant::now()), &tls)?;
        Ok(RemoteResource { upstream, target })
    }

    /// Fetches the resource, of at most `max_bytes`, within `time`.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub(crate) async fn fetch(&self, max_bytes: usize, time: Duration) -> Result<Vec<u8>, String> {
        let fetched = timeout(time, self.try_fetch(max_bytes, time)).await;
        let fetched = fetched.unwrap_or_else(|_| Err("timed out".to_owned()));
        fetched.map_err(|reason| format!("cannot fetch {self}: {reason}"))
    }

    async fn try_fetch(&self, max_bytes: usize, time: Duration) -> Result<Vec<u8>, String> {
        let url = &self.upstream.url;
        let mut head = format!("GET {}{} HTTP/1.1\r\n", url.path, self.target).into_bytes();
        push_field(&mut head, b"host", url.authority.as_bytes());
        push_field(&mut head, b"user-agent", b"weft");
        head.extend_from_slice(b"accept: application/json\r\nconnection: close\r\n\r\n");
        let failed = |error: std::io::Error| error.to_string();
        let mut connection = self.upstream.connect(time).await.map_err(failed)?;
        connection.write_all(&head).await.map_err(failed)?;
        connection.flush().await.map_err(failed)?;
        let mut head_reader = HeadReader::new(MAX_HEAD_BYTES);
        let mut body = None;
        let mut received = Vec::new();
        loop {
            let is_at_end = match &mut body {
                None => {
                    let head = head_reader.read(&mut connection.input, &Method::GET);
                    match head.map_err(|error| error.reason().to_owned())? {
                        Some(head) if head.status.is_informational() => continue,
                        Some(head) if head.status != StatusCode::OK => {
                            return Err(format!("the status is {}", head.status));
                        }
                        Some(head) => {
                            body = Some(BodyReader::new(head.length));
                            continue;
                        }
                        None => false,
                    }
                }
                Some(reader) => match reader.read(&mut connection.input) {
                    Ok(BodyPiece::Data(data)) if received.len() + data.len() > max_bytes => {
                        return Err(format!("it is larger than {max_bytes} bytes"));
                    }
                    Ok(BodyPiece::Data(data)) => {
                        received.extend_from_slice(&data);
                        continue;
                    }
                    Ok(BodyPiece::Trailers(_)) => continue,
                    Ok(BodyPiece::End) => return Ok(received),
                    Ok(BodyPiece::Wait) => reader.may_end_at_eof(),
                    Err(error) => return Err(error.reason().to_owned()),
                },
            };
            let filled = poll_fn(|cx| connection.poll_fill(cx, INPUT_BYTES, INPUT_BYTES)).await;
            match filled.map_err(failed)? {
                0 if is_at_end => return Ok(received),
                0 => return Err("the connection closed".to_owned()),
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for RemoteResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.upstream.url, self.target)
    }
}
