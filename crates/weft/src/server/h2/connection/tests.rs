//! Frames as data, and the state that they leave.

use std::time::Duration;

use super::*;
use crate::net::writer::WriteHalf;

const LIMITS: Limits = Limits { request_line: 8_192, head: 16_384, fields: 100 };

fn connection() -> Http2Connection {
    let settings = Settings { head_timeout: Duration::MAX, ..Settings::default() };
    let mut connection =
        Http2Connection::new(Writer::new(WriteHalf::Closed, 1 << 15), &settings, LIMITS);
    let head = FrameHeader { length: 0, kind: kind::SETTINGS, flags: 0, stream: 0 };
    assert!(connection.on_frame(head, &[]).is_ok());
    connection.writer.out().clear();
    connection
}

fn shared() -> Arc<RequestContext> {
    let (_, shutdown) = tokio::sync::watch::channel(None);
    RequestContext::new(Arc::default(), Arc::new(shutdown))
}

fn recv(
    connection: &mut Http2Connection,
    (kind, flags, stream): (u8, u8, u32),
    payload: &[u8],
) -> Result<Option<StreamRequest>, ErrorCode> {
    connection.on_frame(FrameHeader { length: payload.len(), kind, flags, stream }, payload)
}

/// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: a`
const GET: &[u8] = &[0x82, 0x86, 0x84, 1, 1, b'a'];
const POST: &[u8] = &[0x83, 0x86, 0x84, 1, 1, b'a'];

#[test]
fn completed_streams_leave_no_state() {
    let mut connection = connection();
    for id in (1..10_000).step_by(2) {
        let request = recv(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().unwrap();
        assert!(request.request.is_ok() && request.pipe.is_none());
        connection.send_fields(id, false, |_, _| {}).unwrap();
        connection.send(id, "ok".into(), true).unwrap();
        connection.end_exchange(id, shared());
        assert_eq!(connection.streams.len(), 0);
        connection.on_sent(connection.writer.waiting());
        connection.writer.out().clear();
    }
    assert!(connection.progress.unsent_ends.is_empty() && connection.resets.is_empty());
}

/// RFC 9113 §5.1.2: for the client, a stream whose end was not sent is still open.
#[test]
fn unsent_response_counts_as_open_stream() {
    let mut connection = connection();
    for id in (1..).step_by(2).take(128) {
        assert!(recv(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().is_some());
        connection.send_fields(id, true, |_, _| {}).unwrap();
        connection.end_exchange(id, shared());
    }
    assert!(recv(&mut connection, (kind::HEADERS, 5, 257), GET).unwrap().is_none());
    // The acknowledgement of the settings, and the first response.
    connection.on_sent(9);
    assert!(recv(&mut connection, (kind::HEADERS, 5, 259), GET).unwrap().is_some());
}

#[test]
fn streams_reset_by_the_client_leave_no_state() {
    let mut connection = connection();
    for id in (1..2_000).step_by(2) {
        assert!(recv(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().is_some());
        recv(&mut connection, (kind::RST_STREAM, 0, id), &[0, 0, 0, 8]).unwrap();
        connection.end_exchange(id, shared());
    }
    assert!(connection.progress.unsent_ends.is_empty() && connection.writer.out().is_empty());
}

/// RFC 9113 §5.1: DATA after RST_STREAM is a stream error, whether the exchange has ended or not.
#[test]
fn frames_after_a_reset_by_the_client_are_answered_once() {
    for ends_exchange in [false, true] {
        let mut connection = connection();
        recv(&mut connection, (kind::HEADERS, 4, 1), POST).unwrap().unwrap();
        recv(&mut connection, (kind::RST_STREAM, 0, 1), &[0, 0, 0, 8]).unwrap();
        if ends_exchange {
            connection.end_exchange(1, shared());
        }
        for _ in 0..3 {
            recv(&mut connection, (kind::DATA, 0, 1), b"x").unwrap();
        }
        let mut expected = Vec::new();
        frame::rst_stream(&mut expected, 1, ErrorCode::STREAM_CLOSED);
        assert_eq!(connection.writer.out()[..], expected, "ends exchange: {ends_exchange}");
    }
}

#[test]
fn unread_content_is_credited_to_the_connection() {
    let mut connection = connection();
    for id in (1..1_000).step_by(2) {
        recv(&mut connection, (kind::HEADERS, 4, id), POST)
            .unwrap()
            .unwrap()
            .pipe
            .unwrap()
            .close_reader();
        recv(&mut connection, (kind::DATA, 1, id), &[0; 10_000]).unwrap();
        connection.send_fields(id, true, |_, _| {}).unwrap();
        connection.end_exchange(id, shared());
        assert_eq!(connection.streams.len(), 0);
        connection.on_sent(connection.writer.waiting());
        connection.writer.out().clear();
    }
}

/// END_STREAM without content is sent while other streams wait for the connection window.
#[test]
fn end_of_stream_needs_no_window() {
    let mut connection = connection();
    let wide = [0, 4, 0, 3, 13, 0x40];
    recv(&mut connection, (kind::SETTINGS, 0, 0), &wide).unwrap();
    for id in [1, 3, 5] {
        recv(&mut connection, (kind::HEADERS, 5, id), GET).unwrap().unwrap();
        connection.send_fields(id, false, |_, _| {}).unwrap();
    }
    for id in [1, 3] {
        connection.send(id, vec![b'x'; 100_000].into(), true).unwrap();
    }
    let send_all = |connection: &mut Http2Connection| {
        while connection.can_send() {
            connection.on_sent(connection.writer.waiting());
            connection.writer.out().clear();
            connection.pump();
        }
    };
    send_all(&mut connection);
    assert_eq!((connection.send.available(), connection.queue.len()), (0, 2));
    connection.send(5, Default::default(), true).unwrap();
    send_all(&mut connection);
    assert!(!connection.streams.get(5).unwrap().state().is_sending());
    assert_eq!(connection.queue.len(), 2);
}

/// Every frame is accepted or rejected, and the retained state stays bounded.
#[test]
fn random_frames_keep_state_bounded() {
    let mut number = 1u64;
    let mut next = move |max: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (number >> 33) % max
    };
    let (mut requests, mut errors) = (0, 0);
    for _ in 0..3_000 {
        let mut connection = connection();
        // The next stream, and the streams with an open request body.
        let (mut next_stream, mut open) = (1, Vec::new());
        for _ in 0..100 {
            let old = 1 + 2 * next(u64::from(next_stream / 2).max(1)) as u32;
            let kind = if open.is_empty() { 2 } else { next(7) };
            let ((mut kind, mut flags, mut stream), mut payload) = match kind {
                0 => {
                    let index = next(open.len() as u64) as usize;
                    let ends = next(2) as u8;
                    let stream = if ends == 1 { open.remove(index) } else { open[index] };
                    ((0, ends, stream), vec![b'x'; next(2_000) as usize])
                }
                1 => ((1, 5, next_stream), GET.to_vec()),
                2 => {
                    open.push(next_stream);
                    ((1, 4, next_stream), POST.to_vec())
                }
                3 => ((3, 0, old), vec![0, 0, 0, 8]),
                4 => ((4, 0, 0), vec![0, 4, 0, 0, next(256) as u8, 1]),
                5 => ((8, 0, 0), vec![0, 0, next(256) as u8, 1]),
                _ => ((8, 0, old), vec![0, 0, next(256) as u8, 1]),
            };
            match next(200) {
                0 => kind = next(11) as u8,
                1 => flags = next(64) as u8,
                2 => stream = next(100) as u32,
                3 => payload.truncate(next(4) as usize),
                4 => payload.extend((0..next(9)).map(|_| next(256) as u8).collect::<Vec<_>>()),
                _ => {}
            }
            match recv(&mut connection, (kind, flags, stream), &payload) {
                Err(_) => {
                    errors += 1;
                    break;
                }
                Ok(None) => {}
                Ok(Some(request)) => {
                    requests += 1;
                    next_stream = request.stream + 2;
                    let pipe = request.pipe;
                    if next(4) > 0 {
                        let _ = connection.send_fields(request.stream, false, |_, _| {});
                        let body = vec![b'x'; next(100_000) as usize];
                        let _ = connection.send(request.stream, body.into(), true);
                        if let Some(pipe) = pipe {
                            pipe.close_reader();
                        }
                        connection.end_exchange(request.stream, shared());
                    }
                }
            }
            connection.pump();
            if next(2) == 0 {
                connection.on_sent(connection.writer.waiting());
                connection.writer.out().clear();
            }
            assert!(connection.streams.len() <= 128);
            assert!(connection.queue.len() <= 128 && connection.resets.len() <= 512);
        }
        connection.reset_all();
    }
    assert!(requests > 9_000 && errors > 1_000, "{requests} requests, {errors} connection errors");
}
