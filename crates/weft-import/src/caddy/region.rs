//! Sets of paths to which the same matchers of a site apply. Pure.
//!
//! Each path of a matcher makes regions of its own, so that a matcher includes all paths of a
//! region or none. More specific regions precede others, as routes of Weft do: exact paths, then
//! patterns, then prefixes.

use crate::Target;
use crate::nested_regex;
use crate::regex::{self, escape};

/// Maximum number of regions of a site.
pub(super) const MAX_REGIONS: usize = 1_000;

/// The paths of a path matcher. Case makes no difference in Caddy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    All,
    Exact(String),
    /// Paths that begin with this text, which may end within a segment.
    Prefix(String),
    Suffix(String),
    Regex(String),
}

impl Paths {
    /// Parses a pattern of the matcher `path`.
    pub(super) fn parse(pattern: &str) -> Paths {
        let stars = pattern.matches('*').count();
        let has_glob = pattern.contains(['?', '[']);
        match pattern {
            "*" | "/*" => Paths::All,
            _ if stars == 0 && !has_glob => Paths::Exact(pattern.to_owned()),
            _ if stars == 1 && !has_glob && pattern.ends_with('*') => {
                Paths::Prefix(pattern[..pattern.len() - 1].to_owned())
            }
            _ if stars == 1 && !has_glob && pattern.starts_with('*') => {
                Paths::Suffix(pattern[1..].to_owned())
            }
            _ if stars == 2 && pattern.starts_with('*') && pattern.ends_with('*') => {
                Paths::Regex(format!("(?i){}", escape(pattern.trim_matches('*'))))
            }
            _ => Paths::Regex(glob_regex(pattern)),
        }
    }

    /// Returns the same paths behind a prefix that has been removed.
    pub(super) fn behind(&self, stripped: &str) -> Paths {
        match self {
            Paths::Exact(path) => Paths::Exact(format!("{stripped}{path}")),
            Paths::Prefix(path) => Paths::Prefix(format!("{stripped}{path}")),
            Paths::All if !stripped.is_empty() => Paths::Prefix(format!("{stripped}/")),
            other => other.clone(),
        }
    }

    /// Returns true if the paths include a path.
    pub(super) fn include(&self, target: &dyn Target, path: &str) -> bool {
        let (path, lower) = (path, |text: &str| text.to_ascii_lowercase());
        match self {
            Paths::All => true,
            Paths::Exact(own) => lower(own) == lower(path),
            Paths::Prefix(own) => lower(path).starts_with(&lower(own)),
            Paths::Suffix(own) => lower(path).ends_with(&lower(own)),
            Paths::Regex(regex) => target.matches(regex, path),
        }
    }
}

/// Converts a pattern with several `*`. Each `*` is a part of a segment.
fn glob_regex(pattern: &str) -> String {
    let mut regex = "(?i)^".to_owned();
    for c in pattern.chars() {
        match c {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' | ']' | '-' => regex.push(c),
            c => regex.push_str(&escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex + "$"
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tail {
    Any,
    Suffix(String),
    /// An expression, and those whose regions precede its own.
    Regex(String, Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Exact(String),
    /// Paths with a prefix, and with an end or an expression. The prefix is empty for all paths.
    Below(String, Tail),
}

/// Relation of a matcher to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    Whole,
    None,
    /// Some paths of the region, or unknown ones.
    Part,
}

impl Region {
    /// Returns the paths of the region that a matcher includes. Paths of a former region are none
    /// of this one.
    pub(super) fn cover(&self, paths: &Paths, target: &dyn Target) -> Cover {
        let of = |included: bool| if included { Cover::Whole } else { Cover::None };
        let (own, tail) = match self {
            Region::Exact(path) => return of(paths.include(target, path)),
            Region::Below(prefix, tail) => (prefix, tail),
        };
        match (paths, tail) {
            (Paths::All, _) => Cover::Whole,
            // The path has a region of its own.
            (Paths::Exact(_), _) => Cover::None,
            (Paths::Prefix(prefix), _) if starts_with(own, prefix) => Cover::Whole,
            (Paths::Prefix(prefix), Tail::Regex(regex, _)) => cover_of_prefix(regex, prefix),
            (Paths::Prefix(_), _) => Cover::None,
            (Paths::Suffix(suffix), Tail::Suffix(own)) => of(ends_with(own, suffix)),
            (Paths::Suffix(_), Tail::Any) => Cover::None,
            (Paths::Suffix(suffix), Tail::Regex(regex, _)) => cover_of_suffix(regex, suffix),
            (Paths::Regex(other), Tail::Regex(regex, _)) if other == regex => Cover::Whole,
            (Paths::Regex(other), Tail::Regex(regex, _)) if are_disjoint(regex, other) => {
                Cover::None
            }
            (Paths::Regex(other), Tail::Regex(_, former))
                if former.contains(other) && below(own, other).is_some() =>
            {
                Cover::None
            }
            // All regions with a tail precede those without.
            (Paths::Regex(_), Tail::Any) => Cover::None,
            // The region of the same prefix and the other expression precedes this one.
            (Paths::Regex(other), Tail::Suffix(_)) if below(own, other).is_some() => Cover::None,
            (Paths::Regex(_), _) => Cover::Part,
        }
    }

    /// Returns true if all paths of another region are in this one.
    pub(super) fn includes(&self, other: &Region, target: &dyn Target) -> bool {
        match (self, other) {
            (Region::Exact(path), Region::Exact(other)) => path == other,
            (Region::Exact(_), _) => false,
            (Region::Below(prefix, tail), Region::Exact(path)) => {
                let is_in = |paths: Paths| paths.include(target, path);
                is_in(Paths::Prefix(prefix.clone()))
                    && match tail {
                        Tail::Any => true,
                        Tail::Suffix(suffix) => is_in(Paths::Suffix(suffix.clone())),
                        Tail::Regex(regex, _) => is_in(Paths::Regex(regex.clone())),
                    }
            }
            (Region::Below(prefix, tail), Region::Below(other, other_tail)) => {
                let is_tail = match (tail, other_tail) {
                    (Tail::Any, _) => true,
                    (Tail::Suffix(suffix), Tail::Suffix(other)) => other.ends_with(&**suffix),
                    (tail, other) => tail == other,
                };
                other.starts_with(&**prefix) && is_tail
            }
        }
    }

    /// Returns true if the key of the region matches an exact path.
    #[cfg(test)]
    fn has(&self, own: &Region, target: &dyn Target) -> bool {
        let Region::Exact(path) = own else { return false };
        match self {
            Region::Exact(_) => self == own,
            region => region.regex(None).is_some_and(|regex| target.matches(&regex, path)),
        }
    }

    /// Returns true for the region of all paths.
    pub(super) fn is_all(&self) -> bool {
        *self == Region::Below(String::new(), Tail::Any)
    }

    /// Returns the expression for the paths of the region. `rest` is the prefix behind which the
    /// group of that name begins.
    pub(super) fn regex(&self, rest: Option<&str>) -> Option<String> {
        let cased = |text: &str| match text.bytes().any(|b| b.is_ascii_alphabetic()) {
            true => "(?i)",
            false => "",
        };
        let split = |text: &str| {
            let stripped = rest.map(|rest| rest.trim_end_matches('/')).unwrap_or_default();
            let behind = text.get(stripped.len()..).unwrap_or_default();
            let slash = if behind.starts_with('/') || behind.is_empty() { "/" } else { "" };
            (format!("{}{slash}", escape(stripped)), escape(behind.trim_start_matches('/')))
        };
        Some(match (self, rest) {
            (Region::Exact(path), None) => format!("{}^{}$", cased(path), escape(path)),
            (Region::Exact(path), Some(_)) => {
                let (stripped, behind) = split(path);
                format!("{}^{stripped}(?<rest>{behind})$", cased(path))
            }
            (Region::Below(prefix, Tail::Any), None) if prefix.is_empty() => "^/".to_owned(),
            (Region::Below(prefix, Tail::Any), None) => {
                format!("{}^{}", cased(prefix), escape(prefix))
            }
            (Region::Below(prefix, Tail::Any), Some(_)) => {
                let (stripped, behind) = split(prefix);
                format!("{}^{stripped}(?<rest>{behind}.*)$", cased(prefix))
            }
            (Region::Below(prefix, Tail::Suffix(suffix)), None) if prefix.is_empty() => {
                format!("{}{}$", cased(suffix), escape(suffix))
            }
            (Region::Below(prefix, Tail::Suffix(suffix)), None) => {
                let cased = cased(&format!("{prefix}{suffix}"));
                format!("{cased}^{}.*{}$", escape(prefix), escape(suffix))
            }
            (Region::Below(prefix, Tail::Suffix(suffix)), Some(_)) => {
                let (stripped, behind) = split(prefix);
                let cased = cased(&format!("{prefix}{suffix}"));
                format!("{cased}^{stripped}(?<rest>{behind}.*{})$", escape(suffix))
            }
            (Region::Below(prefix, Tail::Regex(regex, _)), None) => below(prefix, regex)?,
            (Region::Below(_, Tail::Regex(..)), Some(_)) => return None,
        })
    }
}

fn starts_with(text: &str, prefix: &str) -> bool {
    text.to_ascii_lowercase().starts_with(&prefix.to_ascii_lowercase())
}

fn ends_with(text: &str, suffix: &str) -> bool {
    text.to_ascii_lowercase().ends_with(&suffix.to_ascii_lowercase())
}

/// Returns the matches of an expression that begin with a prefix.
fn cover_of_prefix(regex: &str, prefix: &str) -> Cover {
    let literal = regex::literal_prefix(regex.trim_start_matches("(?i)"));
    match literal {
        Some(literal) if starts_with(literal, prefix) => Cover::Whole,
        Some(literal) if !starts_with(prefix, literal) => Cover::None,
        // The region of both has precedence.
        _ if below(prefix, regex).is_some() => Cover::None,
        _ => Cover::Part,
    }
}

/// Returns the matches of an expression that end with a suffix.
fn cover_of_suffix(regex: &str, suffix: &str) -> Cover {
    let literal = literal_suffix(regex);
    match literal {
        Some(literal) if ends_with(&literal, suffix) => Cover::Whole,
        Some(literal) if !ends_with(suffix, &literal) => Cover::None,
        _ => Cover::Part,
    }
}

/// Returns the text with which all matches of an anchored expression end.
fn literal_suffix(regex: &str) -> Option<String> {
    let mut rest = regex.strip_suffix('$')?;
    if regex.contains('|') {
        return None;
    }
    let mut literal = String::new();
    loop {
        if let Some(before) = rest.strip_suffix("\\.") {
            literal.insert(0, '.');
            rest = before;
            continue;
        }
        let last = rest.chars().next_back();
        let Some(c) = last.filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) else {
            break;
        };
        let before = &rest[..rest.len() - 1];
        // A class such as `\d`.
        if before.ends_with('\\') {
            break;
        }
        literal.insert(0, c);
        rest = before;
    }
    (!literal.is_empty()).then_some(literal)
}

/// Returns the text of an expression that has no special characters, and matches anywhere.
fn substring(regex: &str) -> Option<String> {
    let inner = regex.strip_prefix("(?i)")?;
    let text = inner.replace('\\', "");
    (escape(&text) == inner).then_some(text)
}

/// Returns true if the matches of two expressions begin with different texts.
fn are_disjoint(one: &str, other: &str) -> bool {
    let literal = |regex: &str| {
        let regex = regex.strip_prefix("(?i)").unwrap_or(regex);
        regex::literal_prefix(regex).map(str::to_ascii_lowercase)
    };
    match (literal(one), literal(other)) {
        (Some(one), Some(other)) => !one.starts_with(&other) && !other.starts_with(&one),
        _ => false,
    }
}

/// Returns an expression for the paths with a prefix that another one matches.
fn below(prefix: &str, regex: &str) -> Option<String> {
    if prefix.is_empty() {
        return Some(regex.to_owned());
    }
    if let Some(text) = substring(regex) {
        let has = |prefix: &str| prefix.to_ascii_lowercase().contains(&text.to_ascii_lowercase());
        if has(prefix) {
            return Some(format!("(?i)^{}", escape(prefix)));
        }
        // The text may begin at the last slash of the prefix.
        if prefix.ends_with('/') && text.starts_with('/') && text.matches('/').count() == 1 {
            return nested_regex::below(prefix, regex);
        }
    }
    let inner = regex.trim_start_matches("(?i)");
    let is_below = inner.strip_prefix('^').is_some_and(|it| it.starts_with(&escape(prefix)));
    match is_below {
        true => Some(regex.to_owned()),
        false => regex::is_in_segment(regex).then(|| regex::behind(prefix, regex)),
    }
}

/// Returns the regions of the paths of all matchers, in the order of their precedence.
///
/// # Errors
/// A message if there are too many.
pub(super) fn regions(all: &[Paths]) -> Result<Vec<Region>, String> {
    let mut exacts = Vec::new();
    let mut prefixes = vec![String::new()];
    let (mut suffixes, mut expressions) = (Vec::new(), Vec::new());
    let add = |list: &mut Vec<String>, text: &str| {
        let is_known = list.iter().any(|known| known.eq_ignore_ascii_case(text));
        if !is_known {
            list.push(text.to_owned());
        }
    };
    for paths in all {
        match paths {
            Paths::All => {}
            Paths::Exact(path) => add(&mut exacts, path),
            Paths::Prefix(prefix) if prefix == "/" => {}
            Paths::Prefix(prefix) => add(&mut prefixes, prefix),
            Paths::Suffix(suffix) => add(&mut suffixes, suffix),
            Paths::Regex(regex) => add(&mut expressions, regex),
        }
    }
    let by_length = |list: &mut Vec<String>| list.sort_by_key(|text| usize::MAX - text.len());
    by_length(&mut prefixes);
    by_length(&mut suffixes);
    // Expressions come first: they are less often about all that a suffix is about.
    let former = |index: usize| expressions[..index].to_vec();
    let tails = expressions.iter().enumerate();
    let tails = tails.map(|(index, regex)| Tail::Regex(regex.clone(), former(index)));
    let tails: Vec<Tail> = tails.chain(suffixes.into_iter().map(Tail::Suffix)).collect();
    if exacts.len() + prefixes.len() * (tails.len() + 1) > MAX_REGIONS {
        return Err(format!("the matchers of a site make more than {MAX_REGIONS} sets of paths"));
    }
    let mut regions: Vec<Region> = exacts.into_iter().map(Region::Exact).collect();
    for prefix in &prefixes {
        let has_regex = |tail: &&Tail| match tail {
            Tail::Regex(regex, _) => below(prefix, regex).is_some(),
            _ => true,
        };
        let tails = tails.iter().filter(has_regex);
        regions.extend(tails.map(|tail| Region::Below(prefix.clone(), tail.clone())));
    }
    regions.extend(prefixes.into_iter().map(|prefix| Region::Below(prefix, Tail::Any)));
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_target::TestTarget;

    #[test]
    fn parses_patterns() {
        for (pattern, path, expected) in [
            ("/a/*", "/a/b", true),
            ("/a/*", "/A/", true),
            ("/a/*", "/a", false),
            ("/a*", "/abc", true),
            ("*.php", "/x/y.PHP", true),
            ("*.php", "/x.php/y", false),
            ("*/secret/*", "/x/secret/y", true),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/d/c", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("*", "/", true),
        ] {
            let paths = Paths::parse(pattern);
            assert_eq!(paths.include(&TestTarget, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn regions_are_whole_or_outside_of_each_matcher() {
        let all = ["/a/*", "/a/b/*", "*.php", "/a/x", "/ab*"].map(Paths::parse);
        let regions = regions(&all).unwrap();
        for path in ["/", "/a", "/a/", "/a/x", "/a/b/c", "/a/b/c.php", "/abc.php", "/A/Z", "/q.PHP"]
        {
            // The first region with the path decides.
            let own = Region::Exact(path.to_owned());
            let region = regions.iter().find(|it| it.includes(&own, &TestTarget)).unwrap();
            for paths in &all {
                let expected = match paths.include(&TestTarget, path) {
                    true => Cover::Whole,
                    false => Cover::None,
                };
                assert_eq!(region.cover(paths, &TestTarget), expected, "{path} {paths:?}");
            }
        }
    }

    /// A path is never without a matcher that includes it: then the region is one of its parts.
    #[test]
    fn expressions_and_other_paths_overlap() {
        let all = [
            "/a/*",
            "/A/b/*",
            "*.txt",
            "*/.*",
            "/.well-known/*",
            "*/git/*",
            "/x/*/y.txt",
            "*y.txt",
        ];
        let mut all: Vec<Paths> = all.into_iter().map(Paths::parse).collect();
        all.push(Paths::Regex("^/a/[0-9]+".to_owned()));
        all.push(Paths::Regex("[0-9]$".to_owned()));
        let regions = regions(&all).unwrap();
        let parts = ["a", "A", "b", "x", ".x", ".well-known", "git", "1", "y.txt", "z.TXT", ""];
        for first in parts {
            for second in parts {
                for third in parts {
                    let path = format!("/{first}/{second}/{third}");
                    let own = Region::Exact(path.clone());
                    let region = regions.iter().find(|it| it.has(&own, &TestTarget)).unwrap();
                    for paths in &all {
                        let wrong = match paths.include(&TestTarget, &path) {
                            true => Cover::None,
                            false => Cover::Whole,
                        };
                        let cover = region.cover(paths, &TestTarget);
                        assert_ne!(cover, wrong, "{path} {paths:?} {region:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn has_a_limit() {
        let paths = |count: usize| -> Vec<Paths> {
            (0..count).map(|it| Paths::Exact(format!("/{it}"))).collect()
        };
        assert!(regions(&paths(MAX_REGIONS - 1)).is_ok());
        assert!(regions(&paths(MAX_REGIONS)).is_err());
    }

    #[test]
    fn writes_expressions() {
        let below = |prefix: &str, tail: Tail| Region::Below(prefix.to_owned(), tail);
        for (region, rest, expected) in [
            (Region::Exact("/a.b".into()), None, "(?i)^/a\\.b$"),
            (below("/a/", Tail::Any), None, "(?i)^/a/"),
            (below("/a/", Tail::Any), Some("/a"), "(?i)^/a/(?<rest>.*)$"),
            (below("/a/b/", Tail::Any), Some("/a"), "(?i)^/a/(?<rest>b/.*)$"),
            (below("", Tail::Suffix(".php".into())), None, "(?i)\\.php$"),
            (below("/1/", Tail::Any), None, "^/1/"),
        ] {
            assert_eq!(region.regex(rest).as_deref(), Some(expected));
        }
    }
}
