//! Placeholders of Caddy → placeholders of Weft.

use super::super::outcome::Outcome;

/// Converts a text with placeholders.
///
/// # Errors
/// The name of a placeholder without an equivalent.
pub(in crate::caddy) fn template(text: &str, outcome: &Outcome) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(escaped) = rest.strip_prefix('\\') {
            let brace = escaped.starts_with(['{', '}']);
            out.push_str(if brace && escaped.starts_with('{') { "{{" } else { "\\" });
            rest = if brace { &escaped[1..] } else { escaped };
            continue;
        }
        let inner = rest.find('}').map(|end| &rest[1..end]);
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match inner.filter(|it| !it.is_empty() && it.chars().all(is_name)) {
            Some(name) => {
                out.push_str(&value(name, outcome).ok_or_else(|| format!("{{{name}}}"))?);
                rest = &rest[name.len() + 2..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    Ok(out + rest)
}

/// Returns the text for a placeholder.
fn value(name: &str, outcome: &Outcome) -> Option<String> {
    let variable = name.strip_prefix("http.vars.").or_else(|| name.strip_prefix("vars."));
    let variable = variable.unwrap_or(name);
    if let Some((_, value)) = outcome.variables.iter().find(|(known, _)| known == variable) {
        return Some(value.clone());
    }
    let name = name.strip_prefix("http.request.").unwrap_or(name);
    let known = match name {
        "uri" => return Some(outcome.uri()),
        "path" | "uri.path" => return Some(outcome.current_path()),
        "query" | "uri.query" => "query",
        "host" => "host",
        "hostport" => "header.Host",
        "port" => "port",
        "scheme" => "scheme",
        "method" => "method",
        "remote_host" | "client_ip" | "remote.host" | "http.vars.client_ip" => "client_ip",
        "remote_port" | "remote.port" => "client_port",
        "orig_uri.path" | "http.request.orig_uri.path" | "orig_path" => "path",
        "orig_uri" => "uri",
        "uuid" | "http.request.uuid" => "request_id",
        "http.auth.user.id" => "user",
        "tls_version" | "tls.version" => "tls.version",
        "tls_cipher" | "tls.cipher_suite" => "tls.cipher",
        "tls_client_subject" | "tls.client.subject" => "tls.client_subject",
        "tls_client_issuer" | "tls.client.issuer" => "tls.client_issuer",
        "tls_client_serial" | "tls.client.serial" => "tls.client_serial",
        "http.reverse_proxy.upstream.hostport" | "upstream_hostport" => "upstream",
        "time.now.http" => "time",
        _ => return prefixed(name),
    };
    Some(format!("{{{known}}}"))
}

fn prefixed(name: &str) -> Option<String> {
    for (prefix, own) in [
        ("header.", "header."),
        ("cookie.", "cookie."),
        ("query.", "query."),
        ("uri.query.", "query."),
        ("env.", "env."),
    ] {
        if let Some(rest) = name.strip_prefix(prefix).filter(|rest| !rest.is_empty()) {
            return Some(format!("{{{own}{rest}}}"));
        }
    }
    // `{re.NAME.1}`: a route has one expression.
    let groups = name.strip_prefix("re.").or_else(|| name.strip_prefix("http.regexp."))?;
    let group = groups.rsplit('.').next()?;
    (!group.is_empty()).then(|| format!("{{re.{group}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caddy::outcome::{PATH, URI};

    #[test]
    fn converts_placeholders() {
        let outcome =
            Outcome { variables: vec![("a".to_owned(), "1".to_owned())], ..Outcome::default() };
        for (text, expected) in [
            ("{host} {http.request.host}", Ok("{host} {host}".to_owned())),
            ("https://x{uri}", Ok(format!("https://x{URI}"))),
            ("{path}", Ok(PATH.to_owned())),
            ("{header.X-A} {vars.a}", Ok("{header.X-A} 1".to_owned())),
            ("{\"a\": 1}", Ok("{\"a\": 1}".to_owned())),
            ("\\{x}", Ok("{{x}".to_owned())),
            ("{re.name.1}", Ok("{re.1}".to_owned())),
            ("{unknown}", Err("{unknown}".to_owned())),
        ] {
            assert_eq!(template(text, &outcome), expected, "{text}");
        }
    }
}
