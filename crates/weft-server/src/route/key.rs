//! Keys of routes in the section of a host: methods, and a prefix, an exact path, a pattern or a
//! name. Pure.

use std::fmt;

use weft::Method;

use super::foreign_pattern;
use super::methods::Methods;
use crate::template::{PathPattern, Pattern};

/// Requests that a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteKey {
    /// `None`: all methods that no other route with the same path has.
    pub(crate) methods: Option<Methods>,
    pub(crate) path: PathKey,
    /// Distinguishes routes with conditions from other routes of the same path; without the `@`.
    pub(crate) label: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathKey {
    /// Decoded, without its trailing slash. Empty: all paths.
    Prefix(String),
    /// Decoded.
    Exact(String),
    Pattern(Pattern),
    /// Name of a route that only other routes lead to, without the `@`.
    Name(String),
}

impl RouteKey {
    /// Returns true if a key of a host is meant for a route, even if it is invalid.
    pub(crate) fn is_meant(key: &str) -> bool {
        key.starts_with(['/', '=', '~', '^', '@', '*', '<']) || key.contains([' ', '`'])
    }

    /// # Errors
    /// With the reason that the key is invalid, and with a suggestion.
    pub(crate) fn parse(key: &str) -> Result<RouteKey, String> {
        let (key, label) = split_label(key);
        if let Some(reason) = foreign_pattern::explain(key) {
            return Err(format!("the route {key:?} {reason}"));
        }
        let start = key.find(['/', '=', '~', '^', '@']).unwrap_or(key.len());
        let (methods, path) = key.split_at(start);
        let path = PathKey::parse(path).map_err(|reason| format!("the route {key:?} {reason}"))?;
        let methods = match methods.trim() {
            "" => None,
            "location" => {
                return Err(format!("`location` is that of nginx; here the key is \"{path}\""));
            }
            methods => Some(Methods::parse(methods)?),
        };
        match (&methods, &path) {
            (Some(_), PathKey::Name(_)) => {
                Err(format!("the route {key:?} has a name, which has no methods"))
            }
            _ => Ok(RouteKey { methods, path, label: label.map(str::to_owned) }),
        }
    }

    /// Returns the pattern whose groups the templates of the route may have.
    pub(crate) fn path_pattern(&self) -> PathPattern<'_> {
        match &self.path {
            PathKey::Pattern(pattern) => PathPattern::Pattern(pattern),
            PathKey::Prefix(_) | PathKey::Exact(_) | PathKey::Name(_) => PathPattern::None,
        }
    }

    /// Returns true if no request has a route of both keys.
    pub(crate) fn conflicts_with(&self, other: &RouteKey) -> bool {
        let has_common_method = match (&self.methods, &other.methods) {
            (Some(own), Some(other)) => own.common(other).is_some(),
            (None, None) => true,
            _ => false,
        };
        self.path == other.path && self.label == other.label && has_common_method
    }

    /// Returns true if requests with this method have the route.
    pub(crate) fn includes(&self, method: &Method) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods.contains(method))
    }

    /// Returns the length of the prefix, if the key is one of a decoded path.
    pub(crate) fn prefix_length(&self, path: &str) -> Option<usize> {
        let prefix = self.prefix()?;
        let rest = path.strip_prefix(prefix)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(prefix.len())
    }

    /// The prefix of the paths, if the key is one, for all methods or some.
    pub(crate) fn prefix(&self) -> Option<&str> {
        match &self.path {
            PathKey::Prefix(prefix) => Some(prefix),
            _ => None,
        }
    }
}

impl PathKey {
    fn parse(text: &str) -> Result<PathKey, String> {
        let text = text.trim_end();
        match text.split_once(' ') {
            _ if text.starts_with('/') => {
                check_path(text)?;
                Ok(PathKey::Prefix(text.strip_suffix('/').unwrap_or(text).to_owned()))
            }
            Some(("=", path)) => {
                check_path(path.trim_start())?;
                Ok(PathKey::Exact(path.trim_start().to_owned()))
            }
            Some(("~", pattern)) => Ok(PathKey::Pattern(Pattern::parse(pattern.trim_start())?)),
            Some(("~*", pattern)) => {
                let pattern = pattern.trim_start();
                Err(format!(
                    "is that of nginx; a pattern without regard to case is \"~ (?i){pattern}\""
                ))
            }
            Some(("^~", prefix)) => Err(format!(
                "is that of nginx; a prefix is \"{}\", and patterns come before it",
                prefix.trim_start()
            )),
            _ if text.starts_with('@') => {
                let name = &text[1..];
                match is_name(name) {
                    true => Ok(PathKey::Name(name.to_owned())),
                    false => {
                        Err("has a name with other bytes than letters, digits, - _ .".to_owned())
                    }
                }
            }
            _ if text.starts_with("~*") => Err(format!(
                "is that of nginx; a pattern without regard to case is \"~ (?i){}\"",
                &text[2..]
            )),
            _ => Err(match text.strip_prefix(['=', '~']) {
                Some("") => "has nothing behind its first sign".to_owned(),
                Some(rest) => {
                    format!("needs a space behind its first sign: \"{} {rest}\"", &text[..1])
                }
                None => "has no path; it begins with a slash, as in \"GET /path\"".to_owned(),
            }),
        }
    }
}

/// Splits the label off a key: the last word, if it is a name with an `@`, and if there is a path
/// before it.
fn split_label(key: &str) -> (&str, Option<&str>) {
    match key.trim_end().rsplit_once(" @") {
        Some((path, label)) if is_name(label) && path.contains(['/', '=', '~', '^']) => {
            (path.trim_end(), Some(label))
        }
        _ => (key, None),
    }
}

fn is_name(text: &str) -> bool {
    let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(is_permitted)
}

/// Checks a path, which is compared with decoded and normalized paths: in any other form it would
/// never match.
fn check_path(path: &str) -> Result<(), String> {
    let inner = path.strip_suffix('/').unwrap_or(path);
    let mut segments = inner.split('/');
    if segments.next() != Some("") || path.is_empty() {
        return Err("has a path that does not begin with a slash".to_owned());
    }
    for segment in segments {
        match segment {
            "" => return Err("has an empty segment".to_owned()),
            "." | ".." => return Err("has a segment of dots".to_owned()),
            _ if segment.contains('%') => {
                return Err(
                    "is percent-encoded; write it as it reads, such as /buenos días/".into()
                );
            }
            // Some servers end a segment at a backslash or a semicolon.
            _ if segment.contains(['?', '#', '\\', ';']) => {
                return Err("has one of the characters ? # \\ ;".to_owned());
            }
            _ if segment.contains(char::is_control) => {
                return Err("has a control character".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.methods {
            Some(methods) => write!(f, "{methods} {}", self.path)?,
            None => self.path.fmt(f)?,
        }
        self.label.as_ref().map_or(Ok(()), |label| write!(f, " @{label}"))
    }
}

impl fmt::Display for PathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathKey::Prefix(prefix) => write!(f, "{prefix}/"),
            PathKey::Exact(path) => write!(f, "= {path}"),
            PathKey::Pattern(pattern) => write!(f, "~ {}", pattern.source()),
            PathKey::Name(name) => write!(f, "@{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row: a key, and the key as it is printed, or a part of the error.
    #[test]
    fn parses_keys() {
        for (key, expected) in [
            ("/", Ok("/")),
            ("/app", Ok("/app/")),
            ("/app/", Ok("/app/")),
            ("/buenos días/x", Ok("/buenos días/x/")),
            ("= /", Ok("= /")),
            ("=  /app/", Ok("= /app/")),
            ("= /app", Ok("= /app")),
            (r"~ \.php$ ", Ok(r"~ \.php$")),
            ("~ ^/a b/@", Ok("~ ^/a b/@")),
            ("@app", Ok("@app")),
            ("@", Err("has a name with other bytes")),
            ("@a/b", Err("has a name with other bytes")),
            ("GET @a", Err("a name, which has no methods")),
            ("/a @canary", Ok("/a/ @canary")),
            ("GET = /a  @v1.2", Ok("GET = /a @v1.2")),
            (r"~ \.php$ @x", Ok(r"~ \.php$ @x")),
            ("/a @", Ok("/a @/")),
            ("@a @b", Err("has a name with other bytes")),
            ("POST /a", Ok("POST /a/")),
            ("GET, PUT,GET = /a", Ok("GET,PUT = /a")),
            ("M-SEARCH ~ ^/a", Ok("M-SEARCH ~ ^/a")),
            ("app", Err("has no path")),
            ("GET", Err("has no path")),
            ("//", Err("has an empty segment")),
            ("/a//b", Err("has an empty segment")),
            ("/a/../b", Err("has a segment of dots")),
            ("= /a/.", Err("has a segment of dots")),
            ("/%61", Err("is percent-encoded")),
            ("/a?b", Err("has one of the characters")),
            ("= /a;b", Err("has one of the characters")),
            ("/a\nb", Err("has a control character")),
            ("= a", Err("does not begin with a slash")),
            ("=/a", Err("\"= /a\"")),
            (r"~\.php$", Err(r#""~ \.php$""#)),
            ("=", Err("has nothing behind its first sign")),
            ("~ ", Err("has nothing behind its first sign")),
            (r"~* \.php$", Err(r#""~ (?i)\.php$""#)),
            (r"~*\.php$", Err(r#""~ (?i)\.php$""#)),
            ("^~ /a/", Err("a prefix is \"/a/\"")),
            ("location = /a", Err("here the key is \"= /a\"")),
            (r"location ~ \.php$", Err(r#"here the key is "~ \.php$""#)),
            ("GET POST /a", Err("separated by commas")),
            ("get /a", Err("GET in place of get")),
            ("~ (", Err("has an invalid pattern at character 1")),
            ("/a/*", Err("the key is \"/a/\"")),
            ("GET *.php", Err(r#"the key is "GET ~ \.php$""#)),
        ] {
            match (RouteKey::parse(key), expected) {
                (Ok(parsed), Ok(expected)) => {
                    assert_eq!(parsed.to_string(), expected, "{key}");
                    assert_eq!(RouteKey::parse(expected), Ok(parsed), "{key}");
                }
                (Err(message), Err(expected)) => {
                    assert!(message.contains(expected), "{key}: {message}");
                }
                (found, _) => panic!("{key}: {found:?}"),
            }
        }
    }

    #[test]
    fn keys_with_common_methods_conflict() {
        for (a, b, expected) in [
            ("/a", "/a/", true),
            ("/a", "= /a", false),
            ("= /a", "= /a/", false),
            ("GET /a", "/a", false),
            ("GET /a", "HEAD,PUT /a", true),
            ("GET /a", "PUT /a", false),
            ("~ a", "~ a", true),
            ("@a", "@a", true),
            ("/a @x", "/a/ @x", true),
            ("/a @x", "/a", false),
            ("/a @x", "/a @y", false),
        ] {
            let (a, b) = (RouteKey::parse(a).unwrap(), RouteKey::parse(b).unwrap());
            assert_eq!(
                (a.conflicts_with(&b), b.conflicts_with(&a)),
                (expected, expected),
                "{a} {b}"
            );
        }
    }
}
