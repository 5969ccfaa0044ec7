//! A complete HTTP/2 connection: for any frames, the engine terminates the connection and calls the
//! application at most once per request.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weft::{Method, Request, Response, Server, Settings};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An empty SETTINGS frame, which must be the first frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fuzz_target!(|frames: Vec<(u8, u8, u8, Vec<u8>)>| {
    let mut bytes = [PREFACE, SETTINGS].concat();
    let mut heads = 0;
    for (kind, flags, stream, payload) in frames {
        // The ten types of RFC 9113 §6, and one unknown type.
        let kind = kind % 11;
        heads += usize::from(kind == 1);
        let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
        bytes.extend([a, b, c, kind, flags, 0, 0, 0, stream]);
        bytes.extend(payload);
    }
    let calls = run(&bytes);
    assert!(calls <= heads, "{calls} calls for {heads} heads");
});

/// Returns the number of requests that the application received.
fn run(bytes: &[u8]) -> usize {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let app = move |request: Request| {
        counted.fetch_add(1, SeqCst);
        async move {
            match *request.method() {
                Method::PUT => Response::from_body(request.into_body()),
                Method::POST => match request.into_body().collect(1 << 16).await {
                    Ok(body) => Response::text(format!("{}", body.len())),
                    Err(error) => error.into(),
                },
                _ => Response::text(format!("{}", request.segments().len())),
            }
        }
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
        let reading = async { reader.read_to_end(&mut Vec::new()).await.unwrap() };
        let engine = Server::new(app).settings(settings);
        tokio::join!(engine.serve_connection(server), sending, reading).0.unwrap();
    });
    calls.load(SeqCst)
}
