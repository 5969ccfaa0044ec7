//! The servers with the configuration of an idiom, the files that they serve, and an upstream.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::exchange::Addresses;
use super::file::Idiom;
use crate::common::external::{nginx_temp_paths, own_address, start_caddy, start_nginx};
use crate::common::{
    Program, ProgramOutput, Weft, raw_upstream, read_head, run, unused_address, weft,
};

/// Files that the idioms serve, below `/srv`.
const FILES: [(&str, &str); 29] = [
    ("www/index.html", "<p>home</p>\n"),
    ("www/about.html", "<p>about</p>\n"),
    ("www/style.css", "p { margin: 0 }\n"),
    ("www/app.3f2a.js", "let x = 1;\n"),
    ("www/logo.png", "png"),
    ("www/.env", "SECRET=1\n"),
    ("www/.well-known/security.txt", "Contact: mailto:a@example.org\n"),
    ("www/docs/index.html", "<p>docs</p>\n"),
    ("www/docs/guide.html", "<p>guide</p>\n"),
    ("www/folder/a.txt", "a\n"),
    ("www/folder/b.txt", "b\n"),
    ("www/private/plan.txt", "plan\n"),
    ("www/backup.sql", "SELECT 1;\n"),
    ("www/index.php", "<?php\n"),
    ("www/404.html", "<p>custom: not found</p>\n"),
    ("www/50x.html", "<p>custom: out of order</p>\n"),
    ("app/index.html", "<p>app</p>\n"),
    ("app/main.js", "start();\n"),
    ("images/a.png", "image"),
    ("maintenance.html", "<p>custom: back soon</p>\n"),
    ("acme/.well-known/acme-challenge/token", "token\n"),
    ("plain/readme.txt", "readme\n"),
    ("site/down.html", "<p>custom: closed until noon</p>\n"),
    ("site/index.html", "<p>site</p>\n"),
    ("blog/index.php", "<?php echo 'front ', $_SERVER['REQUEST_URI'], \"\\n\";\n"),
    ("blog/show.php", "<?php echo $_SERVER['PATH_INFO'] ?? '', ' ', $_GET['a'] ?? '', \"\\n\";\n"),
    ("blog/admin/index.php", "<?php echo \"admin\\n\";\n"),
    ("blog/style.css", "p { margin: 1px }\n"),
    ("blog/photo.jpg", "<?php echo 'no script';\n"),
];

/// The password of `alice` is `open sesame`.
const USERS: &str = "alice:$2b$04$13JgGd/o0lgo1LEw3aX1Q.wexhYWPu/4NSjFzpo1zhhNouxntxg2e\n";

/// Writes the files that idioms serve and use.
pub fn write_files(folder: &Path) {
    let write = |path: &str, contents: &[u8]| {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    };
    for (name, contents) in FILES {
        write(&format!("srv/{name}"), contents.as_bytes());
    }
    let long = "<p>a line of text</p>\n".repeat(400);
    write("srv/www/long.html", long.as_bytes());
    write("srv/www/packed.css", "p { padding: 0 }\n".repeat(100).as_bytes());
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all("p { padding: 0 }\n".repeat(100).as_bytes()).unwrap();
    write("srv/www/packed.css.gz", &encoder.finish().unwrap());
    write("etc/users", USERS.as_bytes());
    write("etc/office.conf", b"allow 127.0.0.0/8;\nallow ::1;\n");
    write("etc/office.txt", b"# The office.\n127.0.0.0/8\n::1\n");
    write("etc/office.caddy", b"remote_ip 127.0.0.0/8 ::1\n");
    let parameters = fs::read("/etc/nginx/fastcgi_params").expect("a file of nginx");
    write("etc/nginx/fastcgi_params", &parameters);
    fs::create_dir_all(folder.join("run")).unwrap();
    for server in [LogsOf::Nginx, LogsOf::Caddy, LogsOf::Written, LogsOf::Imported] {
        fs::create_dir_all(server.folder(folder)).unwrap();
    }
    for name in ["example", "other"] {
        let names = vec![format!("{name}.org"), format!("www.{name}.org")];
        let certified = rcgen::generate_simple_self_signed(names).unwrap();
        write(&format!("etc/ssl/{name}.pem"), certified.cert.pem().as_bytes());
        write(&format!("etc/ssl/{name}.key"), certified.signing_key.serialize_pem().as_bytes());
    }
}

/// Server whose logs are in a folder of their own.
#[derive(Clone, Copy)]
pub enum LogsOf {
    Nginx,
    Caddy,
    Written,
    Imported,
}

impl LogsOf {
    /// Returns the folder for `/var/log` of the idioms.
    pub fn folder(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            LogsOf::Nginx => "log/nginx",
            LogsOf::Caddy => "log/caddy",
            LogsOf::Written => "log/written",
            LogsOf::Imported => "log/imported",
        })
    }
}

/// Upstreams on the ports 3000 and 3001 of the idioms. Nothing listens on 3002.
#[derive(Clone, Copy)]
pub struct Upstreams([SocketAddr; 3]);

impl Upstreams {
    pub fn start() -> Upstreams {
        let respond = |_, mut stream: TcpStream| {
            while let Some(head) = read_head(&mut stream) {
                if !respond(&mut stream, &head) {
                    return;
                }
            }
        };
        Upstreams([raw_upstream(respond), raw_upstream(respond), unused_address()])
    }

    /// Replaces paths and addresses of an idiom by the paths and addresses of this test.
    fn fill(self, text: &str, folder: &Path, logs: LogsOf) -> String {
        let logs = logs.folder(folder);
        let folder = folder.display();
        let text = text
            .replace("/srv/", &format!("{folder}/srv/"))
            .replace("/etc/", &format!("{folder}/etc/"))
            .replace("/run/php/", &format!("{folder}/run/"))
            .replace("/var/log/", &format!("{}/", logs.display()));
        self.at(&text)
    }

    /// Replaces the addresses of an idiom by the addresses of this test.
    pub fn at(self, text: &str) -> String {
        let addresses = self.0.iter().enumerate();
        addresses.fold(text.to_owned(), |text, (port, address)| {
            text.replace(&format!("127.0.0.1:300{port}"), &address.to_string())
        })
    }

    /// Replaces the addresses of this test by the addresses of the idiom.
    pub fn restore(self, text: &str) -> String {
        let addresses = self.0.iter().enumerate();
        addresses.fold(text.to_owned(), |text, (port, address)| {
            text.replace(&address.to_string(), &format!("127.0.0.1:300{port}"))
        })
    }
}

/// Responds as the path asks for, by default with the request line and the fields. Returns false if
/// the connection has been upgraded.
fn respond(stream: &mut TcpStream, head: &str) -> bool {
    let mut lines = head.trim_end().split("\r\n");
    let request_line = lines.next().unwrap_or_default();
    let mut words = request_line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut fields: Vec<String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
        .collect();
    if fields.iter().any(|field| field == "upgrade: websocket") {
        let response = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                        Upgrade: websocket\r\n\r\n";
        stream.write_all(response.as_bytes()).unwrap();
        return false;
    }
    fields.sort();
    let host = fields.iter().find_map(|field| field.strip_prefix("host: ")).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let echo = format!("{method} {target}\n{}\n", fields.join("\n"));
    let length = fields.iter().find_map(|field| field.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a length"));
    let body_end = std::io::copy(&mut (&*stream).take(length), &mut std::io::sink());
    if body_end.is_err() {
        return false;
    }
    let (status, own, body) = match name {
        "missing" => ("404 Not Found", String::new(), "upstream: not found\n".to_owned()),
        "broken" => ("500 Internal Server Error", String::new(), "upstream: broken\n".to_owned()),
        "login" => ("302 Found", format!("Location: http://{host}/home\r\n"), String::new()),
        "cookie" => ("200 OK", "Set-Cookie: id=1; Path=/inner/\r\n".to_owned(), String::new()),
        "denied" => ("401 Unauthorized", String::new(), String::new()),
        "page" => {
            let body = "<a href=\"http://internal.example/\">a link</a>\n".repeat(100);
            ("200 OK", "Content-Type: text/html\r\n".to_owned(), body)
        }
        _ => ("200 OK", "Content-Type: text/plain\r\nX-App: 1\r\n".to_owned(), echo),
    };
    let body = if method == "HEAD" { "" } else { &body };
    let length = body.len();
    let response = format!("HTTP/1.1 {status}\r\n{own}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(response.as_bytes()).is_ok()
}

/// The address of a server for an idiom.
fn address(index: usize, port: u16) -> SocketAddr {
    own_address(3, 9_000 + 4 * index as u16 + port)
}

pub fn start_nginx_for(
    idiom: &Idiom,
    index: usize,
    folder: &Path,
    upstreams: Upstreams,
) -> (Program, Addresses) {
    let own = folder.join(&idiom.name);
    let at = own.display();
    let temp_paths = nginx_temp_paths(&own);
    let text = nginx_text(idiom, index, folder, upstreams, LogsOf::Nginx);
    let config = format!(
        "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
         http {{ access_log off; include /etc/nginx/mime.types; {temp_paths}\n{text}\n}}\n"
    );
    fs::write(own.join("nginx.conf"), config).unwrap();
    let addresses = Addresses { plain: Some(address(index, 0)), tls: Some(address(index, 1)) };
    let has_plain = text.contains(&format!("listen {}", address(index, 0)));
    let first = if has_plain { address(index, 0) } else { address(index, 1) };
    (start_nginx(&own, first), addresses)
}

fn nginx_text(
    idiom: &Idiom,
    index: usize,
    folder: &Path,
    upstreams: Upstreams,
    logs: LogsOf,
) -> String {
    let text = upstreams.fill(idiom.nginx.as_deref().expect("nginx"), folder, logs);
    text.replace("listen 443", &format!("listen {}", address(index, 1)))
        .replace("listen 80", &format!("listen {}", address(index, 0)))
}

/// Starts one Caddy with the sites of all idioms.
pub fn start_caddy_for(idioms: &[Idiom], folder: &Path, upstreams: Upstreams) -> Program {
    let mut all = "{\n admin off\n auto_https off\n log {\n level ERROR\n }\n}\n".to_owned();
    let mut first = None;
    for (index, idiom) in idioms.iter().enumerate() {
        let Some(text) = &idiom.caddy else { continue };
        for line in upstreams.fill(text, folder, LogsOf::Caddy).lines() {
            let sites = line.strip_suffix(" {").filter(|line| line.starts_with("http"));
            let Some(sites) = sites else {
                all.push_str(&format!("{line}\n"));
                continue;
            };
            let with_port = sites.split(", ").map(|site| {
                let port = if site.starts_with("https") { 3 } else { 2 };
                first.get_or_insert(address(index, port));
                format!("{site}:{}", address(index, port).port())
            });
            let sites = with_port.collect::<Vec<_>>().join(", ");
            all.push_str(&format!("{sites} {{\n bind {}\n", address(index, 0).ip()));
        }
    }
    fs::write(folder.join("Caddyfile"), all).unwrap();
    start_caddy(folder, first.expect("a site of Caddy"))
}

pub fn caddy_addresses(index: usize) -> Addresses {
    Addresses { plain: Some(address(index, 2)), tls: Some(address(index, 3)) }
}

pub fn start_written(idiom: &Idiom, folder: &Path, upstreams: Upstreams) -> (Weft, Addresses) {
    let text = upstreams.fill(&idiom.toml, folder, LogsOf::Written);
    let text = text.replace("[::]:80", "127.0.0.1:0").replace("[::]:443", "127.0.0.1:0");
    start_weft(&folder.join(&idiom.name).join("written.toml"), &text)
}

/// Imports the nginx half, and starts a server with the result.
pub fn start_imported(
    idiom: &Idiom,
    index: usize,
    folder: &Path,
    upstreams: Upstreams,
) -> (ProgramOutput, Weft, Addresses) {
    let own = folder.join(&idiom.name);
    let source = own.join("site.conf");
    let text = nginx_text(idiom, index, folder, upstreams, LogsOf::Imported);
    fs::write(&source, text).unwrap();
    let output = run([Path::new("import"), Path::new("nginx"), &source]);
    let text = [0, 1].iter().fold(output.stdout.clone(), |text, port| {
        // Hosts may be bound to the address, which needs a port. nginx has the other address.
        let address = address(index, *port);
        text.replace(&address.to_string(), &own_address(4, address.port()).to_string())
    });
    let (weft, addresses) = start_weft(&own.join("imported.toml"), &text);
    (output, weft, addresses)
}

fn start_weft(path: &Path, text: &str) -> (Weft, Addresses) {
    fs::write(path, text).unwrap();
    let check = run([Path::new("check"), path]);
    assert_eq!(check.status, Ok(0), "{}: {}\n{text}", path.display(), check.stderr);
    let mut command = weft([Path::new("--config"), path]);
    command.args(["--workers", "1"]);
    if !text.contains("/log/") {
        command.args(["--log", "none"]);
    }
    let weft = Weft::start(&mut command);
    let find = |scheme: &str| {
        let addresses = weft.addresses();
        let found = addresses.iter().find_map(|address| address.strip_prefix(scheme));
        found.map(|address| address.parse().expect("an address"))
    };
    let addresses = Addresses { plain: find("http://"), tls: find("https://") };
    (weft, addresses)
}
