//! `log_format` → the format of an access log. Pure.

use super::variables::split_name;
use crate::values::lists;

/// A format, and the variables that are missing in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Converted {
    pub(super) format: String,
    pub(super) missing: Vec<String>,
}

/// nginx's own format.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                        $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// Converts the text of a format: to members of an object if it is one in JSON, otherwise to a
/// pattern.
pub(super) fn convert(text: &str) -> Converted {
    if text == COMBINED {
        return Converted { format: "combined".to_owned(), missing: Vec::new() };
    }
    json(text).unwrap_or_else(|| pattern(text))
}

/// Directives of patterns for variables that have one.
const DIRECTIVES: &str = "
    remote_addr=%h remote_user=%u request=%r status=%s body_bytes_sent=%B bytes_sent=%B
    http_referer=%{Referer}i http_user_agent=%{User-Agent}i
";

fn pattern(text: &str) -> Converted {
    let (mut format, mut missing) = (String::new(), Vec::new());
    let text = text.replace('%', "%%").replace("[$time_local]", "%t");
    let mut rest = &*text;
    while let Some(at) = rest.find('$') {
        format.push_str(&rest[..at]);
        let (name, behind) = split_name(&rest[at + 1..]);
        let directive = pairs(DIRECTIVES).find(|(known, _)| *known == name);
        match (directive, value(name)) {
            (Some((_, directive)), _) => format.push_str(directive),
            (None, Some(value)) => format.push_str(&format!("%{{{value}}}x")),
            (None, None) => {
                format.push('-');
                missing.push(name.to_owned());
            }
        }
        rest = behind;
    }
    format.push_str(rest);
    if !format.contains('%') {
        format = "combined".to_owned();
    }
    Converted { format, missing }
}

/// Converts an object in JSON whose members are variables, with or without quotes.
fn json(text: &str) -> Option<Converted> {
    let mut rest = text.trim().strip_prefix('{')?.trim();
    let (mut members, mut missing) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (member, behind) = rest.strip_prefix('"')?.split_once('"')?;
        let behind = behind.trim_start().strip_prefix(':')?.trim_start();
        let (written, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => behind.split_at(behind.find([',', '}', ' '])?),
        };
        let name = written.strip_prefix('$').map(split_name);
        match name.filter(|(_, behind)| behind.is_empty()).and_then(|(name, _)| value(name)) {
            Some(value) if !member.contains([' ', '=']) => {
                members.push(if member == value { value } else { format!("{member}={value}") });
            }
            _ => missing.push(written.trim_start_matches('$').to_owned()),
        }
        rest = behind.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None => {
                rest.strip_prefix('}').filter(|end| end.trim().is_empty())?;
                ""
            }
        };
    }
    (!members.is_empty())
        .then(|| Converted { format: format!("json {}", members.join(" ")), missing })
}

/// Variables with the name of the value in a log.
const VALUES: &str = "
    args=query binary_remote_addr=peer body_bytes_sent=bytes bytes_sent=bytes document_uri=path
    host=host http_host=host http_referer=referer http_user_agent=user_agent query_string=query
    remote_addr=peer remote_port=peer_port remote_user=user request_id=request_id
    request_method=method request_time=seconds request_uri=target scheme=scheme
    server_protocol=version ssl_cipher=tls.cipher ssl_protocol=tls.version
    ssl_server_name=tls.server_name status=status time_iso8601=time time_local=time
    upstream_addr=upstream.address upstream_connect_time=upstream.connect_time
    upstream_header_time=upstream.header_time upstream_response_time=upstream.response_time
    upstream_status=upstream.status uri=path
";

fn pairs(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.split_whitespace().filter_map(|pair| pair.split_once('='))
}

fn value(variable: &str) -> Option<String> {
    if let Some((_, value)) = pairs(VALUES).find(|(name, _)| *name == variable) {
        return Some(value.to_owned());
    }
    let field = |prefix: &str, kind: &str| {
        let name = variable.strip_prefix(prefix).filter(|name| !name.is_empty())?;
        Some(format!("{kind}.{}", name.replace('_', "-")))
    };
    // The server sets these fields after the log has read the response.
    let late = "sent_http_content_length sent_http_connection sent_http_date sent_http_server \
                sent_http_transfer_encoding";
    let response = field("sent_http_", "response").filter(|_| !lists(late, variable));
    response.or_else(|| field("http_", "header"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_patterns_and_objects() {
        for (text, format, missing) in [
            (COMBINED, "combined", ""),
            (
                "$remote_addr [$time_local] \"$request\" $status 100% ${http_x_a}!",
                "%h %t \"%r\" %s 100%% %{header.x-a}x!",
                "",
            ),
            ("$status $connection $msec", "%s - -", "connection msec"),
            ("$request_time $upstream_addr", "%{seconds}x %{upstream.address}x", ""),
            ("nothing", "combined", ""),
            (
                r#"{ "status":$status, "time": "$time_iso8601","ua":"$http_user_agent" }"#,
                "json status time ua=user_agent",
                "",
            ),
            (
                r#"{"service":"web","at":"$msec","path":"$uri","host":"$host"}"#,
                "json path host",
                "web msec",
            ),
            // No object of variables.
            (r#"{"a":{"b":"$status"}}"#, r#"{"a":{"b":"%s"}}"#, ""),
        ] {
            let expected = Converted {
                format: format.to_owned(),
                missing: missing.split_whitespace().map(str::to_owned).collect(),
            };
            assert_eq!(convert(text), expected, "{text}");
        }
    }
}
