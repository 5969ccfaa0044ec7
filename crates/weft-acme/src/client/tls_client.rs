//! An HTTP client with a connection for each request.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
#[cfg(feature = "tls")]
use rustls::crypto::aws_lc_rs::default_provider;
#[cfg(not(feature = "tls"))]
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use weft_proto::http1::single_exchange::{ResponseReader, compose_request};

use super::http_client::{HttpClient, ResponseFuture};

/// Time for which the trusted authorities are kept. The authorities of the system may change, and
/// to read them takes long.
const CONFIG_TIME: Duration = Duration::from_secs(3_600);

/// Longest time for a connection to one of the addresses of a server.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// An HTTP/1.1 client over TLS, with a connection for each request. An order has some twenty
/// requests.
///
/// It trusts the certificate authorities of the system, or the authorities in a file, and reads
/// them again after an hour. There is no proxy. Each address of a server has up to 5 s for the
/// connection.
#[derive(Debug, Default)]
pub struct TlsClient {
    ca: Option<PathBuf>,
    /// The configuration, and the time at which it was created.
    config: Mutex<Option<(Arc<ClientConfig>, Instant)>>,
}

impl TlsClient {
    /// Creates a client that trusts only the certificate authorities in a PEM file, such as the
    /// authority of a company.
    pub fn with_ca(path: impl Into<PathBuf>) -> TlsClient {
        TlsClient { ca: Some(path.into()), config: Mutex::default() }
    }

    /// Returns the configuration. It is created again after `CONFIG_TIME`.
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
        let (method, uri) = (request.method(), request.uri());
        let (Some("https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("expected https://".to_owned());
        };
        let failed = |error: std::io::Error| error.to_string();
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let server_name = ServerName::try_from(name.to_owned()).map_err(|it| it.to_string())?;
        let connector = TlsConnector::from(self.config(Instant::now())?);
        let socket = connect(name, authority.port_u16().unwrap_or(443)).await?;
        let mut stream = connector.connect(server_name, socket).await.map_err(failed)?;
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let fields =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let composed = compose_request((method, target), host, fields, request.body());
        stream.write_all(&composed).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let mut reader = ResponseReader::new(method, max_bytes);
        let mut input = BytesMut::new();
        loop {
            // rustls returns an error if the connection ends without close_notify.
            let is_at_end = stream.read_buf(&mut input).await.map_err(failed)? == 0;
            if reader.read(&mut input, is_at_end)? {
                return reader.into_response();
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

/// Creates a configuration that trusts the authorities in the file `ca`, or the authorities of the
/// system.
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
    let builder = ClientConfig::builder_with_provider(default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().map_err(|it| it.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
