//! A client that verifies the certificate of a server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::common::{Response, TEST_TIMEOUT};

/// A response, and the certificate of its server.
pub struct Verified {
    pub body: Vec<u8>,
    pub certificate: CertificateDer<'static>,
}

/// Requests a resource with a new connection, and verifies the certificate for `name` with the roots in
/// a file.
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
    let mut stream = Stream::new(&mut tls, &mut socket);
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    let response = Response::parse(&received, false).ok_or(io::ErrorKind::UnexpectedEof)?;
    let certificate = tls.peer_certificates().and_then(|chain| chain.first().cloned());
    match (response.status, certificate) {
        (200, Some(certificate)) => Ok(Verified { body: response.body, certificate }),
        (status, _) => Err(io::Error::other(format!("the status is {status}"))),
    }
}
