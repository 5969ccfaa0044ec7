//! The key `scripts`: patterns of the scripts that a route runs. Pure.

use fast_glob::glob_match;
use weft::path::decode;
use weft_config::{ConfigResult, Located};
use weft_upstream::script::Script;

use crate::template::Pattern;

/// Maximum number of patterns of a route. Each costs time for each script that is run.
const MAX_PATTERNS: usize = 64;

/// Patterns of scripts: a script is run if one of the first kind matches and none of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptPatterns {
    /// If there are none, but excluded scripts, all others are run.
    included: Vec<ScriptPattern>,
    excluded: Vec<ScriptPattern>,
}

#[derive(Clone, Debug)]
enum ScriptPattern {
    /// Glob for the path of the script beneath its folder.
    Glob(String),
    /// Regular expression for the path of the request, as in the key of a route.
    Path(Pattern),
}

impl ScriptPatterns {
    /// Returns the patterns of `texts`.
    ///
    /// # Errors
    /// With an invalid pattern.
    pub(super) fn new(texts: &[String]) -> Result<ScriptPatterns, String> {
        let mut patterns = ScriptPatterns::default();
        for text in texts {
            match text.strip_prefix('!') {
                Some(text) => patterns.excluded.push(ScriptPattern::parse(text)?),
                None => patterns.included.push(ScriptPattern::parse(text)?),
            }
        }
        Ok(patterns)
    }

    /// Returns true if a script may run. `mount` is the prefix of the route in the path of the
    /// request.
    pub(super) fn permit(&self, mount: &str, script: &Script) -> bool {
        let mount = decode(mount.as_bytes());
        let path = |end: &[u8]| [&*mount, &*script.name, end].concat();
        let (whole, own) = (path(&script.path_info), path(b""));
        // A path that goes on behind the script needs an expression that permits a slash there:
        // `\.php$` finds the end of `/a.php/b.php`, too.
        let begun = if script.path_info.is_empty() { own.clone() } else { path(b"/") };
        let name = script.name.strip_prefix(b"/").unwrap_or(&script.name);
        let is_included = |pattern: &ScriptPattern| match pattern {
            ScriptPattern::Glob(glob) => glob_match(glob, name),
            ScriptPattern::Path(regex) => regex.matches(&whole) && regex.matches(&begun),
        };
        let is_excluded = |pattern: &ScriptPattern| match pattern {
            ScriptPattern::Glob(glob) => glob_match(glob, name),
            ScriptPattern::Path(regex) => regex.matches(&whole) || regex.matches(&own),
        };
        let has_all = self.included.is_empty() && !self.excluded.is_empty();
        (has_all || self.included.iter().any(is_included)) && !self.excluded.iter().any(is_excluded)
    }
}

impl ScriptPattern {
    fn parse(text: &str) -> Result<ScriptPattern, String> {
        if let Some(regex) = text.strip_prefix("~ ") {
            let regex = Pattern::parse(regex.trim_start());
            let regex = regex.map_err(|reason| format!("{text:?} {reason}"))?;
            return Ok(ScriptPattern::Path(regex));
        }
        let glob = text.strip_prefix('/').unwrap_or(text);
        let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
        let is_regex = glob.starts_with(['^', '~']) || glob.ends_with('$') || glob.contains('\\');
        if is_regex || !glob.split('/').all(is_segment) {
            return Err(format!(
                "expected the path of a script beneath the folder, such as index.php or \
                 admin/*.php, or `~ REGEX` for the path of the request, found {text:?}"
            ));
        }
        Ok(ScriptPattern::Glob(glob.to_owned()))
    }
}

/// Validates the value of the key.
pub(super) fn script_patterns(texts: Vec<Located<String>>) -> ConfigResult<Vec<String>> {
    if let Some(text) = texts.get(MAX_PATTERNS) {
        return Err(text.problem(format!("more than {MAX_PATTERNS} patterns of scripts")));
    }
    let check = |text: Located<String>| match ScriptPatterns::new(std::slice::from_ref(&text.value))
    {
        Ok(_) => Ok(text.value),
        Err(message) => Err(text.problem(message)),
    };
    texts.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, path_info: &str) -> Script {
        Script {
            file: name.into(),
            root: "/srv".into(),
            name: name.into(),
            path_info: path_info.into(),
        }
    }

    #[test]
    fn permits_scripts_by_their_paths() {
        for (pattern, mount, name, path_info, expected) in [
            ("index.php", "", "/index.php", "", true),
            ("/index.php", "", "/index.php", "/a/b", true),
            ("index.php", "/app", "/index.php", "", true),
            // Not in other folders: an upload would run.
            ("index.php", "", "/uploads/index.php", "", false),
            ("index.php", "", "/index.php5", "", false),
            ("admin/*.php", "", "/admin/a.php", "", true),
            ("admin/*.php", "", "/admin/x/a.php", "", false),
            ("admin/**", "", "/admin/x/a.php", "", true),
            ("{index,cron}.php", "", "/cron.php", "", true),
            (r"~ ^/index\.php$", "", "/index.php", "", true),
            (r"~ ^/index\.php$", "", "/index.php", "/a", false),
            (r"~ ^/index\.php(/|$)", "", "/index.php", "/a", true),
            (r"~ \.php$", "", "/index.php", "/a.php", false),
            (r"~ ^/app/index\.php", "/app", "/index.php", "", true),
            (r"~ ^/a b/index\.php", "/a%20b", "/index.php", "", true),
            (r"~ ^/index\.php", "/app", "/index.php", "", false),
            // All others run, also with a part behind the script.
            ("!cron.php", "", "/index.php", "/a", true),
            ("!cron.php", "", "/cron.php", "", false),
            ("!cron.php", "", "/cron.php", "/a", false),
            (r"!~ ^/up/.*\.php$", "", "/up/a.php", "/b", false),
            (r"!~ ^/up/.*\.php$", "", "/up.php", "", true),
        ] {
            let patterns = ScriptPatterns::new(&[pattern.to_owned()]).unwrap();
            let found = patterns.permit(mount, &script(name, path_info));
            assert_eq!(found, expected, "{pattern} {mount}{name}{path_info}");
        }
        let both = ["*.php", "!cron.php"].map(str::to_owned);
        let both = ScriptPatterns::new(&both).unwrap();
        assert!(
            both.permit("", &script("/a.php", "")) && !both.permit("", &script("/cron.php", ""))
        );
        assert!(!both.permit("", &script("/a/b.php", "")));
        assert!(!ScriptPatterns::new(&[]).unwrap().permit("", &script("/a.php", "")));
    }

    #[test]
    fn validates_patterns() {
        let at = |value: &str| Located {
            location: weft_config::ConfigLocation::Unknown,
            value: value.to_owned(),
        };
        for (text, is_valid) in [
            ("a.php", true),
            ("/a/b.php", true),
            ("**/*.php", true),
            (r"~ \.php$", true),
            (r"!~ \.php$", true),
            ("!a.php", true),
            ("!", false),
            ("", false),
            ("a//b.php", false),
            ("../a.php", false),
            (r"^/index\.php$", false),
            (r"~\.php$", false),
            ("~ (", false),
        ] {
            assert_eq!(script_patterns(vec![at(text)]).is_ok(), is_valid, "{text}");
        }
        let many = |count| script_patterns((0..count).map(|_| at("a.php")).collect());
        assert!(many(MAX_PATTERNS).is_ok() && many(MAX_PATTERNS + 1).is_err());
    }
}
