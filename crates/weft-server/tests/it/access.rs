//! Authentication by another server, and its combination with addresses and passwords.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use tempfile::TempDir;

use crate::common::{Client, Response, Weft, connect_from, raw_upstream, read_head, weft};

/// The password of `alice` is `open sesame`.
const ALICE: &str = "alice:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n";

/// `alice:open sesame`.
const CREDENTIALS: &str = "Authorization: Basic YWxpY2U6b3BlbiBzZXNhbWU=\r\n";

/// Key of the tokens.
const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn serve(config: &str) -> (TempDir, Weft) {
    serve_with_files(&[], config)
}

/// Serves with files beside the configuration, and `users` with `alice` unless it is one of them.
fn serve_with_files(files: &[(&str, &str)], config: &str) -> (TempDir, Weft) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("users", ALICE)].iter().chain(files) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let config = format!("listen = \"127.0.0.1:0\"\nlog.access = \"none\"\n{config}");
    fs::write(folder.path().join("weft.toml"), config).unwrap();
    let server = Weft::start(&mut weft([Path::new("--config"), &folder.path().join("weft.toml")]));
    (folder, server)
}

/// Sends a request with additional field lines on a new connection.
fn send(server: &Weft, method: &str, target: &str, fields: &str) -> Response {
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n"
    ));
    client.response()
}

/// Returns the field line of a valid token.
fn token() -> String {
    let claims = serde_json::json!({ "sub": "carol", "exp": get_current_timestamp() + 3_600 });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let token = encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
    format!("Authorization: Bearer {token}\r\n")
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

fn respond(stream: &mut TcpStream, status: &str, fields: &str, body: &str) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).unwrap();
}

/// Responds with the received head, its lines joined by `|`.
fn echo() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            respond(&mut stream, "200 OK", "", &head.trim_end().replace("\r\n", "|"));
        }
    })
}

/// Permits requests with the cookie `ok`, whose user is `bob`. Others get the head of the question.
fn authority() -> SocketAddr {
    raw_upstream(|_, mut stream| {
        while let Some(head) = read_head(&mut stream) {
            match head.contains("cookie: ok") {
                true => {
                    let fields = "Remote-User: bob\r\nSet-Cookie: a=new\r\nSet-Cookie: b=new\r\n";
                    respond(&mut stream, "204 No Content", fields, "");
                }
                false => {
                    let head = head.trim_end().replace("\r\n", "|");
                    let fields = "Location: https://login/\r\nSet-Cookie: a=b\r\n";
                    respond(&mut stream, "302 Found", fields, &head);
                }
            }
        }
    })
}

#[test]
fn forward_auth_decides_about_each_request() {
    let (upstream, authority) = (echo(), authority());
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\
         forward_auth = \"http://{authority}/verify?from=weft\"\n\
         forward_auth_headers = [\"Remote-User\", \"Remote-Groups\"]\n\
         \"/\" = {{ proxy = \"http://{upstream}/\", field_names = \"any\", via = \"\" }}\n\
         \"/open\" = {{ respond = \"open\", forward_auth = \"none\" }}\n"
    ));
    assert_eq!(send(&server, "GET", "/open", "").status, 200);

    let spoofed = "Remote-User: root\r\nRemote_User: root\r\nRemote-Groups: wheel\r\n";
    let permitted = send(&server, "GET", "/a", &format!("Cookie: ok\r\n{spoofed}"));
    assert_eq!(permitted.status, 200);
    let cookies = permitted.head.iter().filter_map(|line| line.strip_prefix("set-cookie: "));
    assert_eq!(cookies.collect::<Vec<_>>(), ["a=new", "b=new"]);
    let received: Vec<&str> =
        text(&permitted).split('|').filter(|line| !line.contains("forwarded")).collect();
    assert_eq!(received, ["GET /a HTTP/1.1", "host: a", "cookie: ok", "remote-user: bob"]);

    let fields = "X-Forwarded-Uri: /spoofed\r\nRange: bytes=0-0\r\nIf-None-Match: *\r\n\
                  Content-Length: 3\r\nX-A: b\r\n";
    let mut client = Client::from_stream(TcpStream::connect(server.address()).unwrap());
    client.send(format!("POST /b?c=d HTTP/1.1\r\nHost: a\r\n{fields}\r\nxyz"));
    let refused = client.response();
    assert_eq!((refused.status, refused.header("location")), (302, Some("https://login/")));
    assert_eq!(refused.header("set-cookie"), Some("a=b"));
    let expected = format!(
        "GET /verify?from=weft HTTP/1.1|host: {authority}|x-a: b|x-forwarded-method: POST|\
         x-forwarded-uri: /b?c=d|content-length: 0|x-forwarded-for: 127.0.0.1|\
         x-forwarded-proto: http|x-forwarded-host: a|"
    );
    assert!(text(&refused).starts_with(&expected), "{}", text(&refused));
}

/// Each row: a server that does not permit, and the status for the client.
#[test]
fn forward_auth_never_permits_by_mistake() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fixed = |response: &'static str| {
        raw_upstream(move |_, mut stream| {
            while read_head(&mut stream).is_some() {
                stream.write_all(response.as_bytes()).unwrap();
            }
        })
    };
    for (authority, status) in [
        (unused, 502),
        (fixed("HTTP/1.1 304 Not Modified\r\n\r\n"), 304),
        (fixed("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), 500),
        (fixed("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"), 502),
        (fixed("nonsense\r\n\r\n"), 502),
        (fixed(""), 504),
    ] {
        let (_folder, server) = serve(&format!(
            "[hosts.\"*\"]\nforward_auth = \"http://{authority}/\"\n\
             forward_auth_timeout = \"100ms\"\n\"/\" = {{ respond = \"\" }}\n"
        ));
        let mut client = server.client();
        client
            .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        let line = client.head()[0].clone();
        assert!(line.contains(&format!(" {status} ")), "{status}: {line}");
        server.stop();
    }
}

/// Each row: the options of the route, and the status without and with a password.
#[test]
fn satisfy_combines_addresses_and_authentication() {
    let authority = authority();
    let (_folder, server) = serve(&format!(
        "trusted_proxies = \"127.0.0.1\"\n[defaults]\nbasic_auth = \"users\"\nallow = \"192.0.2.0/24\"\n\
         [hosts.\"*\"]\n\
         \"/all\" = {{ respond = \"\" }}\n\
         \"/any\" = {{ respond = \"\", satisfy = \"any\" }}\n\
         \"/deny\" = {{ respond = \"\", satisfy = \"any\", deny = \"192.0.2.1\", allow = [] }}\n\
         \"/three\" = {{ respond = \"\", satisfy = \"any\", forward_auth = \"http://{authority}/\" }}\n\
         \"/both\" = {{ respond = \"\", allow = [], forward_auth = \"http://{authority}/\" }}\n\
         \"/none\" = {{ respond = \"\", satisfy = \"any\", basic_auth = \"none\" }}\n"
    ));
    let (inside, outside) = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 10.0.0.1\r\n");
    let cookie = "Cookie: ok\r\n";
    for (target, fields, status) in [
        ("/all", vec![inside], 401),
        ("/all", vec![inside, CREDENTIALS], 200),
        ("/all", vec![outside, CREDENTIALS], 403),
        ("/any", vec![inside], 200),
        ("/any", vec![outside], 401),
        ("/any", vec![outside, CREDENTIALS], 200),
        ("/deny", vec![inside], 401),
        ("/deny", vec![inside, CREDENTIALS], 200),
        ("/deny", vec![outside], 200),
        ("/three", vec![inside], 200),
        ("/three", vec![outside], 302),
        ("/three", vec![outside, cookie], 200),
        ("/three", vec![outside, CREDENTIALS], 200),
        ("/both", vec![cookie], 401),
        ("/both", vec![CREDENTIALS], 302),
        ("/both", vec![CREDENTIALS, cookie], 200),
        ("/none", vec![inside], 200),
        ("/none", vec![outside], 403),
    ] {
        let response = send(&server, "GET", target, &fields.concat());
        assert_eq!(response.status, status, "{target} {fields:?}");
    }
}

#[test]
fn a_refusal_has_the_challenges_of_all_methods() {
    let route = "\"/\" = { respond = \"\", basic_auth = \"users\", jwt_secret = \"secret\", \
                 satisfy = \"any\", allow = \"192.0.2.0/24\" }\n";
    let (_folder, server) =
        serve_with_files(&[("secret", SECRET)], &format!("[hosts.\"*\"]\n{route}"));
    let response = send(&server, "GET", "/", "");
    let lines = response.head.iter().map(|line| line.to_lowercase());
    let challenges =
        lines.filter_map(|line| Some(line.strip_prefix("www-authenticate: ")?.to_owned()));
    let schemes: BTreeSet<_> =
        challenges.map(|value| value.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!((response.status, schemes), (401, ["basic", "bearer"].map(str::to_owned).into()));
}

/// Each row: what admits the request, and the user that the upstream is told. The client always
/// claims to be `root`.
#[test]
fn only_the_authentication_server_names_the_user() {
    let (upstream, authority) = (echo(), authority());
    let proxy = format!("proxy = \"http://{upstream}/\", field_names = \"any\"");
    let (folder, server) = serve_with_files(
        &[("secret", SECRET)],
        &format!(
            "trusted_proxies = \"127.0.0.1\"\n[hosts.\"*\"]\n\
             forward_auth = \"http://{authority}/\"\n\
             forward_auth_headers = [\"Remote-User\"]\n\
             \"/all\" = {{ {proxy} }}\n\
             \"/password\" = {{ {proxy}, basic_auth = \"users\" }}\n\
             \"/token\" = {{ {proxy}, jwt_secret = \"secret\" }}\n\
             \"/any\" = {{ {proxy}, satisfy = \"any\", allow = \"192.0.2.0/24\" }}\n\
             \"/any/password\" = {{ {proxy}, satisfy = \"any\", basic_auth = \"users\" }}\n\
             \"/any/token\" = {{ {proxy}, satisfy = \"any\", jwt_secret = \"secret\" }}\n\
             \"/any/denied\" = {{ {proxy}, satisfy = \"any\", deny = \"10.0.0.0/8\" }}\n"
        ),
    );
    let (inside, outside) = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 10.0.0.1\r\n");
    let token = token();
    let cookie = "Cookie: ok\r\n";
    for (target, fields, user) in [
        ("/all", vec![cookie], Some("bob")),
        ("/password", vec![CREDENTIALS, cookie], Some("bob")),
        ("/token", vec![&token, cookie], Some("bob")),
        ("/any", vec![inside], None),
        ("/any", vec![inside, cookie], None),
        ("/any", vec![outside, cookie], Some("bob")),
        ("/any/password", vec![outside, CREDENTIALS], None),
        // The password is remembered.
        ("/any/password", vec![outside, CREDENTIALS, cookie], None),
        ("/any/password", vec![outside, cookie], Some("bob")),
        ("/any/token", vec![outside, &token], None),
        ("/any/token", vec![outside, cookie], Some("bob")),
        ("/any/denied", vec![inside], None),
        ("/any/denied", vec![outside, cookie], Some("bob")),
    ] {
        let claimed = "Remote-User: root\r\nRemote_User: root\r\n";
        let response = send(&server, "GET", target, &(fields.concat() + claimed));
        assert_eq!(response.status, 200, "{target} {fields:?}");
        let received = text(&response).to_ascii_lowercase();
        let users: Vec<_> =
            received.split('|').filter_map(|line| line.strip_prefix("remote-user: ")).collect();
        assert_eq!(users, Vec::from_iter(user), "{target} {fields:?}");
        assert!(!received.contains("root"), "{target}: {received}");
    }
    server.stop();
    drop(folder);
}

/// One address sends wrong passwords, and another the right one.
#[test]
fn wrong_passwords_do_not_delay_the_logins_of_others() {
    let hash = bcrypt::hash("open sesame", 8).unwrap();
    let users = format!("alice:{hash}\n");
    let (folder, server) = serve_with_files(
        &[("users", &users)],
        "[hosts.\"*\"]\nbasic_auth = \"users\"\n\"/\" = { respond = \"\" }\n",
    );
    let mut guesses: Vec<_> = (0..200)
        .map(|number| {
            let mut client = Client::from_stream(connect_from([127, 0, 0, 2], server.address()));
            let credentials = STANDARD.encode(format!("alice:{number}"));
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n\r\n"
            ));
            client
        })
        .collect();
    assert_eq!(send(&server, "GET", "/", CREDENTIALS).status, 200);
    let mut statuses = [0; 2];
    for guess in &mut guesses {
        let response = guess.response();
        match (response.status, response.header("retry-after")) {
            (401, None) => statuses[0] += 1,
            (503, Some("5")) => statuses[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(statuses.iter().all(|count| *count > 0), "{statuses:?}");
    server.stop();
    drop(folder);
}

/// A user whom the server has authenticated is known to placeholders and scripts, in place of what
/// the client says about itself.
#[test]
fn passes_the_authenticated_user_to_upstreams_and_scripts() {
    let upstream = echo();
    let (_folder, server) = serve(&format!(
        "[hosts.\"*\"]\n\
         basic_auth = \"users\"\n\
         \"/\" = {{ proxy = \"http://{upstream}/\", request_headers = [\"X-User: {{user}}\"] }}\n\
         \"/text\" = {{ respond = \"{{user}}\" }}\n\
         \"/open\" = {{ respond = \"<{{user}}>\", basic_auth = \"none\" }}\n"
    ));
    let fields = format!("{CREDENTIALS}X-User: root\r\n");
    // The second request has a remembered password.
    for _ in 0..2 {
        let proxied = send(&server, "GET", "/", &fields);
        let lines: Vec<&str> =
            text(&proxied).split('|').filter(|it| it.starts_with("x-user")).collect();
        assert_eq!(lines, ["x-user: alice"]);
        assert_eq!(text(&send(&server, "GET", "/text", &fields)), "alice");
    }
    assert_eq!(text(&send(&server, "GET", "/open", &fields)), "<>");
}
