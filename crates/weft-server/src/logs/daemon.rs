//! Output of a log to a logging daemon: one message for each line, over a connection that is made
//! again after a failure.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use weft::date::rfc3339_millis;

use super::message::MessageHeader;
use crate::base::log_target::{DaemonAddress, LogDaemon};
use crate::base::sys::{UnixDatagram, is_closed_by_peer, is_too_large};

/// Maximum length of the text of a message, in bytes: it fits into the send buffer of a Unix
/// socket.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The same for UDP, which has datagrams of at most 64 KiB, in several packets (RFC 5426 §3.2).
const MAX_UDP_TEXT_BYTES: usize = 8 << 10;

/// Maximum time to connect, and for a connection that accepts no data.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time after the first failure without an attempt to connect. It doubles with each failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

pub(super) struct DaemonLog {
    daemon: LogDaemon,
    header: MessageHeader,
    connection: Option<Connection>,
    /// Buffer for a message.
    message: Vec<u8>,
    retry_delay: Duration,
    retry_at: Option<Instant>,
}

enum Connection {
    Unix(UnixDatagram),
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl DaemonLog {
    /// Creates an output that connects with the first line.
    pub(super) fn new(daemon: LogDaemon, header: MessageHeader) -> DaemonLog {
        let (connection, message, retry_at) = Default::default();
        DaemonLog { daemon, header, connection, message, retry_delay: MIN_RETRY_DELAY, retry_at }
    }

    /// The daemon, as in the configuration.
    pub(super) fn name(&self) -> &str {
        &self.daemon.text
    }

    /// Closes the connection. The next line opens another one.
    pub(super) fn reconnect(&mut self) {
        (self.connection, self.retry_at) = (None, None);
    }

    /// Sends a line. A message that is too large for the connection is lost.
    pub(super) fn send(&mut self, line: &[u8]) -> io::Result<()> {
        self.compose(line);
        let sent = self.connect().and_then(|()| match &self.connection {
            Some(connection) => connection.send(&self.message),
            None => Err(io::ErrorKind::NotConnected.into()),
        });
        match sent {
            Ok(()) => {
                self.retry_delay = MIN_RETRY_DELAY;
                Ok(())
            }
            Err(error) if is_too_large(&error) => Ok(()),
            // The queue of the daemon is full.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            Err(error) => {
                self.connection = None;
                self.retry_at = Some(Instant::now() + self.retry_delay);
                self.retry_delay = (2 * self.retry_delay).min(MAX_RETRY_DELAY);
                Err(error)
            }
        }
    }

    fn compose(&mut self, line: &[u8]) {
        self.message.clear();
        let time = || rfc3339_millis(SystemTime::now());
        let (header, message) = (&self.header, &mut self.message);
        match &self.daemon.address {
            DaemonAddress::SyslogUnix(_) => header.syslog(message, line, &time(), MAX_TEXT_BYTES),
            DaemonAddress::SyslogUdp(_) => {
                header.syslog(message, line, &time(), MAX_UDP_TEXT_BYTES);
            }
            DaemonAddress::SyslogTcp(_) => {
                header.syslog(message, line, &time(), MAX_TEXT_BYTES);
                // Octet counting (RFC 6587 §3.4.1).
                let length = format!("{} ", message.len());
                message.splice(..0, length.into_bytes());
            }
            DaemonAddress::Journald(_) => header.journald(message, line, MAX_TEXT_BYTES),
        }
    }

    /// Connects, unless there is a connection already.
    fn connect(&mut self) -> io::Result<()> {
        if self.connection.as_ref().is_some_and(Connection::is_closed) {
            self.connection = None;
        }
        if self.connection.is_none() {
            if self.retry_at.is_some_and(|at| Instant::now() < at) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            self.connection = Some(Connection::open(&self.daemon.address)?);
        }
        Ok(())
    }
}

impl Connection {
    fn open(address: &DaemonAddress) -> io::Result<Connection> {
        Ok(match address {
            DaemonAddress::SyslogUnix(path) | DaemonAddress::Journald(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(Some(TIMEOUT))?;
                Connection::Unix(socket)
            }
            DaemonAddress::SyslogUdp(host) => {
                let address = resolve(host)?;
                let any: SocketAddr = match address {
                    SocketAddr::V4(_) => ([0; 4], 0).into(),
                    SocketAddr::V6(_) => ([0; 16], 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                Connection::Udp(socket)
            }
            DaemonAddress::SyslogTcp(host) => {
                let stream = TcpStream::connect_timeout(&resolve(host)?, TIMEOUT)?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Connection::Tcp(stream)
            }
        })
    }

    /// Returns true if the daemon has closed the connection, over which it sends nothing else.
    fn is_closed(&self) -> bool {
        let Connection::Tcp(stream) = self else { return false };
        is_closed_by_peer(stream)
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Connection::Unix(socket) => socket.send(message).map(|_| ()),
            Connection::Udp(socket) => socket.send(message).map(|_| ()),
            Connection::Tcp(stream) => {
                let mut stream = stream;
                // After a part of a message, the connection is of no use.
                stream.write_all(message).map_err(|error| match error.kind() {
                    io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
                    _ => error,
                })
            }
        }
    }
}

fn resolve(host: &str) -> io::Result<SocketAddr> {
    host.to_socket_addrs()?.next().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
