//! The texts of a configuration: the file of the command line, and the files that it includes.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use toml::Spanned;
use toml::de::DeTable;

use crate::environment;
use crate::location::{ConfigLocation, ConfigText, Located, Problem};
use crate::section::group;
use crate::value::{Entries, Name, Value, entries};

/// Maximum size of a file, so that a device or a log that is named by mistake is an error.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Maximum number of files.
const MAX_FILES: usize = 10_000;

/// Maximum depth to which files include each other.
const MAX_DEPTH: usize = 16;

/// The texts of a configuration, and the errors of reading them. Each file occurs once, after the
/// file that includes it.
#[derive(Clone, Default)]
pub struct Sources {
    pub(crate) files: Vec<Source>,
    pub(crate) problems: Vec<Problem>,
    read: HashSet<PathBuf>,
}

/// The text of a file, and the directory against which its relative paths are resolved.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) text: ConfigText,
    pub(crate) base: PathBuf,
    /// The text was made by a program: it includes no files, and its braces are no environment
    /// variables.
    is_generated: bool,
}

impl Sources {
    /// Reads a file, or all files `*.toml` of a directory, and the files that they include.
    pub fn read(path: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.read_path(path, &ConfigLocation::Unknown, 0);
        sources
    }

    /// Takes `text` as a file with this name in the directory `base`, and reads the files that it
    /// includes.
    pub fn of_text(name: &str, text: String, base: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.add(ConfigText::new(name, text), base, 0);
        sources
    }

    /// Adds a text that a program has made. It includes no files, and has no environment variables:
    /// parts of it may be chosen by others than the operator.
    #[must_use]
    pub fn with_generated(mut self, name: &str, text: String) -> Sources {
        let text = ConfigText::new(name, text);
        self.files.push(Source { text, base: PathBuf::new(), is_generated: true });
        self
    }

    /// Returns true if both have the same files with the same texts, and the same errors.
    pub fn is_same(&self, other: &Sources) -> bool {
        fn text(source: &Source) -> (&str, &str) {
            (source.text.name(), source.text.as_str())
        }
        self.files.iter().map(text).eq(other.files.iter().map(text))
            && self.problems == other.problems
    }

    /// Reads a file or a directory that the value at `location` names.
    fn read_path(&mut self, path: &Path, location: &ConfigLocation, depth: usize) {
        if path.is_dir() {
            let files = toml_files(path);
            if files.as_ref().is_ok_and(Vec::is_empty) {
                self.report(location, format!("{} has no file *.toml", path.display()));
            }
            return self.read_all(files, location, depth);
        }
        if !self.read.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())) {
            return;
        }
        if self.files.len() == MAX_FILES {
            return self.report(location, format!("there are more than {MAX_FILES} files"));
        }
        match read_text(path) {
            Ok(text) => {
                let text = ConfigText::new(&path.display().to_string(), text);
                self.add(text, path.parent().unwrap_or(Path::new("")), depth);
            }
            Err(error) => self.report(location, format!("cannot read {}: {error}", path.display())),
        }
    }

    fn read_all(
        &mut self,
        files: Result<Vec<PathBuf>, String>,
        location: &ConfigLocation,
        depth: usize,
    ) {
        match files {
            Ok(files) => files.iter().for_each(|file| self.read_path(file, location, depth)),
            Err(message) => self.report(location, message),
        }
    }

    fn add(&mut self, text: ConfigText, base: &Path, depth: usize) {
        let source = Source { text, base: base.to_owned(), is_generated: false };
        let included = source.includes();
        self.files.push(source);
        for Located { location, value } in included {
            if depth == MAX_DEPTH {
                self.report(&location, format!("more than {MAX_DEPTH} files include each other"));
                continue;
            }
            let path = base.join(&value);
            match value.contains(['*', '?', '[']) {
                true => {
                    // Only the text of the file is a pattern.
                    let base = Pattern::escape(&base.to_string_lossy());
                    let files = matches(&Path::new(&base).join(&value), &path);
                    self.read_all(files, &location, depth + 1);
                }
                false => self.read_path(&path, &location, depth + 1),
            }
        }
    }

    fn report(&mut self, location: &ConfigLocation, message: String) {
        self.problems.push(Problem { location: location.clone(), message });
    }
}

/// The parsed files of a configuration.
pub struct Document<'s> {
    tables: Vec<(Spanned<DeTable<'s>>, &'s Source)>,
    syntax_problems: Vec<Problem>,
}

impl<'s> Document<'s> {
    /// Parses the files, as far as they are valid, and replaces environment variables.
    pub fn parse(sources: &'s Sources) -> Document<'s> {
        let mut syntax_problems = sources.problems.clone();
        let tables = sources.files.iter();
        let tables = tables.map(|source| (source.table(&mut syntax_problems), source)).collect();
        Document { tables, syntax_problems }
    }

    /// Returns the sections, and the keys before the first section, in the order of their first
    /// occurrence. Each has the values of all files.
    pub fn sections(&self) -> Vec<(Name, Vec<Value<'_>>)> {
        let tables = self.tables.iter();
        let all = tables
            .flat_map(|(table, source)| entries(table.get_ref(), &source.text, &source.base))
            .collect::<Entries<'_>>();
        group(all)
    }

    /// Returns the syntax errors, followed by `problems`. Omits problems in lines with a syntax
    /// error, which may have caused them, and equal problems.
    pub fn with_syntax_problems(&self, mut problems: Vec<Problem>) -> Vec<Problem> {
        let invalid_lines: HashSet<_> =
            self.syntax_problems.iter().map(|problem| problem.location.line()).collect();
        let mut reported = HashSet::new();
        problems.retain(|problem: &Problem| {
            let line = problem.location.line();
            (line.is_none() || !invalid_lines.contains(&line))
                && reported.insert(problem.to_string())
        });
        self.syntax_problems.iter().cloned().chain(problems).collect()
    }
}

impl Source {
    /// Parses the text, as far as it is valid, and replaces environment variables.
    pub(crate) fn table(&self, problems: &mut Vec<Problem>) -> Spanned<DeTable<'_>> {
        let (mut table, errors) = DeTable::parse_recoverable(self.text.as_str());
        problems.extend(crate::syntax::problems(&self.text, &errors));
        if !self.is_generated {
            environment::expand_table(table.get_mut(), &self.text, problems);
        }
        table
    }

    /// Returns the values of the key `include`. The later conversion reports its errors.
    fn includes(&self) -> Vec<Located<String>> {
        let table = self.table(&mut Vec::new());
        let entries = entries(table.get_ref(), &self.text, &self.base);
        let include = entries.into_iter().find(|(name, _)| name.value == "include");
        include.and_then(|(_, value): (_, Value<'_>)| value.texts().ok()).unwrap_or_default()
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {} MiB", MAX_FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not valid UTF-8".to_owned())
}

/// Returns the errors of the syntax of a file with this name and text.
pub fn syntax_problems(name: &str, text: &str) -> Vec<Problem> {
    let (_, errors) = DeTable::parse_recoverable(text);
    crate::syntax::problems(&ConfigText::new(name, text.to_owned()), &errors)
}

/// Returns the files `*.toml` of a configuration that is a directory, sorted by path.
///
/// # Errors
/// If the directory cannot be read.
pub fn toml_files(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let pattern = Pattern::escape(&directory.to_string_lossy());
    matches(&Path::new(&pattern).join("*.toml"), directory)
}

/// Returns the files that match a pattern, sorted by path. `shown` is the pattern for messages.
fn matches(pattern: &Path, shown: &Path) -> Result<Vec<PathBuf>, String> {
    // As in a shell, so that files of editors such as `.#site.toml` are not read.
    let options = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let found = glob::glob_with(&pattern.to_string_lossy(), options)
        .map_err(|error| format!("invalid pattern {}: {error}", shown.display()))?;
    let is_directory = |found: &Result<PathBuf, _>| found.as_ref().is_ok_and(|path| path.is_dir());
    let files = found.filter(|found| !is_directory(found));
    files.map(|file| file.map_err(|error| format!("cannot read {error}"))).collect()
}
