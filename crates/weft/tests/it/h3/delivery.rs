//! Responses are delivered before their stream or their connection ends, on a path with a delay.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use quinn::{ReadError, VarInt};

use super::get;
use super::relay::{Direction, Fate, Path, Relay};
use crate::common::TEST_TIMEOUT;
use crate::common::clients::Transport;
use crate::common::http3::{Frames, quic_connect_patiently};
use weft::{Body, Error, Request, Response, Settings};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, test).await }).expect("in time");
}

/// Sends a request, and returns the content of the response and the error behind it.
async fn content(address: SocketAddr) -> (usize, Option<ReadError>) {
    let (_endpoint, connection) = quic_connect_patiently(address).await;
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(&get(&[])).await.unwrap();
    send.finish().unwrap();
    let (mut frames, mut length) = (Frames::new(receive), 0);
    loop {
        match frames.next().await {
            Ok(Some((0, data))) => length += data.len(),
            Ok(Some(_)) => {}
            Ok(None) => return (length, None),
            Err(error) => return (length, Some(error)),
        }
    }
}

const DELAY: Duration = Duration::from_millis(15);

#[test]
fn data_before_a_failure_is_delivered() {
    let failing = async |_: Request| {
        let pieces = (0..4).map(|_| Ok(Bytes::from(vec![b'a'; 30_000])));
        let failed = Err(Error::other("failed"));
        Response::from_body(Body::stream(futures_util::stream::iter(pieces.chain([failed]))))
    };
    run(async {
        let server = Transport::Http3.serve(failing);
        let relay = Relay::start(server.address, DELAY).await;
        let reset = ReadError::Reset(VarInt::from_u32(0x102));
        assert_eq!(content(relay.address).await, (120_000, Some(reset)));
        server.stop().await;
    });
}

/// The transport has all of the response at once; the path transports it in 700 ms: more than three
/// of the first round trips and the resolution of the clock.
#[test]
fn a_shutdown_waits_until_responses_are_delivered() {
    let large = async |_: Request| Response::text("a".repeat(200_000));
    run(async {
        let settings = Settings {
            max_requests: 1,
            head_timeout: Duration::from_millis(400),
            ..Settings::default()
        };
        let server = Transport::Http3.serve_with(settings, large);
        let path = Path { delay: DELAY, interval: Duration::from_millis(4), ..Path::default() };
        let relay = Relay::with_path(server.address, path).await;
        assert_eq!(content(relay.address).await, (200_000, None));
        server.stop().await;
    });
}

/// The request is acknowledged before the response is sent, so that the client has nothing to
/// repeat: only the server's timer repairs the loss of the response.
#[test]
fn a_response_that_is_lost_is_repeated() {
    run(async {
        let lose = Arc::new(AtomicBool::new(false));
        let loses_next = lose.clone();
        let app = move |_: Request| {
            let lose = lose.clone();
            async move {
                tokio::time::sleep(DELAY * 8).await;
                lose.store(true, SeqCst);
                Response::text("a")
            }
        };
        let server = Transport::Http3.serve(app);
        let path = Path::with_treatment(Duration::ZERO, move |direction, _| {
            match direction == Direction::ToClient && loses_next.swap(false, SeqCst) {
                true => Fate::Lost,
                false => Fate::Delivered,
            }
        });
        let relay = Relay::with_path(server.address, path).await;
        assert_eq!(content(relay.address).await, (1, None));
        server.stop().await;
    });
}
