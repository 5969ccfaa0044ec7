//! Changes of the configuration by clients of the status endpoint.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Client, Response, Signal, Weft, until, weft};

/// Returns a configuration with a status endpoint, and a host that responds with this text.
fn config(changes: &str, text: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\n[status]\nlisten = [\"unix:FOLDER/status\", \
         \"127.0.0.1:0\"]\nhosts = [\"*\"]\nconfig_changes = \"{changes}\"\n\
         [hosts.\"*\"]\n\"/\" = {{ respond = \"{text}\" }}\n"
    )
}

struct Server {
    folder: TempDir,
    server: Weft,
    status: SocketAddr,
}

impl Server {
    fn start(changes: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let text = fill(&config(changes, "file"), &folder);
        fs::write(folder.path().join("weft.toml"), text).unwrap();
        let file = folder.path().join("weft.toml");
        let server = Weft::start(weft([Path::new("-c"), &file]).arg("--no-log"));
        let (_, status) = server.announcement.rsplit_once("http://").unwrap();
        let status = status.trim().parse().unwrap();
        Server { folder, server, status }
    }

    fn unix(&self) -> Client {
        Client::unix(&self.folder.path().join("status"))
    }

    fn loopback(&self) -> Client {
        Client::tcp(self.status)
    }

    /// Returns the text with which the server responds.
    fn served(&self) -> String {
        String::from_utf8(self.server.client().get("/").body).unwrap()
    }

    fn put(&self, mut client: Client, fields: &str, text: &str) -> Response {
        let text = fill(text, &self.folder);
        let length = text.len();
        client.send(format!(
            "PUT /config HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{text}"
        ));
        client.response()
    }

    fn undo(&self) -> u16 {
        let mut client = self.unix();
        client.send("POST /config/undo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        client.response().status
    }
}

fn fill(text: &str, folder: &TempDir) -> String {
    text.replace("FOLDER", folder.path().to_str().unwrap())
}

const TOML: &str = "Host: localhost\r\nContent-Type: application/toml\r\n";

fn body(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

#[test]
fn replaces_and_restores_the_configuration() {
    let server = Server::start("unix");
    assert_eq!(server.served(), "file");
    assert_eq!(server.undo(), 409, "there is nothing to undo");
    for text in ["one", "two"] {
        let response = server.put(server.unix(), TOML, &config("unix", text));
        assert_eq!((response.status, body(&response)), (200, ""));
        assert_eq!(server.served(), text);
    }
    // Errors change nothing, and have their location.
    let invalid = config("unix", "three").replace("respond =", "respnod =");
    let response = server.put(server.unix(), TOML, &invalid);
    assert_eq!(response.status, 422);
    assert!(body(&response).starts_with("config:7:7: a route has one of the keys"), "{response:?}");
    let accept = format!("{TOML}Accept: application/json\r\n");
    let response = server.put(server.unix(), &accept, "listen = 1\n[x]\n");
    let expected = "{\"problems\":[{\"column\":10,\"file\":\"config\",\"line\":1,\"message\":\"expected a list";
    assert_eq!(response.status, 422);
    assert!(body(&response).starts_with(expected), "{response:?}");
    assert_eq!(server.served(), "two");
    // A directory that does not exist, relative to the directory of the file.
    let missing = config("unix", "three").replace("{ respond = \"three\" }", "\"-> none\"");
    let response = server.put(server.unix(), TOML, &missing);
    assert_eq!(response.status, 422);
    assert!(body(&response).contains("/none: No such file"), "{response:?}");
    let warned = format!("{}[snippets.x]\n", config("unix", "three"));
    let response = server.put(server.unix(), &accept, &warned);
    assert_eq!(response.status, 200);
    assert!(body(&response).starts_with("{\"warnings\":[{"), "{response:?}");
    assert_eq!((&*server.served(), server.undo()), ("three", 200));
    assert_eq!((&*server.served(), server.undo()), ("two", 409));
    // A reload returns to the files, which no change has written.
    server.server.signal(Signal::HUP);
    until("the file", || server.served() == "file");
    let warning = "the files replace the configuration that a client set";
    until(warning, || server.server.stderr().contains(warning));
    assert_eq!(server.undo(), 409);
    server.server.stop();
}

#[test]
fn a_slow_body_delays_no_other_change() {
    let server = Server::start("unix");
    let text = fill(&config("unix", "slow"), &server.folder);
    let (first, rest) = text.split_at(9);
    let mut slow = server.unix();
    let length = text.len();
    slow.send(format!("PUT /config HTTP/1.1\r\n{TOML}Content-Length: {length}\r\n\r\n{first}"));
    // So that the server has received the head.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let response = server.put(server.unix(), TOML, &config("unix", "fast"));
    assert_eq!((response.status, &*server.served()), (200, "fast"));
    slow.send(rest);
    assert_eq!((slow.response().status, &*server.served()), (200, "slow"));
    server.server.stop();
}

/// Each row: `config_changes`, the connection, fields, and the status of the response.
#[test]
fn accepts_changes_from_expected_clients_only() {
    for (changes, rows) in [
        ("never", &[("unix", "", 403), ("loopback", "", 403)][..]),
        ("unix", &[("unix", "", 200), ("loopback", "", 403)]),
        (
            "loopback",
            &[
                ("unix", "", 200),
                ("loopback", "", 200),
                // Browsers.
                ("loopback", "Origin: http://localhost\r\n", 403),
                ("loopback", "Origin: null\r\n", 403),
                ("unix", "Origin: http://a.example\r\n", 403),
                ("loopback", "Sec-Fetch-Site: same-origin\r\n", 403),
                // Requests that a proxy forwards.
                ("unix", "Via: 1.1 weft\r\n", 403),
                ("loopback", "X-Forwarded-For: 192.0.2.1\r\n", 403),
                ("loopback", "Forwarded: for=192.0.2.1\r\n", 403),
            ],
        ),
    ] {
        let server = Server::start(changes);
        for (connection, fields, expected) in rows {
            let client = match *connection {
                "unix" => server.unix(),
                _ => server.loopback(),
            };
            let response = server.put(client, &format!("{TOML}{fields}"), &config(changes, "new"));
            assert_eq!(response.status, *expected, "{changes} {connection} {fields}");
        }
        // DNS rebinding: `hosts` permits any name to read, but not to write.
        let rebound = TOML.replace("localhost", "rebound.example");
        let response = server.put(server.loopback(), &rebound, &config(changes, "new"));
        assert_eq!(response.status, 403);
        server.server.stop();
    }
}

#[test]
fn refuses_other_methods_and_contents() {
    let server = Server::start("unix");
    for (head, body, expected) in [
        ("GET /config HTTP/1.1\r\nHost: a", "", 405),
        ("POST /config HTTP/1.1\r\nHost: a", "", 405),
        ("OPTIONS /config HTTP/1.1\r\nHost: a\r\nOrigin: http://a", "", 405),
        ("GET /config/undo HTTP/1.1\r\nHost: a", "", 405),
        ("PUT /config HTTP/1.1\r\nHost: a", "x", 415),
        ("PUT /config HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain", "x", 415),
        ("PUT /config HTTP/1.1\r\nHost: a\r\nContent-Type: application/toml", "x", 422),
    ] {
        let mut client = server.unix();
        client.send(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        let response = client.response();
        assert_eq!(response.status, expected, "{head}");
        assert_eq!(response.header("access-control-allow-origin"), None, "{head}");
    }
    let mut client = server.unix();
    client.send(format!("PUT /config HTTP/1.1\r\n{TOML}Content-Length: 1048577\r\n\r\n"));
    assert_eq!(client.response().status, 413);
    assert_eq!(server.served(), "file");
    server.server.stop();
}
