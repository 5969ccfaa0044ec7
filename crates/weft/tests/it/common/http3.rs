//! Clients of HTTP/3: one on the crate h3, and QUIC streams on which a test writes its own bytes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::{Either, select};
use h3::error::Code;
use http::{HeaderMap, HeaderValue, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use weft_proto::http3::qpack::Decoder;

use crate::common::clients::{
    CREDENTIALS, ClientResponse, Interim, RequestBody, ResponseBody as AnyBody, ResponseResult,
    UpgradedIo, interim_from, within,
};

// -- connections

/// Connects to a server, on an endpoint of its own.
pub async fn quic_connect(address: SocketAddr) -> io::Result<(Endpoint, Connection)> {
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    let connecting = endpoint.connect_with(quic_config(&[b"h3"]), address, "a");
    let connecting = connecting.map_err(io::Error::other)?;
    let connection = within("the QUIC handshake completes", 1, connecting).await?;
    Ok((endpoint, connection))
}

/// Connects to a server whose time-outs are short, as often as the machine is too slow for them.
pub async fn quic_connect_patiently(address: SocketAddr) -> (Endpoint, Connection) {
    loop {
        if let Ok(connected) = quic_connect(address).await {
            return connected;
        }
    }
}

/// Configuration of a client with these names of protocols.
pub fn quic_config(protocols: &[&[u8]]) -> ClientConfig {
    let mut tls = CREDENTIALS.client.clone();
    // Sessions of other tests are not resumed.
    tls.resumption = rustls::client::Resumption::in_memory_sessions(8);
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    config.transport_config(Arc::new(TransportConfig::default()));
    config
}

/// A client on the crate h3.
#[derive(Clone)]
pub struct Sender {
    requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    connection: Connection,
}

/// Connects to a server. The task ends when the connection is closed.
pub async fn connect(address: SocketAddr) -> io::Result<(Sender, JoinHandle<hyper::Result<()>>)> {
    let (_, connection) = quic_connect(address).await?;
    let client = h3::client::new(h3_quinn::Connection::new(connection.clone())).await;
    let (mut driver, requests) = client.map_err(io::Error::other)?;
    let task = tokio::spawn(async move {
        driver.wait_idle().await;
        Ok(())
    });
    Ok((Sender { requests, connection }, task))
}

impl Sender {
    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    pub fn close(&self) {
        self.connection.close(VarInt::from_u32(0x100), b"");
    }

    /// Sends a request and receives the head of its response.
    pub(super) fn send_request(
        &self,
        request: http::Request<RequestBody>,
    ) -> impl Future<Output = ResponseResult> + Send + use<> {
        let mut sender = self.clone();
        let (mut head, body) = request.into_parts();
        if let Some(length) = body.size_hint().exact() {
            let length = HeaderValue::from(length);
            head.headers.entry(header::CONTENT_LENGTH).or_insert(length);
        }
        // Sent at once, also before the response is awaited.
        let (answer, answered) = oneshot::channel();
        let opening = tokio::spawn(async move {
            let request = http::Request::from_parts(head, ());
            let result = sender.requests.send_request(request).await;
            let result = result.map_err(|error| error.to_string()).map(|stream| {
                let (upload, stream) = stream.split();
                let (cancel, cancelled) = oneshot::channel();
                tokio::spawn(send_body(upload, body, cancelled));
                ResponseBody { stream, ends: None, cancel: Some(cancel), _sender: sender }
            });
            let _ = answer.send(result);
        });
        let opening = AbortOnDrop(opening);
        async move {
            let mut body = answered.await.map_err(|_| "no stream")??;
            let _opening = opening;
            loop {
                let response = body.stream.recv_response().await;
                let response = response.map_err(|error| error.to_string())?;
                if !response.status().is_informational() {
                    return Ok(response.map(|()| AnyBody::Http3(Box::new(body))));
                }
            }
        }
    }

    /// Sends a request, and its body after a 100. Returns all responses.
    pub async fn fetch_with_interim(
        mut self,
        request: http::Request<()>,
        body: &'static str,
    ) -> (Vec<Interim>, ClientResponse) {
        let mut stream = self.requests.send_request(request).await.unwrap();
        if body.is_empty() {
            stream.finish().await.unwrap();
        }
        let mut interims = Vec::new();
        let head = loop {
            let received = within("a response head is received", 1, stream.recv_response()).await;
            let head = received.unwrap();
            if !head.status().is_informational() {
                break head;
            }
            if head.status() == 100 {
                stream.send_data(body.into()).await.unwrap();
                stream.finish().await.unwrap();
            }
            interims.push(interim_from(head.status().as_u16(), head.headers()));
        };
        let mut received = Vec::new();
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            received.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        let (status, version) = (head.status().as_u16(), head.version());
        let (fields, trailers) = (head.headers().clone(), HeaderMap::new());
        (interims, ClientResponse { status, version, fields, body: received, trailers })
    }

    /// Opens a tunnel by CONNECT, or with a target and a protocol by extended CONNECT (RFC 9220).
    /// Returns the status if it is refused.
    pub async fn tunnel(
        &self,
        fields: HeaderMap,
        target: Option<(&str, &str)>,
    ) -> Result<UpgradedIo, u16> {
        let mut lines = vec![(":method", "CONNECT")];
        match target {
            None => lines.push((":authority", "a:1")),
            Some((path, protocol)) => lines.extend([
                (":protocol", protocol),
                (":scheme", "https"),
                (":path", path),
                (":authority", "a"),
            ]),
        }
        lines.extend(fields.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())));
        let (mut send, recv) = self.connection.open_bi().await.unwrap();
        send.write_all(&headers(&lines)).await.unwrap();
        let mut frames = Frames::new(recv);
        let status = within("a response head is received", 1, frames.status()).await;
        if status != Ok(200) {
            return Err(status.expect("a response"));
        }
        let (io, inner) = tokio::io::duplex(64 << 10);
        tokio::spawn(run_tunnel(inner, send, frames, self.clone()));
        Ok(Box::new(io))
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type H3Stream<S> = h3::client::RequestStream<S, Bytes>;

async fn send_body(
    mut stream: H3Stream<h3_quinn::SendStream<Bytes>>,
    mut body: RequestBody,
    cancelled: oneshot::Receiver<()>,
) {
    let upload = async {
        while let Some(frame) = body.frame().await {
            let sent = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => stream.send_data(data).await,
                Ok(Err(frame)) => stream.send_trailers(frame.into_trailers().unwrap()).await,
                Err(_) => return false,
            };
            if sent.is_err() {
                return true;
            }
        }
        let _ = stream.finish().await;
        true
    };
    // An error of the receiver means that the response is complete.
    let cancelled = async {
        if cancelled.await.is_err() {
            std::future::pending().await
        }
    };
    let result = select(Box::pin(upload), Box::pin(cancelled)).await;
    if !matches!(result, Either::Left((true, _))) {
        drop(result);
        stream.stop_stream(Code::H3_REQUEST_CANCELLED);
    }
}

/// The body of a response. Dropping it before its end cancels the request.
pub struct ResponseBody {
    stream: H3Stream<h3_quinn::RecvStream>,
    ends: Option<()>,
    cancel: Option<oneshot::Sender<()>>,
    _sender: Sender,
}

impl ResponseBody {
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, String>> {
        if self.ends.is_some() {
            return None;
        }
        match self.stream.recv_data().await {
            Ok(Some(mut data)) => {
                return Some(Ok(Frame::data(data.copy_to_bytes(data.remaining()))));
            }
            Ok(None) => {}
            Err(error) => return Some(Err(error.to_string())),
        }
        self.ends = Some(());
        let trailers = self.stream.recv_trailers().await.transpose()?;
        Some(trailers.map(Frame::trailers).map_err(|error| error.to_string()))
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Dropping the stream stops it. (`stop_sending` panics after a read that is not complete.)
        if self.ends.is_none() {
            let _ = self.cancel.take().map(|cancel| cancel.send(()));
        }
    }
}

async fn run_tunnel(io: DuplexStream, mut send: SendStream, mut frames: Frames, _sender: Sender) {
    let (mut read, mut write) = tokio::io::split(io);
    let upload = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            match read.read(&mut buffer).await {
                Ok(0) | Err(_) => return drop(send.finish()),
                Ok(length) => match send.write_all(&frame(0, &buffer[..length])).await {
                    Ok(()) => {}
                    Err(_) => return,
                },
            }
        }
    };
    let download = async {
        while let Ok(Some((kind, data))) = frames.next().await {
            if kind == 0 && write.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = write.shutdown().await;
    };
    futures_util::future::join(upload, download).await;
}

// -- bytes

/// Returns the shortest encoding of an integer (RFC 9000 §16).
pub fn varint(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

pub fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [&varint(kind), &varint(payload.len() as u64), payload].concat()
}

/// Returns a HEADERS frame whose fields are all literals (RFC 9204 §4.5.6).
pub fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        integer(&mut section, 0x20, 3, name.len());
        section.extend_from_slice(name.as_bytes());
        integer(&mut section, 0, 7, value.len());
        section.extend_from_slice(value.as_bytes());
    }
    frame(1, &section)
}

/// Appends an integer with a prefix of these bits (RFC 7541 §5.1).
fn integer(out: &mut Vec<u8>, first: u8, bits: u8, value: usize) {
    let max = (1 << bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    out.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The frames of a stream that is received.
pub struct Frames {
    pub stream: RecvStream,
    received: BytesMut,
}

impl Frames {
    pub fn new(stream: RecvStream) -> Frames {
        Frames { stream, received: BytesMut::new() }
    }

    /// Returns the next frame; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<(u64, Bytes)>, quinn::ReadError> {
        loop {
            if let Some(frame) = self.parse() {
                return Ok(Some(frame));
            }
            match self.stream.read_chunk(usize::MAX, true).await? {
                Some(chunk) => self.received.extend_from_slice(&chunk.bytes),
                None => return Ok(None),
            }
        }
    }

    fn parse(&mut self) -> Option<(u64, Bytes)> {
        let mut rest = &self.received[..];
        let (kind, length) = (read_varint(&mut rest)?, read_varint(&mut rest)? as usize);
        if rest.len() < length {
            return None;
        }
        self.received.advance(self.received.len() - rest.len());
        Some((kind, self.received.split_to(length).freeze()))
    }

    /// Receives the head of the response and returns its status.
    pub async fn status(&mut self) -> Result<u16, quinn::ReadError> {
        loop {
            match self.next().await? {
                Some((1, section)) => match status(&section) {
                    100..200 => {}
                    status => return Ok(status),
                },
                Some(_) => {}
                None => return Ok(0),
            }
        }
    }
}

pub fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (64 - 8 * length + 2)))
}

fn status(section: &[u8]) -> u16 {
    let mut status = 0;
    let decoded = Decoder::default().decode(0, section, |field| {
        if field.name == b":status" {
            status = std::str::from_utf8(field.value).unwrap().parse().unwrap();
        }
        true
    });
    assert!(decoded.is_ok(), "{section:?}");
    status
}
