//! Weft, the library, with default limits and timeouts: `peer-weft ADDRESS WORKERS [FOLDER]`. Files
//! of the folder are read at the start and sent from memory.

use std::path::Path;

use bytes::Bytes;
use weft::{Request, Response, Server, header, websocket};

#[derive(Clone)]
struct Files {
    text: Bytes,
    medium: Bytes,
    large: Bytes,
}

async fn respond(request: Request, files: Files) -> weft::Result<Response> {
    Ok(match request.path() {
        "/slow" => {
            tokio::time::sleep(peer::SLOW).await;
            Response::html(peer::PAGE)
        }
        "/json" => {
            Response::from_body(peer::json()).with_header(header::CONTENT_TYPE, peer::JSON_TYPE)
        }
        "/echo" => echo(&request),
        "/upload" => return upload(request).await,
        "/text.txt" => Response::text(files.text),
        "/16k.bin" => Response::from_body(files.medium),
        "/1m.bin" => Response::from_body(files.large),
        _ => Response::html(peer::PAGE),
    })
}

/// Receives a body of any size.
async fn upload(mut request: Request) -> weft::Result<Response> {
    let body = request.body();
    body.set_limit(u64::MAX);
    let mut received = 0;
    while let Some(chunk) = body.chunk().await? {
        received += chunk.len();
    }
    Ok(Response::text(received.to_string()))
}

/// Returns each message of a WebSocket.
fn echo(request: &Request) -> Response {
    websocket::accept(request, async |mut socket| {
        while let Ok(Some(message)) = socket.receive().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

fn main() -> weft::Result<()> {
    let (address, workers) = peer::arguments();
    let folder = std::env::args().nth(3);
    let read = |name: &str| match &folder {
        Some(folder) => std::fs::read(Path::new(folder).join(name)).expect("a file").into(),
        None => Bytes::new(),
    };
    let files = Files { text: read("text.txt"), medium: read("16k.bin"), large: read("1m.bin") };
    let app = move |request| respond(request, files.clone());
    Server::new(app).workers(workers).listen(address)?.run()
}
