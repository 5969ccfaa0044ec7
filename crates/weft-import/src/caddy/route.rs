//! The outcome of a case → a route.

use super::matcher::Case;
use super::outcome::{CurrentPath, Outcome, PATH, Responder, URI};
use super::region::{Region, Tail};
use crate::Target;
use crate::document::{Route, Table, Value};
use crate::regex::escape;

/// Kind of the key of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The prefix is removed from the path.
    Prefix,
    /// The path is whole.
    Whole,
}

/// Returns true if a route needs the whole path, and thus an expression as its key.
pub(super) fn needs_expression(region: &Region, outcome: &Outcome, outer: &Outcome) -> bool {
    let Region::Below(prefix, tail) = region else { return false };
    let stripped = format!("{}/", outcome.stripped);
    let is_stripped_otherwise = !outcome.stripped.is_empty() && stripped != *prefix;
    let is_fixed_redirect = match &outcome.responder {
        Responder::Redirect { to, .. } => !to.contains('{'),
        _ => false,
    };
    if prefix.is_empty() && *tail == Tail::Any {
        return is_fixed_redirect || is_stripped_otherwise;
    }
    let uses_files = matches!(
        outcome.responder,
        Responder::Files(_) | Responder::Php(_) | Responder::Fastcgi(_)
    );
    // Without an outer route, no path gets more than in Caddy.
    let is_alone = outer.responder == Responder::None;
    let differs = outcome.access() != outer.access()
        || outcome.is_closed() != outer.is_closed()
        || outcome.is_closed();
    *tail != Tail::Any
        || !prefix.ends_with('/')
        || is_fixed_redirect
        || is_stripped_otherwise
        || uses_files && outcome.stripped.is_empty()
        // A prefix has a path more, and other spellings are not of it.
        || differs && !is_alone
        // Hidden names of the files around it would precede a prefix.
        || !outer.hidden.is_empty() && outcome.hidden != outer.hidden
        || is_special(prefix)
}

/// Returns true for a prefix that no key may have.
fn is_special(prefix: &str) -> bool {
    prefix.contains([';', '\\', '?', '#', '*', '{', '}', '[', ']', '|', '^', '%', ' ', '(', '$'])
}

/// Returns the key of a route without its method; `None` for a region without an expression.
pub(super) fn key(region: &Region, outcome: &Outcome, form: Form) -> Option<String> {
    let rest = Some(&*outcome.stripped).filter(|stripped| !stripped.is_empty());
    match (region, form) {
        (Region::Below(prefix, _), Form::Prefix) if prefix.is_empty() => Some("/".to_owned()),
        (Region::Below(prefix, _), Form::Prefix) => Some(prefix.clone()),
        (Region::Exact(path), Form::Prefix) if !is_special(path) => Some(format!("= {path}")),
        (region, _) => region.regex(rest).map(|regex| format!("~ {regex}")),
    }
}

/// Returns the route of a case; `None` if Caddy responds with nothing, or if it is refused for want
/// of a key.
pub(super) fn route(case: Case<'_>, outcome: &Outcome, form: Form, key: String) -> Option<Route> {
    let texts = Texts { region: case.region, outcome, form };
    let mut table = match &outcome.responder {
        Responder::None if case.region.is_all() => return None,
        Responder::Refused => return Some(Route::refusal(key, "", 403)),
        Responder::None => fixed("", 200),
        Responder::Fixed { text, status } => fixed(&texts.replace(text), *status),
        Responder::Redirect { to, status } => {
            let mut table = Table::default();
            table.set_redirect(texts.target(to), *status);
            table
        }
        Responder::Files(own) | Responder::Php(own) => match texts.files(own) {
            Some(table) => table,
            None => return Some(Route::refusal(key, "", 403)),
        },
        Responder::Fastcgi(own) => fastcgi(own, outcome),
        Responder::Proxy(own) => texts.proxy(own),
    };
    let mut options = texts.all(&outcome.options);
    let has_scripts = matches!(
        outcome.responder,
        Responder::Proxy(_) | Responder::Php(_) | Responder::Fastcgi(_)
    );
    if !has_scripts {
        // Files are compressed by default.
        options.remove("compress");
    }
    if let Responder::Fixed { text, .. } = &outcome.responder {
        media_type(text, &mut table, &mut options);
        let is_refusal = outcome.is_closed() && text.is_empty();
        if is_refusal && options.is_empty() {
            return Some(Route { is_refusal, ..Route::new(key, table) });
        }
    }
    table.add(&options);
    Some(Route::new(key, table))
}

fn fixed(text: &str, status: u64) -> Table {
    let mut table = Table::default();
    table.set_response(text, status);
    table
}

/// Returns true if a text may have a placeholder of Weft.
fn has_placeholder(text: &str) -> bool {
    let mut parts = text.split('{').skip(1);
    parts.any(|part| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '\u{1}'))
}

/// A text has its media type in a key of its own.
fn media_type(text: &str, table: &mut Table, options: &mut Table) {
    let Some(Value::Table(fields)) = options.get("response_headers").cloned() else { return };
    let name = fields
        .keys()
        .find(|name| name.trim_start_matches(['?', '+']).eq_ignore_ascii_case("content-type"));
    let Some(name) = name.map(str::to_owned).filter(|_| !has_placeholder(text)) else {
        return;
    };
    let value = fields.get(&name).cloned();
    let mut fields = fields;
    fields.remove(&name);
    options.remove("response_headers");
    options.set_filled("response_headers", fields);
    table.set_some("content_type", value);
}

fn fastcgi(own: &Table, outcome: &Outcome) -> Table {
    let mut table = Table::default();
    table.set_some("fastcgi", own.get("fastcgi").or(own.get("php")).cloned());
    table.set_some("root", outcome.root.clone());
    let mut others = own.clone();
    ["fastcgi", "php", "fallback"].iter().for_each(|key| others.remove(key));
    table.add(&others);
    table
}

/// Texts of a route, in which the current path depends on the key.
struct Texts<'a> {
    region: &'a Region,
    outcome: &'a Outcome,
    form: Form,
}

impl Texts<'_> {
    /// Returns the placeholder for the current path.
    fn path(&self) -> String {
        let stripped = &self.outcome.stripped;
        match (self.region, self.form) {
            _ if stripped.is_empty() => "{path}".to_owned(),
            (Region::Exact(path), Form::Prefix) => {
                let rest = path.get(stripped.len()..).unwrap_or_default();
                if rest.is_empty() { "/".to_owned() } else { rest.to_owned() }
            }
            (_, Form::Prefix) => "{rest}".to_owned(),
            (_, Form::Whole) => "/{re.rest}".to_owned(),
        }
    }

    fn replace(&self, text: &str) -> String {
        let path = self.path();
        let uri = match self.outcome.stripped.is_empty() {
            true => "{uri}".to_owned(),
            false => format!("{path}?{{query}}"),
        };
        text.replace(URI, &uri).replace(PATH, &path)
    }

    fn all(&self, table: &Table) -> Table {
        table.map_texts(&|text| self.replace(text))
    }

    /// Returns the target of a redirect, to which nothing is appended.
    fn target(&self, to: &str) -> String {
        let target = self.replace(to);
        let is_fixed = !target.contains('{') && !target.contains(['?', '#']);
        if is_fixed { format!("{target}?") } else { target }
    }

    /// Returns the path that replaces the path of the request, if it is another one.
    fn rewritten(&self) -> Option<String> {
        match &self.outcome.path {
            CurrentPath::Changed(path) => Some(self.replace(path)),
            CurrentPath::OfRequest if self.outcome.stripped.is_empty() => None,
            CurrentPath::OfRequest => Some(self.path()).filter(|path| path != "{rest}"),
        }
    }

    /// Returns the keys of files; `None` if `try_files` has no equivalent.
    fn files(&self, own: &Table) -> Option<Table> {
        let mut table = Table::default();
        table.set_some("files", self.outcome.root.clone());
        table.add(own);
        self.candidates(&mut table)?;
        table.set_some("rewrite", self.rewritten());
        if table.get("rewrite").is_some() && table.get("try_files").is_some() {
            return None;
        }
        Some(table)
    }

    /// Adds `fallback` or `try_files`.
    fn candidates(&self, table: &mut Table) -> Option<()> {
        let all: Vec<&str> = self.outcome.candidates.iter().map(|it| &**it).collect();
        let is_file = |text: &str| text.starts_with('/') && !text.contains(['{', '?']);
        let is_own = |text: &&&str| matches!(**text, "{path}" | "{path}/");
        let rest: Vec<&str> = all.iter().filter(|it| !is_own(it)).copied().collect();
        let last = rest.last().copied().unwrap_or_default();
        let last_path = last.split('?').next().unwrap_or_default();
        if table.get("php").is_some() {
            if last_path.ends_with(".php") && is_file(last_path) {
                table.set("fallback", last_path.trim_start_matches('/'));
            }
            return Some(());
        }
        let then = self.outcome.without_file.as_ref().map(|(name, _)| &**name);
        match (&*rest, then) {
            ([], None) | (["=404"], None) => return Some(()),
            ([file], None) if is_file(file) && all.first() == Some(&"{path}") => {
                // Scripts are no files.
                if file.ends_with(".php") {
                    return None;
                }
                table.set("fallback", file.trim_start_matches('/'));
                return Some(());
            }
            _ => {}
        }
        let mut listed = Vec::new();
        for text in all {
            let is_known = text.starts_with('=')
                || is_file(text)
                || text.strip_prefix("{path}").is_some_and(|rest| !rest.contains(['{', '?']));
            if !is_known || text.ends_with(".php") {
                return None;
            }
            listed.push(match text.starts_with('/') {
                true => format!("{}{text}", self.outcome.stripped),
                false => text.to_owned(),
            });
        }
        match then {
            Some(name) => listed.push(name.to_owned()),
            None if !last.starts_with('=') => listed.push("=404".to_owned()),
            None => {}
        }
        table.set("try_files", listed);
        Some(())
    }

    fn proxy(&self, own: &Table) -> Table {
        let mut table = Table::default();
        let prefix = match (self.region, self.form) {
            (Region::Below(prefix, _), Form::Prefix)
                if self.outcome.stripped.is_empty()
                    && self.outcome.path == CurrentPath::OfRequest =>
            {
                &**prefix
            }
            _ => "",
        };
        let with_path = |url: &str| {
            let (url, options) = url.split_once(' ').map_or((url, ""), |it| it);
            let colon = if url.starts_with("unix:") && !prefix.is_empty() { ":" } else { "" };
            format!("{url}{colon}{prefix} {options}").trim_end().to_owned()
        };
        let urls = match own.get("proxy") {
            Some(Value::Text(url)) => Value::Text(with_path(url)),
            Some(Value::List(urls)) => {
                let texts = urls.iter().filter_map(|url| match url {
                    Value::Text(url) => Some(with_path(url)),
                    _ => None,
                });
                Value::from(texts.collect::<Vec<_>>())
            }
            _ => Value::from(""),
        };
        table.set("proxy", urls);
        table.set_some("rewrite", self.rewritten());
        table.add(own);
        table
    }
}

/// Returns the routes of hidden files, which precede the routes that serve the others.
pub(super) fn hidden(region: &Region, outcome: &Outcome, target: &dyn Target) -> Vec<Route> {
    let below = match region {
        Region::Below(prefix, _) => prefix.clone(),
        Region::Exact(_) => return Vec::new(),
    };
    let stripped = escape(&outcome.stripped);
    let regexes = outcome.hidden.iter().map(|regex| match regex.strip_prefix('^') {
        Some(path) => format!("^{stripped}{path}"),
        None if below.is_empty() => regex.clone(),
        None => {
            let inner = regex.trim_start_matches('/');
            format!("^{}(.*/)?{inner}", escape(&below))
        }
    });
    let keys = regexes.map(|regex| format!("~ {regex}")).filter(|key| target.is_route_key(key));
    keys.map(|key| Route::refusal(key, "", 404)).collect()
}
