//! Regular expressions of nginx → regular expressions of Weft, which have no look-around. Pure.

use std::collections::BTreeMap;

use crate::Target;

/// Returns the expression if Weft has an equivalent.
pub(crate) fn translate(target: &dyn Target, regex: &str) -> Option<String> {
    let translated = without_negative_literals(regex)?;
    target.is_route_key(&format!("~ {translated}")).then_some(translated)
}

/// Returns the expression behind `~`, or `~*` without regard to case; `None` for other modifiers.
pub(crate) fn of_modifier(target: &dyn Target, modifier: &str, regex: &str) -> Option<String> {
    match modifier {
        "~" => translate(target, regex),
        "~*" => translate(target, &format!("(?i){regex}")),
        _ => None,
    }
}

/// Returns an expression for the paths with a prefix in whose rest another expression, which is not
/// anchored, matches.
pub(crate) fn behind(prefix: &str, regex: &str) -> String {
    let (flags, inner) = match regex.strip_prefix("(?i)") {
        Some(inner) => ("(?i)", inner),
        None => ("", regex),
    };
    format!("{flags}^{}.*(?:{inner})", escape(prefix))
}

/// Returns an expression for the rests of paths behind a prefix that neither begin with a slash nor
/// belong to longer prefixes, which have these rests.
pub(crate) fn beside(longer: &[&str]) -> String {
    grouped(&alternatives(longer, true))
}

fn alternatives(longer: &[&str], is_first: bool) -> Vec<String> {
    let mut by_first = BTreeMap::<char, Vec<&str>>::new();
    for rest in longer {
        let mut chars = rest.chars();
        if let Some(first) = chars.next() {
            by_first.entry(first).or_default().push(chars.as_str());
        }
    }
    let may_end = !is_first && !by_first.contains_key(&'/');
    if is_first {
        by_first.entry('/').or_default().push("");
    }
    let firsts: String = by_first.keys().map(|c| escape(&c.to_string())).collect();
    let mut found = vec![format!("[^{}]", firsts.replace('-', "\\-"))];
    found.extend(may_end.then(|| "$".to_owned()));
    for (first, rests) in by_first {
        // An empty rest is the end of a longer prefix, which has all further paths.
        if rests.iter().all(|rest| !rest.is_empty()) {
            found.push(escape(&first.to_string()) + &grouped(&alternatives(&rests, false)));
        }
    }
    found
}

fn grouped(alternatives: &[String]) -> String {
    match alternatives {
        [only] => only.clone(),
        all => format!("(?:{})", all.join("|")),
    }
}

/// Returns true if an expression is not anchored to the beginning, and its matches have no slash.
pub(crate) fn is_in_segment(regex: &str) -> bool {
    let mut chars = regex.strip_prefix("(?i)").unwrap_or(regex).chars();
    let mut is_in_class = false;
    while let Some(c) = chars.next() {
        let has_slash = match c {
            '\\' => chars.next().is_none_or(|c| c == '/' || c.is_ascii_uppercase() || c == 'x'),
            '[' => {
                is_in_class = true;
                chars.as_str().starts_with('^')
            }
            ']' => {
                is_in_class = false;
                false
            }
            // A range may include the slash.
            '-' => is_in_class && !chars.as_str().starts_with(']'),
            '.' => !is_in_class,
            '^' | '/' => true,
            _ => false,
        };
        if has_slash {
            return false;
        }
    }
    true
}

/// Returns the literal text with which all matches begin, if the expression is anchored.
pub(crate) fn literal_prefix(regex: &str) -> Option<&str> {
    let inner = regex.strip_prefix('^')?;
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '/' | '-' | '_'));
    let literal = &inner[..end.unwrap_or(inner.len())];
    // A quantifier belongs to the last character.
    let is_repeated = inner[literal.len()..].starts_with(['*', '?', '+', '{']);
    (!is_repeated && !has_alternatives(inner) && literal.len() > 1).then_some(literal)
}

/// Returns true if an expression has alternatives outside of its groups.
fn has_alternatives(regex: &str) -> bool {
    let mut depth = 0;
    regex.chars().any(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == '|' && depth == 0
    })
}

pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() && !matches!(c, '/' | '-' | '_') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Replaces a negative look-ahead for a literal, as in `/\.(?!well-known)`, by the alternatives
/// that it leaves. It must be followed by anything, or by the end of the expression.
fn without_negative_literals(regex: &str) -> Option<String> {
    let Some((before, rest)) = regex.split_once("(?!") else { return Some(regex.to_owned()) };
    let (literal, after) = rest.split_once(')')?;
    let literal = literal.strip_prefix('(').unwrap_or(literal).replace('\\', "");
    let is_literal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/' | b'.');
    let after = after.strip_prefix(')').unwrap_or(after);
    if literal.is_empty()
        || !literal.bytes().all(is_literal)
        || before.contains('|')
        || !matches!(after, "" | ".*" | ".+" | ".*$" | ".*)" | ".*/")
    {
        return None;
    }
    let other = |at: usize| {
        let (equal, rest) = literal.split_at(at);
        let next = escape(&rest[..1]).replace('-', "\\-");
        format!("{}(?:[^{next}]|$)", escape(equal))
    };
    let alternatives: Vec<String> = (0..literal.len()).map(other).collect();
    Some(format!("{before}(?:{})", alternatives.join("|")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_target::TestTarget;

    /// Each row: longer prefixes of `/b`, rests of paths that are beside it, and rests that are
    /// not.
    #[test]
    fn paths_beside_a_prefix_belong_to_no_longer_one() {
        for (longer, beside, others) in [
            (&[][..], &["x", "c", "-", "\n"][..], &["", "/", "/x"][..]),
            (&["c/"], &["x", "cx", "cx/y", "cc"], &["", "/", "/c", "c", "c/", "c/x"]),
            (
                &["cd", "c.e/"],
                &["x", "c", "cx", "c.", "c.x", "c.ex", "c/"],
                &["/", "cd", "cdx", "c.e/x"],
            ),
            (&["-a", "c", "cd"], &["x", "-", "-b"], &["", "-a", "-ab", "c", "cx", "cd"]),
        ] {
            let expression = format!("^/b{}", super::beside(longer));
            let found = regex::Regex::new(&expression).unwrap();
            let matches = |rest: &&str| found.is_match(&format!("/b{rest}"));
            let missing: Vec<_> = beside.iter().filter(|rest| !matches(rest)).collect();
            let refused: Vec<_> = others.iter().filter(|rest| matches(rest)).collect();
            assert!(
                missing.is_empty() && refused.is_empty(),
                "{expression} {missing:?} {refused:?}"
            );
        }
    }

    #[test]
    fn replaces_negative_literals() {
        let matches = |regex: &str, path: &str| {
            TestTarget.matches(&translate(&TestTarget, regex).unwrap(), path)
        };
        for (path, expected) in [
            ("/.git/config", true),
            ("/.well", true),
            ("/.well-knows", true),
            ("/a/.w", true),
            ("/.", true),
            ("/.well-known", false),
            ("/.well-known/acme", false),
            ("/a", false),
        ] {
            assert_eq!(matches(r"/\.(?!well-known)", path), expected, "{path}");
            assert_eq!(
                matches(r"/\.(?!(well-known\/)).*", &format!("{path}/")),
                expected,
                "{path}"
            );
        }
        for regex in [r"^/(?!index|remote)", "(?<!a)b", r"(a)\1", "(?!a.b+)"] {
            assert_eq!(translate(&TestTarget, regex), None, "{regex}");
        }
        assert_eq!(translate(&TestTarget, r"\.php(?:$|/)").as_deref(), Some(r"\.php(?:$|/)"));
    }

    #[test]
    fn finds_matches_without_slashes() {
        for (regex, expected) in [
            (r"\.(ico|jpe?g)$", true),
            (r"(?i)\.mp[34]$", true),
            (r"\.php(/|$)", false),
            (r"a.b", false),
            (r"[^a]b", false),
            (r"\Sb", false),
            (r"[+-9]", false),
            (r"^a", false),
        ] {
            assert_eq!(is_in_segment(regex), expected, "{regex}");
        }
        assert_eq!(behind("/a.b/", r"(?i)\.js$"), r"(?i)^/a\.b/.*(?:\.js$)");
    }

    #[test]
    fn finds_literal_prefixes() {
        assert_eq!(literal_prefix("^/uploads/"), Some("/uploads/"));
        assert_eq!(literal_prefix("^/a(b|c)"), Some("/a"));
        assert_eq!(literal_prefix("^/ab?c"), None);
        assert_eq!(literal_prefix("/a"), None);
        assert_eq!(literal_prefix("^/a(b|c)|d"), None);
    }
}
