//! HTTP/2 stream states: for any sequence of mostly valid frames, the frames of the engine conform to
//! a model of the streams and windows (RFC 9113 §5.1, §5.2, §6).
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::{Method, Request, Response, Server, Settings};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Number of reset streams that the engine remembers. A frame of the client on an older one is an
/// error of that stream once more (RFC 9113 §5.4.2).
const RECENT_RESETS: usize = 512;

const INITIAL_WINDOW: u64 = 65_535;
const MAX_FRAME_BYTES: usize = 16_384;

/// `:scheme: http`, `:path: /`, `:authority: a`, without use of the dynamic table.
const REQUEST_FIELDS: &[u8] = &[0x86, 0x84, 0x01, 0x01, b'a'];

/// Frames of the client: a number that selects the kind, a stream, and a parameter.
type Input = Vec<(u8, u8, u16)>;

fuzz_target!(|input: Input| {
    let client = Client::new(&input);
    let received = run(&client.bytes);
    Model::new(&client).check(&received);
});

/// The frames of a client, and their greatest effects. The engine may not have processed all of
/// them when it sends a frame, so that these are bounds.
#[derive(Default)]
struct Client {
    bytes: Vec<u8>,
    /// Highest stream with a HEADERS frame.
    highest_stream: u32,
    /// Sum of the increments of each stream, and of the connection (0).
    increments: HashMap<u32, u64>,
    max_initial_window: u64,
    settings: usize,
    pings: usize,
}

impl Client {
    fn new(input: &Input) -> Client {
        let mut client = Client { max_initial_window: INITIAL_WINDOW, ..Client::default() };
        client.bytes.extend_from_slice(PREFACE);
        client.frame(SETTINGS, 0, 0, &[]);
        client.settings += 1;
        for &(kind, stream, parameter) in input {
            client.add(kind, u32::from(stream % 16), parameter);
        }
        client
    }

    fn add(&mut self, kind: u8, stream: u32, parameter: u16) {
        let [high, low] = parameter.to_be_bytes();
        match kind % 14 {
            // GET, HEAD as an unknown method, POST; the next stream or any stream.
            0 => self.request(self.highest_stream + 1 | 1, 0x82, END_STREAM),
            1 => self.request(self.highest_stream + 1 | 1, 0x83, 0),
            2 => self.request(stream, 0x83, low & END_STREAM),
            3 => self.frame(
                DATA,
                low & END_STREAM,
                stream,
                &vec![b'd'; usize::from(parameter % 2_000)],
            ),
            4 => self.frame(RST_STREAM, 0, stream, &[0, 0, 0, low % 14]),
            5 | 6 => {
                let increment = u32::from(parameter);
                *self.increments.entry(stream).or_default() += u64::from(increment);
                self.frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
            }
            7 => {
                let window = u32::from(parameter);
                self.max_initial_window = self.max_initial_window.max(window.into());
                let [a, b, c, d] = window.to_be_bytes();
                self.settings += 1;
                self.frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d]);
            }
            8 => {
                self.pings += 1;
                self.frame(PING, 0, 0, &[high; 8]);
            }
            9 => self.frame(PRIORITY, 0, stream, &[0, 0, 0, high % 16, low]),
            10 => self.frame(SETTINGS, ACK, 0, &[]),
            // Trailers: a field without use of the dynamic table.
            11 => self.frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\0\x01t\x01v"),
            // A field block in two frames.
            12 => {
                let stream = self.highest_stream + 1 | 1;
                self.highest_stream = stream;
                self.frame(HEADERS, low & END_STREAM, stream, &[0x82]);
                self.frame(CONTINUATION, END_HEADERS, stream, REQUEST_FIELDS);
            }
            _ => self.frame(high % 12, low, stream, &[low; 8]),
        }
    }

    fn request(&mut self, stream: u32, method: u8, flags: u8) {
        self.highest_stream = self.highest_stream.max(stream);
        self.frame(HEADERS, END_HEADERS | flags, stream, &[&[method], REQUEST_FIELDS].concat());
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        // Unknown and raw frames may have any effect; count them as the one of their type.
        if kind == HEADERS {
            self.highest_stream = self.highest_stream.max(stream);
        }
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        self.bytes.extend([a, b, c, kind, flags]);
        self.bytes.extend(stream.to_be_bytes());
        self.bytes.extend_from_slice(payload);
    }
}

/// State of a stream in the direction of the engine.
#[derive(Default)]
struct Stream {
    has_headers: bool,
    is_ended: bool,
    /// Number of resets before that of this stream.
    reset_at: Option<usize>,
    data_bytes: u64,
}

/// A field block without its end.
struct FieldBlock {
    stream: u32,
    /// The application responds with the body of the request, which may have trailers.
    is_trailers: bool,
    bytes: Vec<u8>,
}

struct Model<'a> {
    client: &'a Client,
    streams: HashMap<u32, Stream>,
    data_bytes: u64,
    resets: usize,
    settings_acks: usize,
    ping_acks: usize,
    last_goaway: Option<u32>,
    hpack: loona_hpack::Decoder<'static>,
    block: Option<FieldBlock>,
}

impl Model<'_> {
    fn new(client: &Client) -> Model<'_> {
        Model {
            client,
            streams: HashMap::new(),
            data_bytes: 0,
            resets: 0,
            settings_acks: 0,
            ping_acks: 0,
            last_goaway: None,
            hpack: loona_hpack::Decoder::new(),
            block: None,
        }
    }

    fn check(mut self, mut received: &[u8]) {
        let mut is_first = true;
        while let Some((head, rest)) = received.split_at_checked(9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            assert!(length <= MAX_FRAME_BYTES, "a frame of {length} bytes");
            // The last frame may be cut off.
            let Some((payload, rest)) = rest.split_at_checked(length) else { return };
            received = rest;
            if std::mem::take(&mut is_first) {
                assert!(kind == SETTINGS && flags & ACK == 0, "the first frame is of type {kind}");
            }
            self.frame(kind, flags, stream, payload);
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert_eq!(self.block.is_some(), kind == CONTINUATION, "within a field block: {kind}");
        if stream != 0 {
            let is_open = stream % 2 == 1 && stream <= self.client.highest_stream;
            assert!(is_open, "type {kind} on the idle stream {stream}");
        }
        match kind {
            DATA => self.data(flags, stream, payload),
            HEADERS => {
                assert_ne!(stream, 0);
                let state = self.writable(stream);
                let is_trailers = std::mem::replace(&mut state.has_headers, true);
                state.is_ended = flags & END_STREAM != 0;
                assert!(state.is_ended || !is_trailers, "trailers do not end stream {stream}");
                self.block = Some(FieldBlock { stream, is_trailers, bytes: Vec::new() });
                self.field_block(flags, stream, payload);
            }
            CONTINUATION => self.field_block(flags, stream, payload),
            RST_STREAM => {
                assert_eq!(payload.len(), 4);
                let state = self.streams.entry(stream).or_default();
                let former = state.reset_at.replace(self.resets);
                let is_recent = |at| self.resets - at < RECENT_RESETS;
                assert!(!former.is_some_and(is_recent), "{stream} is reset twice");
                self.resets += 1;
            }
            SETTINGS if flags & ACK != 0 => {
                self.settings_acks += 1;
                assert!(payload.is_empty() && self.settings_acks <= self.client.max_settings());
            }
            SETTINGS => assert!(stream == 0 && payload.len() % 6 == 0),
            PING if flags & ACK != 0 => {
                self.ping_acks += 1;
                assert!(payload.len() == 8 && self.ping_acks <= self.client.max_pings());
            }
            PING => assert!(stream == 0 && payload.len() == 8),
            GOAWAY => {
                let last = u32::from_be_bytes(payload[..4].try_into().expect("4 bytes"));
                assert!(self.last_goaway.is_none_or(|former| last <= former), "it increases");
                self.last_goaway = Some(last);
            }
            WINDOW_UPDATE => {
                let increment = u32::from_be_bytes(payload.try_into().expect("4 bytes"));
                assert!(increment > 0 && increment < 1 << 31);
                assert!(stream == 0 || self.streams.entry(stream).or_default().reset_at.is_none());
            }
            PUSH_PROMISE | PRIORITY => panic!("a server sends no frame of type {kind}"),
            _ => panic!("an unknown type {kind}"),
        }
    }

    /// Returns the state of a stream on which the engine may send HEADERS or DATA.
    fn writable(&mut self, stream: u32) -> &mut Stream {
        let state = self.streams.entry(stream).or_default();
        assert!(!state.is_ended, "stream {stream} has ended");
        assert!(state.reset_at.is_none(), "stream {stream} is reset");
        state
    }

    fn data(&mut self, flags: u8, stream: u32, payload: &[u8]) {
        let initial = self.client.max_initial_window;
        let granted = |stream| self.client.increments.get(&stream).copied().unwrap_or(0);
        let (window, connection_window) = (initial + granted(stream), INITIAL_WINDOW + granted(0));
        let state = self.writable(stream);
        assert!(state.has_headers, "DATA before HEADERS on {stream}");
        state.is_ended = flags & END_STREAM != 0;
        state.data_bytes += payload.len() as u64;
        assert!(state.data_bytes <= window, "stream {stream} exceeds its window");
        self.data_bytes += payload.len() as u64;
        assert!(self.data_bytes <= connection_window, "the connection exceeds its window");
    }

    fn field_block(&mut self, flags: u8, stream: u32, payload: &[u8]) {
        let mut block = self.block.take().expect("a field block");
        assert_eq!(block.stream, stream);
        block.bytes.extend_from_slice(payload);
        if flags & END_HEADERS == 0 {
            self.block = Some(block);
            return;
        }
        let fields = self.hpack.decode(&block.bytes).expect("a valid field block");
        let pseudo_fields = usize::from(!block.is_trailers);
        let is_status = |(name, _): &(_, _)| *name == b":status"[..];
        assert!(fields.iter().take(pseudo_fields).all(is_status), "{:?}", fields.first());
        for (name, _) in &fields[pseudo_fields..] {
            assert!(!name.starts_with(b":") && !name.iter().any(u8::is_ascii_uppercase));
        }
    }
}

impl Client {
    /// Raw frames may be SETTINGS or PING, too.
    fn max_settings(&self) -> usize {
        self.settings + self.count(SETTINGS)
    }

    fn max_pings(&self) -> usize {
        self.pings + self.count(PING)
    }

    /// Returns the number of frames of this type.
    fn count(&self, kind: u8) -> usize {
        let (mut rest, mut count) = (&self.bytes[PREFACE.len()..], 0);
        while let [a, b, c, found, _, _, _, _, _, after @ ..] = rest {
            count += usize::from(*found == kind);
            rest = &after[u32::from_be_bytes([0, *a, *b, *c]) as usize..];
        }
        count
    }
}

/// Sends the bytes of a client and returns those of the engine.
fn run(bytes: &[u8]) -> Vec<u8> {
    let app = async |request: Request| match *request.method() {
        Method::POST => Response::from_body(request.into_body()),
        _ => Response::text("x".repeat(50_000)),
    };
    // Waiting for a client that sends nothing must end soon.
    let timeout = std::time::Duration::from_millis(1);
    let settings = Settings {
        max_body_bytes: 1 << 16,
        stall_timeout: timeout,
        idle_timeout: timeout,
        head_timeout: timeout,
        linger_timeout: timeout,
        ..Settings::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (mut reader, mut writer) = tokio::io::split(client);
        let sending = async {
            // Fails when the engine rejects the input and stops reading.
            let _ = writer.write_all(bytes).await;
            let _ = writer.shutdown().await;
        };
        let mut received = Vec::new();
        let reading = async { reader.read_to_end(&mut received).await.unwrap() };
        let engine = Server::new(app).settings(settings);
        tokio::join!(engine.serve_connection(server), sending, reading).0.unwrap();
        received
    })
}
