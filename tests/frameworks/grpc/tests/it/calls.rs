//! Calls of the example, with the clients of tonic.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use example_grpc::chat::RepeatRequest;
use example_grpc::chat::chat_client::ChatClient;
use example_grpc::chat::chat_server::ChatServer;
use example_grpc::{ChatService, app, routes};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::service::Routes;
use tonic::transport::server::TcpConnectInfo;
use weft::middleware::BodyRate;
use weft::{Application, Settings};

use crate::common::{PATIENCE, address, channel, example, in_time, message, serve};

#[tokio::test]
async fn calls_of_each_kind() {
    let server = example(Settings::default()).await;
    let mut client = ChatClient::new(channel(&server).await);
    assert_eq!(client.greet(message("Ada")).await.unwrap().into_inner().text, "Hello, Ada!");
    let refused = client.greet(message("")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "a guest has a name"));

    let request = RepeatRequest { text: "a".to_owned(), count: 3, interval_ms: 1 };
    let repeated = client.repeat(request).await.unwrap().into_inner();
    assert_eq!(repeated.map(|message| message.unwrap().text).collect::<Vec<_>>().await, ["a"; 3]);

    let words = tokio_stream::iter(["a", "b", "c"].map(message));
    assert_eq!(client.join(words).await.unwrap().into_inner().text, "a b c");

    let (sender, messages) = mpsc::channel(1);
    let mut echo = client.talk(ReceiverStream::new(messages)).await.unwrap().into_inner();
    for text in ["one", "two"] {
        sender.send(message(text)).await.unwrap();
        assert_eq!(in_time(echo.message()).await.unwrap().unwrap().text, text);
    }
    drop(sender);
    assert_eq!(in_time(echo.message()).await.unwrap(), None);
}

#[tokio::test]
async fn time_of_a_call_ends() {
    let limited = app(routes().await, "https://app.example");
    let limited = limited.wrap(weft::middleware::Grpc::new().timeout(Duration::from_millis(50)));
    let server = serve(limited, Settings::default());
    let mut client = ChatClient::new(channel(&server).await);
    let request = RepeatRequest { text: "a".to_owned(), count: 1_000_000, interval_ms: 1 };
    let mut repeated = client.repeat(request).await.unwrap().into_inner();
    let ended = in_time(async {
        loop {
            if let Err(status) = repeated.message().await {
                break status;
            }
        }
    });
    let ended = ended.await;
    let expected = (Code::DeadlineExceeded, "the deadline is over");
    assert_eq!((ended.code(), ended.message()), expected);
}

#[tokio::test]
async fn client_of_grpc_web_over_http1() {
    let server = example(Settings::default()).await;
    let http1 = Client::builder(TokioExecutor::new()).build_http();
    let client = tonic_web::GrpcWebClientService::new(http1);
    let uri = format!("http://{}", address(&server)).parse().unwrap();
    let mut client = ChatClient::with_origin(client, uri);
    assert_eq!(client.greet(message("Ada")).await.unwrap().into_inner().text, "Hello, Ada!");
    let refused = client.greet(message("")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "a guest has a name"));
    let request = RepeatRequest { text: "a".to_owned(), count: 3, interval_ms: 1 };
    let repeated = client.repeat(request).await.unwrap().into_inner();
    assert_eq!(repeated.map(|message| message.unwrap().text).collect::<Vec<_>>().await, ["a"; 3]);
}

// -- silence

/// The clock of the test: an hour of it takes 3.6 s.
const SPEED: u32 = 1_000;

fn scaled(time: Duration) -> Duration {
    time / SPEED
}

/// The default settings, with all timeouts of a connection in the clock of the test.
fn fast_settings() -> Settings {
    let usual = Settings::default();
    Settings {
        stall_timeout: scaled(usual.stall_timeout),
        // A tenth of that speed, so that a busy machine does not close connections before their first call.
        idle_timeout: 10 * scaled(usual.idle_timeout),
        ..usual
    }
}

/// Sends a byte of a body per second of the test's clock, less than the minimum rate. Returns the response.
fn post_slowly(address: SocketAddr) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let head = "POST /example.v1.Chat/Greet HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\
        Content-Length: 100000\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // A write fails once the server has closed the connection.
    while Instant::now() < deadline && socket.write_all(b"\0").is_ok() {
        std::thread::sleep(scaled(Duration::from_secs(1)).max(Duration::from_millis(10)));
        socket.set_nonblocking(true).unwrap();
        let has_response = socket.peek(&mut [0]).is_ok();
        socket.set_nonblocking(false).unwrap();
        if has_response {
            break;
        }
    }
    let mut response = Vec::new();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = socket.read_to_end(&mut response);
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_lives_through_an_hour_of_silence_and_a_slow_post_dies() {
    let strict = app(routes().await, "https://app.example");
    let strict = strict.wrap(BodyRate::new(500, scaled(Duration::from_secs(20))));
    let (usual, strict) = (example(fast_settings()).await, serve(strict, fast_settings()));

    let mut client = ChatClient::new(channel(&usual).await);
    let (sender, messages) = mpsc::channel(1);
    let mut echo = client.talk(ReceiverStream::new(messages)).await.unwrap().into_inner();
    // Readings that the server collects before it responds.
    let (readings, received) = mpsc::channel(1);
    let mut collector = ChatClient::new(channel(&usual).await);
    let joined = tokio::spawn(async move { collector.join(ReceiverStream::new(received)).await });
    for text in ["before", "after"] {
        sender.send(message(text)).await.unwrap();
        readings.send(message(text)).await.unwrap();
        assert_eq!(in_time(echo.message()).await.unwrap().unwrap().text, text);
        if text == "before" {
            tokio::time::sleep(scaled(Duration::from_secs(3_600))).await;
        }
    }
    drop((sender, readings));
    assert_eq!(in_time(echo.message()).await.unwrap(), None);
    assert_eq!(in_time(joined).await.unwrap().unwrap().into_inner().text, "before after");

    // With the same settings, a slow body of known length ends with a status. So does a stream with
    // a rate of the application.
    let usual_address = address(&usual);
    let response = tokio::task::spawn_blocking(move || post_slowly(usual_address)).await.unwrap();
    let text = String::from_utf8_lossy(&response).to_ascii_lowercase();
    assert!(text.contains("grpc-status: "), "{text:?}");
    let (stalled, received) = mpsc::channel(1);
    stalled.send(message("the only one")).await.unwrap();
    let mut client = ChatClient::new(channel(&strict).await);
    let refused = in_time(client.join(ReceiverStream::new(received))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    drop(stalled);
}

/// A stream of the client before the response has no maximum size, unless the user sets one.
#[tokio::test(flavor = "multi_thread")]
async fn stream_of_40_megabytes_is_received() {
    let text = "x".repeat(1 << 20);
    for (max_body_bytes, expected) in
        [(Settings::default().max_body_bytes, Ok(40 << 20)), (24 << 20, Err(Code::ResourceExhausted))]
    {
        let server = example(Settings { max_body_bytes, ..Settings::default() }).await;
        let client = ChatClient::new(channel(&server).await);
        let mut client = client.max_decoding_message_size(50 << 20);
        let text = text.clone();
        let messages = tokio_stream::iter((0..40).map(move |_| message(&text)));
        let joined = in_time(client.join(messages)).await;
        let length = joined.map(|joined| joined.into_inner().text.replace(' ', "").len());
        assert_eq!(length.map_err(|status| status.code()), expected);
    }
}

/// `Request::remote_addr` of tonic finds the address of the client, as under tonic's own server.
#[tokio::test]
async fn calls_have_the_address_of_their_client() {
    let services = || {
        let is_local = |call: tonic::Request<()>| match call.remote_addr() {
            Some(address) if address.ip().is_loopback() => Ok(call),
            _ => Err(tonic::Status::failed_precondition("the address is unknown")),
        };
        let chat = ChatServer::with_interceptor(ChatService, is_local);
        weft::tower::app(Routes::new(chat).prepare())
    };
    let connect_info =
        |client| TcpConnectInfo { local_addr: None, remote_addr: Some(client) };
    let server = serve(services().connect_info(connect_info), Settings::default());
    let mut client = ChatClient::new(channel(&server).await);
    assert_eq!(client.greet(message("Ada")).await.unwrap().into_inner().text, "Hello, Ada!");
    let server = serve(services(), Settings::default());
    let mut client = ChatClient::new(channel(&server).await);
    assert_eq!(client.greet(message("Ada")).await.unwrap_err().code(), Code::FailedPrecondition);
}
