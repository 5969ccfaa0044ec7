//! One connection of a stream, from its first bytes to its end.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, join};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weft_proto::proxy_protocol;
use weft_upstream::copy::{
    CopyEnd, CopySide, CountBytes, IdleTimeouts, copy_bidirectional, copy_sockets,
};

use super::Stream;
use super::end::End;
use super::hello::{Hello, HelloReader};
use super::record::{ByteCounts, ConnectionRecord};
use super::targets::Targets;
use crate::sections::streams::{ProxyVersion, StreamSettings};

/// Maximum size of the PROXY header and the ClientHello together. Those of browsers with
/// post-quantum key shares have 2 KiB, and the longest PROXY header 4 KiB.
const MAX_PREAMBLE_BYTES: usize = 32 << 10;

/// The alert `unrecognized_name` (RFC 6066 §3), as a record of TLS 1.2.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Reason why a connection is closed before it is forwarded.
#[derive(Debug)]
enum Refusal {
    Io(io::Error),
    Timeout,
    /// The handshake of TLS has failed.
    Tls(io::Error),
    /// The PROXY header of a proxy is missing or invalid.
    ProxyHeader(weft_proto::Error),
    TooLarge,
    /// The networks in `allow` and `deny` exclude the client.
    Denied,
    /// No upstreams exist for this server name.
    NoTarget(Option<String>),
    /// No upstream accepts connections.
    Unreachable,
}

/// The first bytes of a connection.
struct Preamble {
    /// Address of the client, which its proxy may have sent.
    source: SocketAddr,
    server_name: Option<String>,
    /// Bytes to forward.
    received: BytesMut,
}

/// Forwards a connection until it ends. With `tls`, TLS is terminated.
pub(crate) async fn serve(
    stream: &Stream,
    tls: Option<Arc<ServerConfig>>,
    client: TcpStream,
    mut record: ConnectionRecord,
) {
    let peer = record.client;
    match forward(stream, tls, client, &mut record).await {
        Ok(end) => record.end = end,
        Err(refusal) => {
            record.end = refusal.end();
            match refusal {
                Refusal::ProxyHeader(_) | Refusal::NoTarget(_) => stream
                    .refusal_warning
                    .warn(&format!("a connection from {peer} was closed: {refusal}")),
                // Scanners, clients that have left, and failures that the upstreams have logged.
                _ => log::debug!("a connection from {peer} was closed: {refusal}"),
            }
        }
    }
}

async fn forward(
    stream: &Stream,
    tls: Option<Arc<ServerConfig>>,
    mut client: TcpStream,
    record: &mut ConnectionRecord,
) -> Result<End, Refusal> {
    let deadline = Instant::now() + stream.settings.handshake_timeout;
    let preamble = Box::pin(Preamble::read(stream, &mut client, record.client));
    let preamble = timeout_at(deadline, preamble).await;
    let Preamble { source, server_name, received } = preamble.map_err(|_| Refusal::Timeout)??;
    record.client = source;
    record.server_name.clone_from(&server_name);
    let Some(targets) = stream.targets(server_name.as_deref()) else {
        // Ignored: the client has left.
        let _ = client.write_all(&UNRECOGNIZED_NAME).await;
        return Err(Refusal::NoTarget(server_name));
    };
    let mut header = Vec::new();
    match stream.settings.proxy_protocol {
        None => {}
        Some(ProxyVersion::V1) => proxy_protocol::write_v1(source, record.local, &mut header),
        Some(ProxyVersion::V2) => proxy_protocol::write_v2(source, record.local, &mut header),
    }
    let route = Route { stream, targets, header };
    match tls {
        None => route.relay(client, received, record).await,
        // Boxed: the connections of streams without TLS do not need its memory.
        Some(config) => {
            Box::pin(async {
                let accepted = timeout_at(deadline, accept_tls(config, client, received)).await;
                let client = accepted.map_err(|_| Refusal::Timeout)?.map_err(Refusal::Tls)?;
                record.server_name = client.get_ref().1.server_name().map(str::to_owned);
                route.relay(client, BytesMut::new(), record).await
            })
            .await
        }
    }
}

/// Completes the handshake of a connection whose first bytes were read before.
async fn accept_tls(
    config: Arc<ServerConfig>,
    client: TcpStream,
    received: BytesMut,
) -> io::Result<TlsStream<impl AsyncRead + AsyncWrite>> {
    let (reader, writer) = client.into_split();
    let client = join(io::Cursor::new(received).chain(reader), writer);
    TlsAcceptor::from(config).accept(client).await
}

/// The upstreams of a connection, and the header that they get before its bytes.
struct Route<'s> {
    stream: &'s Stream,
    targets: &'s Targets,
    header: Vec<u8>,
}

impl Route<'_> {
    /// Connects to an upstream, sends it the bytes that were received, and copies all others.
    async fn relay(
        self,
        mut client: impl weft::net::Io,
        received: BytesMut,
        record: &mut ConnectionRecord,
    ) -> Result<End, Refusal> {
        let Route { stream, targets, header } = self;
        let StreamSettings { connect_timeout, idle_timeout, .. } = stream.settings;
        let connected =
            Box::pin(targets.connect(record.client.ip(), &header, connect_timeout)).await;
        let mut connected = connected.ok_or(Refusal::Unreachable)?;
        record.upstream = Some(connected.upstream().to_string());
        let (upstream, metrics) = connected.parts();
        let counts = ByteCounts { connection: &record.traffic, upstream: metrics };
        if !received.is_empty() {
            let sent = async {
                upstream.write_all(&received).await?;
                upstream.flush().await
            };
            if sent.await.is_err() {
                return Ok(End::UpstreamError);
            }
            counts.add(CopySide::A, received.len() as u64);
        }
        drop((header, received));
        let timeouts = IdleTimeouts::same(idle_timeout);
        let socket = (&mut client as &mut dyn Any).downcast_mut::<TcpStream>();
        let end = match (socket, upstream.socket()) {
            (Some(client), Some(upstream)) => {
                copy_sockets(client, upstream, &stream.pipes, timeouts, &counts).await
            }
            // One of them has TLS, or is a Unix socket.
            _ => copy_bidirectional(client, upstream, timeouts, &counts).await,
        };
        Ok(match end {
            CopyEnd::Complete => End::Closed,
            CopyEnd::Idle => End::Idle,
            CopyEnd::Failed(side, error) => {
                let client = record.client;
                log::debug!(
                    "the connection of {client} to {} has failed: {error}",
                    connected.upstream()
                );
                match side {
                    CopySide::A => End::ClientError,
                    CopySide::B => End::UpstreamError,
                }
            }
        })
    }
}

impl Preamble {
    /// Reads the parts of the connection that select the upstream.
    async fn read(
        stream: &Stream,
        client: &mut TcpStream,
        peer: SocketAddr,
    ) -> Result<Preamble, Refusal> {
        let mut received = BytesMut::new();
        let mut source = peer;
        if stream.settings.is_proxy(peer.ip()) {
            let header = loop {
                if let Some(header) = proxy_protocol::read(&received)? {
                    break header;
                }
                receive(client, &mut received).await?;
            };
            source = header.source.unwrap_or(peer);
            drop(received.split_to(header.length));
            if !stream.allows(source.ip()) {
                return Err(Refusal::Denied);
            }
        }
        let mut server_name = None;
        if !stream.by_name.is_empty() {
            let mut reader = HelloReader::new();
            server_name = loop {
                match reader.read(&received) {
                    Hello::Incomplete => receive(client, &mut received).await?,
                    Hello::NotTls => break None,
                    Hello::Complete(name) => break name,
                }
            };
        }
        Ok(Preamble { source, server_name, received })
    }
}

/// Appends the next bytes of the client.
async fn receive(client: &mut TcpStream, received: &mut BytesMut) -> Result<(), Refusal> {
    let remaining = MAX_PREAMBLE_BYTES - received.len();
    if remaining == 0 {
        return Err(Refusal::TooLarge);
    }
    received.reserve(remaining.min(4 << 10));
    match client.read_buf(&mut received.limit(remaining)).await? {
        0 => Err(Refusal::Io(io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(()),
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::Io(error)
    }
}

impl From<weft_proto::Error> for Refusal {
    fn from(error: weft_proto::Error) -> Refusal {
        Refusal::ProxyHeader(error)
    }
}

impl Refusal {
    fn end(&self) -> End {
        match self {
            Refusal::Io(_) => End::ClientError,
            Refusal::Timeout => End::Timeout,
            Refusal::Tls(_) => End::Tls,
            Refusal::ProxyHeader(_) => End::ProxyHeader,
            Refusal::TooLarge => End::TooLarge,
            Refusal::Denied => End::Denied,
            Refusal::NoTarget(_) => End::UnknownName,
            Refusal::Unreachable => End::Unreachable,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Io(error) => write!(f, "{error}"),
            Refusal::Timeout => {
                f.write_str("its first bytes, or the handshake of TLS, arrived too slowly")
            }
            Refusal::Tls(error) => write!(f, "the handshake of TLS failed: {error}"),
            Refusal::ProxyHeader(error) => write!(f, "{}", error.reason()),
            Refusal::TooLarge => f.write_str("its first message is too large"),
            Refusal::Denied => f.write_str("its client is not allowed"),
            Refusal::NoTarget(Some(name)) => write!(f, "there is no upstream for {name:?}"),
            Refusal::NoTarget(None) => f.write_str("it has no TLS server name"),
            Refusal::Unreachable => f.write_str("no upstream accepts connections"),
        }
    }
}
