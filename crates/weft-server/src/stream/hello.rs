//! The server name of a TLS ClientHello, which is read without decrypting anything.

use rustls::server::Acceptor;

/// State of the first bytes of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// The bytes are not the start of a TLS connection.
    NotTls,
    /// The server name, if the client sent one.
    Complete(Option<String>),
}

/// Reads a ClientHello, which may be in several segments and records.
pub(super) struct HelloReader {
    acceptor: Acceptor,
    /// Number of bytes that the acceptor has taken.
    taken: usize,
}

impl HelloReader {
    pub(super) fn new() -> HelloReader {
        HelloReader { acceptor: Acceptor::default(), taken: 0 }
    }

    /// Continues with all bytes received so far. Not called again after another result than
    /// [`Hello::Incomplete`].
    pub(super) fn read(&mut self, received: &[u8]) -> Hello {
        while self.taken < received.len() {
            match self.acceptor.read_tls(&mut &received[self.taken..]) {
                Ok(count @ 1..) => self.taken += count,
                Ok(0) | Err(_) => return Hello::NotTls,
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_owned);
                    return Hello::Complete(name);
                }
                Err(_) => return Hello::NotTls,
            }
        }
        Hello::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    fn client_hello(name: &'static str) -> Vec<u8> {
        let config = ClientConfig::builder()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name).unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn reads_the_server_name_in_any_segments() {
        for (host, name) in [("a.example", Some("a.example")), ("127.0.0.1", None)] {
            let hello = client_hello(host);
            let expected = Hello::Complete(name.map(str::to_owned));
            assert_eq!(HelloReader::new().read(&hello), expected);
            for cut in [1, 5, 6, 60, hello.len() - 1] {
                let mut reader = HelloReader::new();
                assert_eq!(reader.read(&hello[..cut]), Hello::Incomplete, "{cut}");
                assert_eq!(reader.read(&hello), expected, "{cut}");
            }
            let mut reader = HelloReader::new();
            for end in 1..hello.len() {
                assert_eq!(reader.read(&hello[..end]), Hello::Incomplete, "{end}");
            }
            assert_eq!(reader.read(&hello), expected);
        }
    }

    #[test]
    fn other_protocols_are_not_tls() {
        for first in ["GET / HTTP/1.1\r\n\r\n", "SSH-2.0-x\r\n", "\u{16}\u{3}\u{1}\0\u{5}hello"] {
            assert_eq!(HelloReader::new().read(first.as_bytes()), Hello::NotTls, "{first:?}");
        }
    }
}
