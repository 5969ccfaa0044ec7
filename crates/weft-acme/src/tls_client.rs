//! An HTTP client with a connection for each request.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use weft_proto::ErrorKind;
use weft_proto::http1::whole_response::ResponseReader;

use crate::http_client::{HttpClient, ResponseFuture};

/// Maximum size of the head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 32 << 10;

/// Time for which the certificate authorities are kept: those of the system may change, and to read them
/// takes long.
const CONFIG_TIME: Duration = Duration::from_secs(3_600);

/// Longest time for a connection to one of the addresses of a server.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// An HTTP/1.1 client over TLS, with a connection for each request: an order has some twenty of them.
///
/// It trusts the certificate authorities of the system, which it reads again after an hour, or those
/// of a file. There is no proxy. Each address of a server has up to 5 s for the connection.
#[derive(Debug, Default)]
pub struct TlsClient {
    ca: Option<PathBuf>,
    /// The configuration, and the time at which it was created.
    config: Mutex<Option<(Arc<ClientConfig>, Instant)>>,
}

impl TlsClient {
    /// Creates a client that trusts only the certificate authorities in a PEM file, such as that of a
    /// company's own authority.
    pub fn with_ca(path: impl Into<PathBuf>) -> TlsClient {
        TlsClient { ca: Some(path.into()), config: Mutex::default() }
    }

    /// Returns the configuration, which is created again after some time.
    fn config(&self, now: Instant) -> Result<Arc<ClientConfig>, String> {
        let mut kept = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((config, since)) if now.saturating_duration_since(*since) < CONFIG_TIME => {
                Ok(config.clone())
            }
            _ => {
                let config = config(self.ca.as_deref())?;
                *kept = Some((config.clone(), now));
                Ok(config)
            }
        }
    }

    async fn exchange(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<Response<Vec<u8>>, String> {
        if request.uri().scheme_str() != Some("https") {
            return Err("expected https://".to_owned());
        }
        let host = request.uri().host().unwrap_or_default();
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = ServerName::try_from(name.clone()).map_err(|error| error.to_string())?;
        let config = self.config(Instant::now())?;
        let failed = |error: std::io::Error| error.to_string();
        let socket = connect(&name, request.uri().port_u16().unwrap_or(443)).await?;
        let mut stream =
            TlsConnector::from(config).connect(server_name, socket).await.map_err(failed)?;
        stream.write_all(&compose(&request)).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let mut reader = ResponseReader::new(request.method(), MAX_HEAD_BYTES, max_bytes);
        let mut input = BytesMut::new();
        loop {
            // Without close_notify the end of the connection is an error.
            let is_at_end = stream.read_buf(&mut input).await.map_err(failed)? == 0;
            let read = reader.read(&mut input, is_at_end).map_err(|error| match error.kind() {
                ErrorKind::BodyTooLarge => format!("it is larger than {max_bytes} bytes"),
                _ => error.reason().to_owned(),
            });
            if let Some((head, body)) = read? {
                let mut response = Response::builder().status(head.status);
                for (name, value) in head.headers.iter() {
                    response = response.header(name, value);
                }
                return response.body(body).map_err(|error| error.to_string());
            }
        }
    }
}

impl HttpClient for TlsClient {
    fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
        time: Duration,
    ) -> ResponseFuture<'_> {
        Box::pin(async move {
            let sent = timeout(time, self.exchange(request, max_bytes)).await;
            sent.unwrap_or_else(|_| Err("timed out".to_owned()))
        })
    }
}

/// Connects to the first address of a server that accepts.
async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    let mut reason = "the name has no address".to_owned();
    for address in addresses {
        match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => reason = error.to_string(),
            Err(_) => reason = format!("{address} does not respond"),
        }
    }
    Err(reason)
}

/// Composes a request, after which the connection closes.
fn compose(request: &Request<Bytes>) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let host = request.uri().host().unwrap_or_default();
    let port = request.uri().port().map_or_else(String::new, |port| format!(":{port}"));
    let (method, length) = (request.method(), request.body().len());
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {host}{port}\r\ncontent-length: {length}\r\n\
         connection: close\r\n"
    );
    let mut out = head.into_bytes();
    for (name, value) in request.headers() {
        out.extend_from_slice(
            &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
        );
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(request.body());
    out
}

/// Creates a configuration that trusts the authorities in the file `ca`, or those of the system.
fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let failed =
                |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|it| failed(&it))? {
                let certificate = certificate.map_err(|error| failed(&error))?;
                roots.add(certificate).map_err(|error| failed(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("there are no certificate authorities to trust".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().map_err(|it| it.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
