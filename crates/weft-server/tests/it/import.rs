//! `weft import nginx`: exit statuses, files that are included, and errors.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;

use crate::common::{PATIENCE, Weft, weft};
use crate::config::{folder_with, run_in};

#[test]
fn imports_a_file_with_those_that_it_includes() {
    let folder = folder_with(&[
        ("nginx.conf", "events {}\nhttp {\n    include sites/*.conf;\n}\n"),
        (
            "sites/a.conf",
            "server { listen 8080; server_name a.example; location / { return 204; } }\n",
        ),
        ("sites/b.conf", "server { server_name b.example;\nroot html; gzip on; }\n"),
    ]);
    let output = run_in(folder.path(), &["import", "nginx", "nginx.conf"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""), "{}", output.stdout);
    let root = folder.path().join("html");
    for part in [
        "listen = [\"0.0.0.0:8080\"]\n",
        "[hosts.\"a.example *\"]\n",
        "[hosts.\"b.example *\"]\nlisten = [\"0.0.0.0:80\"]\n",
        "\"/\" = { respond = \"\", status = 204 }\n",
        &format!("\"/\" = \"-> {}\"\n", root.display()),
    ] {
        assert!(output.stdout.contains(part), "{part}\n{}", output.stdout);
    }
    // The result is a valid and formatted file.
    fs::create_dir(root).unwrap();
    fs::write(folder.path().join("weft.toml"), output.stdout).unwrap();
    for command in [["check", "weft.toml"].as_slice(), &["fmt", "--check", "weft.toml"]] {
        let output = run_in(folder.path(), command);
        assert_eq!((output.status, &*output.stderr), (Ok(0), ""), "{command:?}");
    }
}

#[test]
fn exit_status_is_3_if_something_was_lost() {
    let server = |directives: &str| format!("server {{ listen 80; root /; {directives} }}\n");
    for (text, status, message) in [
        (server("sendfile on;"), 0, ""),
        (server("autoindex on;"), 0, ""),
        (server("unknown_directive on;"), 3, ""),
        (server("proxy_store on;"), 3, ""),
        (
            server("autoindex on"),
            1,
            "weft: a.conf:1:42: expected `;` or a block behind `autoindex`",
        ),
        ("worker_processes 1;".to_owned(), 1, "weft: a.conf: there is no server"),
    ] {
        let folder = folder_with(&[("a.conf", &text)]);
        let output = run_in(folder.path(), &["import", "nginx", "a.conf"]);
        assert_eq!(output.status, Ok(status), "{text}: {}{}", output.stdout, output.stderr);
        assert!(output.stderr.starts_with(message), "{text}: {}", output.stderr);
        assert_eq!(output.stdout.is_empty(), status == 1);
    }
    let folder = folder_with(&[]);
    for (arguments, status, message) in [
        (["import", "nginx", "none.conf"].as_slice(), 1, "weft: cannot read none.conf: No such"),
        (&["import", "nginx"], 2, "weft: expected `weft import nginx FILE`"),
        (&["import", "apache", "a"], 2, "weft: expected `weft import nginx FILE`"),
        (&["import", "nginx", "a", "b"], 2, "weft: expected `weft import nginx FILE`"),
    ] {
        let output = run_in(folder.path(), arguments);
        assert_eq!(output.status, Ok(status), "{arguments:?}");
        assert!(output.stderr.starts_with(message), "{arguments:?}: {}", output.stderr);
    }
}

/// HTTP/3 of nginx has sockets of its own; in Weft it belongs to the addresses with TLS.
#[test]
fn imports_http3() {
    let server = |rest: &str| {
        format!("server {{ {rest} ssl_certificate c; ssl_certificate_key k; return 200 a; }}\n")
    };
    let both = "listen 8443 quic reuseport; listen 8443 ssl; ";
    let announced = "http3 on; quic_retry on; quic_gso on; http3_hq off; \
                     add_header Alt-Svc 'h3=\":8443\"; ma=60';";
    let off = format!("{both}http3 off;");
    for (text, status, present, absent) in [
        (server(&format!("{both}{announced}")), 0, "listen = [\"0.0.0.0:8443\"]", "http3"),
        (
            server(&format!("{both}{announced}")),
            0,
            r#"Alt-Svc = "h3=\":8443\"; ma=60""#,
            "not carried over",
        ),
        (server("listen 8443 quic;"), 0, "Weft serves this address over TCP, too", "0.0.0.0:80\""),
        (server("listen 8443 ssl http3;"), 0, "listen = [\"0.0.0.0:8443\"]", "0.0.0.0:80\""),
        (server(&off), 0, "http3 = false", "not carried over"),
        (server(&off) + &server("listen 8444 ssl; http3 on;"), 3, "`[limits] http3`", "http3 = "),
        (server(&format!("{both}ssl_early_data on;")), 0, "early_data = true", "not carried over"),
        (server(&format!("{both}ssl_early_data off;")), 0, "8443", "early_data"),
        (
            server(&format!("{both}ssl_early_data on;")) + &server("ssl_early_data off;"),
            3,
            "`[tls] early_data`",
            "early_data =",
        ),
        (server(&format!("{both}quic_host_key a;")), 3, "`[tls] tickets`", "http3 = "),
    ] {
        let folder = folder_with(&[("a.conf", &text)]);
        let output = run_in(folder.path(), &["import", "nginx", "a.conf"]);
        let all = output.stdout.clone() + &output.stderr;
        assert_eq!(output.status, Ok(status), "{text}: {all}");
        assert!(all.contains(present), "{text}: {all}");
        assert!(!output.stdout.contains(absent), "{text}: {all}");
    }
}

/// Connections and datagrams reach the upstreams of imported streams.
#[test]
fn imported_streams_forward() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tcp_upstream, udp_upstream) = (tcp.local_addr().unwrap(), udp.local_addr().unwrap());
    let text = format!(
        "stream {{\n    upstream echo {{ server {tcp_upstream}; }}\n\
         server {{ listen 127.0.0.1:0; proxy_pass echo; proxy_protocol on; }}\n\
         server {{ listen 127.0.0.1:0 udp; proxy_pass {udp_upstream}; \
         proxy_responses 1; }}\n}}\n"
    );
    let folder = folder_with(&[("nginx.conf", &text)]);
    let output = run_in(folder.path(), &["import", "nginx", "nginx.conf"]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""), "{}", output.stdout);
    fs::write(folder.path().join("weft.toml"), output.stdout).unwrap();
    let config = folder.path().join("weft.toml");
    let server = Weft::start(weft([Path::new("--config"), &config]).arg("--no-log"));
    let addresses = server.addresses();
    let port = |scheme: &str| {
        let mut ports = addresses.iter().filter_map(|address| address.strip_prefix(scheme));
        ports.next().unwrap().parse::<u16>().unwrap()
    };
    let (tcp_port, udp_port) = (port("tcp://127.0.0.1:"), port("udp://127.0.0.1:"));
    let mut client = TcpStream::connect(("127.0.0.1", tcp_port)).unwrap();
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut received = String::new();
    tcp.accept().unwrap().0.read_to_string(&mut received).unwrap();
    let expected = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {tcp_port}\r\nhello",
        client.local_addr().unwrap().port()
    );
    assert_eq!(received, expected);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"question", ("127.0.0.1", udp_port)).unwrap();
    let mut buffer = [0; 100];
    let (length, session) = udp.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"question");
    udp.send_to(b"answer", session).unwrap();
    let (length, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from.port()), (&b"answer"[..], udp_port));
    server.stop();
}

#[test]
fn imports_caddyfiles_with_their_users() {
    let site = |rule: &str| format!("http://a.example {{\nroot * .\n{rule}\nfile_server\n}}\n");
    let users =
        "basic_auth {\nalice $2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n}";
    for (text, arguments, status, part) in [
        (site(""), ["import", "caddy", "Caddyfile"].as_slice(), 0, "\"-> "),
        (site("unknown_plugin"), &["import", "caddy", "Caddyfile"], 3, "status = 403"),
        (site(users), &["import", "caddy", "Caddyfile"], 3, "status = 403"),
        (site(users), &["import", "caddy", "Caddyfile", "--users", "users"], 0, "basic_auth = \""),
        (site("}"), &["import", "caddy", "Caddyfile"], 1, "`}` closes no block"),
        (site(""), &["import", "nginx", "Caddyfile", "--users", "users"], 2, "expected `weft"),
        (site(""), &["import", "apache", "Caddyfile"], 2, "expected `weft"),
    ] {
        let folder = folder_with(&[("Caddyfile", &text)]);
        let output = run_in(folder.path(), arguments);
        let all = output.stdout.clone() + &output.stderr;
        assert_eq!(output.status, Ok(status), "{text}: {all}");
        assert!(all.contains(part), "{text}: {all}");
        if status == 0 {
            fs::write(folder.path().join("weft.toml"), &output.stdout).unwrap();
            let check = run_in(folder.path(), &["check", "weft.toml"]);
            assert_eq!((check.status, &*check.stderr), (Ok(0), ""), "{}", output.stdout);
        }
    }
}

#[test]
fn imported_users_replace_no_other_file() {
    let text = "http://a.example {\nbasic_auth {\nalice $2a$04$a\n}\nrespond a\n}\n";
    let folder = folder_with(&[("Caddyfile", text), ("other", "mine\n")]);
    let import =
        |users: &str| run_in(folder.path(), &["import", "caddy", "Caddyfile", "--users", users]);
    let output = import("other");
    assert_eq!(output.status, Ok(1), "{}", output.stdout);
    assert!(output.stderr.contains("cannot write"), "{}", output.stderr);
    assert_eq!(fs::read_to_string(folder.path().join("other")).unwrap(), "mine\n");
    // The same users may be written again.
    for _ in 0..2 {
        assert_eq!(import("users").status, Ok(0));
    }
    let file = folder.path().join("users");
    assert_eq!(fs::read_to_string(&file).unwrap(), "alice:$2a$04$a\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}
