//! The modules of a crate: their items, imports and paths, without tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::tokens::{Token, tokens};

/// The modules and files of a crate.
#[derive(Default)]
pub struct Modules {
    /// All modules, beginning with the root; parents before their children.
    pub modules: Vec<Module>,
    pub files: Vec<SourceFile>,
}

/// A source file that is compiled without `cfg(test)`.
pub struct SourceFile {
    pub path: PathBuf,
    /// Lines with code: neither blank nor comments, and no part of a test.
    pub code_lines: usize,
}

/// A module, in a file of its own or inline.
#[derive(Default)]
pub struct Module {
    /// Index of its file.
    pub file: usize,
    /// Index of the module that contains it. The root contains itself.
    pub parent: usize,
    /// Modules that it declares. If several have the same name, features select one.
    pub children: BTreeMap<String, Vec<usize>>,
    /// Names that it defines.
    pub items: BTreeSet<String>,
    /// Imports and re-exports, also those within functions.
    pub imports: Vec<Import>,
    /// Paths of several names, outside of imports.
    pub paths: Vec<Vec<String>>,
    /// All names, outside of imports.
    pub words: BTreeSet<String>,
}

/// A name of a `use` declaration.
pub struct Import {
    pub path: Vec<String>,
    /// Name in the module, or `*`.
    pub name: String,
    /// True if the declaration has a visibility.
    pub is_reexport: bool,
}

/// Reads a crate from its root file on. `text_of` returns the text of a file, if it exists.
pub fn read(root: &Path, text_of: &dyn Fn(&Path) -> Option<String>) -> Modules {
    let mut modules = Modules::default();
    read_file(&mut modules, text_of, root, root.parent().unwrap(), 0);
    modules
}

/// Reads the file of a module, if it exists. The files of the modules that it declares are in `folder`.
fn read_file(
    modules: &mut Modules,
    text_of: &dyn Fn(&Path) -> Option<String>,
    path: &Path,
    folder: &Path,
    parent: usize,
) -> Option<usize> {
    let text = text_of(path)?;
    let tokens = without_tests(&tokens(&text));
    let is_filled: Vec<bool> = text.lines().map(|line| !line.trim().is_empty()).collect();
    let lines = tokens.iter().flat_map(|token| token.line..=token.last_line);
    let lines: BTreeSet<usize> = lines.filter(|line| is_filled[*line]).collect();
    modules.files.push(SourceFile { path: path.to_owned(), code_lines: lines.len() });
    let file = modules.files.len() - 1;
    let mut reader = Reader { modules, text_of, tokens: &tokens, at: 0 };
    Some(reader.module(file, parent, folder))
}

/// Removes everything that has the attribute `cfg(test)`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while !rest.is_empty() {
        let (len, is_test) = attributes(rest);
        let len = if is_test { len + item_len(&rest[len..]) } else { (len + 1).min(rest.len()) };
        let (first, following) = rest.split_at(len);
        kept.extend_from_slice(if is_test { &[] } else { first });
        rest = following;
    }
    kept
}

/// Returns the number of tokens of the attributes at the start. Returns true as well if one of them is `cfg`
/// with `test`, alone or in `all`.
fn attributes(tokens: &[Token]) -> (usize, bool) {
    let (mut len, mut is_test) = (0, false);
    while let [hash, bracket, ..] = &tokens[len..]
        && hash.text == "#"
        && bracket.text == "["
    {
        let group = &tokens[len + 1..][..group_len(&tokens[len + 1..])];
        let has = |word: &str| group.iter().any(|token| token.text == word);
        is_test |= group[1].text == "cfg" && has("test") && !has("any") && !has("not");
        len += 1 + group.len();
    }
    (len, is_test)
}

/// Returns the number of tokens from an opening bracket to its closing one.
fn group_len(tokens: &[Token]) -> usize {
    let mut depth = 0;
    let is_end = |token: &Token| {
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Returns the number of tokens of an item, a statement, a field or a variant.
fn item_len(tokens: &[Token]) -> usize {
    let name = match tokens {
        [visibility, group, ..] if visibility.text == "pub" && group.text == "(" => {
            1 + group_len(&tokens[1..])
        }
        [visibility, ..] if visibility.text == "pub" => 1,
        _ => 0,
    };
    let ends_with_comma = tokens.get(name + 1).is_some_and(|it| [":", ","].contains(&&*it.text));
    let mut len = 0;
    while let Some(token) = tokens.get(len) {
        match &*token.text {
            ";" => return len + 1,
            "," if ends_with_comma => return len + 1,
            ")" | "]" | "}" => return len,
            "(" | "[" => len += group_len(&tokens[len..]),
            "{" => return len + group_len(&tokens[len..]),
            _ => len += 1,
        }
    }
    len
}

/// Reads the tokens of a file.
struct Reader<'a> {
    modules: &'a mut Modules,
    text_of: &'a dyn Fn(&Path) -> Option<String>,
    tokens: &'a [Token],
    /// Index of the current token.
    at: usize,
}

const DEFINITIONS: &[&str] = &["struct", "enum", "union", "trait", "type", "fn", "static", "const"];

impl Reader<'_> {
    /// Reads a module to its closing brace, or to the end of the file.
    fn module(&mut self, file: usize, parent: usize, folder: &Path) -> usize {
        let index = self.modules.modules.len();
        self.modules.modules.push(Module { file, parent, ..Module::default() });
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            match &*token.text {
                "{" => depth += 1,
                "}" if depth == 0 => break,
                "}" => depth -= 1,
                "mod" if depth == 0 || self.is_in_list_of_macro() => self.child(index, folder),
                "use" if self.text(1) != "<" => {
                    let before = self.at.checked_sub(1).map_or("", |at| &self.tokens[at].text);
                    let is_reexport = ["pub", ")"].contains(&before);
                    self.at += 1;
                    self.import_tree(index, &[], is_reexport);
                }
                "macro_rules" if depth == 0 => self.define(index, 2),
                word if depth == 0 && DEFINITIONS.contains(&word) => self.define(index, 1),
                _ if token.is_word() => self.path(index),
                _ => {}
            }
            self.at += 1;
        }
        index
    }

    /// Returns true for `mod name;` and `mod name: …` among the arguments of a macro that declares modules.
    fn is_in_list_of_macro(&self) -> bool {
        let is_name = self.tokens.get(self.at + 1).is_some_and(Token::is_word);
        is_name && [";", ":"].contains(&self.text(2))
    }

    fn text(&self, offset: usize) -> &str {
        self.tokens.get(self.at + offset).map_or("", |token| &token.text)
    }

    fn define(&mut self, module: usize, offset: usize) {
        let name = self.text(offset).to_owned();
        self.modules.modules[module].items.insert(name);
    }

    /// Reads `mod name;` or `mod name { … }`.
    fn child(&mut self, parent: usize, folder: &Path) {
        let name = self.text(1).to_owned();
        let own_folder = folder.join(&name);
        let is_inline = self.text(2) == "{";
        self.at += if is_inline { 3 } else { 2 };
        let child = if is_inline {
            let file = self.modules.modules[parent].file;
            Some(self.module(file, parent, &own_folder))
        } else {
            // A file with the attribute `path` belongs to another crate, or replaces this file in
            // builds without a feature.
            let mut paths = vec![folder.join(format!("{name}.rs")), own_folder.join("mod.rs")];
            paths.retain(|path| self.modules.files.iter().all(|file| file.path != *path));
            let read =
                |path: &PathBuf| read_file(self.modules, self.text_of, path, &own_folder, parent);
            paths.iter().find_map(read)
        };
        self.modules.modules[parent].children.entry(name).or_default().extend(child);
    }

    /// Reads a part of a `use` declaration, up to its comma, closing brace or semicolon.
    fn import_tree(&mut self, module: usize, prefix: &[String], is_reexport: bool) {
        let mut path = prefix.to_vec();
        let mut name = None;
        // `::cookie` is another crate.
        let is_external = path.is_empty() && self.text(0) == ":";
        while ![",", ";", "}"].contains(&self.text(0)) {
            match self.text(0) {
                "{" => {
                    while self.text(0) != "}" {
                        self.at += 1;
                        self.import_tree(module, &path, is_reexport);
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    name = Some(self.text(1).to_owned());
                    self.at += 1;
                }
                "self" if !path.is_empty() => {}
                ":" => {}
                word => path.push(word.to_owned()),
            }
            self.at += 1;
        }
        let Some(last) = path.last().filter(|_| !is_external && path != prefix).cloned() else {
            return;
        };
        if last == "*" {
            path.pop();
        }
        let import = Import { path, name: name.unwrap_or(last), is_reexport };
        self.modules.modules[module].imports.push(import);
    }

    /// Reads a name, or a path of names.
    fn path(&mut self, module: usize) {
        let before = |n: usize| self.at.checked_sub(n).map_or("", |at| &*self.tokens[at].text);
        let is_member = before(1) == "." && before(2) != ".";
        // Follows a type in angle brackets, or begins with `::`, as other crates do.
        let is_rest = before(1) == ":" && before(2) == ":";
        let mut path = vec![self.text(0).to_owned()];
        while self.text(1) == ":"
            && self.text(2) == ":"
            && self.tokens.get(self.at + 3).is_some_and(Token::is_word)
        {
            self.at += 3;
            path.push(self.text(0).to_owned());
        }
        if is_member || is_rest {
            return;
        }
        let module = &mut self.modules.modules[module];
        module.words.insert(path[0].clone());
        if path.len() > 1 {
            module.paths.push(path);
        }
    }
}
