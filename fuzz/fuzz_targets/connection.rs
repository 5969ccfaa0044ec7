//! A complete HTTP/1 connection: for any input, the engine terminates the connection and sends one
//! response per request.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::header::HeaderName;
use weft::{Method, Request, Response, Server, Settings};

fuzz_target!(|input: (u8, &[u8])| {
    let (capacity, bytes) = input;
    let calls = Arc::new(AtomicUsize::new(0));
    let output = run(usize::from(capacity) + 1, bytes, calls.clone());
    let text = String::from_utf8_lossy(&output);
    // An input that contains the marker could inject it into a response; it is skipped.
    if bytes.windows(6).any(|w| w.eq_ignore_ascii_case(b"x-call")) {
        return;
    }
    let mut responses = 0;
    for line in text.split("\r\n") {
        if let Some(call) = line.strip_prefix("x-call: ") {
            responses += 1;
            assert_eq!(call.parse::<usize>().unwrap(), responses, "out of order:\n{text}");
        }
    }
    let calls = calls.load(SeqCst);
    assert!(responses <= calls && calls <= responses + 1, "{calls} calls:\n{text}");
});

/// Returns the output of the engine for `bytes`, sent through a pipe with this capacity.
fn run(capacity: usize, bytes: &[u8], calls: Arc<AtomicUsize>) -> Vec<u8> {
    let app = move |request: Request| {
        let call = calls.fetch_add(1, SeqCst) + 1;
        async move {
            let response = match *request.method() {
                Method::PUT => Response::from_body(request.into_body()),
                Method::POST => match request.into_body().collect(1 << 16).await {
                    Ok(body) => Response::text(format!("{}", body.len())),
                    Err(error) => error.into(),
                },
                _ => Response::text(format!("{}", request.segments().len())),
            };
            response.with_header(HeaderName::from_static("x-call"), call.to_string())
        }
    };
    let settings = Settings { max_body_bytes: 1 << 16, http2: false, ..Settings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (client, server) = tokio::io::duplex(capacity);
        let (mut reader, mut writer) = tokio::io::split(client);
        let sending = async {
            // Fails when the engine rejects the request and stops reading.
            let _ = writer.write_all(bytes).await;
            let _ = writer.shutdown().await;
        };
        let mut output = Vec::new();
        let reading = async { reader.read_to_end(&mut output).await.unwrap() };
        let engine = Server::new(app).settings(settings);
        tokio::join!(engine.serve_connection(server), sending, reading).0.unwrap();
        output
    })
}
