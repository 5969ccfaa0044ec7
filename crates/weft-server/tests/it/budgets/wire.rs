//! Bytes of attacks: HTTP/2 frames (RFC 9113), HPACK (RFC 7541), TLS records (RFC 8446) and
//! WebSocket frames (RFC 6455).

use std::sync::Arc;

use rustls::ClientConnection;

use crate::common::tls_client::tls_settings;

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

// Parameters of SETTINGS (RFC 9113 §6.5.2).
pub const HEADER_TABLE_SIZE: u16 = 1;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// Largest flow-control window (RFC 9113 §6.9.1).
pub const MAX_WINDOW: u32 = i32::MAX as u32;

/// Largest frame payload without a setting (RFC 9113 §4.2).
pub const MAX_PAYLOAD: usize = 16_384;

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

/// Returns the name of an error code.
pub fn error_name(code: u32) -> &'static str {
    ERRORS.get(code as usize).copied().unwrap_or("unknown")
}

// -- HTTP/1

/// Returns a head with a request line, `Host` and these field lines.
pub fn head(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

/// Returns a GET of `target` with these field lines.
pub fn get(target: &str, fields: &str) -> Vec<u8> {
    head(&format!("GET {target}"), fields)
}

/// Returns the head of a POST of `target` with these field lines.
pub fn post(target: &str, fields: &str) -> Vec<u8> {
    head(&format!("POST {target}"), fields)
}

pub const CLOSE: &str = "Connection: close\r\n";
pub const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Returns a field line whose value is `member` repeated to about `length` bytes, as a list.
pub fn list_field(name: &str, member: &str, length: usize) -> String {
    let members = vec![member; length / (member.len() + 1)];
    format!("{name}: {}\r\n", members.join(","))
}

// -- HTTP/2

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

pub fn settings(parameters: &[(u16, u32)]) -> Vec<u8> {
    let parameters = parameters.iter();
    let payload =
        parameters.map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(SETTINGS, 0, 0, &payload.collect::<Vec<_>>().concat())
}

/// Returns the connection preface with these settings, and the acknowledgment of the server's.
pub fn preface(parameters: &[(u16, u32)]) -> Vec<u8> {
    [PREFACE, &settings(parameters), &frame(SETTINGS, ACK, 0, b"")].concat()
}

/// Returns a preface that opens all windows.
pub fn open_windows() -> Vec<u8> {
    let update = window_update(0, MAX_WINDOW - 65_535);
    [preface(&[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]), update].concat()
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// Returns the stream of a client's request `number`, starting at 0.
pub fn stream(number: usize) -> u32 {
    2 * number as u32 + 1
}

/// Returns the HEADERS of a whole GET request.
pub fn h2_get(number: usize, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_ALL, stream(number), &request_block("GET", path, fields))
}

/// Returns the HEADERS of a POST request, whose body follows.
pub fn h2_post(number: usize, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream(number), &request_block("POST", path, fields))
}

/// Encodes a request as literals without indexing (RFC 7541 §6.2.2) and without Huffman coding.
pub fn request_block(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    let fields = pseudo.iter().chain(fields);
    fields.flat_map(|(name, value)| literal(0, name, value)).collect()
}

/// Encodes a literal field with a new name: `first` is 0 without indexing and 0x40 with it.
pub fn literal(first: u8, name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![first];
    for text in [name, value] {
        push_integer(&mut field, 7, 0, text.len());
        field.extend(text.as_bytes());
    }
    field
}

/// The first entry of the dynamic table, as an indexed field (RFC 7541 §6.1).
pub const FIRST_DYNAMIC: u8 = 0x80 | 62;

/// Encodes a GET of `/words.txt` in static entries and one literal (RFC 7541, Appendix A).
pub fn short_block() -> Vec<u8> {
    let mut block = vec![0x80 | 2, 0x80 | 6, 0x04, 10];
    block.extend(b"/words.txt");
    block.extend([0x01, 1, b'a']);
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

// -- TLS

// Record types (RFC 8446 §5.1).
pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;

/// Returns a plaintext TLS record.
pub fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b] = (payload.len() as u16).to_be_bytes();
    [&[kind, 3, 3, a, b][..], payload].concat()
}

/// Returns the first flight of a TLS client.
pub fn client_hello() -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::new(tls_settings(&[])), name).expect("settings");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("memory is writable");
    bytes
}

// -- WebSocket

/// Returns the request for a WebSocket at `target`.
pub fn websocket(target: &str) -> Vec<u8> {
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    get(target, &format!("Connection: Upgrade\r\nUpgrade: websocket\r\n{key}"))
}

/// Returns a masked WebSocket frame with `first` as its first byte (FIN and opcode).
pub fn websocket_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
}
