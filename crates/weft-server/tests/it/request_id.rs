//! Request IDs: in requests for upstreams and scripts, in responses and in templates.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use tempfile::TempDir;

use crate::common::{Client, Response, Weft, raw_upstream, read_head, weft};

fn serve(config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

fn send(server: &Weft, target: &str, fields: &str) -> Response {
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"));
    client.response()
}

/// Responds with the values of two fields of the request, and with fields of its own.
fn upstream() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            let is_id = |line: &&str| {
                let name = line.split(':').next().unwrap_or_default().to_lowercase();
                ["x-request-id", "x_request_id", "x-trace"].contains(&&*name)
            };
            let text = head.lines().filter(is_id).collect::<Vec<_>>().join("|");
            let length = text.len();
            let head = "HTTP/1.1 200 OK\r\nX-Request-ID: of-upstream\r\n";
            stream
                .write_all(format!("{head}Content-Length: {length}\r\n\r\n{text}").as_bytes())
                .unwrap();
        }
    })
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

fn is_generated(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[test]
fn upstream_client_and_templates_have_the_same_id() {
    let upstream = upstream();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\nrequest_id = true\n\
         \"/\" = {{ proxy = \"http://{upstream}/\", field_names = \"any\" }}\n\
         \"/text\" = {{ respond = \"{{request_id}}\" }}\n\
         \"/refused\" = {{ respond = \"\", deny = \"127.0.0.1\" }}\n\
         \"/other\" = {{ proxy = \"http://{upstream}/\", request_id = \"X-Trace\" }}\n\
         \"/off\" = {{ proxy = \"http://{upstream}/\", request_id = false }}\n\
         \"/off/text\" = {{ respond = \"[{{request_id}}]\", request_id = false }}\n"
    ));
    let mut seen = HashSet::new();
    for _ in 0..3 {
        // The ID of a client that is not trusted is replaced, in all spellings.
        let response = send(&server, "/", "X-Request-ID: forged\r\nX_Request_ID: forged\r\n");
        let id = response.header("x-request-id").expect("an ID").to_owned();
        assert!(is_generated(&id) && seen.insert(id.clone()), "{id}");
        assert_eq!(text(&response), format!("x-request-id: {id}"));
        let fields =
            response.head.iter().filter(|it| it.to_lowercase().starts_with("x-request-id"));
        assert_eq!(fields.count(), 1);
    }
    let response = send(&server, "/text", "");
    assert_eq!(text(&response), response.header("x-request-id").unwrap());
    let refused = send(&server, "/refused", "");
    assert_eq!(refused.status, 403);
    assert!(is_generated(refused.header("x-request-id").unwrap()));
    let other = send(&server, "/other", "");
    let id = other.header("x-trace").expect("an ID");
    assert!(is_generated(id));
    assert_eq!(text(&other), format!("x-trace: {id}"));
    let off = send(&server, "/off", "X-Request-ID: of-client\r\n");
    assert_eq!(off.header("x-request-id"), Some("of-upstream"));
    assert_eq!(text(&off).to_lowercase(), "x-request-id: of-client");
    assert_eq!(text(&send(&server, "/off/text", "")), "[]");
}

/// Each row: the ID that a trusted proxy sends, and true if it is kept.
#[test]
fn id_of_a_trusted_proxy_is_kept_if_it_is_valid() {
    let (longest, too_long) = ("x".repeat(128), "x".repeat(129));
    let (_folder, trusting) = serve(
        "trusted_proxies = \"127.0.0.1\"\n[hosts.\"*\"]\nrequest_id = true\n\
         \"/\" = { respond = \"{request_id}\" }\n",
    );
    for (sent, is_kept) in [
        ("a-1", true),
        ("Root=1-67891233-abcdef012345678912345678", true),
        (&*longest, true),
        (&*too_long, false),
        ("", false),
        ("a b", false),
        ("a\"b", false),
        ("<script>", false),
        ("a\r\nX-Request-ID: b", false),
    ] {
        // The proxy tells its client, which is not trusted.
        let fields = format!("X-Forwarded-For: 192.0.2.1\r\nX-Request-ID: {sent}\r\n");
        let response = send(&trusting, "/", &fields);
        let id = response.header("x-request-id").unwrap();
        assert_eq!(text(&response), id, "{sent}");
        assert_eq!(id == sent, is_kept, "{sent}");
        assert!(is_kept || is_generated(id), "{sent}: {id}");
    }
}
