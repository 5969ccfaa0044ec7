//! Patterns of paths as nginx, Caddy, Apache and Traefik write them, and the keys of routes for the
//! same paths. As a prefix, such a text would be a literal path that no client requests. Pure.

/// Signs that are no part of a path: clients percent-encode all of them but `*` and `$`.
const SIGNS: [char; 8] = ['*', '{', '}', '[', ']', '|', '^', '\\'];

/// Directives in front of a path or of a glob, as of Caddy and Apache.
const WITH_GLOB: [&str; 6] = ["handle", "handle_path", "route", "path", "Location", "Files"];

/// Directives in front of a regular expression.
const WITH_REGEX: [&str; 4] = ["path_regexp", "LocationMatch", "FilesMatch", "PathRegexp"];

/// Returns the reason that a key is no key of Weft, as the predicate of a sentence about the route;
/// `None` for a key without a pattern of another server.
pub(super) fn explain(key: &str) -> Option<String> {
    if key.contains('`') {
        return Some(explain_traefik(key));
    }
    let inner = key.strip_prefix('<').map_or(key, |section| section.trim_end_matches('>'));
    if let Some((directive, rest)) = inner.split_once(' ') {
        let pattern = rest.trim().rsplit(' ').next().unwrap_or_default().trim_matches('"');
        let translated = match directive {
            _ if WITH_GLOB.contains(&directive) && pattern.starts_with(['/', '*']) => {
                of_path(pattern).map_or(pattern.to_owned(), |(_, key)| key)
            }
            _ if WITH_REGEX.contains(&directive) => format!("~ {pattern}"),
            _ => return explain_path(inner),
        };
        return Some(format!(
            "has the directive {directive} of another server; here {translated:?}"
        ));
    }
    explain_path(key)
}

/// Explains a pattern behind optional methods or `=`.
fn explain_path(key: &str) -> Option<String> {
    let start = key.find(['/', '*', '^', '~', '@'])?;
    let (before, path) = key.split_at(start);
    if path.starts_with(['~', '@']) || path.starts_with("^~") {
        return None;
    }
    let (sign, translated) = of_path(path.trim_end())?;
    let methods = before.trim_end().trim_end_matches('=').trim_end();
    let methods = if methods.is_empty() { String::new() } else { format!("{methods} ") };
    Some(format!("has {sign}; for these paths the key is \"{methods}{translated}\""))
}

/// Explains a rule such as ``Host(`a.org`) && PathPrefix(`/a`)``.
fn explain_traefik(rule: &str) -> String {
    let argument = |name: &str| {
        let (_, rest) = rule.split_once(&format!("{name}(`"))?;
        rest.split('`').next()
    };
    let key = match (argument("PathPrefix"), argument("Path"), argument("PathRegexp")) {
        (Some(prefix), _, _) => of_path(prefix).map_or(prefix.to_owned(), |(_, key)| key),
        (_, Some(path), _) => of_path(path).map_or(format!("= {path}"), |(_, key)| key),
        (_, _, Some(regex)) => format!("~ {regex}"),
        _ => return "is a rule of Traefik; here a host is a section, and the key is a path".into(),
    };
    format!("is a rule of Traefik; here a host is a section, and the key is \"{key}\"")
}

/// Returns the kind of a pattern and the key of a route for its paths; `None` for a path without
/// a pattern.
fn of_path(path: &str) -> Option<(&'static str, String)> {
    let is_regex = path.starts_with('^')
        || path.ends_with('$')
        || path.contains(['\\', '|', '[', ']', '^'])
        || path.contains(".*)")
        || path.contains(".+)");
    if is_regex && !path.contains('{') {
        let anchor = if path.starts_with('^') { "" } else { "^" };
        return Some(("the signs of a regular expression", format!("~ {anchor}{path}")));
    }
    if !path.contains(SIGNS) {
        return None;
    }
    let sign = if path.contains('*') && !path.contains('{') { "a wildcard" } else { "a parameter" };
    if let Some(prefix) = prefix_of(path) {
        return Some((sign, format!("{prefix}/")));
    }
    let (body, end) = match path.strip_suffix('*') {
        // Any end, as in Caddy.
        Some(body) => (body, ""),
        None => (path, "$"),
    };
    let (start, body) = match body.strip_prefix('*') {
        Some(body) => ("", body),
        None => ("^", body),
    };
    Some((sign, format!("~ {start}{}{end}", regex_of(body))))
}

/// Returns the prefix, without a slash at its end, of a path whose last segment stands for
/// anything: `/a/*`, `/a/**`, `/a/{rest...}`, `/a/{*rest}` or `/a/{rest:.*}`.
fn prefix_of(path: &str) -> Option<&str> {
    if path == "*" {
        return Some("");
    }
    let (prefix, last) = path.rsplit_once('/')?;
    let parameter = last.strip_prefix('{').and_then(|last| last.strip_suffix('}'));
    let is_rest = |name: &str| {
        name.starts_with('*')
            || name.ends_with("...")
            || name.ends_with(":.*")
            || name.ends_with('*')
    };
    let is_anything = matches!(last, "*" | "**") || parameter.is_some_and(is_rest);
    (is_anything && !prefix.contains(SIGNS)).then_some(prefix)
}

/// Converts wildcards and parameters within a path to a regular expression.
fn regex_of(path: &str) -> String {
    let (mut regex, mut rest) = (String::new(), path);
    while let Some(first) = rest.chars().next() {
        let length = match (first, rest.find('}')) {
            ('*', _) if rest.starts_with("**") => {
                regex.push_str(".*");
                2
            }
            ('*', _) => {
                regex.push_str("[^/]*");
                1
            }
            ('{', Some(end)) => {
                regex.push_str(&group_of(&rest[1..end]));
                end + 1
            }
            _ => {
                regex.push_str(&regex::escape(first.encode_utf8(&mut [0; 4])));
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    regex
}

/// Converts a parameter such as `id` or `id:[0-9]+` to a group.
fn group_of(parameter: &str) -> String {
    let (name, regex) = match parameter.split_once(':') {
        Some((name, regex)) => (name, regex),
        None if parameter.contains(['*', '.']) => (parameter.trim_matches(['*', '.']), ".*"),
        None => (parameter, "[^/]+"),
    };
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match is_name {
        true => format!("(?<{name}>{regex})"),
        false => format!("({regex})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: a key of another server, and the key in the message. An equal one is a key of
    /// Weft already.
    #[test]
    fn explains_patterns_of_other_servers() {
        for (key, expected) in [
            ("/admin/*", "/admin/"),
            ("/admin/**", "/admin/"),
            ("GET,POST /admin/*", "GET,POST /admin/"),
            ("/*", "/"),
            ("*", "/"),
            ("/admin*", "~ ^/admin"),
            ("*.php", r"~ \.php$"),
            ("/*.php", r"~ ^/[^/]*\.php$"),
            ("*/admin/*", "~ /admin/"),
            ("/a/*/b", "~ ^/a/[^/]*/b$"),
            ("/a/**/b", "~ ^/a/.*/b$"),
            ("= /a/*", "/a/"),
            ("/{id}", "~ ^/(?<id>[^/]+)$"),
            ("/u/{id:[0-9]+}/x.y", r"~ ^/u/(?<id>[0-9]+)/x\.y$"),
            ("/u/{id}/{rest...}", "~ ^/u/(?<id>[^/]+)/(?<rest>.*)$"),
            ("/files/{*rest}", "/files/"),
            ("/files/{rest:.*}", "/files/"),
            ("/{http.vars.root}", "~ ^/(.*)$"),
            ("^/x", "~ ^/x"),
            ("GET ^/x", "GET ~ ^/x"),
            ("/x$", "~ ^/x$"),
            (r"/x\.php", r"~ ^/x\.php"),
            ("/(de|fr)/", "~ ^/(de|fr)/"),
            ("/a[0-9]", "~ ^/a[0-9]"),
            ("handle /api/*", "/api/"),
            ("handle_path /api/*", "/api/"),
            ("path /x", "/x"),
            ("path_regexp ^/x", "~ ^/x"),
            ("path_regexp name ^/x", "~ ^/x"),
            ("<Location /x>", "/x"),
            ("<Location \"/x/*\">", "/x/"),
            ("LocationMatch ^/x", "~ ^/x"),
            (r"<FilesMatch \.php$>", r"~ \.php$"),
            ("PathPrefix(`/api`)", "/api"),
            ("Host(`a.org`) && Path(`/x`)", "= /x"),
            ("Path(`/u/{id}`)", "~ ^/u/(?<id>[^/]+)$"),
            ("PathRegexp(`^/x`)", "~ ^/x"),
        ] {
            let message = explain(key).unwrap_or_else(|| panic!("{key} has no pattern"));
            let quoted = [format!("\"{expected}\""), format!("{expected:?}")];
            assert!(quoted.iter().any(|it| message.ends_with(it)), "{key}: {message}");
            assert_eq!(super::super::RouteKey::parse(expected).err(), None, "{key}");
        }
        for key in [
            "/", "/a", "= /a", "GET /a/", "~ ^/a*", "@a", "/a(b)", "/$batch", "/a:b", "/~a",
            "^~ /a",
        ] {
            assert_eq!(explain(key), None, "{key}");
        }
    }
}
