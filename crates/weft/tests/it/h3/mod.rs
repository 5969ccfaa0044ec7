//! Clients that violate HTTP/3 and QPACK, on streams whose bytes the test writes. The cases are the
//! cases of h3spec for HTTP/3, with twins that the server accepts.

mod budgets;
mod connections;
mod crafting;
mod delivery;
mod early_data;
#[cfg(target_os = "linux")]
mod handover;
mod paths;
mod raw_client;
mod relay;
mod transport_errors;

use quinn::{Connection, ConnectionError, SendStream, VarInt};

use crate::common::clients::{Transport, TransportServer};
use crate::common::http3::{Frames, frame, headers, quic_connect};
use weft::{Request, Response};

/// Bytes on a new stream of the client, after which the stream stays open or ends.
enum Step {
    Uni(Vec<u8>),
    EndedUni(Vec<u8>),
    Request(Vec<u8>),
    EndedRequest(Vec<u8>),
}

use Step::{EndedRequest, EndedUni, Request as OpenRequest, Uni};

/// The reaction of the server to the last step.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    /// The connection is closed with this code.
    Closes(u64),
    /// The stream of the request is reset with this code.
    Resets(u64),
    Responds(u16),
    /// Other requests are served.
    Continues,
}

use Reaction::{Closes, Continues, Resets, Responds};

async fn echo(request: Request) -> Response {
    Response::from_body(request.into_body())
}

/// Performs the steps on a new connection.
async fn react(server: &TransportServer, steps: &[Step], closes: bool) -> Reaction {
    let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
    let mut open: Vec<SendStream> = Vec::new();
    let mut last = None;
    for step in steps {
        let (bytes, is_request, ends) = match step {
            Uni(bytes) => (bytes, false, false),
            EndedUni(bytes) => (bytes, false, true),
            OpenRequest(bytes) => (bytes, true, false),
            EndedRequest(bytes) => (bytes, true, true),
        };
        let mut stream = match is_request {
            true => {
                let (send, receive) = connection.open_bi().await.unwrap();
                last = Some(receive);
                send
            }
            false => connection.open_uni().await.unwrap(),
        };
        // An error means that the connection is closed already.
        let _ = stream.write_all(bytes).await;
        if ends {
            let _ = stream.finish();
        }
        open.push(stream);
    }
    let own_request = match last {
        Some(receive) => Frames::new(receive).status().await,
        None => match request(&connection).await {
            // The request may be served before the other streams are read.
            Ok(200) if closes => Err(connection.closed().await.into()),
            Ok(200) => return Continues,
            other => other,
        },
    };
    match own_request {
        Ok(status) => Responds(status),
        Err(quinn::ReadError::Reset(code)) => Resets(code.into_inner()),
        Err(_) => match connection.closed().await {
            ConnectionError::ApplicationClosed(close) => Closes(close.error_code.into_inner()),
            other => panic!("{other}"),
        },
    }
}

/// Sends a valid request and returns the status of its response.
async fn request(connection: &Connection) -> Result<u16, quinn::ReadError> {
    // The error of the stream tells it if the connection is closed.
    let (mut send, receive) = connection.open_bi().await?;
    let _ = send.write_all(&get(&[])).await;
    let _ = send.finish();
    // Both orders of the packets are possible: wait for the reaction to the steps before.
    let status = Frames::new(receive).status().await?;
    let settled = tokio::time::timeout(std::time::Duration::from_millis(20), connection.closed());
    match settled.await {
        Ok(closed) => Err(closed.into()),
        Err(_) => Ok(status),
    }
}

fn get(more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
    headers(&[&fields, more].concat())
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

const SETTINGS: &[u8] = b"\x00\x04\x00";

fn control(frames: &[u8]) -> Vec<u8> {
    [SETTINGS, frames].concat()
}

fn run(cases: Vec<(&str, Vec<Step>, Reaction)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Transport::Http3.serve(echo);
        for (name, steps, expected) in cases {
            let reaction = react(&server, &steps, matches!(expected, Closes(_)));
            let reaction = tokio::time::timeout(crate::common::TEST_TIMEOUT, reaction).await;
            assert_eq!(reaction.ok(), Some(expected), "{name}");
        }
        server.stop().await;
    });
}

#[test]
fn request_streams_have_valid_frames() {
    let data = |bytes: &[u8]| frame(0, bytes);
    let post = |more: &[(&str, &str)]| {
        let fields =
            [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "a")];
        headers(&[&fields, more].concat())
    };
    run(vec![
        ("a request", vec![EndedRequest(get(&[]))], Responds(200)),
        ("DATA first", vec![EndedRequest(joined(&[data(b"a"), get(&[])]))], Closes(0x105)),
        ("DATA behind", vec![EndedRequest(joined(&[post(&[]), data(b"a")]))], Responds(200)),
        (
            "DATA behind trailers",
            vec![EndedRequest(joined(&[post(&[]), headers(&[("x", "y")]), data(b"a")]))],
            Closes(0x105),
        ),
        ("CANCEL_PUSH", vec![OpenRequest(frame(3, &[0]))], Closes(0x105)),
        ("SETTINGS", vec![OpenRequest(frame(4, &[]))], Closes(0x105)),
        ("PUSH_PROMISE", vec![OpenRequest(frame(5, &[0, 0, 0]))], Closes(0x105)),
        ("GOAWAY", vec![OpenRequest(frame(7, &[0]))], Closes(0x105)),
        ("a type of HTTP/2", vec![OpenRequest(frame(8, &[0; 4]))], Closes(0x105)),
        (
            "a reserved type",
            vec![EndedRequest(joined(&[frame(0x21, b"a"), get(&[])]))],
            Responds(200),
        ),
        ("no frame", vec![EndedRequest(vec![])], Resets(0x10d)),
        ("a cut frame", vec![EndedRequest(b"\x01\x20\x00".to_vec())], Closes(0x106)),
        (
            "less content than declared",
            vec![EndedRequest(joined(&[post(&[("content-length", "3")]), data(b"ab")]))],
            Resets(0x10e),
        ),
        (
            "more content than declared",
            vec![EndedRequest(joined(&[post(&[("content-length", "3")]), data(b"abcd")]))],
            Resets(0x10e),
        ),
        (
            "the declared content",
            vec![EndedRequest(joined(&[post(&[("content-length", "3")]), data(b"abc")]))],
            Responds(200),
        ),
        (
            "a reference to a dynamic table",
            vec![EndedRequest(frame(1, &[0, 0, 0x80]))],
            Closes(0x200),
        ),
        (
            "an index behind the static table",
            vec![EndedRequest(frame(1, &[0, 0, 0xff, 0x24]))],
            Closes(0x200),
        ),
        (
            "the static table",
            vec![EndedRequest(frame(1, b"\0\0\xd1\xd7\xc1\x50\x01a"))],
            Responds(200),
        ),
    ]);
}

#[test]
fn requests_have_valid_fields() {
    let (method, scheme) = ((":method", "GET"), (":scheme", "https"));
    let (path, authority) = ((":path", "/"), (":authority", "a"));
    let of = |fields: &[(&str, &str)]| vec![EndedRequest(headers(fields))];
    run(vec![
        ("all", of(&[method, scheme, path, authority, ("x", "y")]), Responds(200)),
        ("a repeated method", of(&[method, method, scheme, path, authority]), Resets(0x10e)),
        ("no method", of(&[scheme, path, authority]), Resets(0x10e)),
        ("no path", of(&[method, scheme, authority]), Resets(0x10e)),
        ("no scheme", of(&[method, path, authority]), Resets(0x10e)),
        ("a status", of(&[method, scheme, path, authority, (":status", "200")]), Resets(0x10e)),
        ("a pseudo-field late", of(&[method, scheme, path, ("x", "y"), authority]), Resets(0x10e)),
        ("upper case", of(&[method, scheme, path, authority, ("X", "y")]), Resets(0x10e)),
        ("connection", of(&[method, scheme, path, authority, ("connection", "a")]), Resets(0x10e)),
    ]);
}

#[test]
fn unidirectional_streams_are_valid() {
    let settings = |payload: &[u8]| Uni([&[0][..], &frame(4, payload)].concat());
    run(vec![
        ("SETTINGS", vec![Uni(SETTINGS.to_vec())], Continues),
        ("DATA instead of SETTINGS", vec![Uni(b"\x00\x00\x01a".to_vec())], Closes(0x10a)),
        ("DATA", vec![Uni(control(&frame(0, b"a")))], Closes(0x105)),
        ("HEADERS", vec![Uni(control(&get(&[])))], Closes(0x105)),
        ("SETTINGS twice", vec![Uni(control(&frame(4, &[])))], Closes(0x105)),
        ("a reserved frame", vec![Uni(control(&frame(0x21, b"a")))], Continues),
        ("a setting of HTTP/2", vec![settings(&[2, 0])], Closes(0x109)),
        ("a setting twice", vec![settings(&[6, 1, 6, 1])], Closes(0x109)),
        ("a setting", vec![settings(&[6, 1])], Continues),
        ("a second control stream", vec![Uni(control(&[])), Uni(vec![0])], Closes(0x103)),
        ("a push stream", vec![Uni(vec![1])], Closes(0x103)),
        ("an unknown stream", vec![Uni(vec![0x21, 1, 2])], Continues),
        ("the end of the control stream", vec![EndedUni(control(&[]))], Closes(0x104)),
        ("the end of the encoder stream", vec![EndedUni(vec![2])], Closes(0x104)),
        ("the end of the decoder stream", vec![EndedUni(vec![3])], Closes(0x104)),
        ("the end of an unknown stream", vec![EndedUni(vec![0x21])], Continues),
        ("a large capacity", vec![Uni(vec![2, 0x3f, 0xff, 0xff, 0xff, 0x7f])], Closes(0x201)),
        ("no capacity", vec![Uni(vec![2, 0x20])], Continues),
        ("an increment of 0", vec![Uni(vec![3, 0])], Closes(0x202)),
        ("the cancellation of a stream", vec![Uni(vec![3, 0x44])], Continues),
    ]);
}

/// A client may cancel requests, but not any number of them.
#[test]
fn closes_connections_that_reset_requests_without_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Transport::Http3.serve(echo);
        for (count, is_open) in [(50, true), (10_000, false)] {
            let (_endpoint, connection) = quic_connect(server.address).await.unwrap();
            for _ in 0..count {
                let Ok((mut send, _)) = connection.open_bi().await else { break };
                let _ = send.write_all(&get(&[])).await;
                let _ = send.reset(VarInt::from_u32(0x10c));
            }
            assert_eq!(request(&connection).await.is_ok(), is_open, "{count} resets");
        }
        server.stop().await;
    });
}
