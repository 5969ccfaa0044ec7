//! Differential tests of routing and proxying: the same requests are sent to Weft, nginx and Caddy
//! with the same routes, in front of upstreams that read paths and fields like WSGI (Python), like
//! the WHATWG (Node) and like `net/http` (Go).
//!
//! Each request has two checks. The upstream must not see what the routes of Weft keep from it:
//! that holds without exception. And Weft must have the outcome of nginx and of Caddy: each
//! difference is in the table [`DIFFERENCES`] with its reason, and each row of the table occurs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path;
use std::process::Command;

use crate::common::external::{nginx_temp_paths, own_address, start_caddy, start_nginx};
use crate::common::{PATIENCE, Program, Weft, has_tool, until, weft};

// -- upstreams

/// Responds with the target, the path as a WSGI application gets it, and its variables.
const PYTHON: &str = r#"
import posixpath
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

class Handler(WSGIRequestHandler):
    def get_environ(self):
        environ = super().get_environ()
        environ['target'] = self.path
        return environ

    def log_message(self, *args):
        pass

def app(environ, start_response):
    path = posixpath.normpath('/' + environ['PATH_INFO'].lstrip('/'))
    lines = ['target=' + environ['target'], 'path=' + path]
    lines += sorted(f'{k}={v}' for k, v in environ.items() if k.startswith('HTTP_'))
    body = '\n'.join(lines).encode('latin-1', 'replace')
    start_response('200 OK', [('Content-Length', str(len(body)))])
    return [body]

server = make_server('127.0.0.1', 0, app, Server, Handler)
server.socket.listen(128)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// Responds with the target, the path as the URL class reads it, the fields and the trailers.
const NODE: &str = r#"
const server = require('http').createServer((request, response) => {
    let path;
    try {
        path = decodeURIComponent(new URL('http://h' + request.url).pathname);
    } catch {
        path = request.url;
    }
    path = require('path').posix.normalize(path);
    request.resume().on('end', () => {
        const lines = ['target=' + request.url, 'path=' + path];
        const fold = (name) => 'HTTP_' + name.toUpperCase().replace(/-/g, '_');
        for (let i = 0; i < request.rawHeaders.length; i += 2)
            lines.push(fold(request.rawHeaders[i]) + '=' + request.rawHeaders[i + 1]);
        for (let i = 0; i < request.rawTrailers.length; i += 2)
            lines.push('TRAILER_' + fold(request.rawTrailers[i]) + '=' + request.rawTrailers[i + 1]);
        const body = Buffer.from(lines.join('\n'));
        response.writeHead(200, { 'Content-Length': body.length }).end(body);
    });
}).listen(0, '127.0.0.1', () => console.log(server.address().port));
"#;

/// Responds with the target, the path as `net/http` reads it, the fields and the trailers.
const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
)

func fold(prefix string, fields http.Header) (lines []string) {
	for name, values := range fields {
		name = strings.ReplaceAll(strings.ToUpper(name), "-", "_")
		for _, value := range values {
			lines = append(lines, prefix+"HTTP_"+name+"="+value)
		}
	}
	return
}

func echo(response http.ResponseWriter, request *http.Request) {
	io.Copy(io.Discard, request.Body)
	read := path.Clean("/" + request.URL.Path)
	lines := []string{"target=" + request.RequestURI, "path=" + read, "HTTP_HOST=" + request.Host}
	lines = append(lines, fold("", request.Header)...)
	lines = append(lines, fold("TRAILER_", request.Trailer)...)
	body := strings.Join(lines, "\n")
	response.Header().Set("Content-Length", strconv.Itoa(len(body)))
	io.WriteString(response, body)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(echo)))
}
"#;

/// Compiles the upstream in Go. Returns its file.
fn build_go(folder: &path::Path) -> path::PathBuf {
    let [source, program] = ["app.go", "app-go"].map(|name| folder.join(name));
    fs::write(&source, GO).unwrap();
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source).env("CGO_ENABLED", "0");
    let output = build.output().expect("go");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn start_upstream(command: &mut Command) -> (Program, SocketAddr) {
    let mut program = Program::start(command);
    until("the upstream prints its port", || {
        assert!(program.is_running(), "{command:?}: {}", program.stderr());
        program.stdout().ends_with('\n')
    });
    let port = program.stdout().trim().parse().expect("a port");
    (program, (Ipv4Addr::LOCALHOST, port).into())
}

// -- servers

/// The servers that are compared with Weft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Nginx,
    Caddy,
}

/// The servers in front of one upstream. Each has the same routes: `/admin/` is forbidden, `/app/`
/// leads to `/inner/` of the upstream, and `/` to the upstream.
struct Servers {
    weft: SocketAddr,
    others: [(Server, SocketAddr); 2],
    _programs: (Weft, Program, Program),
}

fn start_servers(folder: &path::Path, upstream: SocketAddr, port: u16) -> Servers {
    let at = folder.display();
    let temp_paths = nginx_temp_paths(folder);
    let [nginx_address, caddy_address] = [own_address(2, port), own_address(2, port + 1)];
    fs::write(
        folder.join("weft.toml"),
        format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n[log]\naccess = \"none\"\n[hosts.\"*\"]\n\
             \"/admin/\" = {{ respond = \"forbidden\", status = 403 }}\n\
             \"/app/\" = \">> http://{upstream}/inner/\"\n\"/\" = \">> http://{upstream}/\"\n"
        ),
    )
    .unwrap();
    fs::write(
        folder.join("nginx.conf"),
        format!(
            "daemon off; master_process off; pid {at}/pid; error_log stderr crit;\nevents {{}}\n\
             http {{ access_log off; {temp_paths}\
             proxy_http_version 1.1; proxy_set_header Host $http_host; \
             proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For $remote_addr; \
             proxy_set_header X-Forwarded-Proto $scheme; \
             proxy_set_header X-Forwarded-Host $http_host;\n\
             server {{ listen {nginx_address} reuseport;\n\
             location = /admin {{ return 403; }}\nlocation /admin/ {{ return 403; }}\n\
             location = /app {{ proxy_pass http://{upstream}/inner; }}\n\
             location /app/ {{ proxy_pass http://{upstream}/inner/; }}\n\
             location / {{ proxy_pass http://{upstream}; }} }} }}\n"
        ),
    )
    .unwrap();
    fs::write(
        folder.join("Caddyfile"),
        format!(
            "{{\n admin off\n auto_https off\n log {{\n level ERROR\n }}\n}}\n\
             http://:{} {{\n bind {}\n handle /admin {{\n respond 403\n }}\n\
             handle /admin/* {{\n respond 403\n }}\n\
             handle_path /app/* {{\n rewrite * /inner{{uri}}\n reverse_proxy {upstream}\n }}\n\
             handle /app {{\n rewrite * /inner\n reverse_proxy {upstream}\n }}\n\
             handle {{\n reverse_proxy {upstream}\n }}\n}}\n",
            caddy_address.port(),
            caddy_address.ip(),
        ),
    )
    .unwrap();
    let weft = Weft::start(weft(["--config"]).arg(folder.join("weft.toml")));
    let nginx = start_nginx(folder, nginx_address);
    let caddy = start_caddy(folder, caddy_address);
    Servers {
        weft: weft.address(),
        others: [(Server::Nginx, nginx_address), (Server::Caddy, caddy_address)],
        _programs: (weft, nginx, caddy),
    }
}

/// A response, reduced to the values that are compared.
#[derive(Clone, Debug)]
struct Outcome {
    status: u16,
    /// Lines of the echo, if the upstream responded.
    seen: Option<Vec<(String, String)>>,
}

impl Outcome {
    fn value(&self, name: &str) -> &str {
        let mut lines = self.seen.iter().flatten();
        lines.find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// Sends a request and reads the response to the end of the connection.
fn send(server: SocketAddr, request: &[u8]) -> Outcome {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server may respond and close before it has read all of a request that it rejects.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}: {}", request.escape_ascii()),
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{}: {text:?}", request.escape_ascii()));
    let line = |line: &str| line.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
    let seen = body.starts_with("target=").then(|| body.split('\n').filter_map(line).collect());
    Outcome { status, seen }
}

// -- requests

/// The part of a request that varies, and the part of the outcome that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Target → route, and the path that the upstream reads.
    Path,
    /// Field lines with the value `evil` → variables of the upstream with that value.
    Fields,
    /// Target and `Host` → the host that the upstream reads.
    Host,
    /// Trailers with the value `evil` → trailers that the upstream reads.
    Trailers,
    /// Method and target → status, or the route.
    Method,
}

struct Case {
    kind: Kind,
    /// The part that varies, as in [`Difference::subject`].
    subject: String,
    request: Vec<u8>,
}

impl Case {
    fn new(kind: Kind, subject: &str) -> Case {
        let request = match kind {
            Kind::Path => format!("GET {subject} HTTP/1.1\r\nHost: h\r\n"),
            Kind::Fields => format!("GET / HTTP/1.1\r\nHost: h\r\n{subject}"),
            Kind::Host => format!("GET {subject}"),
            Kind::Trailers => "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n".into(),
            Kind::Method => format!("{subject} HTTP/1.1\r\nHost: h\r\n"),
        };
        let request = match kind {
            Kind::Trailers => {
                format!(
                    "{request}Trailer: X-T\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n{subject}\r\n"
                )
            }
            Kind::Fields if subject.starts_with("Connection:") => format!("{request}\r\n"),
            _ => format!("{request}Connection: close\r\n\r\n"),
        };
        Case { kind, subject: subject.escape_debug().to_string(), request: request.into_bytes() }
    }

    /// Reduces an outcome to the values that are compared.
    fn summary(&self, outcome: &Outcome) -> String {
        let Some(seen) = &outcome.seen else { return outcome.status.to_string() };
        let evil = || {
            let names = seen.iter().filter(|(_, value)| value.contains("evil"));
            names.map(|(name, _)| &**name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        match self.kind {
            Kind::Path => {
                let path = outcome.value("path");
                // A slash at the end has no meaning for routes.
                format!("{} {path}", route(path)).trim_end_matches('/').to_owned()
            }
            Kind::Fields | Kind::Trailers => format!("seen {}", evil().join(" ")).trim().to_owned(),
            Kind::Host => format!("host {}", outcome.value("HTTP_HOST")),
            Kind::Method => route(outcome.value("path")).to_owned(),
        }
    }
}

/// Returns the name of the route by which a path reaches the upstream.
fn route(path: &str) -> &'static str {
    if path == "/inner" || path.starts_with("/inner/") { "app" } else { "root" }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = paths().iter().map(|path| Case::new(Kind::Path, path)).collect();
    for name in FIELD_NAMES.split_whitespace() {
        for name in [name.to_owned(), name.to_ascii_uppercase()] {
            cases.push(Case::new(Kind::Fields, &format!("{name}: evil\r\n")));
        }
        cases.push(Case::new(Kind::Fields, &format!("{name}: 1\r\n{name}: evil\r\n")));
    }
    for fields in FIELDS {
        cases.push(Case::new(Kind::Fields, fields));
    }
    for host in HOSTS {
        cases.push(Case::new(Kind::Host, &format!("/ HTTP/1.1\r\nHost: {host}\r\n")));
    }
    for target_and_host in TARGETS {
        cases.push(Case::new(Kind::Host, target_and_host));
    }
    for name in TRAILERS {
        cases.push(Case::new(Kind::Trailers, &format!("{name}: evil\r\n")));
    }
    for method in METHODS {
        cases.push(Case::new(Kind::Method, method));
    }
    cases
}

/// Returns targets with all combinations of these parts.
fn paths() -> BTreeSet<String> {
    const BEFORE: [&str; 10] =
        ["/", "//", "/x/../", "/x/%2e%2E/", "/%2f", "/x/..%2f", "/\\", "/x/..;/", "/;v/", "/%252f"];
    const NAMES: [&str; 3] = ["admin", "%61pp", "x"];
    const AFTER: [&str; 19] = [
        "",
        "/",
        "//s",
        "%2Fs",
        "%2f%2Fs",
        "\\s",
        "%5Cs",
        ";v=1/s",
        "%3B/s",
        "/..;/s",
        "%00/s",
        "%252Fs",
        "/%2e%2e/s",
        "/..%2fs",
        "./s",
        "%20/s",
        "%c0%af/s",
        "%23s?a/../b",
        "/a%2Fb",
    ];
    let of_name = |name| {
        let before = BEFORE.iter();
        before.flat_map(move |before| AFTER.map(|after| format!("{before}{name}{after}")))
    };
    NAMES.into_iter().flat_map(of_name).collect()
}

const FIELD_NAMES: &str = "X-Other X_Other x.other X!other X_Forwarded_For X-Forwarded_For \
    X_Forwarded-Proto X_Forwarded_Host x.forwarded.for X-Forwarded-For X-Forwarded-Proto \
    X-Forwarded-Host X-Forwarded-Port X-Forwarded-Ssl Forwarded X-Real-IP X_Real_IP Client-Cert \
    Client_Cert X-SSL-Client-Verify SSL-Client-Cert X_SSL_Client_Verify Proxy Proxy-Authorization \
    Proxy-Connection Keep-Alive TE Upgrade Authorization Via Content_Length Transfer_Encoding \
    Content_Type Host_ Cookie";

const FIELDS: [&str; 9] = [
    "Connection: close, X-Mine\r\nX-Mine: evil\r\n",
    "Connection: close, X-Forwarded-For\r\nX-Forwarded-For: evil\r\n",
    "Connection: close, Host\r\nX-Other: evil\r\n",
    "Connection: close, X_Mine\r\nX-Mine: evil\r\n",
    "X-Other : evil\r\n",
    "X-Other: a\r\n evil\r\n",
    "X-Other: a\x0bevil\r\n",
    ": evil\r\n",
    "X-Other evil\r\n",
];

const HOSTS: [&str; 34] = [
    "h",
    "H",
    "h:80",
    "h:",
    "h.",
    ".h",
    "..",
    "a,b",
    "a, b",
    "a b",
    "",
    "h:99999",
    "h:x",
    "h:1:2",
    "[::1]",
    "[::1]:80",
    "[::1",
    "::1",
    "u@h",
    "h/x",
    "h\\x",
    "h?x",
    "h#x",
    "h%2fx",
    "h%00",
    "h;x",
    "a_b",
    "127.0.0.1",
    "h\"x",
    "<h>",
    "h|x",
    "días",
    "h\r\nHost: h",
    "h\r\nHost: evil",
];

const TARGETS: [&str; 10] = [
    "/ HTTP/1.1\r\n",
    "http://t/ HTTP/1.1\r\nHost: t\r\n",
    "http://t/ HTTP/1.1\r\nHost: h\r\n",
    "HTTP://t:80/ HTTP/1.1\r\nHost: h\r\n",
    "http://t HTTP/1.1\r\nHost: h\r\n",
    "http://u@t/ HTTP/1.1\r\nHost: h\r\n",
    "http:///x HTTP/1.1\r\nHost: h\r\n",
    "http://a,b/ HTTP/1.1\r\nHost: h\r\n",
    "ftp://t/ HTTP/1.1\r\nHost: h\r\n",
    "x HTTP/1.1\r\nHost: h\r\n",
];

const TRAILERS: [&str; 8] = [
    "X-T",
    "X_T",
    "X-Forwarded-For",
    "Forwarded",
    "Authorization",
    "Content-Type",
    "Host",
    "Client-Cert",
];

const METHODS: [&str; 10] = [
    "HEAD /admin/",
    "POST /",
    "OPTIONS /",
    "OPTIONS *",
    "TRACE /",
    "TRACE /admin/",
    "CONNECT h:1",
    "PROPFIND /",
    "GET *",
    "get /",
];

// -- differences

/// A difference between the outcomes of Weft and of another server.
struct Difference {
    servers: &'static [Server],
    kind: Kind,
    /// The subject of a case has at least one of these texts.
    subject: &'static [&'static str],
    /// Beginning of the outcome of Weft.
    weft: &'static str,
    /// Beginnings of the outcome of the other server.
    other: &'static [&'static str],
    reason: &'static str,
}

impl Difference {
    fn explains(&self, case: &Case, server: Server, weft: &str, other: &str) -> bool {
        self.servers.contains(&server)
            && self.kind == case.kind
            && self.subject.iter().any(|text| case.subject.contains(text))
            && weft.starts_with(self.weft)
            && self.other.iter().any(|start| other.starts_with(start))
    }
}

use Kind::{Fields, Host, Method, Path};
use Server::{Caddy, Nginx};

const BOTH: &[Server] = &[Nginx, Caddy];

#[rustfmt::skip]
const DIFFERENCES: &[Difference] = &[
    // Paths: Weft rejects paths that servers read in different ways.
    Difference {
        servers: &[Caddy], kind: Path, subject: &["%00"], weft: "400", other: &["root"],
        reason: "Weft and nginx reject NUL",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &["..%2f", "..;"], weft: "400",
        other: &["root", "app", "403"],
        reason: "a hidden parent segment: they decide by one reading, in which `;` is ordinary",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &["%2f", "%2F"], weft: "400", other: &["403", "app"],
        reason: "they decode %2F before they choose the route, and Weft rejects the ambiguity",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &["\\", "%5C"], weft: "400", other: &["root"],
        reason: "for them a backslash is an ordinary byte, but not for the URL class of Node",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &[";", "%3B"], weft: "400", other: &["root"],
        reason: "for them a semicolon is an ordinary byte, but not for servlet containers",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &["/x/..%2f"], weft: "root", other: &["root"],
        reason: "a `%2e%2e` removes the segment before it, which has the encoded slash",
    },
    Difference {
        servers: BOTH, kind: Path, subject: &["\\", "%c0%af"], weft: "root", other: &["root"],
        reason: "Weft forwards the normalized path, which Node reads in another way",
    },
    Difference {
        servers: &[Caddy], kind: Path, subject: &["/x/%2e%2E/"], weft: "app", other: &["app"],
        reason: "Caddy removes the prefix from the path as it was sent",
    },

    // Fields: Weft drops those by which a client could claim to be somebody else.
    Difference {
        servers: &[Caddy], kind: Fields, subject: &["_", ".", "!"], weft: "seen",
        other: &["seen HTTP_"],
        reason: "names that upstreams fold; nginx drops them, too",
    },
    Difference {
        servers: BOTH, kind: Fields,
        subject: &["X-Forwarded-", "X-FORWARDED-", "Forwarded:", "FORWARDED:"], weft: "seen",
        other: &["seen HTTP_X_FORWARDED_", "seen HTTP_FORWARDED"],
        reason: "they replace some of these fields only, nginx as configured",
    },
    Difference {
        servers: BOTH, kind: Fields, subject: &["X-Real-IP", "X-REAL-IP"], weft: "seen",
        other: &["seen HTTP_X_REAL_IP"],
        reason: "they forward claims about the client's address",
    },
    Difference {
        servers: BOTH, kind: Fields, subject: &["Client-Cert", "CLIENT-CERT", "SSL-"],
        weft: "seen", other: &["seen HTTP_CLIENT_CERT", "seen HTTP_X_SSL_", "seen HTTP_SSL_"],
        reason: "they forward claims about certificates",
    },
    Difference {
        servers: BOTH, kind: Fields, subject: &["Proxy:", "PROXY:"], weft: "seen",
        other: &["seen HTTP_PROXY"],
        reason: "CGI programs mistake it for a setting (httpoxy)",
    },
    Difference {
        servers: &[Nginx], kind: Fields, subject: &["Proxy-", "PROXY-", "X-Mine"], weft: "seen",
        other: &["seen HTTP_"],
        reason: "nginx forwards hop-by-hop fields, and those that Connection names",
    },
    Difference {
        servers: &[Nginx], kind: Fields, subject: &["Authorization: 1"],
        weft: "seen HTTP_AUTHORIZATION", other: &["400"],
        reason: "nginx rejects this field if it is repeated",
    },
    Difference {
        servers: &[Caddy], kind: Fields, subject: &["\\r\\n evil", ": evil"], weft: "400",
        other: &["seen"],
        reason: "Caddy accepts folded fields, and fields without a name",
    },
    Difference {
        servers: &[Nginx], kind: Fields, subject: &["\\u{b}"], weft: "400", other: &["seen"],
        reason: "nginx accepts control characters in values",
    },

    // Hosts: RFC 9112 §3.2 requires 400 for an invalid one.
    Difference {
        servers: BOTH, kind: Host, subject: &["a,b"], weft: "400", other: &["host a,b"],
        reason: "a comma, as of two joined fields",
    },
    Difference {
        servers: BOTH, kind: Host,
        subject: &[
            "h:99999", "h:x", "h:1:2", "[::1", "::1", "u@h", "h\\\\x", "h?x", "h#x", "h\\\"x", "<h>",
            "h|x", "días",
        ],
        weft: "400", other: &["host "],
        reason: "not a host and a port",
    },
    Difference {
        servers: &[Nginx], kind: Host, subject: &["Host: ..", "Host: \\r\\n"], weft: "host ",
        other: &["400"],
        reason: "valid for RFC 9112, and no route of a host name matches",
    },
    Difference {
        servers: &[Nginx], kind: Host, subject: &["http://t", "HTTP://t"], weft: "host t",
        other: &["host h"],
        reason: "nginx is configured to forward the field, not the authority of the target",
    },
    Difference {
        servers: BOTH, kind: Host, subject: &["http://u@t/", "http:///x", "ftp://"], weft: "400",
        other: &["host "],
        reason: "user information, no authority, another scheme",
    },

    // Methods.
    Difference {
        servers: BOTH, kind: Method, subject: &["OPTIONS *"], weft: "204", other: &["400", "200"],
        reason: "applies to the server as a whole",
    },
    Difference {
        servers: BOTH, kind: Method, subject: &["TRACE"], weft: "40", other: &["root", "405"],
        reason: "Caddy forwards it; nginx rejects it before the route does",
    },
    Difference {
        servers: BOTH, kind: Method, subject: &["CONNECT"], weft: "501", other: &["400", "root", "502"],
        reason: "a reverse proxy does not implement it",
    },
    Difference {
        servers: &[Caddy], kind: Method, subject: &["GET *"], weft: "400", other: &["root"],
        reason: "the asterisk belongs to OPTIONS",
    },
    Difference {
        servers: &[Nginx], kind: Method, subject: &["get /"], weft: "root", other: &["400"],
        reason: "nginx rejects methods in lower case",
    },
];

/// Returns what the upstream must not see, if it sees it.
fn violation(case: &Case, outcome: &Outcome) -> Option<&'static str> {
    const PROTECTED: [&str; 8] = [
        "HTTP_X_FORWARDED_",
        "HTTP_FORWARDED",
        "HTTP_CLIENT_CERT",
        "HTTP_X_SSL_",
        "HTTP_SSL_",
        "HTTP_PROXY",
        "HTTP_CONTENT_LENGTH",
        "TRAILER_",
    ];
    let seen = outcome.seen.as_ref()?;
    let is_protected = |(name, value): &(String, String)| {
        value.contains("evil") && PROTECTED.iter().any(|prefix| name.starts_with(prefix))
    };
    if seen.iter().any(is_protected) {
        return Some("the upstream sees a field about the client that the client has sent");
    }
    let (path, target) = (outcome.value("path"), outcome.value("target"));
    let is_below = |prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if case.kind == Kind::Path && (is_below("/admin") || is_below("/app")) {
        return Some("the upstream sees a path of another route");
    }
    (target.starts_with("/inner") && !is_below("/inner")).then_some("the path leaves its prefix")
}

#[test]
fn differs_from_nginx_and_caddy_only_with_a_reason() {
    // All of them, so that each missing one is reported.
    if ["nginx", "caddy", "python3", "node", "go"].map(has_tool).contains(&false) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [python_file, node_file] = ["app.py", "app.js"].map(|name| folder.path().join(name));
    fs::write(&python_file, PYTHON).unwrap();
    fs::write(&node_file, NODE).unwrap();
    let (_python, python) = start_upstream(Command::new("python3").arg(python_file));
    let (_node, node) = start_upstream(Command::new("node").arg(node_file));
    let (_go, go) = start_upstream(&mut Command::new(build_go(folder.path())));
    let cases = cases();
    let upstreams = [("python", python, 8000), ("node", node, 8002), ("go", go, 8004)];
    let results = std::thread::scope(|scope| {
        let threads = upstreams.map(|(name, upstream, port)| {
            let own = folder.path().join(name);
            fs::create_dir(&own).unwrap();
            let cases = &cases;
            scope.spawn(move || compare(name, &start_servers(&own, upstream, port), cases))
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let (reports, used): (Vec<String>, Vec<BTreeSet<usize>>) = results.into_iter().unzip();
    let (mut report, used) =
        (reports.concat(), used.into_iter().flatten().collect::<BTreeSet<_>>());
    for (index, difference) in DIFFERENCES.iter().enumerate() {
        if !used.contains(&index) {
            writeln!(report, "does not occur: {}", difference.reason).unwrap();
        }
    }
    assert!(report.is_empty(), "{} cases:\n{report}", cases.len());
}

/// Sends all cases to the servers in front of an upstream. Returns the violations and differences
/// without a reason, and the indexes of the differences with one.
fn compare(upstream: &str, servers: &Servers, cases: &[Case]) -> (String, BTreeSet<usize>) {
    let (mut report, mut used) = (String::new(), BTreeSet::new());
    // WSGI has no trailers.
    let cases = cases.iter().filter(|case| upstream != "python" || case.kind != Kind::Trailers);
    for case in cases {
        let label = format!("{upstream} {:?} {}", case.kind, case.subject);
        let outcome = send(servers.weft, &case.request);
        let weft = case.summary(&outcome);
        if let Some(violation) = violation(case, &outcome) {
            writeln!(report, "{label}: {violation}: {weft}").unwrap();
        }
        for (server, address) in servers.others {
            let other = case.summary(&send(address, &case.request));
            let explains = |it: &Difference| it.explains(case, server, &weft, &other);
            match DIFFERENCES.iter().position(explains) {
                _ if other == weft => {}
                Some(index) => drop(used.insert(index)),
                None => writeln!(report, "{label}: Weft {weft:?}, {server:?} {other:?}").unwrap(),
            }
        }
    }
    (report, used)
}
