//! A whole connection of HTTP/1: whatever comes, the engine ends it, and answers each request once.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::{HeaderName, Method, Request, Response, Server, Settings};

fuzz_target!(|input: (u8, &[u8])| {
    let (holds, bytes) = input;
    let calls = Arc::new(AtomicUsize::new(0));
    let came = run(usize::from(holds) + 1, bytes, calls.clone());
    let text = String::from_utf8_lossy(&came);
    // Our bodies and the requests' have no such line but by malice, which is passed over.
    if bytes.windows(6).any(|w| w.eq_ignore_ascii_case(b"x-call")) {
        return;
    }
    let mut answered = 0;
    for line in text.split("\r\n") {
        if let Some(call) = line.strip_prefix("x-call: ") {
            answered += 1;
            assert_eq!(call.parse::<usize>().unwrap(), answered, "out of order:\n{text}");
        }
    }
    let calls = calls.load(SeqCst);
    assert!(answered <= calls && calls <= answered + 1, "{calls} calls:\n{text}");
});

/// What the engine answers, through a pipe that holds so many bytes.
fn run(holds: usize, bytes: &[u8], calls: Arc<AtomicUsize>) -> Vec<u8> {
    let app = move |request: Request| {
        let call = calls.fetch_add(1, SeqCst) + 1;
        async move {
            let response = match *request.method() {
                Method::PUT => Response::body(request.into_body()),
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
        let (client, server) = tokio::io::duplex(holds);
        let (mut reader, mut writer) = tokio::io::split(client);
        let sending = async {
            // Fails when the engine refuses and stops reading.
            let _ = writer.write_all(bytes).await;
            let _ = writer.shutdown().await;
        };
        let mut came = Vec::new();
        let reading = async { reader.read_to_end(&mut came).await.unwrap() };
        let engine = Server::new(app).settings(settings);
        tokio::join!(engine.serve_connection(server), sending, reading).0.unwrap();
        came
    })
}
