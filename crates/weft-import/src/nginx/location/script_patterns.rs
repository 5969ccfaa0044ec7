//! The regular expression of a location with scripts → the key `scripts`, so that a route that also
//! has files runs no script that nginx does not run.

use super::Location;
use crate::document::Value;
use crate::nested_regex;
use crate::nginx::tree::{Directive, named};
use crate::regex;

/// Regular expressions that match the paths of all scripts, without `(?i)`.
const OF_ALL: [&str; 14] = [
    r"\.php",
    r"\.php$",
    r"\.php(/|$)",
    r"\.php($|/)",
    r"\.php(?:/|$)",
    r"\.php(?:$|/)",
    r"\.php(/.*)?$",
    r"[^/]\.php(/|$)",
    r".+\.php$",
    r"^.+\.php$",
    r"^.+\.php(/|$)",
    r"^(.+\.php)(.*)$",
    r"^(.+\.php)(/.*)?$",
    r"^(.+?\.php)(/.*)?$",
];

/// Ends of regular expressions behind the name of a script: the path may go on.
const ENDS: [&str; 5] = ["(/|$)", "($|/)", "(?:/|$)", "(?:$|/)", "(/.*)?$"];

/// Returns true if the regular expression matches the paths of all scripts.
pub(crate) fn is_of_all(regex: &str) -> bool {
    OF_ALL.contains(&regex.strip_prefix("(?i)").unwrap_or(regex))
}

/// Returns the value of `scripts` for the scripts of a location, in a route for a prefix; `None` if
/// all scripts are run.
pub(crate) fn patterns(
    location: &Location<'_>,
    own: &Directive,
    regex: &str,
    prefix: &str,
) -> Option<Value> {
    let names = names(regex);
    let whole = whole_paths(own, regex).map(|regex| vec![format!("~ {regex}")]);
    let mut patterns = match &names {
        _ if whole.is_some() => whole.unwrap_or_default(),
        _ if is_of_all(regex) => Vec::new(),
        Some(names) => names.iter().map(|name| below(name, prefix)).collect::<Option<_>>()?,
        None => vec![format!("~ {regex}")],
    };
    let mut others = Vec::new();
    exceptions(location, (location.server.children(), "/"), own, &mut others);
    for other in others {
        let target = location.global.target;
        let excludes = |path: &String| match other.strip_prefix("~ ") {
            Some(regex) => target.matches(regex, path),
            None => other == *path,
        };
        let is_needed = names.as_ref().is_none_or(|names| names.iter().any(excludes));
        let pattern = if other.starts_with('~') { Some(other) } else { below(&other, prefix) };
        patterns.extend(pattern.filter(|_| is_needed).map(|pattern| format!("!{pattern}")));
    }
    (!patterns.is_empty()).then(|| patterns.into())
}

/// Returns the expression for paths that end with a script, if the location refuses paths that go
/// on behind it: `try_files $uri =404` looks for a file of the whole path.
pub(crate) fn whole_paths(own: &Directive, regex: &str) -> Option<String> {
    let is_strict = |directive: &Directive| directive.args == ["$uri", "=404"];
    if !named(own.children(), "try_files").any(is_strict) {
        return None;
    }
    let start = ENDS.iter().find_map(|end| regex.strip_suffix(end))?;
    Some(format!("{start}$"))
}

/// Returns true if a value of `scripts`, in a route for all paths, has all scripts of an
/// expression.
pub(crate) fn have_names_of(patterns: Option<&Value>, regex: &str) -> bool {
    let (Some(patterns), Some(names)) = (patterns.map(Value::show), names(regex)) else {
        return false;
    };
    let is_listed =
        |name: &String| patterns.contains(&format!("\"{}\"", name.trim_start_matches('/')));
    names.iter().all(is_listed)
}

fn below(path: &str, prefix: &str) -> Option<String> {
    path.strip_prefix(prefix).map(str::to_owned)
}

/// Returns the paths that an expression such as `^/(index|admin/cron)\.php(/|$)` consists of.
fn names(regex: &str) -> Option<Vec<String>> {
    let start = regex.strip_prefix('^')?;
    let text = ENDS.iter().find_map(|end| start.strip_suffix(end))?;
    let is_literal = |text: &str| {
        let text = text.replace(r"\.", "").replace(r"\/", "");
        text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-".contains(&b))
    };
    let Some((before, rest)) = text.split_once('(') else {
        return is_literal(text).then(|| vec![text.replace('\\', "")]);
    };
    let (group, after) = rest.split_once(')')?;
    let group = group.strip_prefix("?:").unwrap_or(group);
    let paths = group.split('|').map(|name| format!("{before}{name}{after}"));
    paths.map(|path| is_literal(&path).then(|| path.replace('\\', ""))).collect()
}

/// Collects the locations that precede a location with scripts: paths, and `~ REGEX`. A script that
/// belongs to one of them is not run, neither as the index of a folder nor with a part behind it.
/// `prefix` has all paths of the locations of the block.
fn exceptions(
    location: &Location<'_>,
    (block, prefix): (&[Directive], &str),
    own: &Directive,
    found: &mut Vec<String>,
) {
    let mut is_before = true;
    for other in named(block, "location") {
        if std::ptr::eq(other, own) {
            is_before = false;
            continue;
        }
        let (modifier, path) = (other.arg(0), other.arg(1));
        let regex = regex::of_modifier(location.global.target, modifier, path);
        match (modifier, regex) {
            ("=", _) if path.ends_with(".php") => found.push(path.to_owned()),
            ("~" | "~*", Some(regex)) if is_before && may_have_scripts(path) => {
                let regex = nested_regex::below(prefix, &regex).unwrap_or(regex);
                found.push(format!("~ {regex}"));
            }
            _ => {}
        }
        let prefix = match modifier {
            "~" | "~*" | "=" => prefix,
            "^~" => path,
            path => path,
        };
        exceptions(location, (other.children(), prefix), own, found);
    }
}

/// Returns true if an expression may match the path of a script, but not of its folder.
fn may_have_scripts(regex: &str) -> bool {
    // Weft finds no scripts in folders whose names begin with a dot.
    let is_hidden = [r"/\.", r"(^|/)\.", r"^/\."].iter().any(|start| regex.starts_with(start));
    let is_folder = regex.ends_with('/') && !regex.contains(['*', '+', '$', '?', '[']);
    !(is_hidden || is_folder || is_of_other_files(regex))
}

/// Returns true if an expression such as `\.(css|js)$` ends with suffixes other than `.php`.
fn is_of_other_files(regex: &str) -> bool {
    let Some((_, suffix)) = regex.rsplit_once(r"\.") else { return false };
    let Some(suffix) = suffix.strip_suffix('$') else { return false };
    let group = suffix.strip_prefix('(').and_then(|group| group.strip_suffix(')'));
    let group = group.map_or(suffix, |group| group.strip_prefix("?:").unwrap_or(group));
    let is_suffix = |suffix: &str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'?';
        !suffix.is_empty() && suffix.bytes().all(is_plain) && !suffix.starts_with("ph")
    };
    group.split('|').all(is_suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_names_of_scripts() {
        for (regex, expected) in [
            (r"^/index\.php(/|$)", Some(&["/index.php"][..])),
            (r"^/(index|errors/report)\.php($|/)", Some(&["/index.php", "/errors/report.php"])),
            (r"^/a/(?:b|c)\.php(/.*)?$", Some(&["/a/b.php", "/a/c.php"])),
            // A path that goes on is not in the expression.
            (r"^/index\.php$", None),
            (r"^/[ab]\.php(/|$)", None),
            (r"^/a.php(/|$)", None),
            (r"^/(a|b)(c|d)\.php(/|$)", None),
        ] {
            let expected = expected.map(|names| names.iter().map(|it| (*it).to_owned()).collect());
            assert_eq!(names(regex), expected, "{regex}");
        }
        assert!(is_of_all(r"\.php$") && is_of_all(r"(?i)\.php(/|$)"));
        assert!(!is_of_all(r"^/index\.php$") && !is_of_all(r"^/admin/.*\.php$"));
    }

    #[test]
    fn finds_suffixes_of_other_files() {
        for (regex, expected) in [
            (r"/\.ht", false),
            (r"^/(vendor|config)/", false),
            (r"/uploads/.*\.php$", true),
            (r"^/private/.+", true),
        ] {
            assert_eq!(may_have_scripts(regex), expected, "{regex}");
        }
        for (regex, expected) in [
            (r"\.(css|jpe?g)$", true),
            (r"\.(?:ico|svg)$", true),
            (r"\.txt$", true),
            (r"\.(css|php)$", false),
            (r"\.(css|phtml)$", false),
            (r"^/uploads/.*\.php$", false),
            (r"^/private/.*$", false),
            (r"\.[a-z]+$", false),
        ] {
            assert_eq!(is_of_other_files(regex), expected, "{regex}");
        }
    }
}
