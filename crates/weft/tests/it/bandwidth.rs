//! Responses with a limit on their bandwidth, over HTTP/1 and HTTP/2.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use weft::message::Bandwidth;
use weft::server::ServerHandle;
use weft::{Body, Request, Response, Settings, StatusCode};

use crate::common::{Client, boxed_server, stop, until};

/// Bytes per second.
const RATE: u64 = 40_000;

/// Length of the content: about a second at [`RATE`]. A quarter of it is sent at once.
const LENGTH: usize = 40_000;

fn content() -> Vec<u8> {
    (0..LENGTH).map(|at| b'a' + (at % 23) as u8).collect()
}

/// Responds with the same content in several forms.
async fn app(request: Request) -> Response {
    let bytes = content();
    let response = match request.path() {
        "/bytes" => Response::from_body(bytes),
        "/file" => {
            use std::io::Write;
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            Response::from_file(weft::File::open(file).unwrap())
        }
        "/stream" => {
            let pieces: Vec<_> = bytes.chunks(7_001).map(Bytes::copy_from_slice).collect();
            Response::from_body(Body::stream(stream::iter(
                pieces.into_iter().map(std::io::Result::Ok),
            )))
        }
        // All of it would take half a day.
        "/slow" => {
            return Response::from_body(bytes).with_bandwidth(Bandwidth::new(NonZeroU64::MIN));
        }
        _ => return StatusCode::NOT_FOUND.into(),
    };
    let after = request.query().map_or(0, |bytes| bytes.parse().unwrap());
    response.with_bandwidth(Bandwidth::new(NonZeroU64::new(RATE).unwrap()).after(after))
}

fn start(settings: Settings) -> ServerHandle {
    let server = boxed_server(app).settings(settings);
    server.listen("127.0.0.1:0").unwrap().start().unwrap()
}

/// Time that the rest of the content takes after `at_once` bytes.
fn time_of(at_once: u64) -> Duration {
    Duration::from_secs_f64((LENGTH as u64).saturating_sub(at_once) as f64 / RATE as f64)
}

/// Calls `measure` until its time is near `minimum`, at most half more and the time of a piece.
/// Fails if one time is shorter, or if all are longer: a single time depends on the load of the
/// machine.
#[track_caller]
fn assert_time(description: &str, minimum: Duration, mut measure: impl FnMut() -> Duration) {
    let maximum = minimum * 3 / 2 + Duration::from_millis(250);
    until(&format!("{description} takes at most {maximum:?}"), || {
        let took = measure();
        assert!(took >= minimum, "{description}: {took:?} instead of {minimum:?}");
        took <= maximum
    });
}

/// Each row: the target, the fields, the expected content, and the bytes that are sent at once. A
/// response takes the time of its other bytes.
#[test]
fn content_is_sent_at_the_bandwidth() {
    let server = start(Settings::default());
    let piece = RATE / 4;
    let all = content();
    for (target, fields, expected, at_once) in [
        ("/bytes", "", &all[..], piece),
        ("/file", "", &all[..], piece),
        ("/stream", "", &all[..], piece),
        ("/bytes?20000", "", &all[..], 20_000 + piece),
        ("/file?20000", "", &all[..], 20_000 + piece),
        ("/file?40000", "", &all[..], LENGTH as u64),
        ("/file", "Range: bytes=0-29999\r\n", &all[..30_000], piece + 10_000),
        ("/file", "Range: bytes=5-5\r\n", &all[5..6], LENGTH as u64),
        ("/none", "", b"404 Not Found\n", LENGTH as u64),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        assert_time(&request, time_of(at_once), || {
            let start = Instant::now();
            let response = Client::connect_and_send(&server, &request).response();
            assert!(response.body == expected, "{target} {fields}");
            start.elapsed()
        });
    }
    stop(server);
}

#[test]
fn head_and_304_are_not_delayed() {
    let server = start(Settings::default());
    let mut client = Client::connect(&server);
    client.send("HEAD /file HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(head.header("content-length"), Some(&*LENGTH.to_string()));
    let tag = head.header("etag").unwrap();
    // Each file of the test is another one, so the tag is replaced by the wildcard.
    assert!(!tag.is_empty());
    client.send("GET /file HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n");
    assert_eq!(client.response().status, 304);
    stop(server);
}

/// The client reads at once, but gets less than the minimum rate of the settings, because the
/// server delays the content itself.
#[test]
fn minimum_rate_does_not_apply_to_the_delay_of_the_server() {
    let settings = Settings {
        stall_timeout: Duration::from_millis(200),
        min_bytes_per_second: 10_000_000,
        ..Settings::default()
    };
    let server = start(settings);
    for target in ["/bytes", "/file", "/stream"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = Client::connect_and_send(&server, request).response();
        assert!(response.body == content(), "{target}");
    }
    stop(server);
}

#[test]
fn responses_of_a_connection_have_their_own_bandwidth() {
    let server = boxed_server(app).workers(1).listen("127.0.0.1:0").unwrap().start().unwrap();
    let address = crate::common::address(&server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fetch = async || {
        let start = Instant::now();
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(socket).await.unwrap();
        let connection = tokio::spawn(connection);
        let requests = ["/bytes", "/file", "/stream"].map(|path| {
            let mut client = client.clone();
            async move {
                let request = http::Request::get(format!("http://a{path}")).body(()).unwrap();
                let (response, _) = client.send_request(request, true).unwrap();
                let mut body = response.await.unwrap().into_body();
                let mut received = Vec::new();
                while let Some(piece) = body.data().await {
                    let piece = piece.unwrap();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                    received.extend_from_slice(&piece);
                }
                assert!(received == content());
                start.elapsed()
            }
        });
        let times = futures_util::future::join_all(requests).await;
        connection.abort();
        times
    };
    let minimum = time_of(RATE / 4);
    assert_time("the last of three responses", minimum, || {
        let times = runtime.block_on(fetch());
        assert!(times.iter().all(|&took| took >= minimum), "{times:?} instead of {minimum:?}");
        times.into_iter().max().unwrap()
    });
    stop(server);
}

#[test]
fn delayed_response_ends_when_the_client_disconnects() {
    let server = start(Settings::default());
    let mut client = Client::connect_and_send(&server, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head();
    drop(client);
    // Without detection of the disconnect, the shutdown would wait for the rest of the content.
    let start = Instant::now();
    server.shutdown(Duration::from_secs(120));
    assert!(start.elapsed() < Duration::from_secs(100));
}
