//! The event loop of the client: one thread, one socket, all connections.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::{Connection, Totals};
use crate::options::Options;
use crate::request::RequestTemplate;
use crate::response::Expected;

const BUFFER_BYTES: usize = 4 << 20;
const MESSAGES: usize = 32;
const MESSAGE_BYTES: usize = 1 << 16;

/// Maximum number of datagrams in one send: 64 KiB.
const MAX_DATAGRAMS: usize = 44;

pub struct Client<'a> {
    options: &'a Options,
    config: ClientConfig,
    socket: UdpSocket,
    state: UdpSocketState,
    endpoint: Endpoint,
    connections: HashMap<ConnectionHandle, Connection>,
    /// Connections whose output was not sent.
    changed: Vec<ConnectionHandle>,
    buffer: Vec<u8>,
    output: Vec<u8>,
    opened: u64,
    expected: Expected,
    /// Number of requests that may be sent.
    pub budget: u64,
    pub totals: Totals,
    pub handshakes: u64,
}

/// The next step of a connection.
pub enum Step {
    /// Sends requests until so many are in progress.
    Request(usize),
    Close,
}

impl<'a> Client<'a> {
    pub fn new(
        options: &'a Options,
        config: ClientConfig,
        expected: Expected,
    ) -> Result<Client<'a>, Box<dyn std::error::Error>> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES)?;
        let state = UdpSocketState::new((&socket).into())?;
        let mut endpoint = EndpointConfig::default();
        endpoint.max_udp_payload_size(options.mtu)?;
        Ok(Client {
            options,
            config,
            socket,
            state,
            endpoint: Endpoint::new(Arc::new(endpoint), None, true, None),
            connections: HashMap::new(),
            changed: Vec::new(),
            buffer: vec![0; MESSAGES * MESSAGE_BYTES],
            output: Vec::new(),
            opened: 0,
            expected,
            budget: u64::MAX,
            totals: Totals::new(),
            handshakes: 0,
        })
    }

    pub fn open(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let (now, address) = (Instant::now(), self.options.address);
        let (handle, quic) =
            self.endpoint.connect(now, self.config.clone(), address, "localhost")?;
        // Requests of different connections differ too.
        let first = self.opened % 100 * 1_000_000;
        self.opened += 1;
        let template = RequestTemplate::new("localhost", &self.options.path, first);
        self.connections.insert(handle, Connection::new(quic, template));
        self.changed.push(handle);
        Ok(())
    }

    /// Number of connections that are open, and of connections whose handshake is complete.
    pub fn counts(&self) -> (usize, usize) {
        let connected = self.connections.values().filter(|connection| connection.is_connected);
        (self.connections.len(), connected.count())
    }

    pub fn is_idle(&self) -> bool {
        self.connections.values().all(Connection::is_idle)
    }

    /// Marks all connections as changed, so that they send requests.
    pub fn wake_all(&mut self) {
        self.changed.extend(self.connections.keys());
    }

    /// Waits for input or a timer at most until `until`, and processes it. `next` determines the
    /// next step of each connection that has changed.
    pub fn turn(&mut self, until: Instant, next: impl Fn(&Connection) -> Step) -> io::Result<()> {
        self.send_changed(&next);
        let deadlines = self.connections.values().filter_map(|connection| connection.deadline);
        let deadline = deadlines.min().map_or(until, |deadline| deadline.min(until));
        let timeout = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => self.receive()?,
            Err(error) => return Err(error.into()),
        }
        self.expire_timers();
        self.send_changed(&next);
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut messages = [RecvMeta::default(); MESSAGES];
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut parts = buffer.chunks_mut(MESSAGE_BYTES);
        let mut slices: [IoSliceMut<'_>; MESSAGES] =
            std::array::from_fn(|_| IoSliceMut::new(parts.next().unwrap_or_default()));
        let received = self.state.recv((&self.socket).into(), &mut slices, &mut messages);
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        for (meta, bytes) in messages[..count].iter().zip(buffer.chunks(MESSAGE_BYTES)) {
            for datagram in bytes[..meta.len].chunks(meta.stride.max(1)) {
                self.process(now, meta, datagram);
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    fn process(&mut self, now: Instant, meta: &RecvMeta, datagram: &[u8]) {
        self.output.clear();
        let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
        let bytes = BytesMut::from(datagram);
        let event = self.endpoint.handle(now, meta.addr, meta.dst_ip, ecn, bytes, &mut self.output);
        if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
            && let Some(connection) = self.connections.get_mut(&handle)
        {
            connection.quic.handle_event(event);
            if self.changed.last() != Some(&handle) {
                self.changed.push(handle);
            }
        }
    }

    fn expire_timers(&mut self) {
        let now = Instant::now();
        for (handle, connection) in &mut self.connections {
            if connection.deadline.is_some_and(|deadline| deadline <= now) {
                connection.quic.handle_timeout(now);
                self.changed.push(*handle);
            }
        }
    }

    /// Processes the events of changed connections, sends requests and output.
    fn send_changed(&mut self, next: &impl Fn(&Connection) -> Step) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let now = Instant::now();
        for handle in changed.drain(..) {
            let Some(connection) = self.connections.get_mut(&handle) else { continue };
            let was_connected = connection.is_connected;
            let mut is_drained = false;
            while let Some(event) = connection.quic.poll_endpoint_events() {
                is_drained |= event.is_drained();
                if let Some(event) = self.endpoint.handle_event(handle, event) {
                    connection.quic.handle_event(event);
                }
            }
            connection.process(now, &mut self.expected, &mut self.totals);
            self.handshakes += u64::from(connection.is_connected && !was_connected);
            let mut is_closed = connection.is_lost;
            if connection.is_connected && !is_closed {
                match next(connection) {
                    Step::Request(count) => {
                        self.budget -= connection.send_requests(now, count, self.budget);
                    }
                    Step::Close => {
                        connection.close(now);
                        is_closed = true;
                    }
                }
            }
            send(connection, &self.socket, &self.state, &mut self.output, now);
            connection.deadline = connection.quic.poll_timeout();
            if is_drained || is_closed {
                if !is_drained {
                    self.endpoint.handle_event(handle, quinn_proto::EndpointEvent::drained());
                }
                self.connections.remove(&handle);
            }
        }
        self.changed = changed;
    }

    pub fn close_all(&mut self) {
        let now = Instant::now();
        for connection in self.connections.values_mut() {
            connection.close(now);
            send(connection, &self.socket, &self.state, &mut self.output, now);
        }
    }
}

fn send(
    connection: &mut Connection,
    socket: &UdpSocket,
    state: &UdpSocketState,
    output: &mut Vec<u8>,
    now: Instant,
) {
    let max_datagrams = state.max_gso_segments().min(MAX_DATAGRAMS);
    loop {
        output.clear();
        let Some(transmit) = connection.quic.poll_transmit(now, max_datagrams, output) else {
            return;
        };
        let transmit = Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &output[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        // A datagram that the socket does not accept is lost.
        let _ = state.try_send(socket.into(), &transmit);
    }
}
