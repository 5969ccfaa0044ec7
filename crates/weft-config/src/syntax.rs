//! Syntax errors of a file, in the words of an operator.

use crate::location::{ConfigText, Problem};

/// Converts the errors of the TOML parser.
pub(crate) fn problems(text: &ConfigText, errors: &[toml::de::Error]) -> Vec<Problem> {
    if let Some(at) = nginx_directive(text.as_str()).filter(|_| !errors.is_empty()) {
        let message = "this is the syntax of nginx; a configuration of weft is TOML, and \
                       docs/migrating-from-nginx.md translates the directives";
        return vec![Problem { location: text.location(at..at), message: message.to_owned() }];
    }
    if let Some(at) = caddy_site(text.as_str()).filter(|_| !errors.is_empty()) {
        let message = "this is a Caddyfile; a configuration of weft is TOML, and `weft import \
                       caddy` converts it";
        return vec![Problem { location: text.location(at..at), message: message.to_owned() }];
    }
    let problem = |error: &toml::de::Error| {
        let span = error.span().unwrap_or(0..0);
        let message = match (error.message(), text.as_str().get(span.clone())) {
            ("duplicate key", Some(key)) => format!("the key {key} is given twice"),
            ("string values must be quoted, expected literal string", _) => {
                "expected a value: a text in quotes, a number, true, false, a list or a table"
                    .to_owned()
            }
            (message, _) => message.to_owned(),
        };
        Problem { location: text.location(span), message }
    };
    errors.iter().map(problem).collect()
}

/// Returns the position of the first line that begins a block of nginx, or that ends a directive.
fn nginx_directive(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split('#').next().unwrap_or_default().trim_end();
        let word: &str = code.trim_start().split([' ', '\t', '{']).next().unwrap_or_default();
        let is_word = !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let has_key = code.trim_start()[word.len()..].trim_start().starts_with('=');
        if is_word && !has_key && (code.ends_with('{') || code.ends_with(';')) {
            return Some(at + (code.len() - code.trim_start().len()));
        }
        at += line.len();
    }
    None
}

/// Returns the position of the first line with code, if it begins a block of a Caddyfile: with the
/// addresses of a site, or with global options.
fn caddy_site(text: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim();
        if !code.is_empty() && !code.starts_with('#') {
            let addresses = code.strip_suffix('{')?;
            let is_site = !addresses.contains(['=', '[', '"', '{', '}']);
            return is_site.then(|| at + (line.len() - line.trim_start().len()));
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_caddyfiles() {
        for (text, expected) in [
            ("example.org {\n", Some(0)),
            ("# a\n\n:80, a.org {\n", Some(5)),
            ("{\n\temail a@b\n}\n", Some(0)),
            ("a = {\n", None),
            ("[a]\nb {\n", None),
            ("a {}\n", None),
        ] {
            assert_eq!(caddy_site(text), expected, "{text}");
        }
    }

    #[test]
    fn recognizes_nginx() {
        for (text, expected) in [
            ("http {\n}", Some(0)),
            ("# a\nuser www;\n", Some(4)),
            ("  server {", Some(2)),
            ("server{\n", Some(0)),
            ("location ~ \\.php$ { # x\n", Some(0)),
            ("proxy_set_header X $a;", Some(0)),
            ("listen = 80", None),
            ("a = { b = 1 }", None),
            ("a = {\n", None),
            ("\"/\" = \"-> x\" # a;\n", None),
            ("a = \"x;y\";", None),
        ] {
            assert_eq!(nginx_directive(text), expected, "{text}");
        }
    }
}
