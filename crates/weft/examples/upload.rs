//! Stores uploads in temporary files: `cargo run --release -p weft-http --example upload --
//! [ADDRESS]`.

use std::fmt::Write;
use std::io::{BufRead, BufReader, Seek};

use weft::form::{self, TempFile};
use weft::{Method, Request, Response, StatusCode};

const PAGE: &str = r#"<!doctype html>
<meta charset="utf-8">
<title>Upload</title>
<form method="post" enctype="multipart/form-data">
  <p><label>Title <input name="title"></label>
  <p><label>Files <input name="files" type="file" multiple></label>
  <p><button>Send</button>
</form>
"#;

async fn routes(request: Request) -> weft::Result<Response> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(Response::html(PAGE)),
        Method::POST => upload(request).await,
        _ => Ok(Response::new(StatusCode::METHOD_NOT_ALLOWED)),
    }
}

/// Reports the parts of the form. The files are deleted after their checksums are computed.
async fn upload(request: Request) -> weft::Result<Response> {
    let gibibyte = 1 << 30;
    let settings = form::FormSettings {
        max_bytes: Some(gibibyte),
        max_file_bytes: gibibyte,
        ..Default::default()
    };
    let mut form = settings.multipart(request)?;
    let mut report = String::new();
    while let Some(part) = form.next().await? {
        let name = part.name().to_owned();
        let _ = match part.safe_file_name() {
            Some(file_name) => {
                let file = part.into_file().await?;
                let length = file.length();
                // Reading the file may wait for the disk, which would block the event loop.
                let sum = tokio::task::spawn_blocking(move || crc32(&file)).await;
                let sum = sum.expect("crc32 does not panic")?;
                writeln!(report, "{name}: {file_name}, {length} bytes, CRC-32 {sum:08x}")
            }
            None if part.file_name().is_some() => writeln!(report, "{name}: no file"),
            None => writeln!(report, "{name} = {}", part.text().await?),
        };
    }
    Ok(Response::text(report))
}

fn crc32(file: &TempFile) -> std::io::Result<u32> {
    let mut file = file.file();
    file.rewind()?;
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut sum = flate2::Crc::new();
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() {
            return Ok(sum.sum());
        }
        sum.update(piece);
        let length = piece.len();
        reader.consume(length);
    }
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    weft::serve(address, routes)
}
