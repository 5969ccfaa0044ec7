//! Names of placeholders, and suggestions for unknown ones. Pure.

use weft::header::HeaderName;
use weft_config::suggest;

use crate::template::captures::Group;

/// A value of a request, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Placeholder {
    Path,
    Rest,
    Query,
    QueryParameter(Box<str>),
    Uri,
    Host,
    Port,
    Scheme,
    ClientIp,
    ClientPort,
    Method,
    Header(HeaderName),
    Cookie(Box<str>),
    Time,
    RequestId,
    TraceId,
    SpanId,
    User,
    TlsVersion,
    TlsCipher,
    TlsServerName,
    ClientSubject,
    ClientIssuer,
    ClientSerial,
    /// Group of the pattern of the route.
    Capture(Group),
    /// Group of the pattern of the host.
    HostCapture(Group),
    /// Value of a map.
    Map(Box<str>),
    /// Address of the upstream that responded, which is known with the response.
    Upstream,
}

/// Names without a parameter.
const NAMES: [(&str, Placeholder); 22] = [
    ("path", Placeholder::Path),
    ("rest", Placeholder::Rest),
    ("query", Placeholder::Query),
    ("uri", Placeholder::Uri),
    ("host", Placeholder::Host),
    ("port", Placeholder::Port),
    ("scheme", Placeholder::Scheme),
    ("client_ip", Placeholder::ClientIp),
    ("client_port", Placeholder::ClientPort),
    ("method", Placeholder::Method),
    ("time", Placeholder::Time),
    ("request_id", Placeholder::RequestId),
    ("trace_id", Placeholder::TraceId),
    ("span_id", Placeholder::SpanId),
    ("user", Placeholder::User),
    ("tls.version", Placeholder::TlsVersion),
    ("tls.cipher", Placeholder::TlsCipher),
    ("tls.server_name", Placeholder::TlsServerName),
    ("tls.client_subject", Placeholder::ClientSubject),
    ("tls.client_issuer", Placeholder::ClientIssuer),
    ("tls.client_serial", Placeholder::ClientSerial),
    ("upstream", Placeholder::Upstream),
];

/// Names with a parameter behind a dot.
const PREFIXES: [&str; 6] = ["query", "header", "cookie", "re", "host", "map"];

impl Placeholder {
    /// Parses the name between two braces.
    pub(super) fn parse(name: &str) -> Result<Placeholder, String> {
        if let Some((_, known)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(known.clone());
        }
        match name.split_once('.') {
            Some(("query", parameter)) if !parameter.is_empty() => {
                Ok(Placeholder::QueryParameter(parameter.into()))
            }
            Some(("cookie", cookie)) if !cookie.is_empty() => {
                Ok(Placeholder::Cookie(cookie.into()))
            }
            Some(("re", group)) if !group.is_empty() => {
                Ok(Placeholder::Capture(Group::parse(group)))
            }
            Some(("host", group)) if !group.is_empty() => {
                Ok(Placeholder::HostCapture(Group::parse(group)))
            }
            Some(("map", map)) if !map.is_empty() => Ok(Placeholder::Map(map.into())),
            Some(("header", field)) => match field.parse() {
                Ok(field) => Ok(Placeholder::Header(field)),
                Err(_) => Err(format!(
                    "{{{name}}}: expected the name of a field, as in {{header.User-Agent}}"
                )),
            },
            Some(("env", _)) => Err(format!(
                "{{{name}}}: environment variables are replaced in files only, and not in the \
                 values of other variables"
            )),
            _ => Err(unknown(name)),
        }
    }
}

impl Placeholder {
    /// Returns true if the value is known before a request has a route.
    pub(super) fn is_known_to_router(&self) -> bool {
        use Placeholder::{Capture, HostCapture, RequestId, Rest, SpanId, TraceId, Upstream, User};
        !matches!(
            self,
            Rest | RequestId | TraceId | SpanId | User | Capture(_) | HostCapture(_) | Upstream
        )
    }
}

fn unknown(name: &str) -> String {
    let suggestion = match name.split_once('.') {
        Some((prefix, parameter)) if !NAMES.iter().any(|(known, _)| known.starts_with(prefix)) => {
            suggest(prefix, PREFIXES.into_iter()).map(|prefix| format!("{prefix}.{parameter}"))
        }
        _ => None,
    };
    let known = NAMES.iter().map(|(known, _)| *known);
    let is_group = name.bytes().all(|b| b.is_ascii_digit());
    let suggestion = suggestion.or_else(|| is_group.then(|| format!("re.{name}")));
    let suggestion = suggestion.or_else(|| of_nginx(name));
    match suggestion.or_else(|| suggest(name, known).map(str::to_owned)) {
        Some(suggestion) => {
            format!("unknown placeholder {{{name}}}; did you mean {{{suggestion}}}?")
        }
        None => {
            format!("unknown placeholder {{{name}}}; {{{{{name}}} stands for the text {{{name}}}")
        }
    }
}

/// Variables of nginx, each with the placeholder of the same value.
const OF_NGINX: [(&str, &str); 29] = [
    ("args", "query"),
    ("binary_remote_addr", "client_ip"),
    ("document_uri", "path"),
    ("host", "host"),
    ("http_host", "host"),
    ("is_args", "query"),
    ("proxy_add_x_forwarded_for", "client_ip"),
    ("query_string", "query"),
    ("realip_remote_addr", "client_ip"),
    ("remote_addr", "client_ip"),
    ("remote_port", "client_port"),
    ("remote_user", "user"),
    ("request_id", "request_id"),
    ("request_method", "method"),
    ("request_uri", "uri"),
    ("scheme", "scheme"),
    ("server_name", "host"),
    ("server_port", "port"),
    ("ssl_cipher", "tls.cipher"),
    ("ssl_client_i_dn", "tls.client_issuer"),
    ("ssl_client_s_dn", "tls.client_subject"),
    ("ssl_client_serial", "tls.client_serial"),
    ("ssl_protocol", "tls.version"),
    ("ssl_server_name", "tls.server_name"),
    ("time_iso8601", "time"),
    ("upstream_addr", "upstream"),
    ("uri", "path"),
    ("otel_trace_id", "trace_id"),
    ("otel_span_id", "span_id"),
];

/// Returns the name of the placeholder for a variable of nginx.
pub(crate) fn of_nginx(variable: &str) -> Option<String> {
    let parameter = |prefix| variable.strip_prefix(prefix).filter(|name| !name.is_empty());
    let known = OF_NGINX.iter().find(|(name, _)| *name == variable);
    known
        .map(|(_, placeholder)| (*placeholder).to_owned())
        .or_else(|| parameter("http_").map(|name| format!("header.{}", name.replace('_', "-"))))
        .or_else(|| parameter("arg_").map(|name| format!("query.{name}")))
        .or_else(|| parameter("cookie_").map(|name| format!("cookie.{name}")))
}

/// Returns the first variable of nginx in a text, `$host` or `${host}`, and the placeholder of the
/// same value.
pub(crate) fn nginx_variable(text: &str) -> Option<(&str, String)> {
    text.match_indices('$').find_map(|(at, _)| {
        let behind = &text[at + 1..];
        let behind = behind.strip_prefix('{').unwrap_or(behind);
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let variable = &behind[..end.unwrap_or(behind.len())];
        of_nginx(variable).map(|placeholder| (variable, placeholder))
    })
}
