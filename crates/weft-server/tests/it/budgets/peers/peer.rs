//! Hostile peers as data: the role of a peer, its script, and the limits of the server.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::budgets::server::Target;
use crate::common::{PATIENCE, Weft, raw_upstream, read_head, weft};
use crate::dns::server::{question, sockets};
use crate::http2_upstream::peer::Peer;

/// The relation between a peer and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Http1,
    Http2,
    /// An upstream over TLS, which sends bytes in place of its handshake.
    Tls,
    FastCgi,
    Scgi,
    Uwsgi,
    /// A shell script; its text is the first part of the script of the row.
    Cgi,
    /// A server of the DNS that is asked for the address of an upstream.
    Dns,
    /// The server of `forward_auth`.
    Authentication,
    /// The server of `jwt_keys_url`.
    Keys,
    /// An upstream that behaves well, except for its health checks.
    HealthCheck,
    /// The server of `mirror`, beside an upstream that behaves well.
    Mirror,
    /// A certificate authority, which the server asks when it starts.
    Authority,
    Stream,
    /// An upstream of a stream over UDP.
    Udp,
}

impl Role {
    /// Returns the name of the role in a printed table.
    pub fn title(self) -> &'static str {
        match self {
            Role::Http1 => "HTTP/1 upstream",
            Role::Http2 => "HTTP/2 upstream",
            Role::Tls => "upstream over TLS",
            Role::FastCgi => "FastCGI",
            Role::Scgi => "SCGI",
            Role::Uwsgi => "uwsgi",
            Role::Cgi => "CGI script",
            Role::Dns => "DNS server",
            Role::Authentication => "`forward_auth`",
            Role::Keys => "`jwt_keys_url`",
            Role::HealthCheck => "health check",
            Role::Mirror => "`mirror`",
            Role::Authority => "certificate authority",
            Role::Stream => "stream upstream",
            Role::Udp => "UDP upstream",
        }
    }
}

/// Limits of the server, per client.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub memory_kib: f64,
    pub descriptors: f64,
    pub disk_kib: f64,
    /// CPU time, as a number of ordinary requests that take as long.
    pub requests: f64,
    /// Time until the last client has its response.
    pub seconds: f64,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct HostilePeer {
    pub role: Role,
    pub name: &'static str,
    pub clients: usize,
    /// Time for which the clients keep their connections without reading.
    pub unread_for: Option<Duration>,
    /// Expected outcomes of the clients, separated by `|`.
    pub outcome: &'static str,
    pub limits: Limits,
    script: Script,
}

/// Bytes that a peer sends on each connection.
#[derive(Clone, Debug)]
struct Script {
    /// The peer does not wait for a request.
    is_early: bool,
    /// The peer does not read what the server sends after the request.
    is_deaf: bool,
    once: Vec<u8>,
    /// The bytes of repetition 0, 1, and so on.
    repeat: fn(usize) -> Vec<u8>,
    times: usize,
    /// Time between two repetitions, each sent by itself; `None` sends many in one write.
    pace: Option<Duration>,
    last: Vec<u8>,
    /// The connection stays open at the end.
    is_held: bool,
    /// Datagrams that answer a datagram. A large one is truncated, and is the response over TCP.
    datagrams: fn(&[u8]) -> Vec<Vec<u8>>,
}

impl HostilePeer {
    pub fn new(role: Role, name: &'static str) -> HostilePeer {
        HostilePeer {
            role,
            name,
            // The connection of HTTP/2 is shared, and a script is about one stream.
            clients: if role == Role::Http2 { 1 } else { 4 },
            unread_for: None,
            outcome: "502",
            limits: Limits {
                memory_kib: 768.0,
                descriptors: 8.0,
                disk_kib: 64.0,
                requests: 150.0,
                seconds: 8.0,
            },
            script: Script {
                is_early: role == Role::Stream,
                is_deaf: false,
                once: Vec::new(),
                repeat: |_| Vec::new(),
                times: 0,
                pace: None,
                last: Vec::new(),
                is_held: false,
                datagrams: |_| Vec::new(),
            },
        }
    }

    /// Appends to the bytes that are sent first.
    pub fn once(mut self, bytes: impl AsRef<[u8]>) -> HostilePeer {
        self.script.once.extend(bytes.as_ref());
        self
    }

    /// Sends repetitions as fast as the server reads them.
    pub fn flood(mut self, times: usize, repeat: fn(usize) -> Vec<u8>) -> HostilePeer {
        (self.script.times, self.script.repeat) = (times, repeat);
        self
    }

    /// Sends repetitions as fast as the server reads them, until it closes the connection.
    pub fn endlessly(self, repeat: fn(usize) -> Vec<u8>) -> HostilePeer {
        self.flood(usize::MAX, repeat)
    }

    /// Sends each repetition in a write of its own.
    pub fn separately(mut self) -> HostilePeer {
        self.script.pace = Some(Duration::ZERO);
        self
    }

    /// Sends a repetition every `milliseconds`, until the server closes the connection.
    pub fn trickle(mut self, milliseconds: u64, repeat: fn(usize) -> Vec<u8>) -> HostilePeer {
        self.script.pace = Some(Duration::from_millis(milliseconds));
        self.endlessly(repeat)
    }

    pub fn last(mut self, bytes: impl AsRef<[u8]>) -> HostilePeer {
        self.script.last.extend(bytes.as_ref());
        self
    }

    /// Keeps the connection open after the last byte.
    pub fn held(mut self) -> HostilePeer {
        self.script.is_held = true;
        self
    }

    /// Sends before the request arrives.
    pub fn early(mut self) -> HostilePeer {
        self.script.is_early = true;
        self
    }

    /// Reads nothing after the request.
    pub fn deaf(mut self) -> HostilePeer {
        self.script.is_deaf = true;
        self
    }

    pub fn datagrams(mut self, datagrams: fn(&[u8]) -> Vec<Vec<u8>>) -> HostilePeer {
        self.script.datagrams = datagrams;
        self
    }

    /// Lets the clients keep their connections for a time without reading.
    pub fn unread_for_ms(mut self, milliseconds: u64) -> HostilePeer {
        self.unread_for = Some(Duration::from_millis(milliseconds));
        self.outcome("unread")
    }

    pub fn outcome(mut self, outcome: &'static str) -> HostilePeer {
        self.outcome = outcome;
        self
    }

    pub fn memory_kib(mut self, memory_kib: f64) -> HostilePeer {
        self.limits.memory_kib = memory_kib;
        self
    }

    pub fn disk_kib(mut self, disk_kib: f64) -> HostilePeer {
        self.limits.disk_kib = disk_kib;
        self
    }

    pub fn requests(mut self, requests: f64) -> HostilePeer {
        self.limits.requests = requests;
        self
    }

    // -- the server and its peer

    /// Starts the peer, and a server that asks it.
    pub fn start(&self, folder: &Path, good: SocketAddr) -> Target {
        let keys = self.keys(folder, good);
        let (route, section) = match self.role {
            Role::Stream | Role::Udp | Role::Authority => ("respond = \"ok\"".to_owned(), keys),
            _ => (keys, String::new()),
        };
        let text = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\nlog.access = \"none\"\n\
             limits = {{ stall_timeout = \"1s\" }}\n\
             [hosts.\"*\"]\n\
             \"/good/\" = {{ proxy = \"http://{good}/\" }}\n\
             \"/peer/\" = {{ {route} }}\n\
             {section}"
        );
        let file = folder.join("weft.toml");
        fs::write(&file, text).unwrap();
        Target::new(Weft::start(&mut weft([Path::new("--config"), &file])))
    }

    /// Starts the peer and returns the keys by which the server asks it: of a route, or of a
    /// section of their own.
    fn keys(&self, folder: &Path, good: SocketAddr) -> String {
        let times = "response_timeout = \"1s\", body_timeout = \"1s\", \
                     max_temp_file_bytes = \"1MiB\"";
        let proxy = format!("connect_timeout = \"1s\", {times}");
        if self.role == Role::Cgi {
            let (cgi, script) = (folder.join("cgi"), folder.join("cgi/script"));
            fs::create_dir_all(cgi).unwrap();
            fs::write(&script, [b"#!/bin/sh\n", &self.script.once[..]].concat()).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
            return "cgi = \"cgi\", timeout = \"1s\", body_timeout = \"1s\"".to_owned();
        }
        let peer = match self.role {
            Role::Dns => self.serve_dns(),
            Role::Udp => self.serve_datagrams(),
            _ => self.serve(),
        };
        match self.role {
            Role::Http1 => format!("proxy = \"http://{peer}/\", {proxy}"),
            Role::Http2 => format!("proxy = \"h2c://{peer}/\", {proxy}"),
            Role::Tls => format!("proxy = \"https://{peer}/\", {proxy}"),
            Role::FastCgi => format!("fastcgi = \"{peer}\", {times}"),
            Role::Scgi => format!("scgi = \"{peer}\", {times}"),
            Role::Uwsgi => format!("uwsgi = \"{peer}\", {times}"),
            Role::Cgi => unreachable!("a script is not a server"),
            // Nothing listens at the port of the upstream.
            Role::Dns => format!("proxy = \"http://a.example:1/\", resolver = \"{peer}\", {proxy}"),
            Role::Authentication => format!(
                "respond = \"ok\", forward_auth = \"http://{peer}/\", forward_auth_timeout = \"1s\""
            ),
            Role::Keys => format!("respond = \"ok\", jwt_keys_url = \"http://{peer}/\""),
            Role::HealthCheck => format!(
                "proxy = \"http://{peer}/\", {proxy}, \
                 check = \"/check\", check_interval = \"100ms\", check_timeout = \"300ms\""
            ),
            Role::Mirror => format!(
                "proxy = \"http://{good}/\", {proxy}, \
                 mirror = \"http://{peer}/\", mirror_timeout = \"1s\""
            ),
            Role::Authority => format!(
                "[defaults]\nhttps_redirect = false\n[tls]\nlisten = \"127.0.0.1:0\"\n\
                 [acme]\ndomains = \"a.example\"\ndirectories = \"https://{peer}/\"\n\
                 state = \"acme\"\nephemeral_state = true\nretry_delay = \"1s\"\n"
            ),
            Role::Udp => format!(
                "[streams.\"udp://127.0.0.1:0\"]\nto = \"{peer}\"\nudp_idle_timeout = \"1s\"\n"
            ),
            Role::Stream => {
                format!("[streams.\"127.0.0.1:0\"]\nto = \"{peer}\"\nidle_timeout = \"1s\"\n")
            }
        }
    }

    /// Returns the request of a client.
    pub fn request(&self) -> String {
        if matches!(self.role, Role::Stream | Role::Udp) {
            return "hello".to_owned();
        }
        // The signature is not valid, but the keys are fetched before that is known.
        let token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImEifQ.e30.AAAA";
        format!(
            "GET /peer/script HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        )
    }

    /// Starts a server that follows the script on each connection.
    fn serve(&self) -> SocketAddr {
        let (role, script) = (self.role, self.script.clone());
        raw_upstream(move |_, stream| drop(script.follow(role, stream)))
    }

    /// Starts a server that answers each datagram.
    fn serve_datagrams(&self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, datagrams) = (socket.local_addr().unwrap(), self.script.datagrams);
        std::thread::spawn(move || answer_datagrams(&socket, datagrams));
        address
    }

    /// Starts a server of the DNS, which follows the script on each TCP connection.
    fn serve_dns(&self) -> SocketAddr {
        let (socket, listener) = sockets();
        let address = socket.local_addr().unwrap();
        let (datagrams, script) = (self.script.datagrams, self.script.clone());
        std::thread::spawn(move || {
            answer_datagrams(&socket, |query| datagrams(query).into_iter().map(truncated).collect())
        });
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, script) = (stream.unwrap(), script.clone());
                std::thread::spawn(move || drop(script.follow(Role::Dns, stream)));
            }
        });
        address
    }
}

/// Largest datagram of the DNS that is not truncated.
const MAX_DATAGRAM_BYTES: usize = 1_232;

/// Returns a response of the DNS, without its records if it is too large for a datagram.
fn truncated(mut response: Vec<u8>) -> Vec<u8> {
    if response.len() > MAX_DATAGRAM_BYTES {
        response.truncate(question(&response).1);
        response[2] |= 2;
        response[6..8].fill(0);
    }
    response
}

fn answer_datagrams(socket: &UdpSocket, answers: impl Fn(&[u8]) -> Vec<Vec<u8>>) {
    let mut buffer = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        for datagram in answers(&buffer[..length]) {
            // The client may have closed its socket.
            let _ = socket.send_to(&datagram, client);
        }
    }
}

impl Script {
    /// Follows the script on one connection.
    fn follow(&self, role: Role, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if !self.is_early {
            stream = match role {
                Role::Http2 => {
                    let settings = b"\0\0\0\x04\0\0\0\0\0";
                    let Some(mut peer) = Peer::start(stream, settings) else { return Ok(()) };
                    if peer.request().is_none() {
                        return Ok(());
                    }
                    peer.stream
                }
                Role::HealthCheck => {
                    if let Some(head) = read_head(&mut stream)
                        && head.starts_with("GET /script ")
                    {
                        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\
                                         Connection: close\r\n\r\nok";
                        return stream.write_all(response);
                    }
                    stream
                }
                Role::Dns => {
                    let mut query = vec![0; 1_024];
                    let length = stream.read(&mut query)?;
                    let response = query.get(2..length).map(self.datagrams).unwrap_or_default();
                    // A small response was complete as a datagram.
                    if let [response, ..] = &response[..]
                        && response.len() > MAX_DATAGRAM_BYTES
                    {
                        stream.write_all(&(response.len() as u16).to_be_bytes())?;
                        stream.write_all(response)?;
                    }
                    stream
                }
                _ => {
                    let _length = stream.read(&mut [0; 64 << 10])?;
                    stream
                }
            };
        }
        if self.is_deaf {
            self.send(&mut stream)?;
            // Longer than all timeouts of the server.
            std::thread::sleep(Duration::from_secs(if self.is_held { 4 } else { 0 }));
            return Ok(());
        }
        let mut reader = stream.try_clone()?;
        std::thread::scope(|scope| {
            // Ends when the server closes the connection.
            scope.spawn(move || while matches!(reader.read(&mut [0; 64 << 10]), Ok(1..)) {});
            let sent = self.send(&mut stream);
            if !self.is_held {
                stream.shutdown(Shutdown::Write)?;
            }
            sent
        })
    }

    fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.once)?;
        let mut batch = Vec::new();
        for repetition in 0..self.times {
            batch.extend((self.repeat)(repetition));
            if self.pace.is_some() || batch.len() >= 16 << 10 {
                stream.write_all(&std::mem::take(&mut batch))?;
                std::thread::sleep(self.pace.unwrap_or_default());
            }
        }
        batch.extend(&self.last);
        stream.write_all(&batch)
    }
}
