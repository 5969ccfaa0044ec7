//! Without a default of the process, rustls selects the only provider that is compiled. If a
//! dependency enabled another one, `ClientConfig::builder` would panic.

use weft::testing;
use weft::{Request, Response};

async fn hello(_: Request) -> Response {
    Response::text("Hello\n")
}

fn main() {
    let _client = rustls::ClientConfig::builder();
    testing::get(hello, "/").assert_text("Hello\n");
    #[cfg(feature = "tls")]
    https::serves_with_the_same_provider();
    println!("rustls has one provider");
}

#[cfg(feature = "tls")]
mod https {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream};
    use weft::tls::{Identity, Tls, TlsSettings};

    /// The second connection resumes the session of the first one by a ticket.
    pub fn serves_with_the_same_provider() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let identity = Identity::pem(made.cert.pem(), made.signing_key.serialize_pem());
        let tls =
            Tls::new(TlsSettings { identities: vec![identity], ..Default::default() }).unwrap();
        let server = weft::Server::new(super::hello).workers(1);
        let server = server.listen_tls("127.0.0.1:0", &tls).unwrap().start().unwrap();
        let address = server.addresses()[0].address().unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let client = Arc::new(client);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let name = "localhost".try_into().unwrap();
            let mut connection = ClientConnection::new(client.clone(), name).unwrap();
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut stream = Stream::new(&mut connection, &mut socket);
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            assert!(response.ends_with("\r\n\r\nHello\n"), "{response}");
            assert_eq!(connection.handshake_kind(), Some(kind));
        }
        server.shutdown(Duration::ZERO);
    }
}
