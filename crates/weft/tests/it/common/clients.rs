//! Clients for every transport. A case defines the request and the expected response; this module
//! alone contains the differences between transports.

use std::error::Error as _;
use std::future::{Ready, poll_fn, ready};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::Poll;
use std::time::Duration;
use std::{io, thread};

use bytes::Bytes;
use futures_util::future::{Either, FutureExt};
use futures_util::stream::poll_fn as stream_of;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use weft::server::ServerHandle;
use weft::tls::{self, Identity, Tls};
use weft::{Application, Server, Settings};

#[cfg(feature = "http3")]
use crate::common::http3;
use crate::common::{TEST_TIMEOUT, boxed_server};

// -- transports

/// A combination of HTTP version and plain TCP or TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http1,
    Http2,
    Http1Tls,
    Http2Tls,
    #[cfg(feature = "http3")]
    Http3,
}

pub const TRANSPORTS: &[Transport] = &[
    Transport::Http1,
    Transport::Http2,
    Transport::Http1Tls,
    Transport::Http2Tls,
    #[cfg(feature = "http3")]
    Transport::Http3,
];

impl Transport {
    fn is_http2(self) -> bool {
        matches!(self, Transport::Http2 | Transport::Http2Tls)
    }

    /// Returns true if the client sends no fields that exceed the limit of the server (RFC 9114
    /// §4.2.2).
    pub fn obeys_field_limit(self) -> bool {
        #[cfg(feature = "http3")]
        return self == Transport::Http3;
        #[cfg(not(feature = "http3"))]
        false
    }

    /// Returns true if a connection has several streams.
    pub fn is_multiplexed(self) -> bool {
        !matches!(self, Transport::Http1 | Transport::Http1Tls)
    }

    pub fn is_tls(self) -> bool {
        !matches!(self, Transport::Http1 | Transport::Http2)
    }

    pub fn version(self) -> Version {
        match self {
            Transport::Http1 | Transport::Http1Tls => Version::HTTP_11,
            Transport::Http2 | Transport::Http2Tls => Version::HTTP_2,
            #[cfg(feature = "http3")]
            Transport::Http3 => Version::HTTP_3,
        }
    }

    pub fn scheme(self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }

    async fn connect(self, address: SocketAddr) -> io::Result<Box<dyn Duplex>> {
        let socket = TcpStream::connect(address).await?;
        if !self.is_tls() {
            return Ok(Box::new(socket));
        }
        let protocol: &[u8] = if self.is_http2() { b"h2" } else { b"http/1.1" };
        let mut config = CREDENTIALS.client.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("a").unwrap();
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, socket);
        let stream = within("the TLS handshake completes", 1, handshake).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        Ok(Box::new(stream))
    }

    fn listen<A: Application + 'static>(self, server: Server<A>) -> Server<A> {
        let bound = match self.is_tls() {
            true => server.listen_tls(free_address(), &CREDENTIALS.server),
            false => server.listen("127.0.0.1:0"),
        };
        bound.unwrap()
    }
}

/// Returns an address whose port is free for TCP and, for HTTP/3, for UDP: the sockets of other
/// tests have many ports of UDP.
fn free_address() -> SocketAddr {
    loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The certificate of the servers, and a client configuration that trusts it.
pub struct Credentials {
    pub identity: Identity,
    pub server: Tls,
    pub client: ClientConfig,
    pub roots: RootCertStore,
}

pub static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    let certified = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let identity = Identity::pem(certificate, key);
    let identities = vec![identity.clone()];
    let server = Tls::new(tls::TlsSettings { identities, ..Default::default() }).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    Credentials { identity, server, client, roots }
});

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Runs `case` over every transport and panics with the list of transports that failed.
#[track_caller]
pub fn on_every_transport(case: impl AsyncFn(Transport)) {
    let fails = |transport: &Transport| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = || runtime.block_on(within("the case completes", 4, case(*transport)));
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    let failed: Vec<Transport> = TRANSPORTS.iter().copied().filter(fails).collect();
    let current = thread::current();
    let name = current.name().unwrap_or("the case");
    assert!(failed.is_empty(), "{name} failed over {failed:?}");
}

/// Awaits `future`; panics after `timeouts` times `TEST_TIMEOUT`.
pub async fn within<T>(description: &str, timeouts: u32, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(TEST_TIMEOUT * timeouts, future).await;
    result.unwrap_or_else(|_| panic!("timed out: {description}"))
}

/// Polls `condition` every 5 ms until it returns true; panics after `TEST_TIMEOUT`.
pub async fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(description, 1, wait).await;
}

// -- a server

/// A server that listens on one transport.
pub struct TransportServer {
    pub transport: Transport,
    pub address: SocketAddr,
    server: ServerHandle,
}

impl Transport {
    /// Serves an application with one worker.
    pub fn serve<A: Application + Clone + Send + 'static>(self, app: A) -> TransportServer {
        self.start(boxed_server(app).workers(1))
    }

    pub fn serve_with<A>(self, settings: Settings, app: A) -> TransportServer
    where
        A: Application + Clone + Send + 'static,
    {
        self.start(boxed_server(app).settings(settings).workers(1))
    }

    /// Binds a loopback address for this transport and starts the server.
    pub fn start<A: Application + 'static>(self, server: Server<A>) -> TransportServer {
        let server = self.listen(server).start().unwrap();
        let address = server.addresses()[0].address().expect("a TCP address");
        TransportServer { transport: self, address, server }
    }
}

impl TransportServer {
    /// Opens a new connection.
    pub async fn client(&self) -> Client {
        Client::connect(self.transport, self.address).await
    }

    /// Stops the server with a grace period of 100 ms.
    pub async fn stop(self) {
        self.shutdown(Duration::from_millis(100)).await.unwrap();
    }

    /// Starts a graceful shutdown; the handle completes when the server has stopped.
    pub fn shutdown(self, grace: Duration) -> JoinHandle<()> {
        tokio::task::spawn_blocking(move || self.server.shutdown(grace))
    }
}

// -- requests

pub(super) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// A request to send. The host is `a`.
pub struct ClientRequest {
    method: Method,
    target: String,
    fields: HeaderMap,
    body: RequestBody,
}

impl ClientRequest {
    pub fn new(method: &str, target: impl Into<String>) -> ClientRequest {
        let method = method.parse().unwrap();
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        ClientRequest { method, target: target.into(), fields: HeaderMap::new(), body }
    }

    pub fn get(target: impl Into<String>) -> ClientRequest {
        ClientRequest::new("GET", target)
    }

    pub fn post(target: impl Into<String>) -> ClientRequest {
        ClientRequest::new("POST", target)
    }

    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> ClientRequest {
        let name: HeaderName = name.parse().unwrap();
        self.fields.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
        self
    }

    /// Sets a body with a known length.
    pub fn body(self, body: impl Into<Bytes>) -> ClientRequest {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
        ClientRequest { body, ..self }
    }

    /// Sets a streamed body. Its length is unknown unless a `Content-Length` field is added.
    pub fn upload(self) -> (ClientRequest, Upload) {
        let (upload, mut frames) = mpsc::channel(1);
        let body = StreamBody::new(stream_of(move |cx| frames.poll_recv(cx))).boxed_unsync();
        (ClientRequest { body, ..self }, Upload(upload))
    }

    fn into_request(self, transport: Transport) -> http::Request<RequestBody> {
        let mut request = http::Request::new(self.body);
        *request.method_mut() = self.method;
        *request.headers_mut() = self.fields;
        *request.uri_mut() = match transport.is_multiplexed() {
            true => format!("{}://a{}", transport.scheme(), self.target).parse().unwrap(),
            false => {
                request.headers_mut().insert(header::HOST, HeaderValue::from_static("a"));
                self.target.parse().unwrap()
            }
        };
        request
    }
}

/// The sending end of a streamed request body. Dropping it completes the body.
pub struct Upload(mpsc::Sender<io::Result<Frame<Bytes>>>);

impl Upload {
    /// Sends a piece once the previous one was consumed; false if the body was dropped.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        let sent = self.0.send(Ok(Frame::data(piece.into())));
        within("a body piece is consumed", 1, sent).await.is_ok()
    }

    /// Sends the same piece up to `max` times, until one is not consumed within a second; returns
    /// the number of pieces sent.
    pub async fn send_until_blocked(&self, piece: Bytes, max: usize) -> usize {
        for sent in 0..max {
            let send = self.0.send(Ok(Frame::data(piece.clone())));
            if tokio::time::timeout(Duration::from_secs(1), send).await.is_err() {
                return sent;
            }
        }
        max
    }

    pub async fn trailers(&self, name: &'static str, value: &'static str) {
        let field = (HeaderName::from_static(name), HeaderValue::from_static(value));
        let trailers = Frame::trailers([field].into_iter().collect());
        assert!(
            self.0.send(Ok(trailers)).await.is_ok(),
            "the body was dropped before its trailers"
        );
    }

    /// Aborts the body with an error.
    pub async fn fail(self) {
        let _ = self.0.send(Err(io::Error::other("on purpose"))).await;
    }
}

// -- responses

/// A complete response.
#[derive(Debug)]
pub struct ClientResponse {
    pub status: u16,
    pub version: Version,
    pub fields: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl ClientResponse {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8 text")
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        text_value(&self.fields, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        text_value(&self.trailers, name)
    }

    /// The sorted fields without `Date`, which may differ between two requests.
    pub fn fields_without_date(&self) -> Vec<(&str, &[u8])> {
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let mut fields: Vec<_> = fields.filter(|(name, _)| *name != "date").collect();
        fields.sort();
        fields
    }
}

fn text_value<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    fields.get(name).map(|value| value.to_str().expect("UTF-8 text"))
}

/// A response that was not received or is incomplete.
#[derive(Debug)]
pub struct IncompleteResponse {
    /// The status, if the head was received.
    pub status: Option<u16>,
    /// The part of the body that was received.
    pub body: Vec<u8>,
    /// The client's error message.
    pub error: String,
}

fn description(error: &hyper::Error) -> String {
    let source = error.source().map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

/// The body of a response that is being received.
pub(super) enum ResponseBody {
    Hyper(Incoming),
    #[cfg(feature = "http3")]
    Http3(Box<http3::ResponseBody>),
}

impl ResponseBody {
    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, String>> {
        match self {
            ResponseBody::Hyper(body) => {
                body.frame().await.map(|frame| frame.map_err(|error| description(&error)))
            }
            #[cfg(feature = "http3")]
            ResponseBody::Http3(body) => body.frame().await,
        }
    }
}

/// A response, or the description of an error.
pub(super) type ResponseResult = Result<http::Response<ResponseBody>, String>;

type ResponseFuture = Pin<Box<dyn Future<Output = ResponseResult> + Send>>;

fn from_hyper(response: hyper::Result<http::Response<Incoming>>) -> ResponseResult {
    response.map(|it| it.map(ResponseBody::Hyper)).map_err(|error| description(&error))
}

/// A response that is not received yet. Dropping it cancels the request.
pub struct PendingResponse(ResponseFuture);

impl PendingResponse {
    /// Waits for the head of the response.
    pub async fn read_head(self) -> Result<StreamingResponse, IncompleteResponse> {
        let response = within("a response head is received", 1, self.0).await;
        let failed = |error| IncompleteResponse { status: None, body: Vec::new(), error };
        let (head, body) = response.map_err(failed)?.into_parts();
        let (version, fields) = (head.version, head.headers);
        let response = ClientResponse {
            status: head.status.as_u16(),
            version,
            fields,
            body: Vec::new(),
            trailers: HeaderMap::new(),
        };
        Ok(StreamingResponse { response, body })
    }

    /// Collects the response; panics if it is incomplete.
    pub async fn collect(self) -> ClientResponse {
        self.try_collect().await.unwrap_or_else(|error| panic!("incomplete response: {error:?}"))
    }

    pub async fn try_collect(self) -> Result<ClientResponse, IncompleteResponse> {
        self.read_head().await?.try_collect().await
    }
}

/// A response after its head was received.
pub struct StreamingResponse {
    response: ClientResponse,
    body: ResponseBody,
}

impl StreamingResponse {
    pub fn head(&self) -> &ClientResponse {
        &self.response
    }

    /// Reads until at least `min` bytes of the body were received; returns all received bytes.
    pub async fn read(&mut self, min: usize) -> &[u8] {
        while self.response.body.len() < min {
            let more =
                self.next().await.unwrap_or_else(|error| panic!("incomplete body: {error:?}"));
            assert!(more, "the body ends after {} bytes", self.response.body.len());
        }
        &self.response.body
    }

    /// Reads the next frame; false at the end.
    pub async fn next(&mut self) -> Result<bool, IncompleteResponse> {
        let frame = match within("a body frame is received", 1, self.body.frame()).await {
            None => return Ok(false),
            Some(Err(error)) => {
                let body = std::mem::take(&mut self.response.body);
                return Err(IncompleteResponse { status: Some(self.response.status), body, error });
            }
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => self.response.body.extend_from_slice(&data),
            Err(frame) => self.response.trailers.extend(frame.into_trailers().expect("trailers")),
        }
        Ok(true)
    }

    pub async fn try_collect(mut self) -> Result<ClientResponse, IncompleteResponse> {
        while self.next().await? {}
        Ok(self.response)
    }

    pub async fn collect(self) -> ClientResponse {
        self.try_collect().await.unwrap_or_else(|error| panic!("incomplete response: {error:?}"))
    }
}

// -- clients

/// A client with one connection. Dropping it closes the connection once it is idle.
pub struct Client {
    transport: Transport,
    address: SocketAddr,
    sender: Sender,
    connection: JoinHandle<hyper::Result<()>>,
}

enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
    #[cfg(feature = "http3")]
    Http3(http3::Sender),
}

impl Client {
    pub async fn connect(transport: Transport, address: SocketAddr) -> Client {
        Client::try_connect(transport, address).await.expect("a connection")
    }

    /// Returns an error if the connection is refused.
    pub async fn try_connect(transport: Transport, address: SocketAddr) -> io::Result<Client> {
        #[cfg(feature = "http3")]
        if transport == Transport::Http3 {
            let (sender, connection) = http3::connect(address).await?;
            return Ok(Client { transport, address, sender: Sender::Http3(sender), connection });
        }
        let io = TokioIo::new(transport.connect(address).await?);
        let (sender, connection) = match transport.is_http2() {
            true => {
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = handshake.map_err(io::Error::other)?;
                (Sender::Http2(sender), tokio::spawn(connection))
            }
            false => {
                let handshake = http1::handshake(io).await;
                let (sender, connection) = handshake.map_err(io::Error::other)?;
                (Sender::Http1(sender), tokio::spawn(connection.with_upgrades()))
            }
        };
        Ok(Client { transport, address, sender, connection })
    }

    /// A client whose requests run concurrently with this one's: over HTTP/1 on
    /// another connection, otherwise on the same one.
    pub async fn concurrent_client(&self) -> Client {
        match &self.sender {
            Sender::Http1(_) => Client::connect(self.transport, self.address).await,
            Sender::Http2(sender) => Client {
                transport: self.transport,
                address: self.address,
                sender: Sender::Http2(sender.clone()),
                connection: tokio::spawn(async { Ok(()) }),
            },
            #[cfg(feature = "http3")]
            Sender::Http3(sender) => Client {
                transport: self.transport,
                address: self.address,
                sender: Sender::Http3(sender.clone()),
                connection: tokio::spawn(async { Ok(()) }),
            },
        }
    }

    /// Sends a request once the connection is ready for it.
    pub async fn send(&mut self, request: ClientRequest) -> PendingResponse {
        let request = request.into_request(self.transport);
        self.send_request(request).await
    }

    async fn send_request(&mut self, request: http::Request<RequestBody>) -> PendingResponse {
        let refused = |error| -> Ready<_> { ready(Err(description(&error))) };
        let ready = "the connection is ready for a request";
        PendingResponse(match &mut self.sender {
            Sender::Http1(sender) => match within(ready, 1, sender.ready()).await {
                Ok(()) => Box::pin(sender.send_request(request).map(from_hyper)),
                Err(error) => Box::pin(refused(error)),
            },
            Sender::Http2(sender) => match within(ready, 1, sender.ready()).await {
                Ok(()) => Box::pin(sender.send_request(request).map(from_hyper)),
                Err(error) => Box::pin(refused(error)),
            },
            #[cfg(feature = "http3")]
            Sender::Http3(sender) => Box::pin(sender.send_request(request)),
        })
    }

    /// Sends a request and collects its response.
    pub async fn fetch(&mut self, request: ClientRequest) -> ClientResponse {
        self.send(request).await.collect().await
    }

    pub async fn get(&mut self, target: &str) -> ClientResponse {
        self.fetch(ClientRequest::get(target)).await
    }

    /// Sends a GET request, again on a new connection if the server has closed this one.
    pub async fn get_reconnecting(&mut self, target: &str) -> ClientResponse {
        if let Ok(response) = self.send(ClientRequest::get(target)).await.try_collect().await {
            return response;
        }
        *self = Client::connect(self.transport, self.address).await;
        self.get(target).await
    }

    /// Closes the connection, aborting all exchanges.
    pub fn abort(self) {
        #[cfg(feature = "http3")]
        if let Sender::Http3(sender) = &self.sender {
            sender.close();
        }
        self.connection.abort();
    }

    /// Waits until the server has closed the connection.
    pub async fn wait_closed(&self) {
        wait_until("the connection is closed", || self.is_closed()).await;
    }

    pub fn is_closed(&self) -> bool {
        #[cfg(feature = "http3")]
        if let Sender::Http3(sender) = &self.sender {
            return sender.is_closed();
        }
        self.connection.is_finished()
    }

    /// Switches to another protocol by `Upgrade`, or by extended CONNECT (RFC 8441, RFC 9220);
    /// the server must have enabled extended CONNECT in its SETTINGS. Returns the status if
    /// refused.
    pub async fn upgrade(
        &mut self,
        request: ClientRequest,
        protocol: &'static str,
    ) -> Result<UpgradedIo, u16> {
        #[cfg(feature = "http3")]
        if let Sender::Http3(sender) = &self.sender {
            return sender.tunnel(request.fields, Some((&request.target, protocol))).await;
        }
        let request = match self.transport.is_http2() {
            true => {
                let mut request = request.into_request(self.transport);
                *request.method_mut() = Method::CONNECT;
                request.extensions_mut().insert(Protocol::from_static(protocol));
                request
            }
            false => request
                .field("connection", "upgrade")
                .field("upgrade", protocol)
                .field("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .into_request(self.transport),
        };
        self.switch_protocol(request, if self.transport.is_http2() { 200 } else { 101 }).await
    }

    /// Opens a tunnel to `a:1` with CONNECT.
    pub async fn tunnel(&mut self) -> Result<UpgradedIo, u16> {
        #[cfg(feature = "http3")]
        if let Sender::Http3(sender) = &self.sender {
            return sender.tunnel(HeaderMap::new(), None).await;
        }
        let mut request = ClientRequest::new("CONNECT", "/").into_request(self.transport);
        *request.uri_mut() = "a:1".parse().unwrap();
        request.headers_mut().remove(header::HOST);
        if !self.transport.is_http2() {
            request.headers_mut().insert(header::HOST, HeaderValue::from_static("a:1"));
        }
        self.switch_protocol(request, 200).await
    }

    async fn switch_protocol(
        &mut self,
        request: http::Request<RequestBody>,
        expected: u16,
    ) -> Result<UpgradedIo, u16> {
        let response = within("a response head is received", 1, self.send_request(request).await.0)
            .await
            .unwrap();
        match response.status().as_u16() {
            status if status == expected => Ok(Box::new(TokioIo::new(
                hyper::upgrade::on(response).await.expect("the protocol is switched"),
            ))),
            status => Err(status),
        }
    }
}

/// A connection or stream after the switch to another protocol.
pub type UpgradedIo = Box<dyn Duplex>;

// -- interim responses

/// An interim response: status and values of the `Link` fields.
pub type Interim = (u16, Vec<String>);

impl TransportServer {
    /// Sends the head of a request, and its body only after a 100. Without a 100 the body is not
    /// sent. Returns the interim responses and the final response.
    pub async fn fetch_with_interim(
        &self,
        request: ClientRequest,
        body: &'static str,
    ) -> (Vec<Interim>, ClientResponse) {
        #[cfg(feature = "http3")]
        if let Transport::Http3 = self.transport {
            let request = request.into_request(self.transport).map(|_| ());
            let (sender, _) = http3::connect(self.address).await.unwrap();
            return sender.fetch_with_interim(request, body).await;
        }
        match self.transport.is_http2() {
            true => self.fetch_with_interim_http2(request, body).await,
            false => self.fetch_with_interim_http1(request, body).await,
        }
    }

    async fn fetch_with_interim_http1(
        &self,
        request: ClientRequest,
        body: &'static str,
    ) -> (Vec<Interim>, ClientResponse) {
        let (request, upload) = match body {
            "" => (request, None),
            _ => {
                let (request, upload) = request.upload();
                (request.field("content-length", body.len().to_string()), Some(upload))
            }
        };
        let mut request = request.into_request(self.transport);
        let interims = Arc::new(Mutex::new(Vec::new()));
        let (recorded, continued) = (interims.clone(), Arc::new(tokio::sync::Notify::new()));
        let on_continue = continued.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            recorded
                .lock()
                .unwrap()
                .push(interim_from(interim.status().as_u16(), interim.headers()));
            if interim.status() == 100 {
                on_continue.notify_one();
            }
        });
        let mut client = self.client().await;
        let response_future = client.send_request(request).await;
        let response = std::pin::pin!(response_future.collect());
        let continued = std::pin::pin!(continued.notified());
        let response = match futures_util::future::select(response, continued).await {
            Either::Left((response, _)) => response,
            Either::Right(((), response)) => {
                if let Some(upload) = upload {
                    upload.send(body).await;
                }
                response.await
            }
        };
        let interims = std::mem::take(&mut *interims.lock().unwrap());
        (interims, response)
    }

    /// Uses the crate h2, because the crate hyper does not expose interim responses over HTTP/2.
    async fn fetch_with_interim_http2(
        &self,
        request: ClientRequest,
        body: &'static str,
    ) -> (Vec<Interim>, ClientResponse) {
        let io = self.transport.connect(self.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = request.into_request(self.transport).map(|_| ());
        let (mut response, mut upload) = sender.send_request(request, body.is_empty()).unwrap();
        let mut interims = Vec::new();
        let steps = poll_fn(|cx| {
            while let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
                let interim = interim.unwrap();
                if interim.status() == 100 {
                    upload.send_data(body.into(), true).unwrap();
                }
                interims.push(interim_from(interim.status().as_u16(), interim.headers()));
            }
            Pin::new(&mut response).poll(cx)
        });
        let response = within("a response head is received", 1, steps).await.unwrap();
        let (head, mut stream) = response.into_parts();
        let mut received = Vec::new();
        while let Some(data) = within("a body frame is received", 1, stream.data()).await {
            received.extend_from_slice(&data.unwrap());
        }
        connection.abort();
        let (status, version) = (head.status.as_u16(), head.version);
        let (fields, trailers) = (head.headers, HeaderMap::new());
        (interims, ClientResponse { status, version, fields, body: received, trailers })
    }
}

pub(super) fn interim_from(status: u16, fields: &HeaderMap) -> Interim {
    let links = fields.get_all(header::LINK).iter();
    (status, links.map(|link| String::from_utf8_lossy(link.as_bytes()).into_owned()).collect())
}
