//! Connections that are forwarded without HTTP (`[streams]`).

mod access;
mod balance;
mod records;
mod splice;
mod tls;
mod udp;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal as ProcessSignal, kill_process};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;

use crate::common::external::curl;
use crate::common::{PATIENCE, Signal, Weft, raw_upstream, until, unused_address, weft};

/// A server with streams only, in a directory with its configuration.
struct Streams {
    folder: TempDir,
    server: Weft,
}

impl Streams {
    fn start(config: &str) -> Streams {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weft.toml"), config).unwrap();
        let mut command = weft(["--config", "weft.toml", "--pid-file", "pid"]);
        let server = Weft::start(command.current_dir(folder.path()));
        Streams { folder, server }
    }

    /// Addresses of the streams, in the order of the configuration.
    fn addresses(&self) -> Vec<SocketAddr> {
        let all = self.server.addresses();
        let streams = all.iter().filter_map(|address| address.strip_prefix("tcp://"));
        streams.map(|address| address.parse().unwrap()).collect()
    }

    fn connect(&self) -> TcpStream {
        connect(self.addresses()[0])
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Starts an upstream that returns all that it receives, behind its name.
fn echo(name: &'static str) -> SocketAddr {
    raw_upstream(move |_, mut stream| {
        stream.set_read_timeout(None).unwrap();
        let mut buffer = [0; 4_096];
        let mut is_first = true;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if std::mem::take(&mut is_first) {
                stream.write_all(name.as_bytes()).unwrap();
            }
            if stream.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    })
}

/// Sends bytes and the end of the direction, and returns all that comes back.
fn exchange(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut returned = Vec::new();
    stream.read_to_end(&mut returned).unwrap();
    returned
}

/// Reads until the server closes the connection; a reset is an end, too.
fn read_to_close(mut stream: TcpStream) -> Vec<u8> {
    let mut returned = Vec::new();
    match stream.read_to_end(&mut returned) {
        Ok(_) => returned,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => returned,
        Err(error) => panic!("{error}"),
    }
}

fn client_hello(name: &'static str) -> Vec<u8> {
    let config = ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[test]
fn bytes_pass_in_both_directions_until_each_has_ended() {
    let upstream = echo("");
    let streams = Streams::start(&format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n"));
    let bytes: Vec<u8> = (0..3_000_000).map(|number: u32| (number % 251) as u8).collect();
    let mut stream = streams.connect();
    let mut reader = stream.try_clone().unwrap();
    let returned = std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut returned = Vec::new();
            reader.read_to_end(&mut returned).map(|_| returned)
        });
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        reading.join().unwrap().unwrap()
    });
    assert!(returned == bytes, "{} of {} bytes", returned.len(), bytes.len());
}

#[test]
fn upstreams_get_the_address_of_the_client() {
    let upstream = echo("");
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
    let from_proxy = b"PROXY TCP4 192.0.2.7 192.0.2.8 4711 25\r\nhello";
    for (keys, sent, expected) in [
        ("", &b"hello"[..], "hello"),
        (
            "proxy_protocol = \"v1\"",
            b"hello",
            "PROXY TCP4 127.0.0.1 127.0.0.1 {from} {to}\r\nhello",
        ),
        // A header of another peer is data.
        ("", from_proxy, "PROXY TCP4 192.0.2.7 192.0.2.8 4711 25\r\nhello"),
        ("proxy_protocol_from = \"127.0.0.0/8\"", from_proxy, "hello"),
        (
            "proxy_protocol_from = \"127.0.0.0/8\"\nproxy_protocol = \"v1\"",
            from_proxy,
            "PROXY TCP4 192.0.2.7 127.0.0.1 4711 {to}\r\nhello",
        ),
        ("proxy_protocol_from = \"127.0.0.0/8\"", b"hello", ""),
        ("proxy_protocol_from = \"127.0.0.0/8\"", b"PROXY TCP4 a b 1 2\r\n", ""),
    ] {
        let text = format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n{keys}\n");
        let streams = Streams::start(&text);
        let mut stream = streams.connect();
        let from = stream.local_addr().unwrap().port().to_string();
        let to = stream.peer_addr().unwrap().port().to_string();
        stream.write_all(sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let returned = String::from_utf8(read_to_close(stream)).unwrap();
        let expected = expected.replace("{from}", &from).replace("{to}", &to);
        assert_eq!(returned, expected, "{keys}, {:?}", String::from_utf8_lossy(sent));
    }
    let text = format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\nproxy_protocol = \"v2\"\n");
    let returned = exchange(Streams::start(&text).connect(), b"hello");
    assert_eq!((returned.len(), &returned[..16]), (28 + 5, &v2[..]));
    assert_eq!(&returned[28..], b"hello");
}

#[test]
fn server_name_selects_the_upstream_of_encrypted_connections() {
    let site = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), text).unwrap();
        let options = ["--tls-self-signed", "--tls-listen", "127.0.0.1:0", "--no-log"];
        (Weft::serve(folder.path(), &options), folder)
    };
    let [(first, _one), (second, _two)] = ["first", "second"].map(site);
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\n\
         server_names = {{ \"a.example\" = \"{}\", \"*.b.example\" = \"{}\" }}\n",
        first.tls_address(),
        second.tls_address(),
    ));
    let port = streams.addresses()[0].port();
    for (name, expected) in [
        ("a.example", "first"),
        ("x.b.example", "second"),
        // The alert unrecognized_name.
        ("b.example", ""),
        ("c.example", ""),
    ] {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/a.txt");
        let output = curl().args(["-ksS", "--resolve", &resolve, &url]).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stdout, expected, "{name}: {stderr}");
        assert_eq!(stderr.contains("unrecognized name"), expected.is_empty(), "{name}: {stderr}");
    }
    until("the refusal is logged", || {
        streams.server.stderr().contains("there is no upstream for \"b.example\"")
    });
}

#[test]
fn server_name_may_be_in_several_segments() {
    let (named, others) = (echo("named "), echo("others "));
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{others}\"\nserver_names = {{ \"a.example\" = \"{named}\" }}\n"
    ));
    for (bytes, prefix) in [
        (client_hello("a.example"), "named "),
        (client_hello("b.example"), "others "),
        (b"SSH-2.0-x\r\n".to_vec(), "others "),
    ] {
        let mut stream = streams.connect();
        stream.set_nodelay(true).unwrap();
        for segment in bytes.chunks(bytes.len().div_ceil(5)) {
            stream.write_all(segment).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let expected = [prefix.as_bytes(), &bytes].concat();
        let returned = exchange(stream, b"");
        assert!(returned == expected, "{prefix}: {:?}", String::from_utf8_lossy(&returned));
    }
}

#[test]
fn slow_silent_and_oversized_clients_are_closed() {
    let upstream = echo("");
    let named = format!("server_names = {{ \"a.example\" = \"{upstream}\" }}");
    // A handshake message of 60,000 bytes, in records of 16,000.
    let mut large = vec![22, 3, 1, 62, 128, 1, 0, 234, 96];
    large.resize(5 + 16_000, 0);
    for _ in 0..3 {
        large.extend([22, 3, 3, 62, 128]);
        large.resize(large.len() + 16_000, 0);
    }
    for (keys, sent) in [
        // No ClientHello, a part of a ClientHello, and a ClientHello that is too large.
        ("handshake_timeout = \"1s\"", &b""[..]),
        ("handshake_timeout = \"1s\"", &client_hello("a.example")[..20]),
        ("", &large),
    ] {
        let streams = Streams::start(&format!("[streams.\"127.0.0.1:0\"]\n{named}\n{keys}\n"));
        let mut stream = streams.connect();
        // The server may close before it has received all.
        let _ = stream.write_all(sent);
        assert!(read_to_close(stream).len() <= 7, "{keys}");
    }
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\nidle_timeout = \"1s\"\n"
    ));
    let mut stream = streams.connect();
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_to_close(stream), b"hello");
}

#[test]
fn connections_are_limited_in_total_and_per_client() {
    let upstream = echo("");
    for (keys, permitted) in [
        ("max_connections = 4", 2),
        ("max_connections = 1", 1),
        ("max_connections_per_client = 3", 3),
    ] {
        let streams =
            Streams::start(&format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n{keys}\n"));
        let answers = |stream: &mut TcpStream| {
            let mut byte = [0];
            stream.write_all(b"x").is_ok() && stream.read(&mut byte).is_ok_and(|length| length == 1)
        };
        let mut open = Vec::new();
        for number in 0..permitted {
            let mut stream = streams.connect();
            assert!(answers(&mut stream), "{keys}: connection {number}");
            open.push(stream);
        }
        assert!(!answers(&mut streams.connect()), "{keys}");
        until("the refusal is logged", || {
            streams.server.stderr().contains("too many connections, in total or of its client")
        });
        // A connection that has ended leaves its place to another one.
        open.pop();
        until("a place is free", || answers(&mut streams.connect()));
    }
}

#[test]
fn unreachable_upstreams_are_replaced_by_others() {
    let (upstream, gone) = (echo("up "), unused_address());
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = [\"{gone}\", \"{upstream}\"]\n\
         [streams.\"127.0.0.2:0 127.0.0.3:0\"]\nto = \"{gone}\"\n"
    ));
    for _ in 0..8 {
        assert_eq!(exchange(streams.connect(), b"x"), b"up x");
    }
    for address in &streams.addresses()[1..] {
        assert_eq!(read_to_close(connect(*address)), b"");
    }
    assert_eq!(streams.addresses().len(), 3);
    let line = format!("the upstream {gone}: cannot connect: Connection refused");
    until("the failure is logged", || streams.server.stderr().contains(&line));
}

#[test]
fn an_upstream_rests_after_the_configured_failures() {
    let (upstream, gone) = (echo("up "), unused_address());
    let streams = Streams::start(&format!(
        "[streams.\"127.0.0.1:0\"]\nto = [\"{gone}\", \"{upstream}\"]\n\
         max_failures = 1\nfailure_window = \"1h\"\ndown_time = \"1h\"\n"
    ));
    for _ in 0..2 {
        assert_eq!(exchange(streams.connect(), b"x"), b"up x");
    }
    let line = format!("the upstream {gone} fails again and again");
    until("the upstream is down", || streams.server.stderr().contains(&line));
}

fn read_pid(path: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok()?)
}

/// Ends the process that took over.
struct LastProcess(std::path::PathBuf);

impl Drop for LastProcess {
    fn drop(&mut self) {
        if let Some(last) = read_pid(&self.0) {
            // The process may have exited already.
            let _ = kill_process(last, ProcessSignal::KILL);
        }
    }
}

#[test]
fn connections_survive_reloads_and_upgrades() {
    let (first, second) = (echo("first "), echo("second "));
    let config = |upstream: SocketAddr| format!("[streams.\"127.0.0.1:0\"]\nto = \"{upstream}\"\n");
    let streams = Streams::start(&config(first));
    let address = streams.addresses()[0];
    let _last = LastProcess(streams.path("pid"));
    let mut kept = connect(address);
    kept.write_all(b"a").unwrap();
    let mut read = [0; 7];
    kept.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"first a");

    fs::write(streams.path("weft.toml"), config(second)).unwrap();
    streams.server.signal(Signal::HUP);
    until("the configuration is reloaded", || streams.server.stderr().contains("was reloaded"));
    assert_eq!(exchange(connect(address), b"b"), b"second b");

    let former = read_pid(&streams.path("pid")).unwrap();
    streams.server.signal(Signal::USR2);
    until("the successor serves", || {
        read_pid(&streams.path("pid")).is_some_and(|current| current != former)
    });
    for _ in 0..20 {
        assert_eq!(exchange(connect(address), b"c"), b"second c");
    }
    assert_eq!(exchange(kept, b"d"), b"d");
}

#[test]
fn removed_streams_stop_listening_and_a_stop_waits_for_connections() {
    let upstream = echo("up ");
    let section = |host: &str| format!("[streams.\"{host}:0\"]\nto = \"{upstream}\"\n");
    let mut streams = Streams::start(&["127.0.0.1", "127.0.0.2"].map(section).concat());
    let addresses = streams.addresses();
    assert_eq!(exchange(connect(addresses[1]), b"x"), b"up x");
    fs::write(streams.path("weft.toml"), section("127.0.0.1")).unwrap();
    streams.server.signal(Signal::HUP);
    until("the address is free", || TcpStream::connect(addresses[1]).is_err());
    let mut open = connect(addresses[0]);
    open.write_all(b"y").unwrap();
    let mut read = [0; 4];
    open.read_exact(&mut read).unwrap();
    streams.server.signal(Signal::TERM);
    until("the address is free", || TcpStream::connect(addresses[0]).is_err());
    assert!(streams.server.is_running());
    assert_eq!(exchange(open, b"z"), b"z");
    assert!(streams.server.wait().success());
}
