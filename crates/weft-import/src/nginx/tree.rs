//! The directives of a configuration of nginx. Directives of included files are in their places.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{Lexer, Position, Token};

/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Maximum number of files, each counted as often as it is included.
const MAX_FILES: usize = 1_000;

/// Maximum number of files that include each other.
const MAX_INCLUDE_DEPTH: usize = 16;

/// Maximum number of nested blocks.
const MAX_BLOCK_DEPTH: usize = 32;

/// Maximum number of directives.
const MAX_DIRECTIVES: usize = 200_000;

#[derive(Debug)]
pub(super) struct Directive {
    /// Unique in a configuration.
    pub(super) id: usize,
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    pub(super) at: Position,
}

impl Directive {
    /// Returns an argument; an empty text if it is missing.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", |arg| arg)
    }

    /// Returns the value of the argument `NAME=VALUE`.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the condition of an `if`, without its parentheses.
    pub(super) fn condition(&self) -> String {
        let text = self.args.join(" ");
        let text = text.strip_prefix('(').unwrap_or(&text);
        text.strip_suffix(')').unwrap_or(text).trim().to_owned()
    }

    pub(super) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the first child with this name.
    pub(super) fn child(&self, name: &'static str) -> Option<&Directive> {
        named(self.children(), name).next()
    }

    /// Returns the directive as it is written, without its block.
    pub(super) fn text(&self) -> String {
        let words = self.args.iter().map(|arg| {
            match arg.is_empty() || arg.contains([' ', '\t', ';', '{', '"']) {
                true => format!("\"{arg}\""),
                false => arg.clone(),
            }
        });
        let words: Vec<String> = std::iter::once(self.name.clone()).chain(words).collect();
        words.join(" ")
    }
}

/// Returns the directives of a block that have this name.
pub(super) fn named<'a>(
    block: &'a [Directive],
    name: &'static str,
) -> impl Iterator<Item = &'a Directive> + Clone {
    block.iter().filter(move |directive| directive.name == name)
}

/// Reads a configuration, and the files that it includes.
///
/// # Errors
/// A message with file, line and column if a file cannot be read or parsed.
pub(super) fn read(path: &Path) -> Result<Vec<Directive>, String> {
    let base = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut reader = Reader { base, files: 0, directives: 0 };
    reader.file(path, 0, 0)
}

struct Reader {
    /// Directory of the main file, to which all names of included files are relative.
    base: PathBuf,
    files: usize,
    directives: usize,
}

impl Reader {
    fn file(
        &mut self,
        path: &Path,
        includes: usize,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        let shown = path.strip_prefix(&self.base).unwrap_or(path);
        let shown: Rc<str> = shown.to_string_lossy().into();
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(format!("more than {MAX_FILES} files are included"));
        }
        let text = read_text(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        let mut lexer = Lexer::new(shown, &text);
        self.block(&mut lexer, includes, depth, None)
    }

    /// Reads directives to the end of a block, or of the file without `opened`.
    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        includes: usize,
        depth: usize,
        opened: Option<&Position>,
    ) -> Result<Vec<Directive>, String> {
        if depth > MAX_BLOCK_DEPTH {
            return Err(format!("more than {MAX_BLOCK_DEPTH} blocks are nested"));
        }
        let mut directives = Vec::new();
        loop {
            let (token, at) = lexer.next()?;
            let name = match (token, opened) {
                (Token::Word(name), _) => name,
                (Token::Close, Some(_)) | (Token::End, None) => return Ok(directives),
                (Token::End, Some(opened)) => {
                    return Err(lexer.error(opened, "the block has no `}`"));
                }
                (Token::Close, None) => return Err(lexer.error(&at, "unexpected `}`")),
                (Token::Semicolon, _) => return Err(lexer.error(&at, "unexpected `;`")),
                (Token::Open, _) => return Err(lexer.error(&at, "unexpected `{`")),
            };
            self.directives += 1;
            if self.directives > MAX_DIRECTIVES {
                return Err(format!("more than {MAX_DIRECTIVES} directives"));
            }
            let mut directive =
                Directive { id: self.directives, name, args: Vec::new(), block: None, at };
            loop {
                match lexer.next()? {
                    (Token::Word(word), _) => directive.args.push(word),
                    (Token::Semicolon, _) => break,
                    (Token::Open, _) if directive.name.ends_with("_by_lua_block") => {
                        lexer.skip_code();
                        directive.block = Some(Vec::new());
                        break;
                    }
                    (Token::Open, at) => {
                        directive.block =
                            Some(self.block(lexer, includes, depth + 1, Some(&at))?);
                        break;
                    }
                    (Token::Close | Token::End, at) => {
                        let message =
                            format!("expected `;` or a block behind `{}`", directive.name);
                        return Err(lexer.error(&at, &message));
                    }
                }
            }
            if directive.name == "location" {
                split_modifier(&mut directive.args);
            }
            match &*directive.name {
                "include" => directives.extend(self.include(&directive, includes, depth)?),
                _ => directives.push(directive),
            }
        }
    }

    fn include(
        &mut self,
        directive: &Directive,
        includes: usize,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        let at = &directive.at;
        if includes == MAX_INCLUDE_DEPTH {
            return Err(format!("{at}: more than {MAX_INCLUDE_DEPTH} files include each other"));
        }
        let path = self.base.join(directive.arg(0));
        let is_pattern = directive.arg(0).contains(['*', '?', '[']);
        let files: Vec<PathBuf> = match is_pattern {
            true => {
                // As in a shell, `*` matches no name that begins with a dot.
                let options = glob::MatchOptions {
                    case_sensitive: true,
                    require_literal_separator: true,
                    require_literal_leading_dot: true,
                };
                let matches = glob::glob_with(&path.to_string_lossy(), options)
                    .map_err(|error| format!("{at}: invalid pattern: {error}"))?;
                matches.filter_map(Result::ok).collect()
            }
            false => vec![path],
        };
        let mut all = Vec::new();
        for file in files {
            let included = self.file(&file, includes + 1, depth);
            all.extend(included.map_err(|message| match message.starts_with("cannot read") {
                true => format!("{at}: {message}"),
                false => message,
            })?);
        }
        Ok(all)
    }
}

/// Splits the only argument of `location ~\.x$`, which has no blank behind its modifier.
fn split_modifier(args: &mut Vec<String>) {
    let [only] = &**args else { return };
    let modifier = ["^~", "~*", "~", "="].into_iter().find(|modifier| only.starts_with(modifier));
    if let Some(modifier) = modifier.filter(|modifier| only.len() > modifier.len()) {
        *args = vec![modifier.to_owned(), only[modifier.len()..].to_owned()];
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // One byte more, to detect that the file is larger.
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn shown(directives: &[Directive]) -> String {
        let shown = directives.iter().map(|directive| match &directive.block {
            Some(block) => format!("{} {{ {} }}", directive.text(), shown(block)),
            None => format!("{}@{}", directive.text(), directive.at),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn replaces_includes_relative_to_the_main_file() {
        let files = [
            ("nginx.conf", "a;\nhttp { include conf.d/*.conf; include none/*.conf; }\nb;"),
            ("conf.d/1.conf", "c 'd e';\ninclude snippets/s;"),
            ("conf.d/2.conf", "\n\nf { }"),
            ("snippets/s", "g;"),
        ];
        let folder = folder(&files);
        let main = folder.path().join("nginx.conf");
        let expected = "a@nginx.conf:1 http { c \"d e\"@conf.d/1.conf:1 g@snippets/s:1 f {  } } \
                        b@nginx.conf:3";
        assert_eq!(shown(&read(&main).unwrap()), expected);
    }

    #[test]
    fn reports_errors_with_their_location() {
        for (text, expected) in [
            ("a", ":1:2: expected `;` or a block behind `a`"),
            ("a }", ":1:3: expected `;` or a block behind `a`"),
            ("}", ":1:1: unexpected `}`"),
            (";", ":1:1: unexpected `;`"),
            ("{", ":1:1: unexpected `{`"),
            ("a\n {b;", ":2:2: the block has no `}`"),
            ("\ninclude none;", ":2: cannot read none: No such file"),
            ("include nginx.conf;", ": more than 16 files include each other"),
            (&"a {".repeat(40), "more than 32 blocks are nested"),
            (&"a;".repeat(MAX_DIRECTIVES + 1), "more than 200000 directives"),
            (&"#".repeat(MAX_FILE_BYTES as usize + 1), "it has more than 4194304 bytes"),
            ("include g*; include g*;", "more than 1000 files are included"),
        ] {
            let folder = folder(&[("nginx.conf", text)]);
            if text.contains("g*") {
                (0..600).for_each(|n| drop(File::create(folder.path().join(format!("g{n}")))));
            }
            let message = read(&folder.path().join("nginx.conf")).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
