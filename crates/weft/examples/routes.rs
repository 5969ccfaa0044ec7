//! Routing is a `match`: `cargo run --release -p weft-http --example routes -- [ADDRESS]`.

use weft::{Request, Response, StatusCode};

async fn routes(request: Request) -> weft::Result<Response> {
    let head = request.head().clone();
    Ok(match (head.method().as_str(), &*head.segments()) {
        ("GET", []) => Response::html("<!doctype html><title>Routes</title><p>Hello!\n"),
        ("GET", ["hello", name]) => Response::text(format!("Hello, {name}!\n")),
        ("GET", ["add", a, b]) => match (a.parse::<i64>(), b.parse::<i64>()) {
            (Ok(a), Ok(b)) => Response::text(format!("{}\n", i128::from(a) + i128::from(b))),
            _ => Response::text("two whole numbers, please\n").with_status(StatusCode::BAD_REQUEST),
        },
        ("POST", ["length"]) => length(request).await?,
        (_, [] | ["hello", _] | ["add", _, _]) => Response::method_not_allowed("GET"),
        (_, ["length"]) => Response::method_not_allowed("POST"),
        _ => Response::not_found(),
    })
}

async fn length(request: Request) -> weft::Result<Response> {
    let body = request.into_body().collect(1 << 20).await?;
    Ok(Response::text(format!("{} bytes\n", body.len())))
}

fn main() -> weft::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".to_owned());
    weft::serve(address, routes)
}
