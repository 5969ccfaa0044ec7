//! Memory use of a large upload to an axum handler.
#![cfg(feature = "tower")]

use crate::common::{Client, stop};
use crate::{PeakMemory, has_run_alone};
use axum::Router;
use axum::extract::multipart::MultipartError;
use axum::extract::{DefaultBodyLimit, Multipart};
use axum::routing::post;
use weft::{Server, Settings, tower};

async fn count(mut parts: Multipart) -> Result<String, MultipartError> {
    let mut report = String::new();
    while let Some(mut part) = parts.next_field().await? {
        let mut bytes = 0;
        let name = part.name().unwrap_or_default().to_owned();
        while let Some(chunk) = part.chunk().await? {
            bytes += chunk.len();
        }
        report += &format!("{name} {bytes}\n");
    }
    Ok(report)
}

/// Uploads 64 MiB, or the size given by `WEFT_UPLOAD_MIB`.
#[test]
fn large_upload_uses_less_than_4_mib() {
    if has_run_alone() {
        return;
    }
    let mut memory = PeakMemory::begin();
    let size = std::env::var("WEFT_UPLOAD_MIB").map_or(64, |mib| mib.parse().unwrap()) << 20;
    let router = Router::new().route("/", post(count).layer(DefaultBodyLimit::disable()));
    let settings = Settings { max_body_bytes: u64::MAX, ..Settings::default() };
    let server = Server::new(tower::app(router)).settings(settings).workers(1);
    let server = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let part = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    let end = "\r\n--B--\r\n";
    let length = part.len() + size + end.len();
    let mut client = Client::connect(&server);
    let block = vec![b'x'; 1 << 20];
    memory.reset();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\n\
         Content-Length: {length}\r\n\r\n{part}"
    ));
    for _ in 0..size / block.len() {
        client.send(&block);
    }
    client.send(end);
    assert_eq!(client.response().text(), format!("file {size}\n"));
    let added = memory.peak() >> 10;
    println!("uploading {} MiB used {added} KiB of memory", size >> 20);
    assert!(added < 4 << 10, "{added} KiB");
    stop(server);
}
