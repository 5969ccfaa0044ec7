//! A server of the DNS whose records change.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::common::until;

const TYPE_A: u16 = 1;
const TYPE_SRV: u16 = 33;

/// Statuses of responses: SERVFAIL and NXDOMAIN.
pub const FAILURE: u8 = 2;
pub const NO_NAME: u8 = 3;

pub struct DnsServer {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    queries: AtomicUsize,
    zone: Mutex<Zone>,
}

/// TTL and data of records.
type Records = (u32, Vec<Vec<u8>>);

#[derive(Default)]
struct Zone {
    /// By name and type.
    records: HashMap<(String, u16), Records>,
    failure: Option<u8>,
    /// Name about which queries are not answered.
    held: Option<String>,
}

impl DnsServer {
    /// Starts a server without records, on UDP and TCP.
    pub fn start() -> DnsServer {
        let (socket, listener) = sockets();
        let address = socket.local_addr().unwrap();
        let state = Arc::<State>::default();
        let by_udp = state.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut buffer) {
                let (query, state) = (buffer[..length].to_vec(), by_udp.clone());
                state.queries.fetch_add(1, SeqCst);
                let socket = socket.try_clone().unwrap();
                let respond = move || {
                    until("the query is released", || !state.holds(&query));
                    let mut response = state.respond(&query);
                    if response.len() > 1_232 {
                        response.truncate(question(&response).1);
                        response[2] |= 2;
                        response[6..8].fill(0);
                    }
                    socket.send_to(&response, client).unwrap();
                };
                // Others do not wait.
                std::thread::spawn(respond);
            }
        });
        let by_tcp = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut length) = (stream.unwrap(), [0; 2]);
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut query).unwrap();
                by_tcp.queries.fetch_add(1, SeqCst);
                let response = by_tcp.respond(&query);
                stream.write_all(&(response.len() as u16).to_be_bytes()).unwrap();
                stream.write_all(&response).unwrap();
            }
        });
        DnsServer { address, state }
    }

    pub fn set_addresses(&self, name: &str, ttl: u32, addresses: &[[u8; 4]]) {
        let data = addresses.iter().map(|address| address.to_vec()).collect();
        self.zone().records.insert((name.to_owned(), TYPE_A), (ttl, data));
    }

    /// Sets the servers of a service: priority, weight, port and target.
    pub fn set_services(&self, name: &str, ttl: u32, services: &[(u16, u16, u16, &str)]) {
        let data = services.iter().map(|&(priority, weight, port, target)| {
            let mut data = [priority, weight, port].map(u16::to_be_bytes).concat();
            data.extend(wire(target));
            data
        });
        self.zone().records.insert((name.to_owned(), TYPE_SRV), (ttl, data.collect()));
    }

    /// Responds to all queries with this status; `None`: with the records.
    pub fn fail(&self, status: Option<u8>) {
        self.zone().failure = status;
    }

    /// Keeps queries about this name waiting; `None`: answers the waiting queries.
    pub fn hold(&self, name: Option<&str>) {
        self.zone().held = name.map(str::to_owned);
    }

    /// Number of queries so far.
    pub fn queries(&self) -> usize {
        self.state.queries.load(SeqCst)
    }

    fn zone(&self) -> MutexGuard<'_, Zone> {
        self.state.zone.lock().unwrap()
    }
}

/// Binds the same port for UDP and TCP.
pub fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()) {
            return (socket, listener);
        }
    }
}

/// Encodes a name (RFC 1035 §3.1).
pub fn wire(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[label.len() as u8][..], label.as_bytes()].concat();
    name.split('.').map(label).chain([vec![0]]).collect::<Vec<_>>().concat()
}

/// Returns name and type of the question, and its end.
pub fn question(query: &[u8]) -> ((String, u16), usize) {
    let (mut labels, mut at) = (Vec::new(), 12);
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(str::from_utf8(&query[at + 1..end]).unwrap().to_owned());
        at = end;
    }
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    ((labels.join("."), kind), at + 5)
}

impl State {
    fn holds(&self, query: &[u8]) -> bool {
        self.zone.lock().unwrap().held == Some(question(query).0.0)
    }

    fn respond(&self, query: &[u8]) -> Vec<u8> {
        let (key, end) = question(query);
        let zone = self.zone.lock().unwrap();
        let is_known = zone.records.keys().any(|(name, _)| *name == key.0);
        let status = zone.failure.unwrap_or(if is_known { 0 } else { NO_NAME });
        let none = (0, Vec::new());
        let (ttl, data) = match zone.failure {
            None => zone.records.get(&key).unwrap_or(&none),
            Some(_) => &none,
        };
        let mut out = query[..end].to_vec();
        out[2..4].copy_from_slice(&[0x85, 0x80 | status]);
        out[6..8].copy_from_slice(&(data.len() as u16).to_be_bytes());
        out[10..12].fill(0);
        for data in data {
            out.extend([0xc0, 12]);
            out.extend(key.1.to_be_bytes());
            out.extend([0, 1]);
            out.extend(ttl.to_be_bytes());
            out.extend((data.len() as u16).to_be_bytes());
            out.extend(data);
        }
        out
    }
}
