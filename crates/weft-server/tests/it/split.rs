//! Shares of the requests of a route that other routes get.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;
use weft::testing::TestServer;
use weft::{Request, Response};

use crate::common::{Signal, Weft, until};
use crate::matching::{assert_outcomes, serve};

/// Starts the program with a route that is split by a parameter of the query.
fn split(shares: &str) -> (TempDir, Weft) {
    serve(&format!(
        r#"
"/" = {{ respond = "stable", split = {shares}, split_key = "{{query.k}}" }}
"@canary" = {{ respond = "canary" }}
"@beta" = {{ respond = "beta" }}
"#
    ))
}

/// Returns the responses to 400 clients.
fn groups(server: &Weft) -> Vec<String> {
    let mut client = server.client();
    let text = |body| String::from_utf8(body).unwrap();
    (0..400).map(|key| text(client.get(&format!("/?k={key}")).body)).collect()
}

fn count(groups: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    groups.iter().for_each(|group| *counts.entry(&**group).or_default() += 1);
    counts
}

#[test]
fn clients_stay_in_their_groups() {
    let (folder, server) = split(r#"{ "@canary" = "10%", "@beta" = "0%" }"#);
    let before = groups(&server);
    let counts = count(&before);
    // Four standard deviations of six.
    assert!((16..=64).contains(&counts["canary"]) && !counts.contains_key("beta"), "{counts:?}");
    assert_eq!(before, groups(&server));
    assert_eq!(before, groups(&split(r#"{ "@canary" = "10%" }"#).1), "another server");
    // Requests without a key stay.
    assert_outcomes(&server, &[("GET /", "200 stable"), ("GET /?k=", "200 stable")]);
    // A reload with a larger share moves some clients there, and no others.
    let path = folder.path().join("weft.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("10%", "30%")).unwrap();
    server.signal(Signal::HUP);
    until("the configuration is reloaded", || server.stderr().contains("reloaded"));
    let after = groups(&server);
    let counts = count(&after);
    assert!((84..=156).contains(&counts["canary"]), "{counts:?}");
    for (before, after) in before.iter().zip(&after) {
        assert!(before == after || (&**before, &**after) == ("stable", "canary"));
    }
    server.stop();
}

#[test]
fn group_gets_the_whole_request_and_has_its_own_rules() {
    let upstream = TestServer::start(async |mut request: Request| {
        let body = std::mem::take(request.body()).collect(100).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Response::text(format!("{} {body}", request.path()))
    });
    let url = upstream.url("/base");
    let (_folder, server) = serve(&format!(
        r#"
"/" = {{ respond = "stable", split = {{ "@app" = "100%" }} }}
"/files/" = {{ files = "site", split = {{ "@app" = "100%" }}, split_key = "{{header.x-key}}" }}
"/twice/" = {{ rewrite = "/", split = {{ "@twice" = "100%" }} }}
"/closed/" = {{ respond = "x", split = {{ "@app" = "100%" }}, deny = ["0.0.0.0/0"] }}
"/of-closed/" = {{ respond = "x", split = {{ "@closed" = "100%" }} }}
"/loop/" = {{ respond = "x", split = {{ "@loop" = "100%" }} }}
'~ ^/re/(.+)$' = {{ respond = "x", split = {{ "@app" = "100%" }}, split_key = "{{re.1}}" }}
"@app" = ">> {url}"
"@twice" = {{ respond = "not split", split = {{ "@app" = "100%" }} }}
"@closed" = {{ respond = "x", deny = ["0.0.0.0/0"] }}
"@loop" = {{ respond = "x", split = {{ "@loop" = "100%" }} }}
"#
    ));
    assert_outcomes(
        &server,
        &[
            ("GET /a%2Fb", "200 /base/a%2Fb"),
            ("GET /twice/x", "200 /base/twice/x"),
            ("GET /re/x", "200 /base/re/x"),
            // The key is a field that the request does not have.
            ("GET /files/app/a.txt", "200 a"),
            ("GET /files/", "200 index"),
            // The rules of both routes apply.
            ("GET /closed/x", "403 403 Forbidden"),
            ("GET /of-closed/x", "403 403 Forbidden"),
            ("GET /loop/x", "500 500 Internal Server Error"),
        ],
    );
    let mut client = server.client();
    client.send("POST /files/x HTTP/1.1\r\nHost: a\r\nX-Key: 1\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().body, b"/base/files/x body");
    server.stop();
}
