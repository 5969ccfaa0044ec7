//! The directives of a Caddyfile. Snippets and included files are in their places.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{Token, tokens, with_variables};

/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Maximum number of files, each counted as often as it is included.
const MAX_FILES: usize = 1_000;

/// Maximum number of files and snippets that include each other.
const MAX_IMPORT_DEPTH: usize = 16;

/// Maximum number of nested blocks.
const MAX_BLOCK_DEPTH: usize = 32;

/// Maximum number of directives, with each copy of a snippet.
const MAX_DIRECTIVES: usize = 100_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Directive {
    /// Unique in a configuration.
    pub(super) id: usize,
    /// Empty for a block without a name, such as the global options.
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
    /// File and line.
    pub(super) at: String,
}

impl Directive {
    /// Returns an argument; an empty text if it is missing.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", |arg| arg)
    }

    pub(super) fn children(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the children with one of these names.
    pub(super) fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Directive> {
        let name = name.to_owned();
        self.children().iter().filter(move |child| child.name == name)
    }

    /// Returns the last child with this name.
    pub(super) fn child<'a>(&'a self, name: &str) -> Option<&'a Directive> {
        self.named(name).last()
    }

    /// Returns the directive as it is written, without its block, and shortened.
    pub(super) fn text(&self) -> String {
        let words = self.args.iter().map(|arg| match arg.is_empty() || arg.contains(' ') {
            true => format!("\"{arg}\""),
            false => arg.clone(),
        });
        let words: Vec<String> = std::iter::once(self.name.clone()).chain(words).collect();
        let text = words.join(" ");
        match text.char_indices().nth(60) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

/// Reads a Caddyfile. Returns its global options, sites and what else is at the top.
///
/// # Errors
/// A message with file and line if a file cannot be read or parsed.
pub(super) fn read(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Directive>, String> {
    let base = path.parent().unwrap_or(Path::new("")).to_owned();
    let snippets = BTreeMap::new();
    let mut reader = Reader { base, variable, snippets, files: 0, directives: 0 };
    let items = reader.file(path, true, 0, 0)?;
    Ok(with_single_site(items))
}

/// A file without braces around its directives is one site, whose addresses are the first line.
fn with_single_site(mut items: Vec<Directive>) -> Vec<Directive> {
    let first = items.iter().position(|item| !item.name.is_empty());
    let Some(first) = first.filter(|first| items[*first].block.is_none()) else { return items };
    let rest = items.split_off(first + 1);
    items[first].block = Some(rest);
    items
}

struct Reader<'a> {
    /// Directory of the main file.
    base: PathBuf,
    variable: &'a dyn Fn(&str) -> Option<String>,
    snippets: BTreeMap<String, Vec<Directive>>,
    files: usize,
    directives: usize,
}

type Tokens = Peekable<std::vec::IntoIter<Token>>;

/// Place of a block: its file, depth, and the number of imports around it.
struct Place {
    file: Rc<str>,
    folder: PathBuf,
    imports: usize,
    depth: usize,
    is_top: bool,
}

impl Reader<'_> {
    fn file(
        &mut self,
        path: &Path,
        is_top: bool,
        imports: usize,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        let shown = path.strip_prefix(&self.base).unwrap_or(path);
        let file: Rc<str> = shown.to_string_lossy().into();
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(format!("more than {MAX_FILES} files are imported"));
        }
        let text = read_text(path).map_err(|error| format!("cannot read {file}: {error}"))?;
        let text = with_variables(&text, self.variable).map_err(|name| {
            format!(
                "{file}: the environment variable `{name}` is not set and has no default; set it \
                 as for Caddy"
            )
        })?;
        let tokens = tokens(&text).map_err(|(line, reason)| format!("{file}:{line}: {reason}"))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let place = Place { file, folder, imports, depth, is_top };
        self.block(&mut tokens.into_iter().peekable(), &place, false)
    }

    /// Reads directives to the end of a block, or of the file.
    fn block(
        &mut self,
        tokens: &mut Tokens,
        place: &Place,
        is_opened: bool,
    ) -> Result<Vec<Directive>, String> {
        if place.depth > MAX_BLOCK_DEPTH {
            return Err(format!("{}: more than {MAX_BLOCK_DEPTH} nested blocks", place.file));
        }
        let mut directives = Vec::new();
        while let Some(token) = tokens.next() {
            let at = format!("{}:{}", place.file, token.line);
            if token.is("}") {
                return match is_opened {
                    true => Ok(directives),
                    false => Err(format!("{at}: `}}` closes no block")),
                };
            }
            let directive = self.directive(token, tokens, place, at)?;
            match &*directive.name {
                "import" => directives.extend(self.import(&directive, place)?),
                name if place.is_top && name.starts_with('(') && name.ends_with(')') => {
                    let name = name[1..name.len() - 1].to_owned();
                    self.snippets.insert(name, directive.block.unwrap_or_default());
                }
                _ => directives.push(directive),
            }
        }
        match is_opened {
            true => Err(format!("{}: a block does not end", place.file)),
            false => Ok(directives),
        }
    }

    fn directive(
        &mut self,
        token: Token,
        tokens: &mut Tokens,
        place: &Place,
        at: String,
    ) -> Result<Directive, String> {
        let opens = token.is("{");
        let name = if opens { String::new() } else { token.text };
        let mut directive = Directive { id: self.next_id()?, name, at, ..Directive::default() };
        let mut has_block = opens;
        while !has_block && let Some(next) = tokens.peek() {
            let last = directive.args.last().unwrap_or(&directive.name);
            let continues = place.is_top && last.ends_with(',');
            if next.starts_line && !continues || next.is("}") {
                break;
            }
            let Some(next) = tokens.next() else { break };
            let ends_line = tokens.peek().is_none_or(|it| it.starts_line || it.is("}"));
            match next.is("{") && ends_line {
                true => has_block = true,
                false => directive.args.push(next.text),
            }
        }
        if has_block {
            let place = Place {
                file: place.file.clone(),
                folder: place.folder.clone(),
                imports: place.imports,
                depth: place.depth + 1,
                is_top: false,
            };
            directive.block = Some(self.block(tokens, &place, true)?);
        }
        Ok(directive)
    }

    fn next_id(&mut self) -> Result<usize, String> {
        self.directives += 1;
        match self.directives > MAX_DIRECTIVES {
            true => Err(format!("more than {MAX_DIRECTIVES} directives")),
            false => Ok(self.directives),
        }
    }

    fn import(&mut self, import: &Directive, place: &Place) -> Result<Vec<Directive>, String> {
        if place.imports >= MAX_IMPORT_DEPTH {
            return Err(format!("{}: more than {MAX_IMPORT_DEPTH} nested imports", import.at));
        }
        let args = import.args.get(1..).unwrap_or_default();
        if let Some(snippet) = self.snippets.get(import.arg(0)).cloned() {
            return snippet.iter().map(|it| self.copy(it, args)).collect();
        }
        let pattern = place.folder.join(import.arg(0));
        let pattern = pattern.to_string_lossy().into_owned();
        let found = glob::glob(&pattern).map_err(|error| format!("{}: {error}", import.at))?;
        let mut found: Vec<PathBuf> = found.flatten().filter(|path| path.is_file()).collect();
        found.sort();
        if found.is_empty() && !pattern.contains(['*', '?', '[']) {
            return Err(format!("{}: there is no file or snippet `{}`", import.at, import.arg(0)));
        }
        let mut directives = Vec::new();
        for path in found {
            let items = self.file(&path, place.is_top, place.imports + 1, place.depth)?;
            for item in items {
                directives.push(match args.is_empty() {
                    true => item,
                    false => self.copy(&item, args)?,
                });
            }
        }
        Ok(directives)
    }

    /// Returns a directive of a snippet with the arguments of its import.
    fn copy(&mut self, directive: &Directive, args: &[String]) -> Result<Directive, String> {
        let id = self.next_id()?;
        let mut words = Vec::new();
        for word in &directive.args {
            match &**word {
                "{args[:]}" | "{args.*}" => words.extend(args.iter().cloned()),
                word => words.push(with_args(word, args)),
            }
        }
        let block = directive.block.as_ref().map(|block| {
            block.iter().map(|child| self.copy(child, args)).collect::<Result<Vec<_>, _>>()
        });
        let name = with_args(&directive.name, args);
        let at = directive.at.clone();
        Ok(Directive { id, name, args: words, block: block.transpose()?, at })
    }
}

/// Replaces `{args.0}` and `{args[0]}`.
fn with_args(text: &str, args: &[String]) -> String {
    let numbered = args.iter().enumerate();
    numbered.fold(text.to_owned(), |text, (number, arg)| {
        let text = text.replace(&format!("{{args.{number}}}"), arg);
        text.replace(&format!("{{args[{number}]}}"), arg)
    })
}

fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {} MiB", MAX_FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(files: &[(&str, &str)]) -> Result<Vec<Directive>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        read(&folder.path().join("Caddyfile"), &|_| None)
    }

    fn texts(directives: &[Directive]) -> Vec<String> {
        directives.iter().map(Directive::text).collect()
    }

    #[test]
    fn snippets_and_files_are_in_their_places() {
        let found = parsed(&[
            (
                "Caddyfile",
                "(s) {\nrespond {args.0} {args[1]}\nheader {args[:]}\n}\na.org,\nb.org {\n\
                           import s x y\nimport sites/none*\nimport more z\n}\nimport other\n",
            ),
            ("more", "redir {args[0]}\n"),
            ("other", "c.org {\nimport s 1 2\n}\n"),
        ])
        .unwrap();
        assert_eq!(texts(&found), ["a.org, b.org", "c.org"]);
        assert_eq!(texts(found[0].children()), ["respond x y", "header x y", "redir z"]);
        assert_eq!(texts(found[1].children()), ["respond 1 2", "header 1 2"]);
        assert!(found[0].children()[0].at.ends_with("Caddyfile:2"), "{:?}", found[0]);
    }

    #[test]
    fn a_file_without_braces_is_one_site() {
        let found = parsed(&[("Caddyfile", "{\nadmin off\n}\na.org\nrespond a\nhandle {\n}\n")]);
        let found = found.unwrap();
        assert_eq!(texts(&found), ["", "a.org"]);
        assert_eq!(texts(found[1].children()), ["respond a", "handle"]);
    }

    #[test]
    fn imports_and_blocks_have_limits() {
        let error = parsed(&[("Caddyfile", "import Caddyfile\n")]).unwrap_err();
        assert!(error.contains("more than 16 nested imports"), "{error}");
        // Each snippet has the one before it ten times.
        let mut text = "(s0) {\nrespond a\n}\n".to_owned();
        for level in 1..=6 {
            let imports = format!("import s{}\n", level - 1).repeat(10);
            text.push_str(&format!("(s{level}) {{\n{imports}}}\n"));
        }
        let site = |level: usize| format!("{text}a.org {{\nimport s{level}\n}}\n");
        assert!(parsed(&[("Caddyfile", "a.org {\nimport none\n}\n")]).is_err());
        let error = parsed(&[("Caddyfile", &site(6))]).unwrap_err();
        assert_eq!(error, "more than 100000 directives");
        let nested = |depth: usize| format!("{}{}", "a {\n".repeat(depth), "}\n".repeat(depth));
        assert!(parsed(&[("Caddyfile", &nested(MAX_BLOCK_DEPTH))]).is_ok());
        let error = parsed(&[("Caddyfile", &nested(MAX_BLOCK_DEPTH + 1))]).unwrap_err();
        assert!(error.contains("more than 32 nested blocks"), "{error}");
    }
}
