//! Validation of the targets of redirects.

use crate::template::Template;

/// Validates the target of a redirect. If it has no placeholders, and `appends_rest` is set, the rest of
/// the path and the query of the request are appended to it, so that it has no query and no fragment
/// of its own.
pub(super) fn check_redirect(target: &Template, appends_rest: bool) -> Result<(), String> {
    let to = target.source();
    let authority =
        ["https://", "http://", "{scheme}://"].iter().find_map(|it| to.strip_prefix(it));
    let begins_with_path = |to: &str| PATHS.iter().any(|path| to.starts_with(path));
    let has_valid_form = match authority {
        Some(rest) => !rest.is_empty() && !rest.starts_with(['/', ':', '@']),
        None => (to.starts_with('/') && !to.starts_with("//")) || begins_with_path(to),
    };
    if !has_valid_form {
        return Err(format!(
            "expected a redirect to https://HOST/PATH or to /PATH on the same host, found {to:?}"
        ));
    }
    if appends_rest && target.as_literal().is_some() && to.contains(['?', '#']) {
        return Err(format!(
            "the redirect to {to:?} has a query or a fragment; the rest of the path and the query \
             of the request follow its target"
        ));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>')) {
        return Err(format!("the redirect to {to:?} has a byte that must be percent-encoded"));
    }
    if let Some(name) = authority.and_then(open_end) {
        return Err(format!(
            "the redirect to {to:?} would let clients choose the host: {name} ends its name; write \
             a domain or a slash behind it"
        ));
    }
    Ok(())
}

/// Placeholders whose values begin with a slash.
const PATHS: [&str; 3] = ["{path}", "{rest}", "{uri}"];

/// Returns the first placeholder in the authority of a URL whose values could extend the name of the
/// host or choose the port: all but the host and port of the request, groups of the pattern of the
/// host, and those that are followed by a label of the name.
fn open_end(url: &str) -> Option<&str> {
    let starts = PATHS.iter().chain(&["/", "?", "#"]).filter_map(|start| url.find(start));
    let authority = &url[..starts.min().unwrap_or(url.len())];
    authority.match_indices('{').find_map(|(at, _)| {
        let (name, behind) = authority[at..].split_once('}')?;
        let is_label = behind.strip_prefix('.').is_some_and(|label| {
            label.starts_with(|c: char| c == '{' || c.is_ascii_alphanumeric())
        });
        let is_closed = is_label || matches!(name, "{host" | "{port") || name.starts_with("{host.");
        (!is_closed).then(|| &authority[at..=at + name.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_redirect_targets() {
        for (to, is_good) in [
            ("https://example.org", true),
            ("http://example.org:8080/a/", true),
            ("/", true),
            ("/new/", true),
            ("//evil.example/", false),
            ("example.org", false),
            ("ftp://example.org/", false),
            ("https://", false),
            ("https:///a", false),
            ("https://a/?b", false),
            ("https://a/#b", false),
            ("https://a/\r\nX: y", false),
            ("/\\evil.example", false),
            ("/días", false),
            ("https://{host}{uri}", true),
            ("{scheme}://www.{host}:{port}/a?b={query.c}#d", true),
            ("{path}?{query}", true),
            ("https://{query.sub}.example.org/", true),
            ("https://example.org{query.a}", false),
            ("https://{query.a}", false),
            ("https://{query.a}:8443/", false),
            ("https://{query.a}example.org/", false),
            ("https://{query.a}.:80/", false),
            ("https://{host}{query.a}/", false),
            ("https://a:{query.a}/", false),
            ("https://{query.a}.{query.b}.example.org:{port}/", true),
            ("https://{query.a}.{host}", true),
            ("{query.a}", false),
        ] {
            let to = Template::parse(to).unwrap();
            assert_eq!(check_redirect(&to, true).is_ok(), is_good, "{to:?}");
        }
    }
}
