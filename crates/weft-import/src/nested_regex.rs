//! Expressions for the paths of a prefix that another expression matches. Pure.

use crate::regex::{escape, is_in_segment};

/// Maximum number of literals with which the matches of an expression begin.
const MAX_LITERALS: usize = 16;

/// Returns an expression for the paths that begin with the outer prefix of a nested location, and
/// that its own expression matches, wherever the match begins. `None` if it cannot be determined.
pub(crate) fn below(prefix: &str, regex: &str) -> Option<String> {
    let (flags, inner) = match regex.strip_prefix("(?i)") {
        Some(inner) => ("(?i)", inner),
        None => ("", regex),
    };
    let outer = escape(prefix);
    let alternatives = alternatives(inner);
    match inner.strip_prefix('^') {
        _ if prefix.is_empty() || prefix == "/" => return Some(regex.to_owned()),
        Some(rest) if rest.starts_with(&outer) || rest.starts_with(prefix) => {
            return (alternatives.len() == 1).then(|| regex.to_owned());
        }
        // An anchored expression could match only the beginning of the prefix.
        Some(_) => return None,
        None if alternatives.len() > 1 && inner.contains('^') => return None,
        None => {}
    }
    let mut within = Vec::new();
    for alternative in alternatives {
        match matches_within(prefix, alternative, !flags.is_empty())? {
            Within::Always if prefix.ends_with('/') => return Some(format!("{flags}^{outer}")),
            Within::Always => return Some(format!("{flags}^{outer}(?:/|$)")),
            Within::These(found) => within.extend(found),
        }
    }
    // The match may begin at the last slash of the prefix.
    let begin = outer.strip_suffix('/').unwrap_or(&outer);
    let behind = |inner: &str| format!("^{begin}(?:/.*)?(?:{inner})");
    let (groups, plain) = without_groups(inner);
    match &*within {
        [] => Some(flags.to_owned() + &behind(inner)),
        // A match within the prefix is the first one, and so the groups are its groups.
        [first] if groups > 0 && without_groups(first).0 == groups => {
            Some(format!("{flags}(?:{first}|{})", behind(&plain)))
        }
        _ if groups > 0 => None,
        all => Some(format!("{flags}(?:{}|{})", behind(inner), all.join("|"))),
    }
}

/// Returns the number of groups that capture, and the expression without them.
fn without_groups(regex: &str) -> (usize, String) {
    let (mut groups, mut plain) = (0, String::new());
    let mut scan = Scan::default();
    for (at, c) in regex.char_indices() {
        plain.push(c);
        if scan.next(c) == Some('(') && !regex[at + 1..].starts_with('?') {
            groups += 1;
            plain.push_str("?:");
        }
    }
    (groups, plain)
}

/// Paths whose match begins within the prefix.
enum Within {
    /// The prefix alone has a match.
    Always,
    These(Vec<String>),
}

/// Finds the matches of an expression that begin within a prefix; `None` if they are not known.
fn matches_within(prefix: &str, regex: &str, ignores_case: bool) -> Option<Within> {
    let begins_with = |text: &str, begin: &str| match ignores_case {
        true => text.get(..begin.len()).is_some_and(|text| text.eq_ignore_ascii_case(begin)),
        false => text.starts_with(begin),
    };
    let last = prefix.len() - usize::from(prefix.ends_with('/'));
    let mut found = Vec::new();
    for Begin { literal, rest } in begins(regex)? {
        for at in (0..last).filter(|at| prefix.is_char_boundary(*at)) {
            let tail = &prefix[at..];
            if begins_with(tail, &literal) && rest.is_empty() {
                return Some(Within::Always);
            }
            if literal.len() >= tail.len() && begins_with(&literal, tail) {
                found.push(format!("^{}{}{rest}", escape(&prefix[..at]), escape(&literal)));
            } else if begins_with(tail, &literal) {
                let Some(anywhere) = rest.strip_prefix(".*") else {
                    // No match ends behind the last slash.
                    if prefix.ends_with('/')
                        && is_in_segment(&format!("{}{rest}", escape(&literal)))
                    {
                        continue;
                    }
                    return None;
                };
                match below(prefix, anywhere.strip_prefix('?').unwrap_or(anywhere)) {
                    Some(regex) if !anywhere.is_empty() => found.push(regex),
                    Some(_) => return Some(Within::Always),
                    None => return None,
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Some(Within::These(found))
}

/// A literal with which matches begin, and the expression behind it.
struct Begin {
    literal: String,
    rest: String,
}

/// Divides an expression without alternatives by the literals with which its matches begin; `None`
/// if there are too many, or constructs that are not known.
fn begins(regex: &str) -> Option<Vec<Begin>> {
    let mut literal = String::new();
    let mut chars = regex.char_indices();
    while let Some((at, c)) = chars.next() {
        let (text, behind) = match c {
            '(' => return begins_of_group(&literal, &regex[at..]),
            '.' | '[' | '^' | '$' | '*' | '+' | '?' | '{' => {
                return Some(vec![Begin { literal, rest: regex[at..].to_owned() }]);
            }
            '\\' => match chars.next()? {
                (at, escaped) if !escaped.is_ascii_alphanumeric() => {
                    (escaped, &regex[at + escaped.len_utf8()..])
                }
                _ => return Some(vec![Begin { literal, rest: regex[at..].to_owned() }]),
            },
            c => (c, &regex[at + c.len_utf8()..]),
        };
        if behind.starts_with(['*', '+', '?', '{']) {
            return Some(vec![Begin { literal, rest: regex[at..].to_owned() }]);
        }
        literal.push(text);
    }
    Some(vec![Begin { literal, rest: String::new() }])
}

/// Continues with each alternative of a group.
fn begins_of_group(literal: &str, regex: &str) -> Option<Vec<Begin>> {
    let end = end_of_group(regex)?;
    let (group, behind) = (&regex[1..end], &regex[end + 1..]);
    // A group that captures stays as it is, if the literal before it may suffice.
    let captures = !group.starts_with('?') && !literal.is_empty();
    if captures || behind.starts_with(['*', '+', '?', '{']) {
        return Some(vec![Begin { literal: literal.to_owned(), rest: regex.to_owned() }]);
    }
    let content = group.strip_prefix("?:").unwrap_or(group);
    if content.starts_with('?') {
        return None;
    }
    let mut found = Vec::new();
    for alternative in alternatives(content) {
        // A path begins with a slash.
        let alternative = match alternative.strip_prefix('^') {
            Some("") if literal.is_empty() && !behind.starts_with('/') => continue,
            Some(_) => return None,
            None => alternative,
        };
        for begin in begins(&format!("{alternative}{behind}"))? {
            found.push(Begin { literal: format!("{literal}{}", begin.literal), rest: begin.rest });
        }
    }
    (found.len() <= MAX_LITERALS).then_some(found)
}

/// Returns the position of the parenthesis that ends a group at the begin of an expression.
fn end_of_group(regex: &str) -> Option<usize> {
    let mut depth = 0;
    let mut scan = Scan::default();
    for (at, c) in regex.char_indices() {
        match scan.next(c) {
            Some('(') => depth += 1,
            Some(')') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits an expression at the alternatives that are in no group.
fn alternatives(regex: &str) -> Vec<&str> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    let mut scan = Scan::default();
    for (at, c) in regex.char_indices() {
        match scan.next(c) {
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            Some('|') if depth == 0 => {
                found.push(&regex[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&regex[begin..]);
    found
}

/// Reads an expression; characters that are escaped, or in a class, are no operators.
#[derive(Default)]
struct Scan {
    is_escaped: bool,
    is_in_class: bool,
}

impl Scan {
    /// Returns the next character if it may be an operator.
    fn next(&mut self, c: char) -> Option<char> {
        if std::mem::take(&mut self.is_escaped) {
            return None;
        }
        match c {
            '\\' => self.is_escaped = true,
            '[' if !self.is_in_class => self.is_in_class = true,
            ']' => self.is_in_class = false,
            c if !self.is_in_class => return Some(c),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combines_nested_expressions() {
        for (prefix, regex, expected) in [
            ("/", r"\.php$", Some(r"\.php$")),
            ("/a/", r"\.php$", Some(r"^/a(?:/.*)?(?:\.php$)")),
            ("/a.b", "(?i)/x/", Some(r"(?i)^/a\.b(?:/.*)?(?:/x/)")),
            ("/a/", "^/a/x$", Some("^/a/x$")),
            ("/a/", "^/b/", None),
            ("/a/", "/a/x", Some("(?:^/a(?:/.*)?(?:/a/x)|^/a/x)")),
            ("/a", r"/a/(\d+)", Some(r"(?:^/a/(\d+)|^/a(?:/.*)?(?:/a/(?:\d+)))")),
            ("/a/", "/(a|b)/x", None),
        ] {
            assert_eq!(below(prefix, regex).as_deref(), expected, "{prefix} {regex}");
        }
    }

    /// Each path that begins with the prefix is matched if the expression matches it. Others are
    /// not matched, except for paths without the slash at the end of the prefix.
    #[test]
    fn nested_expressions_match_what_both_match() {
        const PIECES: [&str; 16] = [
            "/", "uploads", "files", "/up", "p", "app", "admin", ".php", ".bak", "x", "/.", "ht",
            ".PHP", "2020", "evil", "s",
        ];
        let prefixes =
            ["/uploads/", "/up/", "/app", "/app/", "/a.php/", "/uploads/2020/", "/up/up/"];
        let regexes = [
            r"\.php$",
            r"(?i)\.php$",
            r"/(?:uploads|files)/.*\.php$",
            r"(?i)/(?:uploads|files)/.*\.php$",
            r"/up/",
            r"up/x",
            r"p/",
            r"/app/admin",
            r"p/admin|/up",
            r"\.(?:php|bak)$",
            r"/\.",
            r"/\.ht",
            r".*\.bak$",
            r"(?:^|/)\.ht",
            r"/x\.bak$",
            r"^/up/x",
            r"[^/]+\.php$",
            r"s/2020",
            r"/uploads/[^/]*\.php$",
            r"[a-z]*/x",
            r"p?p/x",
            r"/up/(x|s)",
            r"/(?:app|up)/([^/]+)/x",
        ];
        let mut seed = 1_u32;
        let mut next = |count: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as usize % count
        };
        let compile = |regex: &str| {
            let compiled = regex::bytes::RegexBuilder::new(regex).unicode(false).build();
            compiled.unwrap_or_else(|error| panic!("{regex}: {error}"))
        };
        let mut unknown = Vec::new();
        for prefix in prefixes {
            for regex in regexes {
                let Some(expression) = below(prefix, regex) else {
                    unknown.push((prefix, regex));
                    continue;
                };
                let compiled = compile(&expression);
                let original = compile(regex);
                for _ in 0..400 {
                    let mut path = ["", "/", prefix, prefix][next(4)].to_owned();
                    for _ in 0..next(5) {
                        path.push_str(PIECES[next(PIECES.len())]);
                    }
                    // A prefix consists of whole segments.
                    let begins = path.strip_prefix(prefix).is_some_and(|rest| {
                        prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
                    });
                    let differs_by_slash =
                        path.starts_with(prefix.trim_end_matches('/')) || regex.contains("(?i)");
                    if begins || !differs_by_slash {
                        assert_eq!(
                            compiled.is_match(path.as_bytes()),
                            begins && original.is_match(path.as_bytes()),
                            "{path}: {prefix} {regex} → {expression}"
                        );
                    }
                }
            }
        }
        for (prefix, regex) in unknown {
            let is_expected = regex.starts_with(['^', '[', 'p'])
                || regex.contains("[^/]")
                || regex.contains("/(x");
            assert!(is_expected, "{prefix} {regex} is not known");
        }
    }
}
