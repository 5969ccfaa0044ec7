//! Request → meta-variables of RFC 3875 §4.1. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

/// Name and value of a meta-variable.
pub(crate) type MetaVariable = (String, OsString);

/// Returns the variables for a request to `script`. `length` is the length of the request's body,
/// if it has one.
pub(crate) fn meta_variables(
    request: &Request,
    script: &Script,
    length: Option<u64>,
    rules: &VariableRules<'_>,
) -> Vec<MetaVariable> {
    let mut variables = Vec::with_capacity(32);
    let mut set = |name: &str, value: &[u8]| {
        variables.push((name.to_owned(), OsStr::from_bytes(value).to_owned()));
    };
    let (host, port) = server(request);
    let mount = decode(request.mount().as_bytes());
    let (file, root) = (path_bytes(&script.file), path_bytes(&script.root));
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set("SERVER_SOFTWARE", concat!("weft/", env!("CARGO_PKG_VERSION")).as_bytes());
    set("SERVER_PROTOCOL", format!("{:?}", request.version()).as_bytes());
    set("SERVER_NAME", host.as_bytes());
    set("SERVER_PORT", port.as_bytes());
    set("REQUEST_METHOD", request.method().as_str().as_bytes());
    set("REQUEST_SCHEME", request.scheme().as_bytes());
    set("REQUEST_URI", origin_form(request.target()).as_bytes());
    set("QUERY_STRING", request.query().unwrap_or_default().as_bytes());
    set("SCRIPT_NAME", &[&*mount, &script.name].concat());
    if !file.is_empty() {
        set("SCRIPT_FILENAME", file);
        set("DOCUMENT_ROOT", root);
    }
    if !script.path_info.is_empty() {
        set("PATH_INFO", &script.path_info);
        if !root.is_empty() {
            set("PATH_TRANSLATED", &[root, &script.path_info].concat());
        }
    }
    match request.peer().address() {
        Some(address) => {
            set("REMOTE_ADDR", address.ip().to_canonical().to_string().as_bytes());
            set("REMOTE_PORT", address.port().to_string().as_bytes());
        }
        // §4.1.8 requires a value. A client on a Unix socket has no address, and must not be taken
        // for a client on the loopback interface.
        None => set("REMOTE_ADDR", b"unix:"),
    }
    if request.is_secure() {
        set("HTTPS", b"on");
    }
    let is_from_proxy = is_from_trusted_proxy(request, rules.trusted_proxies);
    if let Some(session) = request.peer().tls().filter(|_| !is_from_proxy) {
        // As mod_ssl of Apache sets them.
        let certificate = session.peer_certificates().first();
        set("SSL_CLIENT_VERIFY", if certificate.is_some() { b"SUCCESS" } else { b"NONE" });
        if let Some(certificate) = certificate {
            set("SSL_CLIENT_CERT", pem(certificate).as_bytes());
            for (name, read) in CERTIFICATE_VARIABLES {
                if let Some(value) = read(certificate) {
                    set(name, value.as_bytes());
                }
            }
        }
    }
    if let Some(user) = request.extensions().get::<User>() {
        set("REMOTE_USER", user.as_str().as_bytes());
        set("AUTH_TYPE", auth_type(request));
    }
    if let Some(length) = length {
        set("CONTENT_LENGTH", length.to_string().as_bytes());
    }
    if let Some(content_type) = request.headers().get_bytes("content-type") {
        set("CONTENT_TYPE", content_type);
    }
    // The target's authority takes precedence over `Host` (RFC 9112 §3.2.2).
    if let Some(authority) = request.authority() {
        set("HTTP_HOST", authority.as_bytes());
    }
    variables.extend(fields(request, is_from_proxy, rules.credentials));
    variables
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

/// Returns the request's fields as `HTTP_…` variables (§4.1.18).
fn fields(request: &Request, is_from_proxy: bool, credentials: Credentials) -> Vec<MetaVariable> {
    let headers = request.headers();
    let changes = RequestFields::of(request);
    let connection_options: Vec<&[u8]> = headers.list("connection").collect();
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, value) in headers.iter() {
        let is_name = |option: &&[u8]| option.eq_ignore_ascii_case(name.as_bytes());
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
        if !is_unambiguous || is_excluded || connection_options.iter().any(is_name) {
            continue;
        }
        let variable = variable_name(name);
        match found.iter_mut().find(|(known, _)| *known == variable) {
            Some((_, all)) => {
                // RFC 9110 §5.3; RFC 6265 §5.4 for cookies.
                let separator = if variable == "HTTP_COOKIE" { b"; " } else { b", " };
                all.extend_from_slice(separator);
                all.extend_from_slice(value);
            }
            None => found.push((variable, value.to_vec())),
        }
    }
    let set = changes.into_iter().flat_map(RequestFields::iter);
    found
        .extend(set.map(|(name, value)| (variable_name(name.as_str()), value.as_bytes().to_vec())));
    found.into_iter().map(|(name, value)| (name, OsString::from_vec(value))).collect()
}

fn variable_name(field: &str) -> String {
    format!("HTTP_{}", field.to_ascii_uppercase().replace('-', "_"))
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
        let mut variables: Vec<String> = meta_variables(&request, &script, length, &RULES)
            .into_iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
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
                let found = variables.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.to_str().unwrap())
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
                let found = variables.iter().find(|(known, _)| known == name);
                found.map(|(_, value)| value.to_str().unwrap())
            };
            assert_eq!(["REMOTE_USER", "AUTH_TYPE"].map(get), expected, "{credentials}");
            assert_eq!(get("HTTP_AUTHORIZATION"), None);
        }
    }
}
