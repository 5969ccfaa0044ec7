//! A request of the program itself, with a connection of its own.

use std::fmt::Display;
use std::future::poll_fn;
use std::time::Duration;

use ::h2::client::Builder;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use weft::{Method, StatusCode};
use weft_proto::http1::single_exchange::{
    MAX_HEAD_BYTES, ResponseReader, compose_request, push_within,
};

use crate::connect::upstream::Upstream;
use crate::connect::upstream_connection::{INPUT_BYTES, UpstreamConnection};
use crate::url::http_version::HttpVersion;

/// A request of the program itself.
pub struct OwnRequest<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Path and query.
    pub target: &'a str,
    /// Host with an optional port. Default `None`: the authority of the server's URL.
    pub host: Option<&'a str>,
    /// Names in lower case, and values of the fields.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// Content of the request.
    pub body: &'a [u8],
}

/// Limits of the response to an [`OwnRequest`].
pub(crate) struct ResponseLimits {
    /// Maximum size of the body, in bytes.
    pub(crate) max_bytes: usize,
    /// Longest time until the response is complete.
    pub(crate) time: Duration,
    /// Accepts the errors of old servers.
    pub(crate) is_lenient: bool,
}

/// Trailer section of a response over HTTP/2, which is one of its extensions.
#[derive(Clone)]
pub(crate) struct Trailers(pub(crate) HeaderMap);

impl OwnRequest<'_> {
    /// Sends the request over HTTP/2 if the upstream uses it, or else over HTTP/1.1. Returns the
    /// response when it is complete, or when `is_enough` returns true for its status and the
    /// received part of its body.
    ///
    /// # Errors
    /// The reason why there is no response within the limits.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        limits: &ResponseLimits,
        is_enough: impl FnMut(StatusCode, &[u8]) -> bool,
    ) -> Result<Response<Vec<u8>>, String> {
        let exchange = async {
            let connection = upstream.connect(limits.time).await.map_err(reason)?;
            let is_http2 = upstream.http_version == HttpVersion::Http2;
            match is_http2 || connection.has_negotiated_http2 {
                true => self.exchange_http2(upstream, connection, limits, is_enough).await,
                false => self.exchange_http1(upstream, connection, limits, is_enough).await,
            }
        };
        timeout(limits.time, exchange).await.unwrap_or_else(|_| Err("timed out".to_owned()))
    }

    async fn exchange_http1(
        &self,
        upstream: &Upstream,
        mut connection: UpstreamConnection,
        limits: &ResponseLimits,
        mut is_enough: impl FnMut(StatusCode, &[u8]) -> bool,
    ) -> Result<Response<Vec<u8>>, String> {
        let (line, host) = ((self.method, self.target), self.host(upstream));
        let request = compose_request(line, host, self.all_fields(), self.body);
        connection.write_all(&request).await.map_err(reason)?;
        connection.flush().await.map_err(reason)?;
        let reader = ResponseReader::new(self.method, limits.max_bytes);
        let mut reader = reader.lenient(limits.is_lenient);
        let mut is_at_end = false;
        loop {
            let read = reader.read(&mut connection.input, is_at_end);
            // A body that exceeds its limit may be enough.
            if reader.status().is_some_and(|status| is_enough(status, reader.body())) || read? {
                return reader.into_response();
            }
            let filled = poll_fn(|cx| connection.poll_fill(cx, INPUT_BYTES, INPUT_BYTES)).await;
            is_at_end = filled.map_err(reason)? == 0;
        }
    }

    async fn exchange_http2(
        &self,
        upstream: &Upstream,
        connection: UpstreamConnection,
        limits: &ResponseLimits,
        mut is_enough: impl FnMut(StatusCode, &[u8]) -> bool,
    ) -> Result<Response<Vec<u8>>, String> {
        let (stream, _) = connection.into_stream();
        let head_bytes = u32::try_from(MAX_HEAD_BYTES).map_err(reason)?;
        let handshake = Builder::new().max_header_list_size(head_bytes).handshake(stream);
        let (mut sender, frames) = handshake.await.map_err(reason)?;
        let head = self.http2_head(upstream).map_err(reason)?;
        let exchange = async {
            let sent = sender.send_request(head, self.body.is_empty());
            let (response, mut upload) = sent.map_err(reason)?;
            if !self.body.is_empty() {
                let body = Bytes::copy_from_slice(self.body);
                upload.send_data(body, true).map_err(reason)?;
            }
            let (mut head, mut content) = response.await.map_err(reason)?.into_parts();
            let (mut body, mut pushed) = (Vec::new(), Ok(()));
            while !is_enough(head.status, &body) {
                pushed?;
                let Some(piece) = content.data().await else {
                    let trailers = content.trailers().await.map_err(reason)?;
                    trailers.map(|trailers| head.extensions.insert(Trailers(trailers)));
                    break;
                };
                let piece = piece.map_err(reason)?;
                // An error means that the stream has ended.
                let _ = content.flow_control().release_capacity(piece.len());
                pushed = push_within(&mut body, &piece, limits.max_bytes);
            }
            Ok(Response::from_parts(head, body))
        };
        tokio::select! {
            response = exchange => response,
            _ = frames => Err("the connection closed".to_owned()),
        }
    }

    fn http2_head(&self, upstream: &Upstream) -> http::Result<Request<()>> {
        let scheme = if upstream.url.is_tls() { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}", self.host(upstream), self.target);
        let mut head = Request::builder().method(self.method).uri(uri);
        for (name, value) in self.all_fields() {
            head = head.header(name, value);
        }
        head.body(())
    }

    fn host<'a>(&'a self, upstream: &'a Upstream) -> &'a str {
        self.host.unwrap_or(&upstream.url.authority)
    }

    fn all_fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        [("user-agent", &b"weft"[..])].into_iter().chain(self.fields.iter().copied())
    }
}

fn reason(error: impl Display) -> String {
    error.to_string()
}
