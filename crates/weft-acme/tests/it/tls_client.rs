//! The client for requests to authorities.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use weft::tls::{Identity, Tls, TlsSettings};
use weft::{Request, Response};
use weft_acme::{HttpClient, TlsClient};

use crate::support::{TEST_TIMEOUT, boxed_server, stop};

/// Maximum size of a body.
const MAX_BYTES: usize = 10_000;

async fn app(request: Request) -> weft::Result<Response> {
    let text =
        format!("{} {:?} {:?}", request.method(), request.host(), request.headers().get("a"));
    match request.path() {
        "/echo" => {
            let body = request.into_body().collect(MAX_BYTES).await?;
            Ok(Response::text(text + " " + &String::from_utf8_lossy(&body)))
        }
        "/long" => Ok(Response::text("a".repeat(MAX_BYTES))),
        "/longer" => Ok(Response::text("a".repeat(MAX_BYTES + 1))),
        "/redirect" => Ok(Response::redirect(weft::StatusCode::FOUND, "/echo")),
        _ => Ok(std::future::pending().await),
    }
}

#[tokio::test]
async fn responses_are_whole_and_bounded() {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let identity = Identity::pem(key.cert.pem(), key.signing_key.serialize_pem());
    let settings = TlsSettings { identities: vec![identity], ..TlsSettings::default() };
    let server = boxed_server(app).workers(1);
    let server = server.listen_tls("127.0.0.1:0", &Tls::new(settings).unwrap()).unwrap();
    let server = server.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, key.cert.pem()).unwrap();
    let url = format!("https://{}", server.addresses()[0].address().unwrap());
    let trusting = TlsClient::with_ca(&ca);
    let distrusting = TlsClient::with_ca(folder.path().join("missing.pem"));
    let short = Duration::from_millis(200);
    for (client, url, time, expected) in [
        (
            &trusting,
            format!("{url}/echo"),
            TEST_TIMEOUT,
            Ok("200 POST Some(\"127.0.0.1\") Some(\"b\") body"),
        ),
        (&trusting, format!("{url}/redirect"), TEST_TIMEOUT, Ok("302 ")),
        (&trusting, format!("{url}/long"), TEST_TIMEOUT, Ok("200 aaa")),
        (&trusting, format!("{url}/longer"), TEST_TIMEOUT, Err("it is larger than 10000 bytes")),
        (&trusting, format!("{url}/never"), short, Err("timed out")),
        (&trusting, url.replace("https", "http"), TEST_TIMEOUT, Err("expected https://")),
        (&trusting, "https://127.0.0.1:1/".to_owned(), TEST_TIMEOUT, Err("Connection refused")),
        (
            &trusting,
            url.replace("127.0.0.1", "localhost"),
            TEST_TIMEOUT,
            Err("invalid peer certificate"),
        ),
        (&distrusting, url.clone(), TEST_TIMEOUT, Err("cannot read ")),
    ] {
        let request = http::Request::post(&url).header("a", "b");
        let request = request.body(Bytes::from_static(b"body")).unwrap();
        let sent = timeout(TEST_TIMEOUT, client.send(request, MAX_BYTES, time)).await;
        let sent = sent.expect("the request ends within its time");
        let found = sent.map(|response| {
            format!("{} {}", response.status().as_u16(), String::from_utf8_lossy(response.body()))
        });
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert!(found.starts_with(expected), "{url}: {found}"),
            (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{url}: {found}"),
            _ => panic!("{url}: {found:?}"),
        }
    }
    let server = tokio::task::spawn_blocking(|| stop(server));
    server.await.unwrap();
}
