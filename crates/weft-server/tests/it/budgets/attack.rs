//! Attacks as data: the script of each connection, and its budget.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The transport of an attack, below its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP to the plaintext listener.
    Plain,
    /// TCP to the TLS listener: the script consists of TLS records.
    Records,
    /// TLS with this application protocol.
    Tls(&'static str),
    /// TLS, with an update of the traffic keys before each repetition (RFC 8446 §4.6.3).
    KeyUpdates,
    /// TLS, and after the handshake plaintext on the same socket.
    AfterHandshake,
    /// HTTP/3. The bytes that are sent first are on a unidirectional stream, and the repetitions on
    /// these streams.
    Http3(Http3Streams),
    /// UDP without a connection: each repetition is a datagram.
    Datagrams,
}

impl Transport {
    /// Returns true for UDP, where the server has no socket for each connection.
    pub fn is_udp(self) -> bool {
        matches!(self, Transport::Http3(_) | Transport::Datagrams)
    }
}

/// Streams that carry the repetitions of an attack over HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http3Streams {
    /// All on the first unidirectional stream.
    First,
    /// All on another unidirectional stream.
    OneUnidirectional,
    /// All on one request stream.
    OneRequest,
    /// Each on a unidirectional stream of its own.
    Unidirectional,
    /// Each on a request stream of its own.
    Requests,
    /// Each on a request stream of its own, which is then reset.
    Resets,
}

/// The way in which an attacker reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    All,
    Nothing,
    /// One small read each 100 ms.
    Slowly,
}

/// The end of an attack.
#[derive(Clone, Debug)]
pub enum Ends {
    /// The server closes all connections, after a time in this range, in seconds. The minimum
    /// detects a script that does not reach the behavior that its row is about.
    GivenUp(RangeInclusive<f64>),
    /// The server may serve the whole script. The client then waits for this time, unless the
    /// server closes the connection before.
    Served(Duration),
}

/// Limits of one attack.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Peak memory per connection, in KiB.
    pub memory_kib: f64,
    /// Memory that the server needs once, however many connections there are, in KiB.
    pub shared_kib: f64,
    /// CPU time per connection, as a number of ordinary requests that take as long.
    pub requests: f64,
    /// CPU time per byte, relative to the CPU time of ordinary clients, which open as many
    /// connections and send as many bytes in ordinary requests.
    pub cpu: f64,
    /// Peak number of descriptors per connection.
    pub descriptors: f64,
    /// Bytes written to files per connection, in KiB.
    pub disk_kib: f64,
}

/// One row of a table: connections that each follow the same script.
#[derive(Clone, Debug)]
pub struct Attack {
    pub name: &'static str,
    /// Identifier of the first known vulnerability of this class, or its common name.
    pub class: &'static str,
    pub transport: Transport,
    pub connections: usize,
    /// Loopback address of the attacker.
    pub source: [u8; 4],
    /// Sent first.
    pub once: Vec<u8>,
    /// Sent next: the bytes of repetition 0, 1, and so on.
    pub repeat: fn(usize) -> Vec<u8>,
    pub times: usize,
    /// Time between two repetitions, each sent by itself; `None` sends many in one write.
    pub pace: Option<Duration>,
    /// Sent last.
    pub last: Vec<u8>,
    pub reads: Reads,
    pub ends: Ends,
    /// Expected answer; several are separated by `|`.
    pub answer: &'static str,
    /// Target of the ordinary requests to which the CPU time is compared.
    pub ordinary: &'static str,
    pub budget: Budget,
    /// Reason for which the row exceeds its budget today. Such a row is measured and reported, and
    /// does not fail.
    pub known_excess: Option<&'static str>,
}

impl Attack {
    pub fn new(name: &'static str, class: &'static str) -> Attack {
        Attack {
            name,
            class,
            transport: Transport::Plain,
            connections: 16,
            source: [127, 0, 0, 1],
            once: Vec::new(),
            repeat: |_| Vec::new(),
            times: 0,
            pace: None,
            last: Vec::new(),
            reads: Reads::All,
            ends: Ends::Served(Duration::from_secs(15)),
            answer: "200",
            ordinary: "/small.txt",
            budget: Budget {
                memory_kib: 64.0,
                shared_kib: 0.0,
                requests: 100.0,
                cpu: 2.0,
                descriptors: 1.0,
                // Lines of the access log.
                disk_kib: 256.0,
            },
            known_excess: None,
        }
    }

    pub fn over(mut self, transport: Transport) -> Attack {
        self.transport = transport;
        self
    }

    pub fn connections(mut self, connections: usize) -> Attack {
        self.connections = connections;
        self
    }

    pub fn source(mut self, source: [u8; 4]) -> Attack {
        self.source = source;
        self
    }

    /// Appends to the bytes that are sent first.
    pub fn once(mut self, bytes: impl AsRef<[u8]>) -> Attack {
        self.once.extend(bytes.as_ref());
        self
    }

    /// Sends many repetitions as fast as the server reads them.
    pub fn flood(mut self, times: usize, repeat: fn(usize) -> Vec<u8>) -> Attack {
        (self.times, self.repeat) = (times, repeat);
        self
    }

    /// Sends a repetition every `milliseconds`, until the server gives up or the row ends.
    pub fn trickle(self, milliseconds: u64, repeat: fn(usize) -> Vec<u8>) -> Attack {
        self.paced(1_000_000, milliseconds, repeat)
    }

    /// Sends a repetition every `milliseconds`.
    pub fn paced(
        mut self,
        times: usize,
        milliseconds: u64,
        repeat: fn(usize) -> Vec<u8>,
    ) -> Attack {
        (self.times, self.repeat) = (times, repeat);
        self.pace = Some(Duration::from_millis(milliseconds));
        self
    }

    /// Sends each repetition in a write of its own.
    pub fn separately(mut self) -> Attack {
        self.pace = Some(Duration::ZERO);
        self
    }

    pub fn last(mut self, bytes: impl AsRef<[u8]>) -> Attack {
        self.last.extend(bytes.as_ref());
        self
    }

    pub fn reads(mut self, reads: Reads) -> Attack {
        self.reads = reads;
        self
    }

    /// Requires that the server closes the connections after a time in this range, in seconds.
    pub fn given_up(mut self, seconds: RangeInclusive<f64>) -> Attack {
        self.ends = Ends::GivenUp(seconds);
        self
    }

    /// Sets the time for which the client waits after its last byte.
    pub fn held_ms(mut self, milliseconds: u64) -> Attack {
        self.ends = Ends::Served(Duration::from_millis(milliseconds));
        self
    }

    pub fn answer(mut self, answer: &'static str) -> Attack {
        self.answer = answer;
        self
    }

    pub fn ordinary(mut self, target: &'static str) -> Attack {
        self.ordinary = target;
        self
    }

    pub fn memory_kib(mut self, memory_kib: f64) -> Attack {
        self.budget.memory_kib = memory_kib;
        self
    }

    pub fn shared_kib(mut self, shared_kib: f64) -> Attack {
        self.budget.shared_kib = shared_kib;
        self
    }

    pub fn requests(mut self, requests: f64) -> Attack {
        self.budget.requests = requests;
        self
    }

    pub fn cpu(mut self, cpu: f64) -> Attack {
        self.budget.cpu = cpu;
        self
    }

    pub fn descriptors(mut self, descriptors: f64) -> Attack {
        self.budget.descriptors = descriptors;
        self
    }

    pub fn disk_kib(mut self, disk_kib: f64) -> Attack {
        self.budget.disk_kib = disk_kib;
        self
    }

    pub fn known_excess(mut self, reason: &'static str) -> Attack {
        self.known_excess = Some(reason);
        self
    }
}
