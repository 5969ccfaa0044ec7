//! Request → meta-variables of RFC 3875 §4.1. Pure.

use std::borrow::Cow;
use std::path::Path;

use weft::Request;
use weft::header::HeaderValue;
use weft::message::Version;
use weft::middleware::User;
use weft::net::IpNetwork;
use weft::path::{clean, decode};
use weft::tls::certificate;
use weft_proto::fastcgi::{pair, pairs};
use weft_proto::names::is_same_name;

use super::script_file::Script;
use super::script_head::HOP_BY_HOP_FIELDS;
use crate::base::decimal::{push_address, push_number};
use crate::head::client_certificate::{is_from_trusted_proxy, pem};
use crate::head::field_filter::describes_client;
use crate::head::request_fields::RequestFields;
use crate::sys::bytes_of;

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
#[non_exhaustive]
pub enum Credentials {
    /// Not passed to a script: other users of the system may see the environment of its process.
    Withheld,
    /// Passed to an application, which authenticates its users itself.
    Passed,
}

/// Properties of a route that decide which variables its scripts get.
#[derive(Clone, Copy, Debug)]
pub struct VariableRules<'a> {
    /// Handling of the credentials of the client.
    pub credentials: Credentials,
    /// Proxies that have verified the certificates of their clients. The TLS session of such a
    /// connection is the session of the proxy, not of the client.
    pub trusted_proxies: &'a [IpNetwork],
}

/// Meta-variables, in one buffer: most requests have twenty, and an allocation for each of them
/// would cost more than their text. The buffer has the pairs of FastCGI, which are sent as they
/// are.
pub struct MetaVariables {
    text: Vec<u8>,
    /// Start of the variables in `text`.
    start: usize,
}

/// Space for the variables of most requests, in bytes.
const USUAL_BYTES: usize = 1 << 10;

impl MetaVariables {
    /// Adds a variable.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.set_with(name, |text| text.extend_from_slice(value));
    }

    /// Adds a variable with the value that `write` appends.
    fn set_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        pair(&mut self.text, name.len(), |text| {
            text.extend_from_slice(name.as_bytes());
            write(text);
        });
    }

    /// Adds the variable of a field (RFC 3875 §4.1.18).
    fn set_field(&mut self, name: &[u8], write: impl FnOnce(&mut Vec<u8>)) {
        const PREFIX: &[u8] = b"HTTP_";
        let byte = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        pair(&mut self.text, PREFIX.len() + name.len(), |text| {
            text.extend_from_slice(PREFIX);
            text.extend(name.iter().map(byte));
            write(text);
        });
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        pairs(&self.text[self.start..])
    }

    /// Returns the buffer, with the variables as pairs of FastCGI.
    pub fn into_text(self) -> Vec<u8> {
        self.text
    }
}

/// Returns the variables for a request to `script`. `length` is the length of the request's body,
/// if it has one.
pub fn meta_variables(
    request: &Request,
    script: &Script,
    length: Option<u64>,
    rules: &VariableRules<'_>,
) -> MetaVariables {
    meta_variables_in(Vec::with_capacity(USUAL_BYTES), request, script, length, rules)
}

/// Acts as [`meta_variables`], and puts the variables behind the bytes of a buffer.
pub fn meta_variables_in(
    text: Vec<u8>,
    request: &Request,
    script: &Script,
    length: Option<u64>,
    rules: &VariableRules<'_>,
) -> MetaVariables {
    let mut variables = MetaVariables { start: text.len(), text };
    let set = &mut variables;
    let authority = request.authority();
    set.set("GATEWAY_INTERFACE", b"CGI/1.1");
    set.set("SERVER_SOFTWARE", concat!("weft/", env!("CARGO_PKG_VERSION")).as_bytes());
    set.set("SERVER_PROTOCOL", protocol(request.version()));
    // §4.1.14 requires a value.
    let host = request.host().filter(|host| !host.is_empty());
    set.set("SERVER_NAME", host.unwrap_or("localhost").as_bytes());
    set.set("SERVER_PORT", port(authority, request.is_secure()));
    set.set("REQUEST_METHOD", request.method().as_str().as_bytes());
    set.set("REQUEST_SCHEME", request.scheme().as_bytes());
    set.set("REQUEST_URI", request_uri(request.target()).as_bytes());
    set.set("QUERY_STRING", request.query().unwrap_or_default().as_bytes());
    set_paths(set, request, script);
    match request.peer().address() {
        Some(address) => {
            set.set_with("REMOTE_ADDR", |text| push_address(text, address.ip().to_canonical()));
            set.set_with("REMOTE_PORT", |text| push_number(text, address.port().into()));
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
        set.set_with("CONTENT_LENGTH", |text| push_number(text, length));
    }
    if let Some(content_type) = request.headers().get_bytes("content-type") {
        set.set("CONTENT_TYPE", content_type);
    }
    // The target's authority takes precedence over `Host` (RFC 9112 §3.2.2).
    let own = RequestFields::of(request).and_then(RequestFields::host).map(HeaderValue::as_bytes);
    if let Some(host) = own.or(authority.map(str::as_bytes)) {
        set.set("HTTP_HOST", host);
    }
    set_fields(set, request, is_from_proxy, rules.credentials);
    variables
}

/// Adds the variables with the path of the request and the path of the script.
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
    bytes_of(path.as_os_str())
}

/// Returns the protocol of a request (§4.1.16).
fn protocol(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_10 => b"HTTP/1.0",
        Version::HTTP_2 => b"HTTP/2.0",
        Version::HTTP_3 => b"HTTP/3.0",
        _ => b"HTTP/1.1",
    }
}

/// Returns the port that the client sent a request to (§4.1.15).
fn port(authority: Option<&str>, is_secure: bool) -> &[u8] {
    let authority = authority.unwrap_or_default().as_bytes();
    let colon = authority.iter().rposition(|&b| b == b':');
    let port = colon.map(|colon| &authority[colon + 1..]);
    let port = port.filter(|port| !port.is_empty() && port.iter().all(u8::is_ascii_digit));
    port.unwrap_or(if is_secure { b"443" } else { b"80" })
}

/// Returns path and query of a request target, with the normalized path. The rules of routes were
/// applied to this path, and a script that routes by itself must not see another path.
fn request_uri(target: &str) -> Cow<'_, str> {
    let sent = origin_form(target);
    let (path, query) = sent.split_at(sent.find('?').unwrap_or(sent.len()));
    clean(path).map_or(sent.into(), |path| (path + query).into())
}

/// Returns path and query of a request target, as sent by the client.
fn origin_form(target: &str) -> &str {
    match target.split_once("://") {
        _ if target.starts_with('/') => target,
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => target,
    }
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
    let is_passed = |name: &[u8]| {
        // `X_Y` would map to the same variable as `X-Y`, which a proxy in front of this server may
        // have validated.
        let is_unambiguous = name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-');
        let mut excluded = EXCLUDED_FIELDS.iter().chain(&HOP_BY_HOP_FIELDS);
        let is_withheld =
            credentials == Credentials::Withheld && is_same_name(name, b"authorization");
        // Only a trusted proxy may describe its client. `REMOTE_ADDR` and others describe the sender.
        let is_excluded = is_withheld
            || excluded.any(|excluded| is_same_name(excluded.as_bytes(), name))
            || !is_from_proxy && (is_same_name(name, b"forwarded") || describes_client(name))
            || changes.is_some_and(|changes| changes.replaces(name));
        let is_name = |option: &[u8]| is_same_name(option, name);
        is_unambiguous && !is_excluded && !(has_options && headers.list("connection").any(is_name))
    };
    for (index, (name, value)) in headers.iter_bytes().enumerate() {
        let is_same = |other: &(&[u8], &[u8])| is_same_name(other.0, name);
        if !is_passed(name) || headers.iter_bytes().take(index).any(|field| is_same(&field)) {
            continue;
        }
        // RFC 9110 §5.3; RFC 6265 §5.4 for cookies.
        let separator = if is_same_name(name, b"cookie") { b"; " } else { b", " };
        variables.set_field(name, |text| {
            text.extend_from_slice(value);
            for (_, value) in headers.iter_bytes().skip(index + 1).filter(is_same) {
                text.extend_from_slice(separator);
                text.extend_from_slice(value);
            }
        });
    }
    for (name, value) in changes.into_iter().flat_map(RequestFields::iter) {
        variables.set_field(name.as_str().as_bytes(), |text| {
            text.extend_from_slice(value.as_bytes());
        });
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
            ("X_Team: evil\r\nX-Team: good\r\nX.Y: evil", "HTTP_X_TEAM=good"),
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

    /// A client on a Unix socket is a trusted proxy if there are any.
    #[test]
    fn only_a_trusted_proxy_describes_its_client() {
        let script =
            Script { file: "/a".into(), root: "/".into(), name: Vec::new(), path_info: Vec::new() };
        let trusted = ["10.0.0.0/8".parse().unwrap()];
        for name in [
            "Forwarded",
            "X-Forwarded-For",
            "x-forwarded-proto",
            "X-Forwarded-Anything",
            "X-Real-IP",
            "Client-IP",
            "CF-Connecting-IP",
            "X-Original-URL",
            "X-Rewrite-URL",
            "X-Accel-Mapping",
            "Client-Cert",
        ] {
            let request =
                testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: b\r\n\r\n"));
            for (trusted_proxies, is_passed) in [(&[][..], false), (&trusted, true)] {
                let rules = VariableRules { trusted_proxies, ..RULES };
                let variables = meta_variables(&request, &script, None, &rules);
                let names = variables.iter().map(|(name, _)| name);
                let fields = names.filter(|it| it.starts_with(b"HTTP_") && *it != b"HTTP_HOST");
                assert_eq!(fields.count(), usize::from(is_passed), "{name}");
            }
        }
    }

    #[test]
    fn the_uri_has_the_path_that_rules_apply_to() {
        for (target, expected) in [
            ("/a/b?c=/../d", "/a/b?c=/../d"),
            ("/a%20b/%C3%A9", "/a%20b/%C3%A9"),
            ("/admin/../x", "/x"),
            ("/admin/%2e%2e/x?a//b", "/x?a//b"),
            ("/admin/%2E./x", "/x"),
            ("//x", "/x"),
            ("/a/./b/", "/a/b/"),
            ("/..%2Fx", "/..%2Fx"),
            ("http://h/admin/../x?q", "/x?q"),
            ("http://h?q", "?q"),
            ("*", "*"),
        ] {
            assert_eq!(request_uri(target), expected, "{target}");
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
