//! A client of HTTP/3 for tests of the program.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, ReadError, RecvStream, VarInt};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;

/// An open connection to the host `a`.
pub struct Http3Client {
    endpoint: Endpoint,
    pub connection: Connection,
    /// Set after GOAWAY of the server.
    pub goaway: Arc<AtomicBool>,
}

/// The response on a stream.
pub struct Http3Response {
    stream: RecvStream,
    received: Vec<u8>,
}

impl Http3Client {
    /// Connects to a server with this certificate.
    pub async fn connect(
        address: SocketAddr,
        certificate: &CertificateDer<'static>,
    ) -> Http3Client {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider);
        let tls = tls.with_safe_default_protocol_versions().unwrap();
        let mut tls = tls.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connection = endpoint.connect_with(config, address, "a").unwrap().await.unwrap();
        let goaway = Arc::new(AtomicBool::new(false));
        tokio::spawn(watch_goaway(connection.clone(), goaway.clone()));
        Http3Client { endpoint, connection, goaway }
    }

    /// Changes the address of the client.
    pub fn rebind(&self) {
        self.endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
    }

    pub fn close(&self) {
        self.connection.close(VarInt::from_u32(0x100), b"");
    }

    /// Sends a GET without a body.
    pub async fn send(&self, target: &str) -> Http3Response {
        let (mut send, stream) = self.connection.open_bi().await.unwrap();
        // Indexed fields and literals with names of the static table (RFC 9204 §4.5, Appendix A).
        let mut section = vec![0, 0, 0xc0 | 17, 0xc0 | 23, 0x50, 1, b'a', 0x51];
        section.push(u8::try_from(target.len()).expect("a short target"));
        section.extend_from_slice(target.as_bytes());
        let length = u8::try_from(section.len()).unwrap();
        assert!(length < 0x40);
        let _ = send.write_all(&[&[1, length][..], &section].concat()).await;
        let _ = send.finish();
        Http3Response::new(stream)
    }

    /// Returns the content of a response.
    pub async fn get(&self, target: &str) -> Result<Vec<u8>, ReadError> {
        self.send(target).await.content().await
    }
}

impl Http3Response {
    pub fn new(stream: RecvStream) -> Http3Response {
        Http3Response { stream, received: Vec::new() }
    }

    /// Receives the rest of the content.
    pub async fn content(mut self) -> Result<Vec<u8>, ReadError> {
        let mut content = Vec::new();
        while let Some((kind, payload)) = self.frame().await? {
            if kind == 0 {
                content.extend_from_slice(&payload);
            }
        }
        Ok(content)
    }

    /// Receives a frame; `None` at the end of the stream.
    pub async fn frame(&mut self) -> Result<Option<(u64, Vec<u8>)>, ReadError> {
        loop {
            if let Some((kind, length, payload)) = parse(&self.received)
                && self.received.len() - payload >= length
            {
                let rest = self.received.split_off(payload + length);
                let frame = std::mem::replace(&mut self.received, rest).split_off(payload);
                return Ok(Some((kind, frame)));
            }
            match self.stream.read_chunk(usize::MAX, true).await? {
                Some(chunk) => self.received.extend_from_slice(&chunk.bytes),
                None => return Ok(None),
            }
        }
    }
}

/// Returns the type, the length and the start of the payload of a frame.
fn parse(bytes: &[u8]) -> Option<(u64, usize, usize)> {
    let (kind, first) = varint(bytes)?;
    let (length, second) = varint(&bytes[first..])?;
    Some((kind, usize::try_from(length).ok()?, first + second))
}

fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = 1_usize << (bytes.first()? >> 6);
    let value = bytes.get(..length)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some((value & (u64::MAX >> (66 - 8 * length)), length))
}

async fn watch_goaway(connection: Connection, received: Arc<AtomicBool>) {
    while let Ok(mut stream) = connection.accept_uni().await {
        let mut kind = [0];
        if stream.read_exact(&mut kind).await.is_err() || kind != [0] {
            continue;
        }
        let mut control = Http3Response::new(stream);
        while let Ok(Some((kind, _))) = control.frame().await {
            if kind == 7 {
                received.store(true, SeqCst);
            }
        }
    }
}
