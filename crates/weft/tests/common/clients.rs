//! Clients of every transport. A case says what is sent and what has to come back; how that
//! goes over each transport is known only here.
#![allow(dead_code, reason = "each test file uses a part of it")]

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
use futures_util::future::Either;
use futures_util::stream::poll_fn as stream_of;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use weft::tls::{self, Identity, Tls};
use weft::{Application, Running, Server, Settings};

use crate::common::PATIENCE;

// -- transports

/// How requests come and responses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http1,
    Http2,
    Http1Tls,
    Http2Tls,
}

pub const TRANSPORTS: [Transport; 4] =
    [Transport::Http1, Transport::Http2, Transport::Http1Tls, Transport::Http2Tls];

impl Transport {
    pub fn is_http2(self) -> bool {
        matches!(self, Transport::Http2 | Transport::Http2Tls)
    }

    pub fn is_tls(self) -> bool {
        matches!(self, Transport::Http1Tls | Transport::Http2Tls)
    }

    pub fn version(self) -> Version {
        if self.is_http2() { Version::HTTP_2 } else { Version::HTTP_11 }
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
        let shaking = TlsConnector::from(Arc::new(config)).connect(name, socket);
        let stream = within("the handshake ends", 1, shaking).await?;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        Ok(Box::new(stream))
    }

    fn listen<A: Application + 'static>(self, server: Server<A>) -> Server<A> {
        let address = "127.0.0.1:0";
        let listening = match self.is_tls() {
            true => server.listen_tls(address, &CREDENTIALS.server),
            false => server.listen(address),
        };
        listening.unwrap()
    }
}

/// What servers prove themselves with, and clients that believe them.
struct Credentials {
    server: Tls,
    client: ClientConfig,
}

static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    let certified = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    let (certificate, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    let identities = vec![Identity::pem(certificate, key)];
    let server = Tls::new(tls::Settings { identities, ..Default::default() }).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Credentials { server, client }
});

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Runs a case over every transport. If it fails, it is said over which.
#[track_caller]
pub fn everywhere(case: impl AsyncFn(Transport)) {
    let fails = |transport: &Transport| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = || runtime.block_on(within("the end of the case", 4, case(*transport)));
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    let failed: Vec<Transport> = TRANSPORTS.into_iter().filter(fails).collect();
    let current = thread::current();
    let name = current.name().unwrap_or("the case");
    assert!(failed.is_empty(), "{name} failed over {failed:?}");
}

/// What a future gives, which must be before some patiences are over.
async fn within<T>(what: &str, patiences: u32, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE * patiences, future).await;
    outcome.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits until it is so.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, 1, wait).await;
}

// -- a server

/// A server that is asked by a transport.
pub struct Site {
    pub transport: Transport,
    pub address: SocketAddr,
    server: Running,
}

impl Transport {
    /// Serves an application with one worker.
    pub fn serve<A: Application + Clone + Send + 'static>(self, app: A) -> Site {
        self.start(Server::new(app).workers(1))
    }

    pub fn serve_with<A>(self, settings: Settings, app: A) -> Site
    where
        A: Application + Clone + Send + 'static,
    {
        self.start(Server::new(app).settings(settings).workers(1))
    }

    /// Starts a server that has no address yet.
    pub fn start<A: Application + 'static>(self, server: Server<A>) -> Site {
        let server = self.listen(server).start().unwrap();
        let address = server.addresses()[0].address().expect("a TCP address");
        Site { transport: self, address, server }
    }
}

impl Site {
    /// A client with a connection of its own.
    pub async fn client(&self) -> Client {
        Client::connect(self.transport, self.address).await
    }

    /// Stops a server that has nothing important to do.
    pub async fn stop(self) {
        self.shutdown(Duration::from_millis(100)).await.unwrap();
    }

    /// Begins to stop the server; ready when it has.
    pub fn shutdown(self, grace: Duration) -> JoinHandle<()> {
        tokio::task::spawn_blocking(move || self.server.shutdown(grace))
    }
}

// -- requests

type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// A request that is to be sent. The host is `a`.
pub struct Ask {
    method: Method,
    target: String,
    fields: HeaderMap,
    body: Sent,
}

impl Ask {
    pub fn new(method: &str, target: impl Into<String>) -> Ask {
        let method = method.parse().unwrap();
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Ask { method, target: target.into(), fields: HeaderMap::new(), body }
    }

    pub fn get(target: impl Into<String>) -> Ask {
        Ask::new("GET", target)
    }

    pub fn post(target: impl Into<String>) -> Ask {
        Ask::new("POST", target)
    }

    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Ask {
        let name: HeaderName = name.parse().unwrap();
        self.fields.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
        self
    }

    /// With this body, whose length is said.
    pub fn body(self, body: impl Into<Bytes>) -> Ask {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
        Ask { body, ..self }
    }

    /// With a body that is sent bit by bit. Its length is not said, but by a field.
    pub fn upload(self) -> (Ask, Upload) {
        let (upload, mut frames) = mpsc::channel(1);
        let body = StreamBody::new(stream_of(move |cx| frames.poll_recv(cx))).boxed_unsync();
        (Ask { body, ..self }, Upload(upload))
    }

    fn into_request(self, transport: Transport) -> http::Request<Sent> {
        let mut request = http::Request::new(self.body);
        *request.method_mut() = self.method;
        *request.headers_mut() = self.fields;
        *request.uri_mut() = match transport.is_http2() {
            true => format!("{}://a{}", transport.scheme(), self.target).parse().unwrap(),
            false => {
                request.headers_mut().insert(header::HOST, HeaderValue::from_static("a"));
                self.target.parse().unwrap()
            }
        };
        request
    }
}

/// The sending end of a request's body. The body is whole when it is dropped.
pub struct Upload(mpsc::Sender<io::Result<Frame<Bytes>>>);

impl Upload {
    /// Sends a piece, as soon as the one before is taken; false if nobody takes it.
    pub async fn send(&self, piece: impl Into<Bytes>) -> bool {
        let sent = self.0.send(Ok(Frame::data(piece.into())));
        within("a piece is taken", 1, sent).await.is_ok()
    }

    /// Sends the same piece until nothing goes any more; how often it went.
    pub async fn send_until_held_back(&self, piece: Bytes, most: usize) -> usize {
        for sent in 0..most {
            let send = self.0.send(Ok(Frame::data(piece.clone())));
            if tokio::time::timeout(Duration::from_secs(1), send).await.is_err() {
                return sent;
            }
        }
        most
    }

    pub async fn trailers(&self, name: &'static str, value: &'static str) {
        let field = (HeaderName::from_static(name), HeaderValue::from_static(value));
        let trailers = Frame::trailers([field].into_iter().collect());
        assert!(self.0.send(Ok(trailers)).await.is_ok(), "nobody takes the trailers");
    }

    /// Breaks the body off.
    pub async fn fail(self) {
        let _ = self.0.send(Err(io::Error::other("on purpose"))).await;
    }
}

// -- responses

/// A response that came whole.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub version: Version,
    pub fields: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl Reply {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        text_of(&self.fields, name)
    }

    pub fn trailer(&self, name: &str) -> Option<&str> {
        text_of(&self.trailers, name)
    }

    /// The fields, sorted, but for `Date`, which may change between two requests.
    pub fn fields_but_date(&self) -> Vec<(&str, &[u8])> {
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let mut fields: Vec<_> = fields.filter(|(name, _)| *name != "date").collect();
        fields.sort();
        fields
    }
}

fn text_of<'a>(fields: &'a HeaderMap, name: &str) -> Option<&'a str> {
    fields.get(name).map(|value| value.to_str().expect("a text"))
}

/// A response that did not come, or not to its end.
#[derive(Debug)]
pub struct Cut {
    /// Its status, if it had begun.
    pub status: Option<u16>,
    /// What came of its body.
    pub body: Vec<u8>,
    /// What was wrong, as the client says.
    pub how: String,
}

fn cut(status: Option<u16>, body: Vec<u8>, error: &hyper::Error) -> Cut {
    let source = error.source().map(|source| format!(": {source}"));
    Cut { status, body, how: format!("{error}{}", source.unwrap_or_default()) }
}

type Head = Pin<Box<dyn Future<Output = hyper::Result<http::Response<Incoming>>> + Send>>;

/// A response to a request that was sent. To drop it takes the request back.
pub struct Coming(Head);

impl Coming {
    /// The head.
    pub async fn begin(self) -> Result<Beginning, Cut> {
        let response = within("a response begins", 1, self.0).await;
        let (head, body) = response.map_err(|error| cut(None, Vec::new(), &error))?.into_parts();
        let (version, fields) = (head.version, head.headers);
        let reply = Reply {
            status: head.status.as_u16(),
            version,
            fields,
            body: Vec::new(),
            trailers: HeaderMap::new(),
        };
        Ok(Beginning { reply, body })
    }

    /// The response, which is expected to be whole.
    pub async fn reply(self) -> Reply {
        self.outcome().await.unwrap_or_else(|cut| panic!("the response is not whole: {cut:?}"))
    }

    pub async fn outcome(self) -> Result<Reply, Cut> {
        self.begin().await?.outcome().await
    }
}

/// A response whose head has come.
pub struct Beginning {
    reply: Reply,
    body: Incoming,
}

impl Beginning {
    pub fn head(&self) -> &Reply {
        &self.reply
    }

    /// What has come of the body so far, and at least so many bytes.
    pub async fn read(&mut self, least: usize) -> &[u8] {
        while self.reply.body.len() < least {
            let more = self.next().await.unwrap_or_else(|cut| panic!("it is cut: {cut:?}"));
            assert!(more, "it ends after {} bytes", self.reply.body.len());
        }
        &self.reply.body
    }

    /// Reads the next frame; false at the end.
    pub async fn next(&mut self) -> Result<bool, Cut> {
        let frame = match within("more of a body", 1, self.body.frame()).await {
            None => return Ok(false),
            Some(Err(error)) => {
                let came = std::mem::take(&mut self.reply.body);
                return Err(cut(Some(self.reply.status), came, &error));
            }
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => self.reply.body.extend_from_slice(&data),
            Err(frame) => self.reply.trailers.extend(frame.into_trailers().expect("no data")),
        }
        Ok(true)
    }

    pub async fn outcome(mut self) -> Result<Reply, Cut> {
        while self.next().await? {}
        Ok(self.reply)
    }

    pub async fn reply(self) -> Reply {
        self.outcome().await.unwrap_or_else(|cut| panic!("the response is not whole: {cut:?}"))
    }
}

// -- clients

/// A client with one connection. To drop it closes the connection when it is idle.
pub struct Client {
    transport: Transport,
    address: SocketAddr,
    sender: Sender,
    connection: JoinHandle<hyper::Result<()>>,
}

enum Sender {
    Http1(http1::SendRequest<Sent>),
    Http2(http2::SendRequest<Sent>),
}

impl Client {
    pub async fn connect(transport: Transport, address: SocketAddr) -> Client {
        Client::try_connect(transport, address).await.expect("a connection")
    }

    /// An error if nobody listens.
    pub async fn try_connect(transport: Transport, address: SocketAddr) -> io::Result<Client> {
        let io = TokioIo::new(transport.connect(address).await?);
        let (sender, connection) = match transport.is_http2() {
            true => {
                let shaken = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = shaken.map_err(io::Error::other)?;
                (Sender::Http2(sender), tokio::spawn(connection))
            }
            false => {
                let shaken = http1::handshake(io).await;
                let (sender, connection) = shaken.map_err(io::Error::other)?;
                (Sender::Http1(sender), tokio::spawn(connection.with_upgrades()))
            }
        };
        Ok(Client { transport, address, sender, connection })
    }

    /// A client that can ask while this one waits: over HTTP/2 on the same connection.
    pub async fn beside(&self) -> Client {
        match &self.sender {
            Sender::Http1(_) => Client::connect(self.transport, self.address).await,
            Sender::Http2(sender) => Client {
                transport: self.transport,
                address: self.address,
                sender: Sender::Http2(sender.clone()),
                connection: tokio::spawn(async { Ok(()) }),
            },
        }
    }

    /// Sends a request, once the connection can take one.
    pub async fn send(&mut self, ask: Ask) -> Coming {
        let request = ask.into_request(self.transport);
        self.send_request(request).await
    }

    async fn send_request(&mut self, request: http::Request<Sent>) -> Coming {
        let refused = |error| -> Ready<_> { ready(Err(error)) };
        let ready = "the connection takes a request";
        Coming(match &mut self.sender {
            Sender::Http1(sender) => match within(ready, 1, sender.ready()).await {
                Ok(()) => Box::pin(sender.send_request(request)),
                Err(error) => Box::pin(refused(error)),
            },
            Sender::Http2(sender) => match within(ready, 1, sender.ready()).await {
                Ok(()) => Box::pin(sender.send_request(request)),
                Err(error) => Box::pin(refused(error)),
            },
        })
    }

    pub async fn ask(&mut self, ask: Ask) -> Reply {
        self.send(ask).await.reply().await
    }

    pub async fn get(&mut self, target: &str) -> Reply {
        self.ask(Ask::get(target)).await
    }

    /// Asks again, on another connection if the server has closed this one.
    pub async fn get_anew(&mut self, target: &str) -> Reply {
        if let Ok(reply) = self.send(Ask::get(target)).await.outcome().await {
            return reply;
        }
        *self = Client::connect(self.transport, self.address).await;
        self.get(target).await
    }

    /// Closes the connection, whatever is under way.
    pub fn leave(self) {
        self.connection.abort();
    }

    /// Waits until the server has closed the connection.
    pub async fn closed(&self) {
        until("the connection is closed", || self.connection.is_finished()).await;
    }

    pub fn is_closed(&self) -> bool {
        self.connection.is_finished()
    }

    /// Goes over to another protocol: by an upgrade, or by an extended CONNECT (RFC 8441), which
    /// the server has to have spoken of before. The status, if that is refused.
    pub async fn upgrade(&mut self, ask: Ask, protocol: &'static str) -> Result<Other, u16> {
        let request = match self.transport.is_http2() {
            true => {
                let mut request = ask.into_request(self.transport);
                *request.method_mut() = Method::CONNECT;
                request.extensions_mut().insert(Protocol::from_static(protocol));
                request
            }
            false => ask
                .field("connection", "upgrade")
                .field("upgrade", protocol)
                .field("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .into_request(self.transport),
        };
        self.go_over(request, if self.transport.is_http2() { 200 } else { 101 }).await
    }

    /// Asks for a tunnel to `a:1`.
    pub async fn tunnel(&mut self) -> Result<Other, u16> {
        let mut request = Ask::new("CONNECT", "/").into_request(self.transport);
        *request.uri_mut() = "a:1".parse().unwrap();
        request.headers_mut().remove(header::HOST);
        if !self.transport.is_http2() {
            request.headers_mut().insert(header::HOST, HeaderValue::from_static("a:1"));
        }
        self.go_over(request, 200).await
    }

    async fn go_over(&mut self, request: http::Request<Sent>, expected: u16) -> Result<Other, u16> {
        let response = within("an answer", 1, self.send_request(request).await.0).await.unwrap();
        match response.status().as_u16() {
            status if status == expected => {
                Ok(TokioIo::new(hyper::upgrade::on(response).await.expect("another protocol")))
            }
            status => Err(status),
        }
    }
}

/// A connection, or a stream of one, that has gone over to another protocol.
pub type Other = TokioIo<Upgraded>;

// -- interim responses

/// An interim response: its status, and the values of its `Link` fields.
pub type Interim = (u16, Vec<String>);

impl Site {
    /// Sends the head of a request, and its body when the client is told to continue or, if
    /// there is no such word, when the response has come. Says what came in between.
    pub async fn ask_step_by_step(&self, ask: Ask, body: &'static str) -> (Vec<Interim>, Reply) {
        match self.transport.is_http2() {
            true => self.step_by_step_2(ask, body).await,
            false => self.step_by_step_1(ask, body).await,
        }
    }

    async fn step_by_step_1(&self, ask: Ask, body: &'static str) -> (Vec<Interim>, Reply) {
        let (ask, upload) = match body {
            "" => (ask, None),
            _ => {
                let (ask, upload) = ask.upload();
                (ask.field("content-length", body.len().to_string()), Some(upload))
            }
        };
        let mut request = ask.into_request(self.transport);
        let interims = Arc::new(Mutex::new(Vec::new()));
        let (noted, go_on) = (interims.clone(), Arc::new(tokio::sync::Notify::new()));
        let word = go_on.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            noted.lock().unwrap().push(interim_of(interim.status().as_u16(), interim.headers()));
            if interim.status() == 100 {
                word.notify_one();
            }
        });
        let mut client = self.client().await;
        let coming = client.send_request(request).await;
        let reply = std::pin::pin!(coming.reply());
        let told = std::pin::pin!(go_on.notified());
        let reply = match futures_util::future::select(reply, told).await {
            Either::Left((reply, _)) => reply,
            Either::Right(((), reply)) => {
                if let Some(upload) = upload {
                    upload.send(body).await;
                }
                reply.await
            }
        };
        let interims = std::mem::take(&mut *interims.lock().unwrap());
        (interims, reply)
    }

    /// The crate hyper does not show interim responses over HTTP/2, the crate h2 does.
    async fn step_by_step_2(&self, ask: Ask, body: &'static str) -> (Vec<Interim>, Reply) {
        let io = self.transport.connect(self.address).await.unwrap();
        let (sender, connection) = h2::client::handshake(io).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = ask.into_request(self.transport).map(|_| ());
        let (mut response, mut upload) = sender.send_request(request, body.is_empty()).unwrap();
        let mut interims = Vec::new();
        let steps = poll_fn(|cx| {
            while let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
                let interim = interim.unwrap();
                if interim.status() == 100 {
                    upload.send_data(body.into(), true).unwrap();
                }
                interims.push(interim_of(interim.status().as_u16(), interim.headers()));
            }
            Pin::new(&mut response).poll(cx)
        });
        let response = within("a response", 1, steps).await.unwrap();
        let (head, mut stream) = response.into_parts();
        let mut came = Vec::new();
        while let Some(data) = within("more of a body", 1, stream.data()).await {
            came.extend_from_slice(&data.unwrap());
        }
        connection.abort();
        let (status, version) = (head.status.as_u16(), head.version);
        let (fields, trailers) = (head.headers, HeaderMap::new());
        (interims, Reply { status, version, fields, body: came, trailers })
    }
}

fn interim_of(status: u16, fields: &HeaderMap) -> Interim {
    let links = fields.get_all(header::LINK).iter();
    (status, links.map(|link| String::from_utf8_lossy(link.as_bytes()).into_owned()).collect())
}
