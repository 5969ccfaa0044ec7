//! A page with a clock, updated by server-sent events:
//! `cargo run --release -p weft-http --example sse -- [ADDRESS]`.

use std::time::{Duration, SystemTime};

use weft::{Request, Response, date, sse};

const PAGE: &str = r#"<!doctype html>
<meta charset="utf-8">
<title>Clock</title>
<p>It is <time>…</time>.</p>
<script>
  const time = document.querySelector("time");
  new EventSource("/clock").addEventListener("tick", event => time.textContent = event.data);
</script>
"#;

async fn routes(request: Request) -> Response {
    match &*request.segments() {
        [] => Response::html(PAGE),
        ["clock"] => clock(&request),
        _ => Response::not_found(),
    }
}

fn clock(request: &Request) -> Response {
    let (events, response) = sse::channel(request);
    tokio::spawn(async move {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            let now = date::http_date(SystemTime::now());
            if events.send(sse::Event::data(now).event("tick")).await.is_err() {
                break; // The client has disconnected.
            }
        }
    });
    response
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    weft::serve(address, routes)
}
