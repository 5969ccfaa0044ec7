//! Clients of HTTP/2: one that says exactly the frames that it is told to, and an ordinary one.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use weft::Running;

use super::{PATIENCE, address};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// The types of frames (RFC 9113 §6).
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

// Their flags.
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const WHOLE: u8 = END_HEADERS | END_STREAM;

// Parameters of SETTINGS (RFC 9113 §6.5.2, RFC 8441 §3).
pub const HEADER_TABLE_SIZE: u16 = 1;
pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;
pub const MAX_FRAME_SIZE: u16 = 5;
pub const MAX_HEADER_LIST_SIZE: u16 = 6;
pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;

/// The names of the error codes (RFC 9113 §7), in their order.
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

/// A header block of literals that are neither indexed nor compressed (RFC 7541 §6.2.2).
pub fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
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

/// An integer behind the first bits of a byte (RFC 7541 §5.1).
pub fn push_integer(block: &mut Vec<u8>, bits: u32, first: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        return block.push(first | value as u8);
    }
    block.push(first | most as u8);
    let mut rest = value - most;
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
    frame(HEADERS, WHOLE, stream, &block(&pseudo("GET", path)))
}

/// The pseudo-fields of a request.
pub fn pseudo<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

/// What has come on a stream.
#[derive(Debug, Default)]
pub struct Answer {
    /// The heads that came before the response.
    pub interim: Vec<Fields>,
    pub head: Option<Fields>,
    pub body: Vec<u8>,
    /// How many frames of DATA there were.
    pub pieces: usize,
    pub trailers: Option<Fields>,
    pub ended: bool,
    pub reset: Option<&'static str>,
}

pub type Fields = Vec<(String, String)>;

pub fn find<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.as_ref().and_then(|head| find(head, ":status")).map_or(0, |s| s.parse().unwrap())
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.as_ref().and_then(|head| find(head, name))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }

    pub fn is_over(&self) -> bool {
        self.ended || self.reset.is_some()
    }
}

/// A client that says exactly what it is told to, confirms the server's settings and, unless
/// told otherwise, lets the server send as much as it likes.
pub struct Raw {
    socket: TcpStream,
    came: Vec<u8>,
    hpack: loona_hpack::Decoder<'static>,
    /// A header block that is not whole yet: its stream, its flags and its bytes.
    partial: Option<(u32, u8, Vec<u8>)>,
    streams: BTreeMap<u32, Answer>,
    next_stream: u32,
    /// How much the server lets us send: on the connection, which is stream 0, and on each
    /// stream, in addition to the initial window.
    windows: HashMap<u32, i64>,
    /// How much was received and not given back to the server's windows yet.
    owed: HashMap<u32, u32>,
    /// The server's settings, once they have come.
    pub settings: Option<Vec<(u16, u32)>>,
    /// How many settings of ours were confirmed, and how many pings answered.
    pub confirmed: usize,
    pub pongs: usize,
    /// The server's GOAWAYs: the last stream and the error.
    pub goaways: Vec<(u32, &'static str)>,
    /// The connection is over; `true` if by a reset.
    pub closed: Option<bool>,
    /// Whether what was received is given back to the server's windows.
    pub takes_all: bool,
    /// Whether the server's settings are confirmed and its pings answered.
    pub confirms: bool,
}

impl Raw {
    /// A connection on which nothing was said.
    pub fn silent(server: &Running) -> Raw {
        let socket = TcpStream::connect(address(server)).expect("a connection");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Raw {
            socket,
            came: Vec::new(),
            hpack: loona_hpack::Decoder::new(),
            partial: None,
            streams: BTreeMap::new(),
            next_stream: 1,
            windows: HashMap::from([(0, 65_535)]),
            owed: HashMap::new(),
            settings: None,
            confirmed: 0,
            pongs: 0,
            goaways: Vec::new(),
            closed: None,
            takes_all: true,
            confirms: true,
        }
    }

    pub fn connect(server: &Running) -> Raw {
        Raw::with_settings(server, &[])
    }

    /// A client that has said its preface with these settings, and has heard the server's.
    #[track_caller]
    pub fn with_settings(server: &Running, parameters: &[(u16, u32)]) -> Raw {
        let mut raw = Raw::silent(server);
        raw.send([PREFACE, &settings(parameters)].concat());
        raw.until("the server's settings", |raw| raw.settings.is_some() && raw.confirmed == 1);
        raw
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes it");
    }

    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.socket.write_all(bytes.as_ref())
    }

    /// The next stream's number.
    pub fn stream(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        stream
    }

    /// Begins a request; its stream.
    #[track_caller]
    pub fn request<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        fields: &[(N, V)],
        ends: bool,
    ) -> u32 {
        let stream = self.stream();
        let flags = if ends { WHOLE } else { END_HEADERS };
        self.send(frame(HEADERS, flags, stream, &block(fields)));
        stream
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> u32 {
        self.request(&pseudo("GET", path), true)
    }

    #[track_caller]
    pub fn post(&mut self, path: &str) -> u32 {
        self.request(&pseudo("POST", path), false)
    }

    #[track_caller]
    pub fn data(&mut self, stream: u32, bytes: impl AsRef<[u8]>, ends: bool) {
        let bytes = bytes.as_ref();
        *self.windows.entry(0).or_default() -= bytes.len() as i64;
        *self.windows.entry(stream).or_default() -= bytes.len() as i64;
        self.send(frame(DATA, u8::from(ends), stream, bytes));
    }

    /// How much may be sent on a stream now, or on the connection, which is stream 0.
    pub fn window(&self, stream: u32) -> usize {
        let of = |stream| self.windows.get(&stream).copied().unwrap_or_default();
        let initial = self.setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535);
        let window = match stream {
            0 => of(0),
            _ => (of(stream) + i64::from(initial)).min(of(0)),
        };
        usize::try_from(window).unwrap_or(0)
    }

    pub fn setting(&self, id: u16) -> Option<u32> {
        self.settings.iter().flatten().find(|(i, _)| *i == id).map(|(_, value)| *value)
    }

    /// Sends as much of a body as the windows allow now; how much that was.
    #[track_caller]
    pub fn upload_some(&mut self, stream: u32, most: usize) -> usize {
        let mut sent = 0;
        while sent < most && self.window(stream) > 0 {
            let piece = (most - sent).min(self.window(stream)).min(16_384);
            self.data(stream, vec![b'x'; piece], false);
            sent += piece;
        }
        sent
    }

    /// Sends a body of so many bytes and its end, as the windows open; `false` if the
    /// stream was over before.
    #[track_caller]
    pub fn upload(&mut self, stream: u32, length: usize) -> bool {
        let mut left = length;
        while left > 0 {
            left -= self.upload_some(stream, left);
            if left > 0 {
                let before = self.window(stream);
                self.until("a window opens", |raw| {
                    raw.window(stream) > before || raw.on(stream).is_some_and(Answer::is_over)
                });
            }
            if self.on(stream).is_some_and(Answer::is_over) {
                return false;
            }
        }
        self.data(stream, "", true);
        true
    }

    /// Waits until the server has handled all that was sent before.
    #[track_caller]
    pub fn sync(&mut self) {
        let answered = self.pongs;
        self.send(frame(PING, 0, 0, b"in sync?"));
        self.until("a pong", |raw| raw.pongs > answered);
    }

    /// What has come on a stream so far.
    pub fn on(&self, stream: u32) -> Option<&Answer> {
        self.streams.get(&stream)
    }

    /// How many bytes of a body have come.
    pub fn body_length(&self, stream: u32) -> usize {
        self.on(stream).map_or(0, |answer| answer.body.len())
    }

    /// Reads until it is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Raw) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(self.read(), "the connection ended before: {what}; {:?}", self.goaways);
            assert!(begin.elapsed() < PATIENCE, "never: {what}");
        }
    }

    /// The answer on a stream, once it is complete or reset.
    #[track_caller]
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.until("the end of a stream", |raw| raw.on(stream).is_some_and(Answer::is_over));
        self.streams.remove(&stream).expect("it is there")
    }

    /// What became of a request: its status, the stream's error or the connection's.
    #[track_caller]
    pub fn outcome(&mut self, stream: u32) -> String {
        loop {
            if let Some((_, error)) = self.goaways.first() {
                return format!("goaway {error}");
            }
            match self.on(stream) {
                Some(Answer { head: Some(_), ended: true, .. }) => {
                    return self.answer(stream).status().to_string();
                }
                Some(Answer { reset: Some(error), .. }) => return format!("reset {error}"),
                _ => {}
            }
            if !self.read() {
                return "closed".to_owned();
            }
        }
    }

    /// Reads until these are over; whether all of them ended as they should.
    pub fn reads_all(&mut self, streams: &[u32]) -> bool {
        let has_ended = |raw: &Raw, id: &u32| raw.on(*id).is_some_and(|answer| answer.ended);
        let is_over = |raw: &Raw, id: &u32| raw.on(*id).is_some_and(Answer::is_over);
        while !streams.iter().all(|id| is_over(self, id)) && self.read() {}
        streams.iter().all(|id| has_ended(self, id))
    }

    /// Asks and is answered: the connection is alive.
    #[track_caller]
    pub fn assert_open(&mut self, path: &str) {
        let stream = self.get(path);
        let answer = self.answer(stream);
        assert_eq!((answer.status(), answer.reset), (200, None), "{path}");
    }

    /// Reads to the end of the connection.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        let begin = Instant::now();
        while self.read() {
            assert!(begin.elapsed() < PATIENCE, "it never ends");
        }
    }

    /// Reads to the end; the GOAWAYs that came.
    #[track_caller]
    pub fn goodbye(&mut self) -> Vec<&'static str> {
        self.assert_closed();
        self.goaways.iter().map(|(_, error)| *error).collect()
    }

    /// Whether something comes within so much time.
    pub fn comes_within(&mut self, time: Duration) -> bool {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let came = self.socket.peek(&mut [0]).is_ok();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        came
    }

    /// Reads once and files what is whole; `false` at the end.
    #[track_caller]
    pub fn read(&mut self) -> bool {
        if self.closed.is_some() {
            return false;
        }
        let mut buffer = [0; 65_536];
        match self.socket.read(&mut buffer) {
            Ok(0) => self.closed = Some(false),
            Ok(n) => self.came.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.closed = Some(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}, and nothing comes any more"),
        }
        let came = std::mem::take(&mut self.came);
        let mut rest = &came[..];
        while let Some((header, behind)) = rest.split_at_checked(9) {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let stream = u32::from_be_bytes(header[5..].try_into().unwrap());
            let Some((payload, behind)) = behind.split_at_checked(length) else { break };
            self.file(header[3], header[4], stream, payload);
            rest = behind;
        }
        self.came = rest.to_vec();
        self.closed.is_none()
    }

    fn file(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let error = |code: u32| ERRORS.get(code as usize).copied().unwrap_or("unknown");
        let is_ack = flags & ACK != 0;
        match kind {
            HEADERS => self.partial = Some((stream, flags, payload.to_vec())),
            CONTINUATION => {
                let (_, first, block) = self.partial.as_mut().expect("it continues something");
                *first |= flags & END_HEADERS;
                block.extend(payload);
            }
            DATA => {
                let answer = self.streams.entry(stream).or_default();
                answer.body.extend(payload);
                answer.pieces += 1;
                answer.ended |= flags & END_STREAM != 0;
                if self.takes_all {
                    self.give_back(0, payload.len());
                    self.give_back(stream, payload.len());
                }
            }
            RST_STREAM => {
                self.streams.entry(stream).or_default().reset = Some(error(number(0)));
            }
            SETTINGS if is_ack => self.confirmed += 1,
            SETTINGS => {
                let parameters = payload.chunks(6).map(|p| {
                    (u16::from_be_bytes([p[0], p[1]]), u32::from_be_bytes([p[2], p[3], p[4], p[5]]))
                });
                self.settings = Some(parameters.collect());
                if self.confirms {
                    let _ = self.try_send(frame(SETTINGS, ACK, 0, b""));
                }
            }
            PING if is_ack => self.pongs += 1,
            PING if self.confirms => {
                let _ = self.try_send(frame(PING, ACK, 0, payload));
            }
            PING => {}
            GOAWAY => self.goaways.push((number(0), error(number(4)))),
            WINDOW_UPDATE => {
                *self.windows.entry(stream).or_default() += i64::from(number(0));
            }
            other => panic!("a server sends no frame of type {other}"),
        }
        if let Some((stream, flags, block)) =
            self.partial.take_if(|(_, f, _)| *f & END_HEADERS != 0)
        {
            self.file_head(stream, flags, &block);
        }
    }

    /// Opens a window again, when that is worth a frame.
    fn give_back(&mut self, stream: u32, bytes: usize) {
        let owed = self.owed.entry(stream).or_default();
        *owed += bytes as u32;
        if *owed >= 8_192 {
            let owed = std::mem::take(owed);
            // Nobody hears it if the connection is over, which is found out later.
            let _ = self.try_send(window_update(stream, owed));
        }
    }

    fn file_head(&mut self, stream: u32, flags: u8, block: &[u8]) {
        let fields = self.hpack.decode(block).expect("a header block");
        let text = |bytes| String::from_utf8(bytes).expect("the tests' fields are text");
        let fields: Fields = fields.into_iter().map(|(n, v)| (text(n), text(v))).collect();
        let answer = self.streams.entry(stream).or_default();
        match find(&fields, ":status") {
            Some(status) if status.starts_with('1') => answer.interim.push(fields),
            Some(_) => assert!(answer.head.replace(fields).is_none(), "two heads"),
            None => answer.trailers = Some(fields),
        }
        answer.ended |= flags & END_STREAM != 0;
    }
}

/// Runs a client of the crate h2, on a connection of its own.
pub fn ordinary<F: Future>(
    server: &Running,
    run: impl FnOnce(SendRequest<Bytes>) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = address(server);
    runtime.block_on(async move {
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(PATIENCE, run(client)).await.expect("it ends in time")
    })
}
