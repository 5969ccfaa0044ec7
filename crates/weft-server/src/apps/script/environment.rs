//! Request → meta-variables of RFC 3875 §4.1. Pure.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weft::middleware::User;
use weft::path::decode;
use weft::tls::certificate;
use weft::{Network, Request};

use super::super::client_certificate::{is_certificate_field, is_from_trusted_proxy, pem};
use super::super::request_fields::RequestFields;
use super::head::HOP_BY_HOP_FIELDS;
use super::lookup::Script;

/// Fields that scripts do not get, besides the hop-by-hop fields: fields that have a variable of
/// their own, and `Proxy`, because many programs use `HTTP_PROXY` as a setting.
const EXCLUDED_FIELDS: [&str; 5] = ["content-length", "content-type", "expect", "host", "proxy"];

/// Reads a part of a certificate in DER.
type ReadText = fn(&[u8]) -> Option<String>;

/// Variables of mod_ssl with a part of the certificate of the client.
const CERTIFICATE_VARIABLES: [(&str, ReadText); 3] = [
    ("SSL_CLIENT_S_DN", certificate::subject),
    ("SSL_CLIENT_I_DN", certificate::issuer),
    ("SSL_CLIENT_M_SERIAL", certificate::serial_number),
];

/// Handling of the credentials of the client (RFC 3875 §4.1.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Not passed to a script: other users of the system may see the environment of its process.
    Withheld,
    /// Passed to an application, which authenticates its users itself.
    Passed,
}

/// Properties of a route that decide which variables its scripts get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariableRules<'a> {
    pub(crate) credentials: Credentials,
    /// Proxies that have their clients' certificates verified: the TLS session of such a connection
    /// is not that of the client.
    pub(crate) trusted_proxies: &'a [Network],
}

/// Meta-variables, in one buffer: most requests have twenty, and an allocation for each of them would
/// cost more than their text.
pub(crate) struct MetaVariables {
    text: Vec<u8>,
    /// The ends of the name and of the value of each variable in `text`.
    ends: Vec<(usize, usize)>,
}

impl MetaVariables {
    fn new() -> MetaVariables {
        MetaVariables { text: Vec::with_capacity(1 << 10), ends: Vec::with_capacity(32) }
    }

    /// Adds a variable.
    pub(crate) fn set(&mut self, name: &str, value: &[u8]) {
        self.set_with(name, |text| text.extend_from_slice(value));
    }

    fn set_display(&mut self, name: &str, value: impl Display) {
        // Writing to a vector cannot fail.
        self.set_with(name, |text| drop(write!(text, "{value}")));
    }

    /// Adds a variable with the value that `write` appends.
    fn set_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.text.extend_from_slice(name.as_bytes());
        self.end_name(write);
    }

    /// Adds the variable of a field (RFC 3875 §4.1.18).
    fn set_field(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let byte = |byte: u8| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        self.text.extend_from_slice(b"HTTP_");
        self.text.extend(name.bytes().map(byte));
        self.end_name(write);
    }

    fn end_name(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let name_end = self.text.len();
        write(&mut self.text);
        self.ends.push((name_end, self.text.len()));
    }

    /// Returns names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(name_end, end)| {
            let start = std::mem::replace(&mut start, end);
            (&self.text[start..name_end], &self.text[name_end..end])
        })
    }
}

/// Returns the variables for a request to `script`. `length` is the length of the request's body,
/// if it has one.
pub(crate) fn meta_variables(
    request: &Request,
    script: &Script,
    length: Option<u64>,
    rules: &VariableRules<'_>,
) -> MetaVariables {
    let mut variables = MetaVariables::new();
    let set = &mut variables;
    let (host, port) = server(request);
    set.set("GATEWAY_INTERFACE", b"CGI/1.1");
    set.set("SERVER_SOFTWARE", concat!("weft/", env!("CARGO_PKG_VERSION")).as_bytes());
    set.set_display("SERVER_PROTOCOL", format_args!("{:?}", request.version()));
    set.set("SERVER_NAME", host.as_bytes());
    set.set("SERVER_PORT", port.as_bytes());
    set.set("REQUEST_METHOD", request.method().as_str().as_bytes());
    set.set("REQUEST_SCHEME", request.scheme().as_bytes());
    set.set("REQUEST_URI", origin_form(request.target()).as_bytes());
    set.set("QUERY_STRING", request.query().unwrap_or_default().as_bytes());
    set_paths(set, request, script);
    match request.peer().address() {
        Some(address) => {
            set.set_display("REMOTE_ADDR", address.ip().to_canonical());
            set.set_display("REMOTE_PORT", address.port());
        }
        // §4.1.8 requires a value. A client on a Unix socket has no address, and must not be taken
        // for a client on the loopback interface.
        None => set.set("REMOTE_ADDR", b"unix:"),
    }
    if request.is_secure() {
        set.set("HTTPS", b"on");
    }
    let is_from_proxy = is_from_trusted_proxy(request, rules.trusted_proxies);
    if !is_from_proxy {
        set_certificate(set, request);
    }
    if let Some(user) = request.extensions().get::<User>() {
        set.set("REMOTE_USER", user.as_str().as_bytes());
        set.set("AUTH_TYPE", auth_type(request));
    }
    if let Some(length) = length {
        set.set_display("CONTENT_LENGTH", length);
    }
    if let Some(content_type) = request.headers().get_bytes("content-type") {
        set.set("CONTENT_TYPE", content_type);
    }
    // The target's authority takes precedence over `Host` (RFC 9112 §3.2.2).
    if let Some(authority) = request.authority() {
        set.set("HTTP_HOST", authority.as_bytes());
    }
    set_fields(set, request, is_from_proxy, rules.credentials);
    variables
}

/// Adds the variables with the path of the request and that of the script.
fn set_paths(variables: &mut MetaVariables, request: &Request, script: &Script) {
    let mount = decode(request.mount().as_bytes());
    let (file, root) = (path_bytes(&script.file), path_bytes(&script.root));
    let mut set = |name: &str, parts: [&[u8]; 2]| {
        variables.set_with(name, |text| parts.iter().for_each(|part| text.extend_from_slice(part)));
    };
    set("SCRIPT_NAME", [&mount, &script.name]);
    if !file.is_empty() {
        set("SCRIPT_FILENAME", [file, b""]);
        set("DOCUMENT_ROOT", [root, b""]);
    }
    if !script.path_info.is_empty() {
        set("PATH_INFO", [&script.path_info, b""]);
        if !root.is_empty() {
            set("PATH_TRANSLATED", [root, &script.path_info]);
        }
    }
}

/// Adds the variables of the certificate of the client, as mod_ssl of Apache sets them.
fn set_certificate(variables: &mut MetaVariables, request: &Request) {
    let Some(session) = request.peer().tls() else { return };
    let certificate = session.peer_certificates().first();
    variables.set("SSL_CLIENT_VERIFY", if certificate.is_some() { b"SUCCESS" } else { b"NONE" });
    let Some(certificate) = certificate else { return };
    variables.set("SSL_CLIENT_CERT", pem(certificate).as_bytes());
    for (name, read) in CERTIFICATE_VARIABLES {
        if let Some(value) = read(certificate) {
            variables.set(name, value.as_bytes());
        }
    }
}

/// Returns the scheme of the credentials by which a user was authenticated (§4.1.1).
fn auth_type(request: &Request) -> &'static [u8] {
    let credentials = request.headers().get_bytes("authorization").unwrap_or_default();
    match credentials.get(..6) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"bearer") => b"Bearer",
        _ => b"Basic",
    }
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Returns the host name and the port that the client sent the request to (§4.1.14, §4.1.15).
fn server(request: &Request) -> (&str, &str) {
    let authority = request.authority().unwrap_or_default();
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let port = port.filter(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let default_port = if request.is_secure() { "443" } else { "80" };
    let host = request.host().filter(|host| !host.is_empty());
    (host.unwrap_or("localhost"), port.unwrap_or(default_port))
}

/// Returns path and query of a request target, as sent by the client.
fn origin_form(target: &str) -> &str {
    let Some((_, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        return target;
    };
    rest.find(['/', '?']).map_or("/", |at| &rest[at..])
}

/// Adds the request's fields as `HTTP_…` variables (§4.1.18).
fn set_fields(
    variables: &mut MetaVariables,
    request: &Request,
    is_from_proxy: bool,
    credentials: Credentials,
) {
    let headers = request.headers();
    let changes = RequestFields::of(request);
    let has_options = headers.get_bytes("connection").is_some();
    let is_passed = |name: &str| {
        // `X_Y` would map to the same variable as `X-Y`, which a proxy in front of this server may
        // have validated.
        let is_unambiguous = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let mut excluded = EXCLUDED_FIELDS.iter().chain(&HOP_BY_HOP_FIELDS);
        let is_withheld =
            credentials == Credentials::Withheld && name.eq_ignore_ascii_case("authorization");
        // The server or a trusted proxy has verified the certificate, and the client did not.
        let is_excluded = is_withheld
            || excluded.any(|excluded| excluded.eq_ignore_ascii_case(name))
            || !is_from_proxy && is_certificate_field(name.as_bytes())
            || changes.is_some_and(|changes| changes.replaces(name.as_bytes()));
        let is_name = |option: &[u8]| option.eq_ignore_ascii_case(name.as_bytes());
        is_unambiguous && !is_excluded && !(has_options && headers.list("connection").any(is_name))
    };
    for (index, (name, value)) in headers.iter().enumerate() {
        let is_same = |other: &(&str, &[u8])| other.0.eq_ignore_ascii_case(name);
        if !is_passed(name) || headers.iter().take(index).any(|field| is_same(&field)) {
            continue;
        }
        // RFC 9110 §5.3; RFC 6265 §5.4 for cookies.
        let separator = if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
        variables.set_field(name, |text| {
            text.extend_from_slice(value);
            for (_, value) in headers.iter().skip(index + 1).filter(is_same) {
                text.extend_from_slice(separator);
                text.extend_from_slice(value);
            }
        });
    }
    for (name, value) in changes.into_iter().flat_map(RequestFields::iter) {
        variables.set_field(name.as_str(), |text| text.extend_from_slice(value.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::testing;

    const RULES: VariableRules<'_> =
        VariableRules { credentials: Credentials::Withheld, trusted_proxies: &[] };

    /// Variables that differ between requests, after removing the constant ones.
    fn variables(head: &str, mount: usize, length: Option<u64>) -> Vec<String> {
        let mut request = testing::request(format!("{head}\r\n\r\n"));
        request.take_prefix(mount);
        let script = Script {
            file: "/srv/cgi/in/a.cgi".into(),
            root: "/srv/cgi".into(),
            name: b"/in/a.cgi".to_vec(),
            path_info: b"/x y".to_vec(),
        };
        let text = |bytes: &[u8]| str::from_utf8(bytes).unwrap().to_owned();
        let mut variables: Vec<String> = meta_variables(&request, &script, length, &RULES)
            .iter()
            .map(|(name, value)| format!("{}={}", text(name), text(value)))
            .collect();
        for always in [
            "GATEWAY_INTERFACE=CGI/1.1",
            concat!("SERVER_SOFTWARE=weft/", env!("CARGO_PKG_VERSION")),
            "REQUEST_SCHEME=http",
            "SCRIPT_FILENAME=/srv/cgi/in/a.cgi",
            "DOCUMENT_ROOT=/srv/cgi",
            "PATH_INFO=/x y",
            "PATH_TRANSLATED=/srv/cgi/x y",
            "REMOTE_ADDR=unix:",
        ] {
            let at = variables.iter().position(|variable| variable == always).expect(always);
            variables.remove(at);
        }
        variables
    }

    #[test]
    fn sets_variables_from_request_line_and_host() {
        for (head, mount, length, expected) in [
            (
                "GET /in/a.cgi/x%20y HTTP/1.1\r\nHost: Example.org:8080",
                0,
                None,
                "SERVER_PROTOCOL=HTTP/1.1|SERVER_NAME=Example.org|SERVER_PORT=8080|\
                 REQUEST_METHOD=GET|REQUEST_URI=/in/a.cgi/x%20y|QUERY_STRING=|\
                 SCRIPT_NAME=/in/a.cgi|HTTP_HOST=Example.org:8080",
            ),
            (
                "GET /in/a.cgi HTTP/1.0",
                0,
                None,
                "SERVER_PROTOCOL=HTTP/1.0|SERVER_NAME=localhost|SERVER_PORT=80|\
                 REQUEST_METHOD=GET|REQUEST_URI=/in/a.cgi|QUERY_STRING=|SCRIPT_NAME=/in/a.cgi",
            ),
            (
                "POST /my%20cgi/in/a.cgi?a=%20b+c HTTP/1.1\r\nHost: [::1]\r\nContent-Type: text/plain",
                9,
                Some(0),
                "SERVER_PROTOCOL=HTTP/1.1|SERVER_NAME=[::1]|SERVER_PORT=80|REQUEST_METHOD=POST|\
                 REQUEST_URI=/my%20cgi/in/a.cgi?a=%20b+c|QUERY_STRING=a=%20b+c|\
                 SCRIPT_NAME=/my cgi/in/a.cgi|CONTENT_LENGTH=0|CONTENT_TYPE=text/plain|\
                 HTTP_HOST=[::1]",
            ),
            // The authority of the target takes precedence over `Host`.
            (
                "GET http://b:81/in/a.cgi?q HTTP/1.1\r\nHost: a",
                0,
                None,
                "SERVER_PROTOCOL=HTTP/1.1|SERVER_NAME=b|SERVER_PORT=81|REQUEST_METHOD=GET|\
                 REQUEST_URI=/in/a.cgi?q|QUERY_STRING=q|SCRIPT_NAME=/in/a.cgi|HTTP_HOST=b:81",
            ),
        ] {
            assert_eq!(variables(head, mount, length).join("|"), expected, "{head}");
        }
    }

    #[test]
    fn maps_fields_to_variables() {
        for (fields, expected) in [
            ("Accept: a\r\naccept: b\r\nACCEPT: c", "HTTP_ACCEPT=a, b, c"),
            ("Cookie: a=1\r\nCookie: b=2", "HTTP_COOKIE=a=1; b=2"),
            ("X-Odd: =\"$(x)\\", "HTTP_X_ODD==\"$(x)\\"),
            // httpoxy, and names that map to the variable of another field.
            ("Proxy: evil:80\r\nPROXY: evil:80", ""),
            ("X_Real_IP: evil\r\nX-Real-IP: good\r\nX.Y: evil", "HTTP_X_REAL_IP=good"),
            ("Client-Cert: :AA==:\r\nX-SSL-Client-Verify: SUCCESS\r\nSSL-Client-S-DN: x", ""),
            ("Authorization: Basic x\r\nProxy-Authorization: Basic x", ""),
            ("Content-Length: 0\r\nExpect: 100-continue\r\nTE: trailers\r\nTrailer: x", ""),
            ("Connection: X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c", ""),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}");
            let variables = variables(&head, 0, None);
            let from_fields = variables.iter().filter(|variable| variable.starts_with("HTTP_"));
            let from_fields: Vec<&str> = from_fields
                .map(String::as_str)
                .filter(|it| !it.starts_with("HTTP_HOST="))
                .collect();
            assert_eq!(from_fields.join("|"), expected, "{fields}");
        }
    }

    #[test]
    fn sets_remote_address_and_port() {
        let script =
            Script { file: "/a".into(), root: "/".into(), name: Vec::new(), path_info: Vec::new() };
        for (address, expected) in [
            ("192.0.2.1:5", ["192.0.2.1", "5"]),
            ("[::ffff:192.0.2.1]:5", ["192.0.2.1", "5"]),
            ("[2001:db8::1]:6", ["2001:db8::1", "6"]),
        ] {
            let mut request = testing::request("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            request.set_peer(address.parse().unwrap());
            let variables = meta_variables(&request, &script, None, &RULES);
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name.as_bytes());
                found.map(|(_, value)| str::from_utf8(value).unwrap())
            };
            assert_eq!(["REMOTE_ADDR", "REMOTE_PORT"].map(get), expected.map(Some));
            // An empty `PATH_INFO` has no translation (RFC 3875 §4.1.6).
            assert_eq!(
                (get("PATH_INFO"), get("PATH_TRANSLATED"), get("HTTPS")),
                (None, None, None)
            );
        }
    }

    #[test]
    fn sets_the_authenticated_user() {
        let script =
            Script { file: "/a".into(), root: "/".into(), name: Vec::new(), path_info: Vec::new() };
        for (credentials, user, expected) in [
            ("Basic YTpi", Some("a"), [Some("a"), Some("Basic")]),
            ("bearer x", Some("b c"), [Some("b c"), Some("Bearer")]),
            // Not authenticated by this server.
            ("Basic YTpi", None, [None, None]),
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: {credentials}\r\n\r\n");
            let mut request = testing::request(head);
            if let Some(user) = user {
                request.extensions_mut().insert(User::new(user));
            }
            let variables = meta_variables(&request, &script, None, &RULES);
            let get = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name.as_bytes());
                found.map(|(_, value)| str::from_utf8(value).unwrap())
            };
            assert_eq!(["REMOTE_USER", "AUTH_TYPE"].map(get), expected, "{credentials}");
            assert_eq!(get("HTTP_AUTHORIZATION"), None);
        }
    }
}
