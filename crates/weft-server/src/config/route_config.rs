//! The configuration of a route: an operator and a target, or a table.

use std::path::Path;

use weft_config::{
    Entries, Located, Name, Problem, SectionKey, Snippets, Value, find, read_entries,
};

use super::foreign_keys::{advice_on_text, foreign_key};
use crate::apps::{FORMS, Form, FormTable, FormType};
use crate::options::{RouteOptions, option_keys};
use crate::route::{REWRITE, RewriteConfig, SPLIT, SplitConfig, WHEN, WhenConfig};

/// A route: its form for the requests of a key, such as a prefix.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    pub(crate) key: Located<String>,
    pub(crate) when: WhenConfig,
    pub(crate) options: RouteOptions,
    pub(crate) rewrite: RewriteConfig,
    pub(crate) split: SplitConfig,
    pub(crate) form: Located<Form>,
}

/// A form with an operator in front of its target.
pub(super) struct OperatorForm {
    form: &'static FormType,
    pub(super) sign: &'static str,
    argument: &'static str,
    subject: &'static str,
}

pub(super) fn operators() -> impl Iterator<Item = OperatorForm> {
    FORMS.iter().filter_map(|form| {
        let [sign, argument, subject] = (form.operator)()?;
        Some(OperatorForm { form, sign, argument, subject })
    })
}

/// Parses an operator and its target, such as `-> /srv/www`.
fn parse_form(text: &str, base: &Path) -> Result<Form, String> {
    let Some(operator) = operators().find(|it| text.trim_start().starts_with(it.sign)) else {
        let expected = operators().map(|OperatorForm { sign, argument, subject, .. }| {
            format!("`{sign} {argument}` for {subject}")
        });
        let expected = enumerate(expected, "or");
        return Err(match advice_on_text(text) {
            Some(advice) => format!("expected {expected}; {advice}"),
            None => format!("expected {expected}, found {text:?}"),
        });
    };
    match text.trim_start()[operator.sign.len()..].trim() {
        "" => Err(format!("the target behind `{}` is missing", operator.sign)),
        target => (operator.form.parse)(target, base),
    }
}

/// Parses `HOST/PREFIX OP TARGET` from the command line. Without a host the route is for all
/// hosts.
pub(crate) fn parse_route(text: &str) -> Result<(String, String, Form), String> {
    let invalid = || {
        let mut operators = operators().map(|it| format!("{} {}", it.sign, it.argument));
        let first = operators.next().unwrap_or_default();
        let others = enumerate(operators.map(|it| format!("`{it}`")), "or");
        format!("expected `HOST/PREFIX {first}`, or {others} there, found {text:?}")
    };
    let spaced = operators().filter_map(|operator| text.find(&format!(" {} ", operator.sign)));
    let (pattern, form) = text.split_at(spaced.min().ok_or_else(invalid)?);
    let (host, prefix) = pattern.trim().split_at(pattern.trim().find('/').ok_or_else(invalid)?);
    let host = if host.is_empty() { "*" } else { host.trim_end() };
    Ok((host.to_owned(), prefix.to_owned(), parse_form(form, Path::new(""))?))
}

/// Reads a route of a file. Appends errors to `problems`.
pub(crate) fn read_route<'a>(
    key: Name,
    value: &Value<'a>,
    snippets: &Snippets<'a>,
    problems: &mut Vec<Problem>,
) -> Option<RouteConfig> {
    match (value.as_text(), value.entries()) {
        (Some(text), _) => {
            let form = parse_form(text, value.base());
            let form = form.map_err(|message| problems.push(value.problem(message))).ok()?;
            Some(RouteConfig::new(key, value.at(form)))
        }
        (None, Ok(entries)) => read_table(key, value, entries, snippets, problems),
        (None, Err(_)) => {
            problems.push(value.problem(
                "expected a text such as \"-> /srv/www\", or a table such as { files = \"/srv/www\" }",
            ));
            None
        }
    }
}

impl RouteConfig {
    /// Returns a route without options.
    pub(crate) fn new(key: Located<String>, form: Located<Form>) -> RouteConfig {
        let (when, options, rewrite, split) = Default::default();
        RouteConfig { key, when, options, rewrite, split, form }
    }
}

fn read_table<'a>(
    key: Name,
    table: &Value<'a>,
    entries: Entries<'a>,
    snippets: &Snippets<'a>,
    problems: &mut Vec<Problem>,
) -> Option<RouteConfig> {
    let form = form_of(&entries);
    let is_own = |name: &str| form.is_some_and(|form| (form.has_key)(name));
    let keys: Vec<_> = option_keys().iter().filter(|key| !is_own(key.name())).collect();
    let (options, others) = snippets.read_section(&keys, entries, RouteOptions::or, problems);
    let mut split = SplitConfig::default();
    let others = read_entries(&SPLIT, &mut split, others, problems);
    let mut when = WhenConfig::default();
    let others = read_entries(&WHEN, &mut when, others, problems);
    let (rewrite, others) = read_path_keys(others, form, problems);
    let form = read_form(table, &others, rewrite.rewrite.is_some(), problems)?;
    Some(RouteConfig { key, when, options, rewrite, split, form: table.at(form) })
}

/// Returns the form of a table. `rewrite` is the form if there is no other.
fn form_of(entries: &[(Name, Value<'_>)]) -> Option<&'static FormType> {
    let rewrite = || entries.iter().find_map(|(name, _)| find_form(&name.value));
    entries.iter().find_map(|(name, _)| find_target_form(&name.value)).or_else(rewrite)
}

fn find_form(name: &str) -> Option<&'static FormType> {
    FORMS.iter().find(|form| (form.name)() == name)
}

/// Returns the form with this name, unless it is `rewrite`, which tables of other forms may have,
/// too.
fn find_target_form(name: &str) -> Option<&'static FormType> {
    find_form(name).filter(|_| find(&REWRITE, name).is_none())
}

/// Reads the keys that change the path. Returns the others.
fn read_path_keys<'a>(
    entries: Entries<'a>,
    form: Option<&FormType>,
    problems: &mut Vec<Problem>,
) -> (RewriteConfig, Entries<'a>) {
    let (mut rewrite, mut others) = (RewriteConfig::default(), Entries::new());
    for (name, value) in entries {
        match (find(&REWRITE, &name.value), form) {
            (Some(key), Some(form)) => match find((form.path_keys)().keys(), key.name) {
                Some(key) => problems.extend(key.set_value(&mut rewrite, &value).err()),
                None => problems.push(name.problem(needs_form(key.name))),
            },
            _ => others.push((name, value)),
        }
    }
    (rewrite, others)
}

fn needs_form(path_key: &str) -> String {
    let permits = |form: &&FormType| find((form.path_keys)().keys(), path_key).is_some();
    let names = FORMS.iter().filter(permits).map(|form| (form.name)());
    let names = names.filter(|name| *name != path_key).map(|name| format!("`{name}`"));
    let forms = enumerate(names, "or");
    let alone = if find_form(path_key).is_some() { ", or stands alone" } else { "" };
    format!("`{path_key}` needs {forms}{alone}")
}

/// Reads the form of a table from the entries that are no options.
fn read_form(
    table: &Value<'_>,
    entries: &[(Name, Value<'_>)],
    is_rewritten: bool,
    problems: &mut Vec<Problem>,
) -> Option<Form> {
    let mut targets = entries.iter().filter(|(name, _)| find_target_form(&name.value).is_some());
    let (form, target) = match (targets.next(), targets.next()) {
        (Some((first, _)), Some((second, _))) => {
            let message = format!("a route has `{}` or `{}`, not both", first.value, second.value);
            problems.push(second.problem(message));
            return None;
        }
        (Some((name, target)), None) => (find_target_form(&name.value)?, target),
        (None, _) if is_rewritten => (find_form(REWRITE[0].name)?, table),
        (None, _) => {
            let foreign = entries.iter().find_map(|(name, _)| foreign_key(name));
            if let Some(problem) = foreign {
                problems.push(problem);
                return None;
            }
            let names = FORMS.iter().map(|form| format!("`{}`", (form.name)()));
            let names = enumerate(names, "and");
            problems.push(table.problem(format!("a route has one of the keys {names}")));
            return None;
        }
    };
    let general =
        option_keys().iter().map(SectionKey::name).chain(REWRITE.iter().map(SectionKey::name));
    let general = general.chain(SPLIT.iter().map(SectionKey::name));
    let general: Vec<_> = general.chain(WHEN.iter().map(SectionKey::name)).collect();
    let others = entries.iter().filter(|(name, _)| name.value != (form.name)());
    let mut form_table =
        FormTable { target, entries: others.collect(), general: &general, problems };
    let read = (form.read)(&mut form_table);
    read.map_err(|problem| problems.push(problem)).ok()
}

/// Joins items by commas, and the last by `conjunction`.
fn enumerate(items: impl Iterator<Item = String>, conjunction: &str) -> String {
    let mut items: Vec<String> = items.collect();
    match items.pop() {
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} {conjunction} {last}", items.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_routes_of_the_command_line() {
        for (text, expected) in [
            ("/ -> site", "* / files = \"site\""),
            ("example.org/api/ -> /srv/api", "example.org /api/ files = \"/srv/api\""),
            ("a b/x  ->  /srv/a -> b ", "a b /x files = \"/srv/a -> b\""),
            ("/api/ >> http://a/ unix:/b", "* /api/ proxy = [\"http://a/\", \"unix:/b\"]"),
            ("/cgi-bin/ => scripts", "* /cgi-bin/ cgi = \"scripts\""),
            ("[::1]/ << https://a/", "[::1] / redirect = \"https://a/\""),
            ("*.a.org/old/ << /new/", "*.a.org /old/ redirect = \"/new/\""),
            (" a / -> b", "a / files = \"b\""),
        ] {
            let (host, prefix, form) = parse_route(text).unwrap();
            let [target, ..] = &*form.print() else { panic!("{text}: {form:?}") };
            assert_eq!(format!("{host} {prefix} {target}"), expected, "{text}");
        }
        for (text, expected) in [
            ("", "expected `HOST/PREFIX -> FOLDER`"),
            ("/", "expected `HOST/PREFIX"),
            ("/->site", "expected `HOST/PREFIX"),
            ("example.org -> site", "expected `HOST/PREFIX"),
            ("/ -> ", "the target behind `->` is missing"),
            ("/ => ", "the target behind `=>` is missing"),
            ("/ >> localhost:80", "localhost:80: "),
        ] {
            let message = parse_route(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
