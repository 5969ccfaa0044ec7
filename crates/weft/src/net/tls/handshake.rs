//! The state of a handshake, for the driver in `server`.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use rustls::{ProtocolVersion, ServerConnection};

use crate::error::{Error, ErrorKind, Result};
use crate::net::reader::ReadHalf;
use crate::net::secure::SecureHandshake;
use crate::net::secure_half::{SecureRead, SecureWrite};
use crate::net::tls::cipher_order::OrderedConfigs;
use crate::net::tls::named_identities::ObtainIdentity;
use crate::net::tls::resolver::Resolver;
use crate::net::tls::session::session;
use crate::net::tls::session_age::{self, SessionStart};
use crate::net::tls::stream;
use crate::net::writer::WriteHalf;
use crate::peer::{AuthPolicy, TlsSession};

/// A connection whose handshake is in progress.
pub(super) struct Handshake {
    state: State,
    configs: OrderedConfigs,
    session_start: SessionStart,
    /// Policy that was in effect when the handshake began.
    policy: Arc<AuthPolicy>,
    client: Option<IpAddr>,
}

enum State {
    /// The ClientHello is received first: the configuration depends on the cipher suites, and the
    /// server name may have no identity yet.
    Hello(Acceptor, Arc<Resolver>),
    /// The identity for the server name is being obtained.
    Obtaining(Box<Accepted>, ObtainIdentity, Arc<Resolver>),
    Connection(ServerConnection),
    /// The handshake has failed before there was a connection. The alert is sent.
    Failed(Vec<u8>),
}

/// Alert `unexpected_message` in a record (RFC 8446 §6.2).
const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// Alert `unrecognized_name` in a record (RFC 8446 §6.2, RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

const HAS_CONNECTION: &str = "the handshake has finished";

impl Handshake {
    pub(super) fn new(
        configs: OrderedConfigs,
        resolver: Arc<Resolver>,
        policy: Arc<AuthPolicy>,
        client: Option<IpAddr>,
    ) -> Handshake {
        let state = State::Hello(Acceptor::default(), resolver);
        Handshake { state, configs, session_start: None, policy, client }
    }

    fn connection(&self) -> &ServerConnection {
        match &self.state {
            State::Connection(connection) => connection,
            _ => unreachable!("{HAS_CONNECTION}"),
        }
    }

    /// Continues with the server name of the client, if all of its ClientHello has been received.
    fn accept(&mut self, ciphertext: &mut BytesMut) -> Result<()> {
        let State::Hello(acceptor, resolver) = &mut self.state else { return Ok(()) };
        let length = acceptor.read_tls(&mut &ciphertext[..]);
        let length = length.map_err(|error| failed(rustls::Error::General(error.to_string())))?;
        ciphertext.advance(length);
        let resolver = resolver.clone();
        match acceptor.accept() {
            Ok(None) => Ok(()),
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let has_key = resolver.has_key(&hello);
                let obtain = match has_key {
                    true => resolver.obtain_validation(&hello, self.client),
                    false => {
                        hello.server_name().and_then(|name| resolver.obtain(name, self.client))
                    }
                };
                match obtain {
                    Some(obtain) => {
                        self.state = State::Obtaining(Box::new(accepted), obtain, resolver);
                        Ok(())
                    }
                    None if has_key => self.connect(accepted),
                    None => self.connect_with_fallback(accepted, &resolver),
                }
            }
            Err((error, alert)) => Err(self.fail(error, alert)),
        }
    }

    /// Continues with the identity for all names without one of their own.
    fn connect_with_fallback(&mut self, accepted: Accepted, resolver: &Resolver) -> Result<()> {
        if resolver.has_fallback(accepted.client_hello().server_name()) {
            return self.connect(accepted);
        }
        let reason = match accepted.client_hello().server_name() {
            Some(name) => format!("there is no certificate for {name}"),
            None => "there is no certificate for clients without a server name".to_owned(),
        };
        Err(self.refuse(reason))
    }

    fn connect(&mut self, accepted: Accepted) -> Result<()> {
        let config = self.configs.for_client(&accepted.client_hello()).clone();
        match accepted.into_connection(config) {
            Ok(mut connection) => {
                // Processes input behind the ClientHello.
                let processed = connection.process_new_packets();
                self.state = State::Connection(connection);
                processed.map(|_| ()).map_err(failed)
            }
            Err((error, alert)) => Err(self.fail(error, alert)),
        }
    }

    fn fail(&mut self, error: rustls::Error, mut alert: AcceptedAlert) -> Error {
        let mut record = Vec::new();
        alert.write_all(&mut record).expect("writing to a Vec cannot fail");
        // rustls has no alert for a first message of another type.
        if record.is_empty() {
            record.extend(UNEXPECTED_MESSAGE);
        }
        self.state = State::Failed(record);
        failed(error)
    }

    fn refuse(&mut self, reason: String) -> Error {
        self.state = State::Failed(UNRECOGNIZED_NAME.to_vec());
        Error::new(ErrorKind::NoCertificate, reason)
    }
}

impl SecureHandshake for Handshake {
    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Connection(connection) => connection.is_handshaking(),
            _ => true,
        }
    }

    fn process(&mut self, ciphertext: &mut BytesMut) -> Result<()> {
        let mut start = self.session_start;
        let result = session_age::with_session(&mut start, || match &mut self.state {
            State::Connection(connection) => {
                stream::process_records(connection, ciphertext).map(|_| ()).map_err(failed)
            }
            _ => self.accept(ciphertext),
        });
        self.session_start = start;
        result
    }

    fn is_obtaining(&self) -> bool {
        matches!(self.state, State::Obtaining(..))
    }

    fn poll_obtain(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let State::Obtaining(_, obtain, _) = &mut self.state else { return Poll::Ready(Ok(())) };
        let Poll::Ready(obtained) = obtain.as_mut().poll(cx) else { return Poll::Pending };
        Poll::Ready(obtained.map_err(|reason| self.refuse(reason)))
    }

    fn continue_with_obtained(&mut self) -> Result<()> {
        let state = std::mem::replace(&mut self.state, State::Failed(Vec::new()));
        let State::Obtaining(accepted, _, resolver) = state else {
            self.state = state;
            return Ok(());
        };
        let mut start = self.session_start;
        let result = session_age::with_session(&mut start, || {
            match resolver.has_key(&accepted.client_hello()) {
                true => self.connect(*accepted),
                false => self.connect_with_fallback(*accepted, &resolver),
            }
        });
        self.session_start = start;
        result
    }

    /// Records that TLS 1.3 sends after the handshake, session tickets, can be sent with the first
    /// response.
    fn must_flush(&self) -> bool {
        match &self.state {
            State::Connection(connection) => {
                connection.is_handshaking()
                    || connection.protocol_version() != Some(ProtocolVersion::TLSv1_3)
            }
            _ => true,
        }
    }

    fn poll_send(&mut self, half: &mut WriteHalf, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.state {
            State::Connection(connection) => stream::poll_send(connection, half, cx),
            State::Failed(alert) if !alert.is_empty() => {
                half.poll_write(cx, alert).map_ok(|sent| alert.drain(..sent).len())
            }
            _ => Poll::Ready(Ok(0)),
        }
    }

    fn session(&self) -> TlsSession {
        session(self.connection(), self.policy.clone())
    }

    fn split(
        self: Box<Self>,
        ciphertext: BytesMut,
        read: ReadHalf,
        write: WriteHalf,
    ) -> (Box<dyn SecureRead>, Box<dyn SecureWrite>) {
        let State::Connection(connection) = self.state else { unreachable!("{HAS_CONNECTION}") };
        let (read, write) = stream::split(connection, ciphertext, read, write);
        (Box::new(read), Box::new(write))
    }
}

fn failed(error: rustls::Error) -> Error {
    Error::new(ErrorKind::TlsFailed, "the TLS handshake failed").with_source(error)
}
