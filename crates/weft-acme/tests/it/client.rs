//! A client that verifies the certificate of a server, with a connection for each request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::support::TEST_TIMEOUT;

/// A response, and the certificate of its server.
pub struct Verified {
    pub body: Vec<u8>,
    pub certificate: CertificateDer<'static>,
}

/// Requests a resource with a new connection, and verifies the certificate for `name` with the
/// roots in a file.
pub fn get(address: SocketAddr, name: &str, roots: &Path, target: &str) -> io::Result<Verified> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut trusted = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(roots).map_err(io::Error::other)? {
        trusted.add(root.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let config = config.with_root_certificates(trusted).with_no_client_auth();
    let server_name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), server_name).map_err(io::Error::other)?;
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TEST_TIMEOUT))?;
    let received = exchange(Stream::new(&mut tls, &mut socket), name, target)?;
    let certificate = tls.peer_certificates().and_then(|chain| chain.first().cloned());
    match (received.status, certificate) {
        (200, Some(certificate)) => Ok(Verified { body: received.body, certificate }),
        (status, _) => Err(io::Error::other(format!("the status is {status}"))),
    }
}

/// Requests a resource without TLS.
pub fn get_without_tls(address: SocketAddr, host: &str, target: &str) -> io::Result<Received> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(TEST_TIMEOUT))?;
    exchange(socket, host, target)
}

/// A response whose body extends to the end of the connection.
pub struct Received {
    pub status: u16,
    head: String,
    body: Vec<u8>,
}

impl Received {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// HTTP/1.0, in which no body is chunked.
fn exchange(mut stream: impl Read + Write, host: &str, target: &str) -> io::Result<Received> {
    write!(stream, "GET {target} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = received.split_off(end.ok_or(io::ErrorKind::UnexpectedEof)? + 4);
    let head = String::from_utf8(received).map_err(io::Error::other)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let received = Received { status, head, body };
    match received.field("content-length").map(str::parse::<usize>) {
        Some(Ok(bytes)) if received.body.len() == bytes => Ok(received),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
