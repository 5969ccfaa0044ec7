//! HTTP/2 clients: a client that sends exactly the given frames, and the client of the crate h2.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use weft::server::ServerHandle;

use super::{TEST_TIMEOUT, address};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Frame types (RFC 9113 §6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

// Frame flags.
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const END_ALL: u8 = END_HEADERS | END_STREAM;

// Parameters of SETTINGS (RFC 9113 §6.5.2, RFC 8441 §3).
pub const HEADER_TABLE_SIZE: u16 = 1;
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_FRAME_SIZE: u16 = 5;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// Names of the error codes (RFC 9113 §7), indexed by code.
const ERRORS: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

pub const NO_ERROR: u32 = 0;
pub const CANCEL: u32 = 8;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes a field block of literals without indexing (RFC 7541 §6.2.2) and without Huffman
/// coding.
pub fn field_block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            push_integer(&mut block, 7, 0, text.len());
            block.extend(text);
        }
    }
    block
}

/// Appends an integer with a prefix of `bits` bits (RFC 7541 §5.1).
pub fn push_integer(block: &mut Vec<u8>, bits: u32, first: u8, value: usize) {
    let max = (1 << bits) - 1;
    if value < max {
        return block.push(first | value as u8);
    }
    block.push(first | max as u8);
    let mut rest = value - max;
    while rest >= 128 {
        block.push(rest as u8 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}

pub fn settings(parameters: &[(u16, u32)]) -> Vec<u8> {
    let payload = parameters
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(SETTINGS, 0, 0, &payload.collect::<Vec<u8>>())
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

pub fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_ALL, stream, &field_block(&pseudo_header("GET", path)))
}

/// The pseudo-header fields of a request.
pub fn pseudo_header<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

/// The response received on a stream so far.
#[derive(Debug, Default)]
pub struct StreamResponse {
    /// Heads of interim responses.
    pub interim: Vec<Fields>,
    pub head: Option<Fields>,
    pub body: Vec<u8>,
    /// Number of DATA frames.
    pub data_frames: usize,
    pub trailers: Option<Fields>,
    pub ended: bool,
    pub reset: Option<&'static str>,
}

pub type Fields = Vec<(String, String)>;

pub fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl StreamResponse {
    pub fn status(&self) -> u16 {
        self.head.as_ref().and_then(|head| find(head, ":status")).map_or(0, |s| s.parse().unwrap())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.as_ref().and_then(|head| find(head, name))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8 text")
    }

    pub fn is_finished(&self) -> bool {
        self.ended || self.reset.is_some()
    }
}

/// A client that sends exactly the given frames. By default it also acknowledges SETTINGS and
/// PING and opens the windows for all received data.
pub struct RawClient {
    socket: TcpStream,
    received: Vec<u8>,
    hpack: loona_hpack::Decoder<'static>,
    /// An incomplete field block: stream, flags and the bytes received so far.
    partial: Option<(u32, u8, Vec<u8>)>,
    streams: BTreeMap<u32, StreamResponse>,
    next_stream: u32,
    /// Send windows: of the connection (stream 0), and of each stream relative to the initial
    /// window size.
    windows: HashMap<u32, i64>,
    /// Bytes received per stream for which no WINDOW_UPDATE was sent yet.
    unacknowledged: HashMap<u32, u32>,
    /// The server's SETTINGS, once received.
    pub settings: Option<Vec<(u16, u32)>>,
    /// Number of acknowledgments received for SETTINGS (`settings_acks`) and PING (`ping_acks`).
    pub settings_acks: usize,
    pub ping_acks: usize,
    /// The GOAWAY frames received: last stream identifier and error code.
    pub goaways: Vec<(u32, &'static str)>,
    /// Set when the connection has ended; `true` if it was reset.
    pub closed: Option<bool>,
    /// Sends WINDOW_UPDATE for received data.
    pub auto_window_update: bool,
    /// Acknowledges the server's SETTINGS and PING frames.
    pub auto_ack: bool,
}

impl RawClient {
    /// Connects without sending the connection preface.
    pub fn connect_without_preface(server: &ServerHandle) -> RawClient {
        let socket = TcpStream::connect(address(server)).expect("a connection");
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        RawClient {
            socket,
            received: Vec::new(),
            hpack: loona_hpack::Decoder::new(),
            partial: None,
            streams: BTreeMap::new(),
            next_stream: 1,
            windows: HashMap::from([(0, 65_535)]),
            unacknowledged: HashMap::new(),
            settings: None,
            settings_acks: 0,
            ping_acks: 0,
            goaways: Vec::new(),
            closed: None,
            auto_window_update: true,
            auto_ack: true,
        }
    }

    pub fn connect(server: &ServerHandle) -> RawClient {
        RawClient::with_settings(server, &[])
    }

    /// Connects, sends the connection preface with these settings, and waits for the server's
    /// SETTINGS and its acknowledgment.
    #[track_caller]
    pub fn with_settings(server: &ServerHandle, parameters: &[(u16, u32)]) -> RawClient {
        let mut client = RawClient::connect_without_preface(server);
        client.send([PREFACE, &settings(parameters)].concat());
        client.read_until("the server's settings", |client| {
            client.settings.is_some() && client.settings_acks == 1
        });
        client
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server reads it");
    }

    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.socket.write_all(bytes.as_ref())
    }

    /// Allocates the next stream identifier.
    pub fn next_stream_id(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Sends the HEADERS of a request and returns its stream.
    #[track_caller]
    pub fn request<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        fields: &[(N, V)],
        end_stream: bool,
    ) -> u32 {
        let stream = self.next_stream_id();
        let flags = if end_stream { END_ALL } else { END_HEADERS };
        self.send(frame(HEADERS, flags, stream, &field_block(fields)));
        stream
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> u32 {
        self.request(&pseudo_header("GET", path), true)
    }

    #[track_caller]
    pub fn post(&mut self, path: &str) -> u32 {
        self.request(&pseudo_header("POST", path), false)
    }

    #[track_caller]
    pub fn data(&mut self, stream: u32, bytes: impl AsRef<[u8]>, end_stream: bool) {
        let bytes = bytes.as_ref();
        *self.windows.entry(0).or_default() -= bytes.len() as i64;
        *self.windows.entry(stream).or_default() -= bytes.len() as i64;
        self.send(frame(DATA, u8::from(end_stream), stream, bytes));
    }

    /// Bytes that may be sent now on a stream, or on the connection (stream 0).
    pub fn window(&self, stream: u32) -> usize {
        let stored = |stream| self.windows.get(&stream).copied().unwrap_or_default();
        let initial = self.setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535);
        let window = match stream {
            0 => stored(0),
            _ => (stored(stream) + i64::from(initial)).min(stored(0)),
        };
        usize::try_from(window).unwrap_or(0)
    }

    pub fn setting(&self, id: u16) -> Option<u32> {
        self.settings.iter().flatten().find(|(i, _)| *i == id).map(|(_, value)| *value)
    }

    /// Sends up to `max` bytes of a body as far as the windows allow now; returns the number of
    /// bytes sent.
    #[track_caller]
    pub fn upload_some(&mut self, stream: u32, max: usize) -> usize {
        let mut sent = 0;
        while sent < max && self.window(stream) > 0 {
            let piece = (max - sent).min(self.window(stream)).min(16_384);
            self.data(stream, vec![b'x'; piece], false);
            sent += piece;
        }
        sent
    }

    /// Sends a body of `length` bytes and END_STREAM, waiting for WINDOW_UPDATE where needed;
    /// returns false if the stream ended before.
    #[track_caller]
    pub fn upload(&mut self, stream: u32, length: usize) -> bool {
        let mut remaining = length;
        while remaining > 0 {
            remaining -= self.upload_some(stream, remaining);
            if remaining > 0 {
                let before = self.window(stream);
                self.read_until("a window opens", |client| {
                    client.window(stream) > before
                        || client.peek(stream).is_some_and(StreamResponse::is_finished)
                });
            }
            if self.peek(stream).is_some_and(StreamResponse::is_finished) {
                return false;
            }
        }
        self.data(stream, "", true);
        true
    }

    /// Waits until the server has processed all frames sent before, by a PING round trip.
    #[track_caller]
    pub fn sync(&mut self) {
        let acks_before = self.ping_acks;
        self.send(frame(PING, 0, 0, b"in sync?"));
        self.read_until("a PING acknowledgment", |client| client.ping_acks > acks_before);
    }

    /// The response received on a stream so far.
    pub fn peek(&self, stream: u32) -> Option<&StreamResponse> {
        self.streams.get(&stream)
    }

    /// Number of body bytes received on a stream.
    pub fn body_length(&self, stream: u32) -> usize {
        self.peek(stream).map_or(0, |response| response.body.len())
    }

    /// Reads until `condition` returns true.
    #[track_caller]
    pub fn read_until(&mut self, description: &str, condition: impl Fn(&RawClient) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            assert!(self.read(), "the connection ended before: {description}; {:?}", self.goaways);
            assert!(begin.elapsed() < TEST_TIMEOUT, "timed out: {description}");
        }
    }

    /// Waits until the response on a stream is complete or reset, and returns it.
    #[track_caller]
    pub fn response(&mut self, stream: u32) -> StreamResponse {
        self.read_until("the end of a stream", |client| {
            client.peek(stream).is_some_and(StreamResponse::is_finished)
        });
        self.streams.remove(&stream).expect("the stream has a response")
    }

    /// Waits for the outcome of a request: `200` and so on, `reset` with the stream error, `goaway`
    /// with the connection error, or `closed`.
    #[track_caller]
    pub fn outcome(&mut self, stream: u32) -> String {
        loop {
            if let Some((_, error)) = self.goaways.first() {
                return format!("goaway {error}");
            }
            match self.peek(stream) {
                Some(StreamResponse { head: Some(_), ended: true, .. }) => {
                    return self.response(stream).status().to_string();
                }
                Some(StreamResponse { reset: Some(error), .. }) => return format!("reset {error}"),
                _ => {}
            }
            if !self.read() {
                return "closed".to_owned();
            }
        }
    }

    /// Reads until all `streams` are complete or reset; returns true if every response is complete.
    pub fn read_all(&mut self, streams: &[u32]) -> bool {
        let has_ended =
            |client: &RawClient, id: &u32| client.peek(*id).is_some_and(|response| response.ended);
        let is_finished = |client: &RawClient, id: &u32| {
            client.peek(*id).is_some_and(StreamResponse::is_finished)
        };
        while !streams.iter().all(|id| is_finished(self, id)) && self.read() {}
        streams.iter().all(|id| has_ended(self, id))
    }

    /// Asserts that the connection is open: a GET request receives a 200.
    #[track_caller]
    pub fn assert_open(&mut self, path: &str) {
        let stream = self.get(path);
        let response = self.response(stream);
        assert_eq!((response.status(), response.reset), (200, None), "{path}");
    }

    /// Reads to the end of the connection.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let begin = Instant::now();
        while self.read() {
            assert!(begin.elapsed() < TEST_TIMEOUT, "the connection does not end");
        }
    }

    /// Reads to the end of the connection and returns the error codes of all GOAWAY frames.
    #[track_caller]
    pub fn read_goaways(&mut self) -> Vec<&'static str> {
        self.assert_closed();
        self.goaways.iter().map(|(_, error)| *error).collect()
    }

    /// Returns true if input arrives within `timeout`.
    pub fn has_input_within(&mut self, timeout: Duration) -> bool {
        self.socket.set_read_timeout(Some(timeout)).unwrap();
        let has_input = self.socket.peek(&mut [0]).is_ok();
        self.socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        has_input
    }

    /// Reads once and processes all complete frames; `false` at the end of the connection.
    #[track_caller]
    pub fn read(&mut self) -> bool {
        if self.closed.is_some() {
            return false;
        }
        let mut buffer = [0; 65_536];
        match self.socket.read(&mut buffer) {
            Ok(0) => self.closed = Some(false),
            Ok(n) => self.received.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = Some(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error} while waiting for a frame"),
        }
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        while let Some((header, tail)) = rest.split_at_checked(9) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
            let Some((payload, tail)) = tail.split_at_checked(length) else { break };
            self.handle_frame(header[3], header[4], stream, payload);
            rest = tail;
        }
        self.received = rest.to_vec();
        self.closed.is_none()
    }

    /// Processes one frame.
    fn handle_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let error = |code: u32| ERRORS.get(code as usize).copied().unwrap_or("unknown");
        let is_ack = flags & ACK != 0;
        match kind {
            HEADERS => self.partial = Some((stream, flags, payload.to_vec())),
            CONTINUATION => {
                let (_, first, block) =
                    self.partial.as_mut().expect("a CONTINUATION follows HEADERS");
                *first |= flags & END_HEADERS;
                block.extend(payload);
            }
            DATA => {
                let response = self.streams.entry(stream).or_default();
                response.body.extend(payload);
                response.data_frames += 1;
                response.ended |= flags & END_STREAM != 0;
                if self.auto_window_update {
                    self.release_window(0, payload.len());
                    self.release_window(stream, payload.len());
                }
            }
            RST_STREAM => {
                self.streams.entry(stream).or_default().reset = Some(error(number(0)));
            }
            SETTINGS if is_ack => self.settings_acks += 1,
            SETTINGS => {
                let parameters = payload.chunks(6).map(|p| {
                    (u16::from_be_bytes([p[0], p[1]]), u32::from_be_bytes([p[2], p[3], p[4], p[5]]))
                });
                self.settings = Some(parameters.collect());
                if self.auto_ack {
                    let _ = self.try_send(frame(SETTINGS, ACK, 0, b""));
                }
            }
            PING if is_ack => self.ping_acks += 1,
            PING if self.auto_ack => {
                let _ = self.try_send(frame(PING, ACK, 0, payload));
            }
            PING => {}
            GOAWAY => self.goaways.push((number(0), error(number(4)))),
            WINDOW_UPDATE => {
                *self.windows.entry(stream).or_default() += i64::from(number(0));
            }
            other => panic!("unexpected frame type {other} from a server"),
        }
        if let Some((stream, flags, block)) =
            self.partial.take_if(|(_, f, _)| *f & END_HEADERS != 0)
        {
            self.handle_fields(stream, flags, &block);
        }
    }

    /// Sends a WINDOW_UPDATE once at least 8 KiB were received since the last one.
    fn release_window(&mut self, stream: u32, bytes: usize) {
        let unacknowledged = self.unacknowledged.entry(stream).or_default();
        *unacknowledged += bytes as u32;
        if *unacknowledged >= 8_192 {
            let unacknowledged = std::mem::take(unacknowledged);
            // Fails if the connection has ended; the next read detects that.
            let _ = self.try_send(window_update(stream, unacknowledged));
        }
    }

    fn handle_fields(&mut self, stream: u32, flags: u8, block: &[u8]) {
        let fields = self.hpack.decode(block).expect("a field block");
        let text = |bytes| String::from_utf8(bytes).expect("fields of the tests are UTF-8");
        let fields: Fields = fields.into_iter().map(|(n, v)| (text(n), text(v))).collect();
        let response = self.streams.entry(stream).or_default();
        match find(&fields, ":status") {
            Some(status) if status.starts_with('1') => response.interim.push(fields),
            Some(_) => assert!(response.head.replace(fields).is_none(), "two heads"),
            None => response.trailers = Some(fields),
        }
        response.ended |= flags & END_STREAM != 0;
    }
}

/// Runs a client of the crate h2 on a new connection.
pub fn with_h2_client<F: Future>(
    server: &ServerHandle,
    run: impl FnOnce(SendRequest<Bytes>) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = address(server);
    runtime.block_on(async move {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(TEST_TIMEOUT, run(client))
            .await
            .expect("the client finishes within the timeout")
    })
}
