//! An application behind a stack of middleware:
//! `cargo run --release -p weft-http --example middleware -- [ADDRESS]`.

use std::time::Duration;

use weft::middleware::{
    BasicAuth, CatchPanic, Compress, ETag, Log, Mount, RateLimit, RequestIds, SecurityHeaders,
    Timeout, fixed_users,
};
use weft::{Application, Next, Request, Response, header};

async fn site(request: Request) -> Response {
    match request.path() {
        "/" => Response::html("<p>Warp and weft.</p>\n".repeat(100)),
        "/slow" => std::future::pending().await,
        "/panic" => panic!("on purpose"),
        _ => Response::not_found(),
    }
}

async fn admin(_: Request) -> Response {
    Response::text("For your eyes only.\n")
}

/// Middleware can be a function, too.
async fn greet(request: Request, next: Next<'_>) -> Response {
    next.call(request).await.with_appended_header(header::VIA, "1.1 example")
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    let admin = admin.wrap(BasicAuth::new("admin", fixed_users(&[("alice", "s3cret")])));
    // A request passes through the middleware in this order, a response in reverse order.
    let app = weft::stack(site)
        .with(RequestIds::new())
        .with(Log::new(|line| eprintln!("{line}")))
        .with(SecurityHeaders::new())
        .with(greet)
        .with(RateLimit::new(1_000, Duration::from_secs(1)))
        .with(Compress::new())
        .with(ETag::new().weak())
        .with(CatchPanic::new())
        .with(Timeout::new(Duration::from_millis(100)))
        .with(Mount::new("/admin", admin));
    weft::serve(address, app)
}
