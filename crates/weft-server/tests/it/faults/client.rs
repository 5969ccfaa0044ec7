//! Clients that record a history: HTTP/1.1 over any stream, HTTP/2 over TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::time::timeout;

use super::history::{Exchange, Outcome, Target};
use crate::common::{PATIENCE, take_front};

/// Returns an ID for a new request.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Pace of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Fast,
    /// Sends a few bytes and reads a few bytes at a time: short reads and writes for the server.
    Slow,
}

/// An HTTP/1.1 client. It opens a new connection after a connection has ended.
pub struct Http1<'a> {
    connect: Box<dyn Fn() -> io::Result<Box<dyn Stream>> + Send + 'a>,
    connection: Option<Box<dyn Stream>>,
    /// Received bytes of the connection that are not parsed yet.
    received: Vec<u8>,
    pace: Pace,
    /// Path of the current request.
    target: &'static str,
}

impl<'a> Http1<'a> {
    pub fn new<S: Stream + 'static>(
        pace: Pace,
        connect: impl Fn() -> io::Result<S> + Send + 'a,
    ) -> Http1<'a> {
        let connect = Box::new(move || connect().map(|stream| Box::new(stream) as Box<dyn Stream>));
        Http1 { connect, connection: None, received: Vec::new(), pace, target: "" }
    }

    /// Creates a client of a TCP listener.
    pub fn tcp(pace: Pace, address: SocketAddr) -> Http1<'static> {
        Http1::new(pace, move || connect_tcp(pace, address))
    }

    /// Creates a client of a TCP listener with TLS.
    pub fn tls(trusted: &[&str], address: SocketAddr) -> Http1<'static> {
        let config = tls_config(trusted);
        Http1::new(Pace::Fast, move || tls_stream(&config, connect_tcp(Pace::Fast, address)?))
    }

    /// Sends a request and returns its history. If a connection that has served a request ends
    /// before the next response starts, the server may have closed it when it was idle
    /// (RFC 9112 §9.3.1): then the request is repeated with a new ID, and both are returned.
    pub fn request(&mut self, target: &'static Target) -> Vec<Exchange> {
        let is_reused = self.connection.is_some();
        let first = self.attempt(target);
        match first.outcome {
            Outcome::NoResponse if is_reused => vec![first, self.attempt(target)],
            _ => vec![first],
        }
    }

    fn attempt(&mut self, target: &'static Target) -> Exchange {
        let id = next_id();
        self.target = target.path;
        let outcome = self.exchange(target, id).unwrap_or_else(|ending| {
            self.connection = None;
            self.received.clear();
            ending
        });
        Exchange { id, target, outcome }
    }

    /// Returns the complete response; `Err` if the connection has ended before its end.
    fn exchange(&mut self, target: &'static Target, id: u64) -> Result<Outcome, Outcome> {
        if self.connection.is_none() {
            self.connection = Some((self.connect)().map_err(|_| Outcome::NoResponse)?);
        }
        // A server may respond before it has received the whole content, and then close. The
        // response is read in any case.
        let _ = self.send(&request_bytes(target, id));
        let head = self.read_head()?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status.and_then(|line| line.get(..3)?.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status: {head:?}"));
        let field = |name: &str| {
            let found = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = found.filter(|(found, _)| found.eq_ignore_ascii_case(name));
            let value = found.next().map(|(_, value)| value.to_owned());
            assert!(found.next().is_none(), "two fields {name}: {head:?}");
            value
        };
        let body = match (field("content-length"), field("transfer-encoding").as_deref()) {
            (Some(length), None) => self.take(length.parse().expect("a length"))?,
            (None, Some("chunked")) => self.read_chunks()?,
            other => panic!("the length is ambiguous: {other:?}"),
        };
        check_content(target, status, &body);
        if field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.connection = None;
            assert!(self.received.is_empty(), "bytes after the response");
        }
        Ok(Outcome::Whole { status, body_bytes: body.len() })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let connection = self.connection.as_mut().expect("it is open");
        match self.pace {
            Pace::Fast => connection.write_all(bytes),
            Pace::Slow => {
                let (slow, rest) = bytes.split_at(bytes.len().min(120));
                for piece in slow.chunks(11) {
                    connection.write_all(piece)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                connection.write_all(rest)
            }
        }
    }

    fn read_head(&mut self) -> Result<String, Outcome> {
        loop {
            if let Some(end) = self.received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head = take_front(&mut self.received, end + 4);
                return Ok(String::from_utf8(head).expect("a head in UTF-8"));
            }
            self.read()?;
        }
    }

    fn read_chunks(&mut self) -> Result<Vec<u8>, Outcome> {
        let mut body = Vec::new();
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.extend(self.take(1)?);
            }
            let size = str::from_utf8(&line[..line.len() - 2]).expect("a chunk size in UTF-8");
            let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("size {size:?}"));
            body.extend(self.take(size)?);
            assert_eq!(self.take(2)?, b"\r\n", "the end of a chunk");
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Takes bytes of a response whose head has been received.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, Outcome> {
        while self.received.len() < length {
            self.read().map_err(|_| Outcome::Cut)?;
        }
        Ok(take_front(&mut self.received, length))
    }

    fn read(&mut self) -> Result<(), Outcome> {
        let mut buffer = [0; 64 << 10];
        let buffer = match self.pace {
            Pace::Fast => &mut buffer[..],
            Pace::Slow => &mut buffer[..16 << 10],
        };
        let ending = match self.received.is_empty() {
            true => Outcome::NoResponse,
            false => Outcome::Cut,
        };
        loop {
            return match self.connection.as_mut().expect("it is open").read(buffer) {
                Ok(0) => Err(ending),
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    Ok(())
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!(
                        "no response and no end: after {} bytes of {:?}",
                        self.received.len(),
                        self.target
                    );
                }
                // A reset, or the end of a TLS connection without close_notify.
                Err(_) => Err(ending),
            };
        }
    }
}

fn request_bytes(target: &Target, id: u64) -> Vec<u8> {
    let (path, length) = (target.path, target.upload_bytes);
    let mut request = match length {
        0 => format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-id: {id}\r\n\r\n"),
        _ => format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nx-id: {id}\r\nContent-Length: {length}\r\n\r\n"
        ),
    }
    .into_bytes();
    request.resize(request.len() + length, b'u');
    request
}

/// Asserts that a complete response is either the resource or an error of the server.
fn check_content(target: &Target, status: u16, body: &[u8]) {
    match status {
        200 => assert!(
            body == (target.content)(),
            "wrong content of {}: {} bytes, {}",
            target.path,
            body.len(),
            body[..body.len().min(100)].escape_ascii()
        ),
        // 400 if the server has received an incomplete request.
        400 | 500..=599 => {}
        _ => panic!("{}: {status} {}", target.path, body.escape_ascii()),
    }
}

fn connect_tcp(pace: Pace, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    if pace == Pace::Slow {
        // A small window, so that the server's writes are short. A window below the segment size of
        // the loopback device, 64 KiB, would be used only after delays (RFC 1122 §4.2.3.4).
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 256 << 10)?;
    }
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

pub fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Returns a configuration that trusts these self-signed certificates.
pub fn tls_config(trusted: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pem in trusted {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Performs a TLS handshake.
///
/// # Panics
/// If the certificate is not trusted or the peer does not use TLS.
pub fn tls_stream<S: Read + Write>(
    config: &Arc<ClientConfig>,
    mut stream: S,
) -> io::Result<StreamOwned<ClientConnection, S>> {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(config.clone(), name).expect("a configuration");
    match connection.complete_io(&mut stream) {
        Ok(_) => Ok(StreamOwned::new(connection, stream)),
        Err(error) if error.kind() == ErrorKind::InvalidData => panic!("{error}"),
        Err(error) => Err(error),
    }
}

/// Requests all targets over HTTP/2, all at the same time on one connection, `rounds` times.
pub fn http2_requests(
    address: SocketAddr,
    targets: &'static [Target],
    rounds: usize,
) -> Vec<Exchange> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut exchanges = Vec::new();
    for _ in 0..rounds {
        let round = async {
            let connection = async {
                let stream = tokio::net::TcpStream::connect(address).await.ok()?;
                h2::client::handshake(stream).await.ok()
            };
            let Some((client, connection)) = connection.await else { return Vec::new() };
            tokio::spawn(connection);
            let requests = targets.iter().map(|target| http2_request(client.clone(), target));
            futures_util::future::join_all(requests).await
        };
        exchanges.extend(
            runtime.block_on(async { timeout(PATIENCE, round).await }).expect("a response in time"),
        );
    }
    exchanges
}

async fn http2_request(
    mut client: h2::client::SendRequest<bytes::Bytes>,
    target: &'static Target,
) -> Exchange {
    let id = next_id();
    let mut outcome = Outcome::NoResponse;
    let exchange = async {
        let request = http::Request::builder().uri(format!("http://a{}", target.path));
        let request = request.method(if target.upload_bytes > 0 { "POST" } else { "GET" });
        let request = request.header("content-length", target.upload_bytes);
        let request = request.header("x-id", id).body(()).expect("a request");
        client = client.ready().await?;
        let (response, mut upload) = client.send_request(request, target.upload_bytes == 0)?;
        if target.upload_bytes > 0 {
            // Buffered by the client until the window permits it.
            upload.send_data(vec![b'u'; target.upload_bytes].into(), true)?;
        }
        let (head, mut content) = response.await?.into_parts();
        outcome = Outcome::Cut;
        let mut body = Vec::new();
        while let Some(data) = content.data().await {
            let data = data?;
            content.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        content.trailers().await?;
        check_content(target, head.status.as_u16(), &body);
        outcome = Outcome::Whole { status: head.status.as_u16(), body_bytes: body.len() };
        Ok::<(), h2::Error>(())
    };
    // The error is a failed connection or stream; `outcome` states how far the response came.
    let _ = exchange.await;
    Exchange { id, target, outcome }
}
