//! A service for axum's body only, such as middleware of axum around a whole router.

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, body};
use tower::{Layer, ServiceExt};

use crate::client::HttpClient;
use crate::{address, serve};

/// Removes a prefix before the router sees the path. A layer of the router itself would be too late.
async fn without_prefix(mut request: Request, next: Next) -> Response {
    let path = request.uri().path().strip_prefix("/app").unwrap_or("/").to_owned();
    *request.uri_mut() = path.parse().unwrap();
    next.run(request).await
}

#[tokio::test]
async fn middleware_around_a_router() {
    let router = Router::new().route("/hello", get(async || "Hello!"));
    let service = from_fn(without_prefix).layer(router);
    // was: axum::serve(listener, ServiceExt::<Request>::into_make_service(service))
    let service =
        service.map_request(|request: http::Request<weft::Body>| request.map(body::Body::new));
    let server = serve(weft::tower::app(service));
    for client in HttpClient::each(address(&server)) {
        assert_eq!(client.get("/app/hello").await.text, "Hello!");
        assert_eq!(client.get("/hello").await.status, 404);
    }
}
