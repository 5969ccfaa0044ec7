//! A client on `quinn-proto` whose datagrams the test sends: for frames and packets that a client
//! with an event loop does not send.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, Event,
};

use crate::common::TEST_TIMEOUT;
use crate::common::http3::quic_config;

pub struct RawClient {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub connection: Connection,
    pub is_connected: bool,
    pub lost: Option<ConnectionError>,
}

impl RawClient {
    /// Begins a connection. Its first datagrams are sent by [`send`](RawClient::send).
    pub fn new(server: SocketAddr) -> RawClient {
        RawClient::with_config(server, quic_config(&[b"h3"]))
    }

    pub fn with_config(server: SocketAddr, config: ClientConfig) -> RawClient {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let endpoint_config = Arc::new(EndpointConfig::default());
        let mut endpoint = Endpoint::new(endpoint_config, None, true, None);
        let (handle, connection) = endpoint.connect(Instant::now(), config, server, "a").unwrap();
        RawClient { socket, server, endpoint, handle, connection, is_connected: false, lost: None }
    }

    /// Sends the output of the connection. Returns the number of datagrams.
    pub fn send(&mut self) -> usize {
        let (mut buffer, mut count) = (Vec::new(), 0);
        while let Some(transmit) = self.connection.poll_transmit(Instant::now(), 1, &mut buffer) {
            let _ = self.socket.send_to(&buffer[..transmit.size], self.server);
            buffer.clear();
            count += 1;
        }
        count
    }

    /// Receives one datagram, if there is one, and processes the timers. Returns false if there was
    /// none.
    pub fn receive(&mut self) -> bool {
        let mut buffer = [0; 2_048];
        let received = self.socket.recv_from(&mut buffer);
        match &received {
            Ok((length, from)) => self.on_datagram(&buffer[..*length], *from),
            Err(error) => {
                let is_empty =
                    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                assert!(is_empty, "{error}");
            }
        }
        let now = Instant::now();
        if self.connection.poll_timeout().is_some_and(|due| due <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
        received.is_ok()
    }

    fn on_datagram(&mut self, datagram: &[u8], from: SocketAddr) {
        let mut out = Vec::new();
        let datagram = BytesMut::from(datagram);
        let now = Instant::now();
        let event = self.endpoint.handle(now, from, None, None, datagram, &mut out);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    /// Sends and receives until the condition is met.
    pub fn run_until(&mut self, what: &str, mut condition: impl FnMut(&mut RawClient) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < TEST_TIMEOUT, "{what}");
            self.send();
            self.receive();
        }
    }

    /// Connects to a server.
    pub fn connected(server: SocketAddr) -> RawClient {
        let mut client = RawClient::new(server);
        client.run_until("the handshake completes", |client| client.is_connected);
        client
    }

    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The code with which the server has closed the connection.
    pub fn close_code(&self) -> Option<u64> {
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) => Some(close.error_code.into_inner()),
            _ => None,
        }
    }
}
