//! The promise of `weft import nginx` about listeners: nothing is open that was closed. Each name
//! is requested at each address from nginx and from Weft with the imported configuration.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::common::{Client, Program, Weft, has_tool, run, until, weft};

/// Servers that share names, addresses and ports. `127.N` is the network of nginx or of Weft.
const SERVERS: &str = "
    server { listen 127.N.0.1:8080; listen 127.N.0.3:8080; server_name a www.a; return 200 a; }
    server { listen 127.N.0.1:8080; listen 127.N.0.3:8080; server_name b; return 200 b; }
    server { listen 127.N.0.1:8080; server_name c; return 200 c; }
    # A private address, and the machine itself.
    server { listen 127.N.0.5:8080; server_name admin; return 200 admin; }
    server { listen 127.N.0.5:8081; server_name local; return 200 local; }
    # Without a name, on another port, and as the default of an address.
    server { listen 127.N.0.1:9090; return 200 metrics; }
    server { listen 127.N.0.6:9090 default_server; listen 127.N.0.3:8080 default_server;
             return 200 default; }
    # Names of other servers elsewhere.
    server { listen 127.N.0.6:9090; server_name a; return 200 a-of-9090; }
    server { listen 127.N.0.7:8080; server_name a admin; return 200 a-of-7; }
    # All addresses, except for those above.
    server { listen 18488; server_name a; return 200 a-of-all; }
    server { listen 18488; return 200 all; }
    server { listen 127.N.0.8:18488; server_name admin; return 200 admin-of-8; }
    server { listen unix:PATH/socket; server_name admin; return 200 admin-of-socket; }
    server { listen unix:PATH/socket; server_name b; return 200 b-of-socket; }
";

const NAMES: [&str; 8] = ["a", "www.a", "b", "c", "admin", "local", "metrics", "other"];

#[test]
fn imported_servers_have_the_same_listeners() {
    if !has_tool("nginx") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = |network: &str, path: &Path| {
        let servers = SERVERS.replace("127.N", network).replace("PATH", path.to_str().unwrap());
        // Both servers cannot listen on all addresses of the same port.
        let port = if network == "127.88" { "18488" } else { "18489" };
        servers.replace("18488", port)
    };
    let (of_nginx, of_weft) = (at.join("nginx"), at.join("weft"));
    fs::create_dir(&of_nginx).unwrap();
    fs::create_dir(&of_weft).unwrap();
    let _nginx = start_nginx(&of_nginx, &text("127.88", &of_nginx));
    let source = of_weft.join("site.conf");
    fs::write(&source, text("127.89", &of_weft)).unwrap();
    let output = run([Path::new("import"), Path::new("nginx"), &source]);
    assert_eq!((output.status, &*output.stderr), (Ok(0), ""), "{}", output.stdout);
    fs::write(of_weft.join("weft.toml"), &output.stdout).unwrap();
    let mut command = weft([Path::new("--config"), &of_weft.join("weft.toml")]);
    let server = Weft::start(command.arg("--no-log").current_dir(&of_weft));
    let mut different = Vec::new();
    for host in 1..=9 {
        for (port, of_weft) in [(8080, 8080), (8081, 8081), (9090, 9090), (18488, 18489)] {
            let nginx = |name| ask(TcpStream::connect(format!("127.88.0.{host}:{port}")), name);
            let weft = |name| ask(TcpStream::connect(format!("127.89.0.{host}:{of_weft}")), name);
            let rows = NAMES.map(|name| (name, nginx(name), weft(name)));
            let rows = rows.into_iter().filter(|(_, nginx, weft)| nginx != weft);
            different.extend(rows.map(|row| format!("127.N.0.{host}:{port} {row:?}")));
        }
    }
    for name in NAMES {
        let [nginx, weft] = [&of_nginx, &of_weft].map(|folder| {
            let mut client = Client::unix(&folder.join("socket"));
            text_of(&mut client, name)
        });
        if nginx != weft {
            different.push(format!("unix {name} {nginx} {weft}"));
        }
    }
    assert_eq!(different, [""; 0], "{}", output.stdout);
    server.stop();
}

fn start_nginx(folder: &Path, servers: &str) -> Program {
    let at = folder.display();
    let conf = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
         http {{ access_log off; default_type text/plain; client_body_temp_path {at}/b; \
         proxy_temp_path {at}/p; fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; \
         scgi_temp_path {at}/s; {servers} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, conf).unwrap();
    let mut command = Command::new("nginx");
    let mut nginx = Program::start(command.arg("-c").arg(&file).args(["-e", "stderr"]));
    until("nginx accepts connections", || {
        assert!(nginx.is_running(), "{}", nginx.stderr());
        TcpStream::connect("127.88.0.1:8080").is_ok()
    });
    nginx
}

/// Returns the text of the response, `closed` without a listener.
fn ask(stream: std::io::Result<TcpStream>, host: &str) -> String {
    match stream {
        Ok(stream) => text_of(&mut Client::from_stream(stream), host),
        Err(_) => "closed".to_owned(),
    }
}

fn text_of(client: &mut Client, host: &str) -> String {
    client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    String::from_utf8(client.response().body).unwrap()
}
