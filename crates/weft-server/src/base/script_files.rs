//! Files whose text is never sent: scripts beneath the folders from which routes run scripts. Pure.

use std::path::{Path, PathBuf};

use fast_glob::glob_match;

/// The scripts that a route runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptFiles {
    /// `None`: the application server has its scripts elsewhere.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) rule: ScriptRule,
}

/// Property that distinguishes scripts from other files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptRule {
    /// Permission to execute the file.
    Executable,
    /// End of its name, such as `.php`. A file without it is never run, whatever follows its name
    /// in the path of a request: an uploaded image may contain a program.
    Suffix(String),
}

/// A file that a value of the configuration names, and that clients get as it is.
pub(crate) struct SentFile<'a> {
    pub(crate) key: &'static str,
    pub(crate) path: &'a Path,
    /// The value for a script, in an error.
    pub(crate) remedy: &'static str,
}

/// The scripts that all routes of a configuration run.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllScripts(Vec<ScriptFiles>);

impl AllScripts {
    pub(crate) fn new(scripts: impl Iterator<Item = ScriptFiles>) -> AllScripts {
        let absolute = |ScriptFiles { folder, rule }| {
            let folder = folder.map(|folder| absolute(&folder, &rule));
            ScriptFiles { folder, rule }
        };
        AllScripts(scripts.map(absolute).collect())
    }

    /// Returns patterns of the files that a route with `folder` does not serve, because they are
    /// scripts of the same folder, or of a folder above or below it.
    pub(crate) fn withheld(&self, folder: &Path) -> Vec<String> {
        let folder = normal(folder);
        let mut patterns: Vec<String> = Vec::new();
        for ScriptFiles { folder: own, rule } in &self.0 {
            let Some(own) = own.as_ref() else { continue };
            let of_rule = match (own.strip_prefix(&folder), rule) {
                // Without its suffix, a script in a folder of scripts is known by its folder only.
                (Ok(inner), ScriptRule::Executable) if inner != Path::new("") => {
                    let inner = escape(&inner.to_string_lossy());
                    vec![format!("/{inner}"), format!("/{inner}/**")]
                }
                (Err(_), _) if !folder.starts_with(own) => continue,
                _ => rule.name_patterns(),
            };
            patterns.extend(of_rule);
        }
        patterns.sort();
        patterns.dedup();
        patterns
    }

    /// Returns an error if clients would get the text of a script.
    pub(crate) fn check(&self, file: &SentFile<'_>) -> Result<(), String> {
        if !self.has_script(file.path) {
            return Ok(());
        }
        let SentFile { key, path, remedy } = file;
        let path = path.display();
        Err(format!(
            "`{key}`: {path} has the name of a script, whose text clients would get; {remedy}"
        ))
    }

    /// Returns true if a file has the name of a script, or is in a folder of CGI scripts.
    pub(crate) fn has_script(&self, path: &Path) -> bool {
        let is_beneath = |scripts: &ScriptFiles| {
            let folder = scripts.folder.as_ref().filter(|_| scripts.rule == ScriptRule::Executable);
            folder.is_some_and(|folder| path.is_absolute() && normal(path).starts_with(folder))
        };
        self.0.iter().any(|scripts| scripts.rule.has_name(path) || is_beneath(scripts))
    }
}

impl ScriptRule {
    /// Returns true if the file has the name of a script, in any case.
    fn has_name(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        self.name_patterns().iter().any(|pattern| glob_match(pattern, &name))
    }

    /// Returns patterns, in lower case, of the names of scripts, and of names that programs give to
    /// copies of scripts: by editors, and by compression.
    pub(crate) fn name_patterns(&self) -> Vec<String> {
        let suffixes = match self {
            // The suffixes that Debian's configuration of Apache runs or refuses, too.
            ScriptRule::Suffix(suffix) if suffix.eq_ignore_ascii_case(".php") => {
                "{php,php[0-9],phar,phps,pht,phtml}".to_owned()
            }
            ScriptRule::Suffix(suffix) => suffix.trim_start_matches('.').to_ascii_lowercase(),
            ScriptRule::Executable => "{cgi,fcgi,pl,py,rb,sh}".to_owned(),
        };
        ["", "[~#. ]", ".{bak,br,gz,old,orig,save,swp,tmp,zst}"]
            .map(|end| format!("*.{suffixes}{end}"))
            .into()
    }
}

/// Returns the folder of the scripts, also for a route with a single script.
fn absolute(folder: &Path, rule: &ScriptRule) -> PathBuf {
    let folder = normal(folder);
    match folder.parent() {
        Some(parent) if matches!(rule, ScriptRule::Suffix(_)) && rule.has_name(&folder) => {
            parent.to_owned()
        }
        _ => folder,
    }
}

/// Returns the absolute path without `.` and without a slash at its end.
fn normal(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).components().collect()
}

/// Escapes a literal path in a pattern.
fn escape(path: &str) -> String {
    let mut escaped = String::new();
    for c in path.to_ascii_lowercase().chars() {
        if "*?[]{}!\\".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(list: &[(&str, &str)]) -> AllScripts {
        AllScripts::new(list.iter().map(|(folder, suffix)| ScriptFiles {
            folder: (!folder.is_empty()).then(|| (*folder).into()),
            rule: match *suffix {
                "" => ScriptRule::Executable,
                suffix => ScriptRule::Suffix(suffix.to_owned()),
            },
        }))
    }

    #[test]
    fn knows_the_names_of_scripts() {
        let php = scripts(&[("/srv/a", ".php"), ("", ".x")]);
        for (name, expected) in [
            ("index.php", true),
            ("/a/INDEX.Php", true),
            ("x.php5", true),
            ("x.phtml", true),
            ("x.phar", true),
            ("x.php~", true),
            ("x.php.", true),
            ("x.php ", true),
            ("x.php.gz", true),
            ("x.PHTML.bak", true),
            (".php", true),
            ("x.X", true),
            ("php", false),
            ("x.php.png", false),
            ("x.phpx", false),
            ("x.xx", false),
            ("x.php/a.css", false),
        ] {
            assert_eq!(php.has_script(Path::new(name)), expected, "{name}");
        }
        let cgi = scripts(&[("/srv/bin", "")]);
        for (name, expected) in [
            ("a.pl", true),
            ("/srv/bin/report", true),
            ("/srv/bin/../bin/report", true),
            ("/srv/binary", false),
            ("report", false),
            ("a.php", false),
        ] {
            assert_eq!(cgi.has_script(Path::new(name)), expected, "{name}");
        }
        assert!(!scripts(&[]).has_script(Path::new("a.php")));
    }

    #[test]
    fn withholds_scripts_of_folders_that_overlap() {
        let all = scripts(&[("/srv/a/", ".php"), ("/srv/b/bin", ""), ("/srv/c/one.php5", ".php5")]);
        let has = |folder: &str, path: &str| {
            let patterns = all.withheld(Path::new(folder));
            patterns.iter().any(|pattern| match pattern.strip_prefix('/') {
                Some(pattern) => glob_match(pattern, path),
                None => glob_match(pattern, path.rsplit('/').next().unwrap()),
            })
        };
        for (folder, path, expected) in [
            ("/srv/a", "x/y.php", true),
            ("/srv/a/static", "y.php", true),
            ("/srv", "a/y.php", true),
            ("/srv/ab", "y.php", false),
            ("/srv/other", "y.php", false),
            ("/srv/b", "bin/report", true),
            ("/srv/b", "bin/in/report", true),
            ("/srv/b", "bin", true),
            ("/srv/b", "report", false),
            ("/srv/b/bin", "a.cgi", true),
            ("/srv/b/bin", "a.png", false),
            ("/srv/c", "one.php5", true),
            ("/srv/c", "x.php", false),
        ] {
            assert_eq!(has(folder, path), expected, "{folder} {path}");
        }
    }
}
