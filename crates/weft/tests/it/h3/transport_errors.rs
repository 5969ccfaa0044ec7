//! Clients that violate QUIC (RFC 9000): the cases of h3spec for the transport, with twins that the
//! server accepts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::{ClientConfig, ConnectionError, Dir};

use super::crafting::{Change, Changes, CraftingConfig, Level};
use super::echo;
use super::raw_client::RawClient;
use crate::common::TEST_TIMEOUT;
use crate::common::clients::{CREDENTIALS, Transport, TransportServer};

/// A deviation of a client.
#[derive(Clone, Default)]
struct Case {
    removed: Option<u8>,
    added: Vec<u8>,
    protocol: Option<&'static [u8]>,
    change: Option<Change>,
}

fn frames(frames: &[u8]) -> Case {
    let frames = Some(frames.to_vec());
    let change = Change { level: Level::OneRtt, frames, first_byte: 0 };
    Case { change: Some(change), ..Case::default() }
}

fn first_byte(level: Level, first_byte: u8) -> Case {
    let change = Change { level, frames: None, first_byte };
    Case { change: Some(change), ..Case::default() }
}

fn parameter(parameter: &[u8]) -> Case {
    Case { added: parameter.to_vec(), ..Case::default() }
}

/// A parameter that replaces the client's own.
fn instead(parameter: &[u8]) -> Case {
    Case { removed: Some(parameter[0]), added: parameter.to_vec(), ..Case::default() }
}

/// The code with which the server closes the connection; `None` if it stays open.
fn outcome(server: &TransportServer, case: Case, closes: bool) -> Option<u64> {
    let mut tls = CREDENTIALS.client.clone();
    tls.alpn_protocols = vec![case.protocol.unwrap_or(b"h3").to_vec()];
    let changes = Changes::default();
    let is_early = case.change.as_ref().is_some_and(|change| change.level == Level::Handshake);
    if is_early {
        changes.lock().unwrap().clone_from(&case.change);
    }
    let config = CraftingConfig {
        tls: Arc::new(tls),
        changes: changes.clone(),
        removed: case.removed,
        added: case.added,
    };
    let config = ClientConfig::new(Arc::new(config));
    let mut client = RawClient::with_config(server.address, config);
    client.run_until("the handshake ends", |client| client.is_connected || client.lost.is_some());
    if client.lost.is_none() && !is_early {
        // The server confirms the handshake, and has opened its control stream.
        client.run_until("a stream of the server", |client| {
            client.connection.streams().accept(Dir::Uni).is_some()
        });
        *changes.lock().unwrap() = case.change;
    }
    if client.lost.is_none() {
        let stream = client.connection.streams().open(Dir::Uni).unwrap();
        client.connection.send_stream(stream).write(&[0x21; 200]).unwrap();
    }
    let start = Instant::now();
    let wait = if closes { TEST_TIMEOUT } else { Duration::from_millis(200) };
    while client.lost.is_none() && start.elapsed() < wait {
        client.send();
        client.receive();
    }
    match client.lost {
        None => None,
        Some(ConnectionError::ConnectionClosed(close)) => Some(close.error_code.into()),
        Some(other) => panic!("{other:?}"),
    }
}

const FLOW_CONTROL: u64 = 0x3;
const STREAM_STATE: u64 = 0x5;
const FRAME_ENCODING: u64 = 0x7;
const PARAMETER: u64 = 0x8;
const VIOLATION: u64 = 0xa;

fn run(cases: &[(&str, Case, Option<u64>)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = Transport::Http3.serve(echo);
        for (name, case, expected) in cases {
            let outcome = outcome(&server, case.clone(), expected.is_some());
            assert_eq!(outcome, *expected, "{name}");
        }
        server.stop().await;
    });
}

#[test]
fn transport_parameters_are_valid() {
    let id = [8, 1, 2, 3, 4, 5, 6, 7, 8];
    run(&[
        ("none changed", Case::default(), None),
        ("an unknown one", parameter(&[0x1b, 1, 0]), None),
        (
            "initial_source_connection_id is missing",
            Case { removed: Some(0x0f), ..Case::default() },
            Some(PARAMETER),
        ),
        (
            "original_destination_connection_id",
            parameter(&[&[0][..], &id].concat()),
            Some(PARAMETER),
        ),
        ("stateless_reset_token", parameter(&[&[2, 16][..], &[7; 16]].concat()), Some(PARAMETER)),
        (
            "preferred_address",
            parameter(&[&[0x0d, 49][..], &[4; 24], &id, &[7; 16]].concat()),
            Some(PARAMETER),
        ),
        ("retry_source_connection_id", parameter(&[&[0x10][..], &id].concat()), Some(PARAMETER)),
        ("max_udp_payload_size of 1,199", instead(&[3, 2, 0x44, 0xaf]), Some(PARAMETER)),
        ("max_udp_payload_size of 1,200", instead(&[3, 2, 0x44, 0xb0]), None),
        ("ack_delay_exponent of 21", instead(&[0x0a, 1, 21]), Some(PARAMETER)),
        ("ack_delay_exponent of 20", instead(&[0x0a, 1, 20]), None),
        ("max_ack_delay of 2^14", instead(&[0x0b, 4, 0x80, 0, 0x40, 0]), Some(PARAMETER)),
        ("max_ack_delay of 2^14 - 1", instead(&[0x0b, 2, 0x7f, 0xff]), None),
        ("another protocol", Case { protocol: Some(b"x"), ..Case::default() }, Some(0x178)),
    ]);
}

#[test]
fn frames_of_the_transport_are_valid() {
    let large = [0xd0, 0, 0, 0, 0, 0, 0, 1];
    let new_id = |head: &[u8], id: &[u8]| frames(&[&[0x18][..], head, id, &[7; 16]].concat());
    let handshake = |frames: &[u8]| Case {
        change: Some(Change {
            level: Level::Handshake,
            frames: Some(frames.to_vec()),
            first_byte: 0,
        }),
        ..Case::default()
    };
    run(&[
        ("PING", frames(&[1]), None),
        (
            "a large offset",
            frames(&[&[0x0e, 0][..], &large, &[1, b'a']].concat()),
            Some(FLOW_CONTROL),
        ),
        ("an unknown type", frames(&[0x3f]), Some(FRAME_ENCODING)),
        ("reserved bits", first_byte(Level::OneRtt, 0x18), Some(VIOLATION)),
        (
            "reserved bits in a Handshake packet",
            first_byte(Level::Handshake, 0x0c),
            Some(VIOLATION),
        ),
        (
            "PATH_CHALLENGE in a Handshake packet",
            handshake(&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8]),
            Some(VIOLATION),
        ),
        ("RESET_STREAM of a stream that only sends", frames(&[4, 3, 0, 0]), Some(STREAM_STATE)),
        ("STOP_SENDING of a stream that does not exist", frames(&[5, 1, 0]), Some(STREAM_STATE)),
        ("STOP_SENDING of a stream that only receives", frames(&[5, 6, 0]), Some(STREAM_STATE)),
        ("NEW_TOKEN", frames(&[7, 1, 0]), Some(VIOLATION)),
        ("STREAM of a stream that does not exist", frames(&[0x0a, 1, 1, b'a']), Some(STREAM_STATE)),
        ("STREAM of a stream that only sends", frames(&[0x0a, 3, 1, b'a']), Some(STREAM_STATE)),
        (
            "MAX_STREAM_DATA of a stream that does not exist",
            frames(&[0x11, 1, 1]),
            Some(STREAM_STATE),
        ),
        (
            "MAX_STREAM_DATA of a stream that only receives",
            frames(&[0x11, 6, 1]),
            Some(STREAM_STATE),
        ),
        ("MAX_STREAMS above 2^60", frames(&[&[0x12][..], &large].concat()), Some(FRAME_ENCODING)),
        (
            "STREAMS_BLOCKED above 2^60",
            frames(&[&[0x16][..], &large].concat()),
            Some(FRAME_ENCODING),
        ),
        ("an identifier", new_id(&[1, 0, 8], &[9; 8]), None),
        (
            "an identifier that retires later ones",
            new_id(&[1, 2, 8], &[9; 8]),
            Some(FRAME_ENCODING),
        ),
        ("an empty identifier", new_id(&[1, 0, 0], &[]), Some(FRAME_ENCODING)),
        ("HANDSHAKE_DONE", frames(&[0x1e]), Some(VIOLATION)),
        ("KeyUpdate of TLS", frames(&[6, 0, 5, 24, 0, 0, 1, 0]), Some(0x10a)),
        (
            "KeyUpdate of TLS in a Handshake packet",
            handshake(&[6, 0, 5, 24, 0, 0, 1, 0]),
            Some(0x10a),
        ),
        ("EndOfEarlyData of TLS", handshake(&[6, 0, 4, 5, 0, 0, 0]), Some(0x10a)),
    ]);
}
