//! Syntax of routes: an operator and a target, or a table.

use std::path::{Path, PathBuf};

use weft::HeaderValue;
use weft_config::{
    ConfigResult, Entries, Key, Located, Name, Problem, SectionKey, Snippets, Value, read_entries,
    suggest, unknown_key,
};
use weft_upstream::{ProxySettings, UpstreamMember};

use super::cgi::CGI;
use super::fastcgi::{self, fastcgi_keys, php_keys, scgi_keys};
use super::files::{FILES, FilesConfig};
use super::proxy::PROXY;
use super::respond::{RESPONSE, ResponseConfig, STATUS_CODE};
use super::rewrite::{REWRITE, RewriteConfig};
use super::split::{SPLIT, SplitConfig};
use crate::apps::cgi;
use crate::options::{RouteOptions, option_keys};

/// A route: the action for the requests of a key, such as a prefix.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    pub(crate) key: Located<String>,
    pub(crate) options: RouteOptions,
    pub(crate) rewrite: RewriteConfig,
    pub(crate) split: SplitConfig,
    pub(crate) action: Located<Action>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Cgi(Box<cgi::CgiSettings>),
    Files {
        root: PathBuf,
        files: Box<FilesConfig>,
    },
    /// Files, and scripts that upstreams run.
    ScriptSite {
        root: PathBuf,
        files: Box<FilesConfig>,
        upstreams: Box<ProxySettings>,
    },
    Proxy(Box<ProxySettings>),
    /// The route of the path of `rewrite`.
    Rewrite,
    Redirect {
        to: String,
        status: u16,
    },
    Respond {
        text: String,
        status: u16,
        content_type: Option<HeaderValue>,
    },
    RespondFile {
        path: PathBuf,
        status: u16,
        content_type: Option<HeaderValue>,
    },
}

/// Operators in front of a target. They are those of the Haskell web server mighty.
const OPERATORS: [&str; 4] = ["->", "<<", "=>", ">>"];

/// Default status of redirects (RFC 9110 §15.4.2).
const MOVED_PERMANENTLY: u16 = 301;

/// Parses an operator and its target, such as `-> /srv/www`.
pub(crate) fn parse_action(text: &str, base: &Path) -> Result<Action, String> {
    let operator = OPERATORS.into_iter().find(|operator| text.trim_start().starts_with(operator));
    let Some(operator) = operator else {
        return Err(format!(
            "expected `-> FOLDER` for files, `>> URL` for a proxy, `<< URL` for a redirect or \
             `=> FOLDER` for CGI, found {text:?}"
        ));
    };
    match (operator, text.trim_start()[operator.len()..].trim()) {
        (_, "") => Err(format!("the target behind `{operator}` is missing")),
        (">>", urls) => {
            let upstreams = ProxySettings::parse_upstreams(urls)?;
            Ok(Action::Proxy(Box::new(ProxySettings { upstreams, ..Default::default() })))
        }
        ("=>", folder) => {
            let root = base.join(folder);
            Ok(Action::Cgi(Box::new(cgi::CgiSettings { root, ..Default::default() })))
        }
        ("->", folder) => Ok(Action::Files { root: base.join(folder), files: Box::default() }),
        (_, url) => Ok(Action::Redirect { to: url.to_owned(), status: MOVED_PERMANENTLY }),
    }
}

/// Parses `HOST/PREFIX OP TARGET` from the command line. Without a host the route is for all
/// hosts.
pub(crate) fn parse_route(text: &str) -> Result<(String, String, Action), String> {
    let invalid = || {
        format!(
            "expected `HOST/PREFIX -> FOLDER`, or `>> URL`, `<< URL` or `=> FOLDER` there, found \
             {text:?}"
        )
    };
    let spaced = OPERATORS.iter().filter_map(|operator| text.find(&format!(" {operator} ")));
    let (pattern, action) = text.split_at(spaced.min().ok_or_else(invalid)?);
    let (host, prefix) = pattern.trim().split_at(pattern.trim().find('/').ok_or_else(invalid)?);
    let host = if host.is_empty() { "*" } else { host.trim_end() };
    Ok((host.to_owned(), prefix.to_owned(), parse_action(action, Path::new(""))?))
}

/// Reads a route of a file. Appends errors to `problems`.
pub(super) fn read_route<'a>(
    key: Name,
    value: &Value<'a>,
    snippets: &Snippets<'a>,
    problems: &mut Vec<Problem>,
) -> Option<RouteConfig> {
    let location = value.location();
    let (options, rewrite, split) = Default::default();
    let action = match value.as_text() {
        Some(text) => parse_action(text, value.base()).map_err(|message| value.problem(message)),
        None => match value.entries() {
            Ok(entries) => {
                let form = form_of(&entries);
                let is_own = |name: &str| form.is_some_and(|form| has_key(form, name));
                let keys: Vec<_> = option_keys().iter().filter(|key| !is_own(key.name())).collect();
                let (options, others) =
                    snippets.read_section(&keys, entries, RouteOptions::or, problems);
                let mut split = SplitConfig::default();
                let others = read_entries(&SPLIT, &mut split, others, problems);
                let (rewrite, others) = read_rewrite(others, form, problems);
                let action = match rewrite.rewrite.is_some() && form_of(&others).is_none() {
                    true => {
                        read_other_keys([].iter(), &mut (), others.iter(), problems);
                        Located { location, value: Action::Rewrite }
                    }
                    false => read_table(value, &others, problems)?,
                };
                return Some(RouteConfig { key, options, rewrite, split, action });
            }
            Err(_) => Err(value.problem(
                "expected a text such as \"-> /srv/www\", or a table such as { files = \"/srv/www\" }",
            )),
        },
    };
    let found = action.map_err(|problem| problems.push(problem)).ok();
    let action = found.map(|value| Located { location, value })?;
    Some(RouteConfig { key, options, rewrite, split, action })
}

/// The keys that select the form of a route table.
const FORMS: [&str; 9] =
    ["files", "redirect", "respond", "respond_file", "cgi", "proxy", "fastcgi", "scgi", "uwsgi"];

fn find_form(name: &str) -> Option<&'static str> {
    FORMS.into_iter().find(|form| *form == name)
}

/// The key of a route that leads to another route, if it is the only one of them.
const REWRITE_FORM: &str = "rewrite";

/// Returns the key that selects the form of a table.
fn form_of(entries: &[(Name, Value<'_>)]) -> Option<&'static str> {
    let form = entries.iter().find_map(|(name, _)| find_form(&name.value));
    let has_rewrite = || entries.iter().any(|(name, _)| name.value == REWRITE_FORM);
    form.or_else(|| has_rewrite().then_some(REWRITE_FORM))
}

/// Returns true if tables of a form have this key of [`REWRITE`].
fn has_rewrite_key(form: Option<&str>, name: &str) -> bool {
    match form {
        Some("files") => true,
        Some("proxy" | "fastcgi" | "scgi" | "uwsgi" | "cgi" | REWRITE_FORM) => name == "rewrite",
        _ => false,
    }
}

/// Reads the keys that change the path. Returns the others.
fn read_rewrite<'a>(
    entries: Entries<'a>,
    form: Option<&str>,
    problems: &mut Vec<Problem>,
) -> (RewriteConfig, Entries<'a>) {
    let (mut rewrite, mut others) = (RewriteConfig::default(), Entries::new());
    for (name, value) in entries {
        match REWRITE.iter().find(|key| key.name == name.value) {
            Some(key) if has_rewrite_key(form, key.name) => {
                problems.extend(key.set_value(&mut rewrite, &value).err());
            }
            Some(key) if form.is_some() => {
                let forms = if key.name == "rewrite" {
                    "`files`, `proxy`, `fastcgi`, `scgi`, `uwsgi` or `cgi`, or stands alone"
                } else {
                    "`files`"
                };
                problems.push(name.problem(format!("`{}` needs {forms}", key.name)));
            }
            _ => others.push((name, value)),
        }
    }
    (rewrite, others)
}

/// Returns true if tables of a form have this key besides the options of every route.
fn has_key(form: &str, name: &str) -> bool {
    match form {
        "files" => {
            let mut of_scripts = php_keys();
            name == PHP
                || FILES.iter().any(|key| key.name == name)
                || of_scripts.any(|key| key.name == name)
        }
        "fastcgi" => fastcgi_keys().any(|key| key.name == name),
        "scgi" | "uwsgi" => scgi_keys().any(|key| key.name == name),
        "proxy" => PROXY.iter().any(|key| key.name == name),
        "cgi" => CGI.iter().any(|key| key.name == name),
        "respond" | "respond_file" => RESPONSE.iter().any(|key| key.name == name),
        REWRITE_FORM => false,
        _ => STATUS_CODE.iter().any(|key| key.name == name),
    }
}

fn read_table(
    table: &Value<'_>,
    entries: &[(Name, Value<'_>)],
    problems: &mut Vec<Problem>,
) -> Option<Located<Action>> {
    let mut named = entries.iter().filter(|(name, _)| find_form(&name.value).is_some());
    let (Some((form, target)), second) = (named.next(), named.next()) else {
        let hint = "a route has one of the keys `files`, `proxy`, `fastcgi`, `scgi`, `uwsgi`, `redirect`, \
                    `respond`, `respond_file`, `cgi` and `rewrite`";
        problems.push(table.problem(hint));
        return None;
    };
    if let Some((name, _)) = second {
        let (first, second) = (&form.value, &name.value);
        problems.push(name.problem(format!("a route has `{first}` or `{second}`, not both")));
        return None;
    }
    let others = entries.iter().filter(|(name, _)| name.value != form.value);
    let action = match &*form.value {
        "files" => read_files(target, others.collect(), problems),
        form @ ("proxy" | "fastcgi" | "scgi" | "uwsgi") => {
            read_proxy(form, target, others, problems)
        }
        "cgi" => {
            let mut settings = cgi::CgiSettings::default();
            read_other_keys(CGI.iter(), &mut settings, others, problems);
            target.path().map(|path| {
                settings.root = path.value;
                Action::Cgi(Box::new(settings))
            })
        }
        "redirect" => {
            let mut status = None;
            read_other_keys(STATUS_CODE.iter(), &mut status, others, problems);
            let status = status.unwrap_or(MOVED_PERMANENTLY);
            target.text().map(|Located { value: to, .. }| Action::Redirect { to, status })
        }
        // `respond` and `respond_file`.
        form => {
            let mut response = ResponseConfig::default();
            read_other_keys(RESPONSE.iter(), &mut response, others, problems);
            let (status, content_type) = (response.status.unwrap_or(200), response.content_type);
            match form {
                "respond" => target.text().map(|text| Action::Respond {
                    text: text.value,
                    status,
                    content_type,
                }),
                _ => target.path().map(|path| Action::RespondFile {
                    path: path.value,
                    status,
                    content_type,
                }),
            }
        }
    };
    let found: ConfigResult<Action> = action;
    let found = found.map_err(|problem| problems.push(problem)).ok();
    found.map(|value| Located { location: table.location(), value })
}

/// Reads a route with upstreams, whose form is their protocol.
fn read_proxy<'a>(
    form: &str,
    target: &Value<'a>,
    others: impl Iterator<Item = &'a (Name, Value<'a>)>,
    problems: &mut Vec<Problem>,
) -> ConfigResult<Action> {
    use ProxySettings;

    type Parser = fn(&str) -> Result<Vec<UpstreamMember>, String>;
    let (mut settings, keys, parse): (_, Vec<_>, Parser) = match form {
        "fastcgi" => (ProxySettings::fastcgi(), fastcgi_keys().collect(), fastcgi::parse_upstreams),
        "scgi" => (ProxySettings::scgi(), scgi_keys().collect(), fastcgi::parse_scgi_upstreams),
        "uwsgi" => (ProxySettings::uwsgi(), scgi_keys().collect(), fastcgi::parse_uwsgi_upstreams),
        _ => (ProxySettings::default(), PROXY.iter().collect(), ProxySettings::parse_upstreams),
    };
    read_other_keys(keys.into_iter(), &mut settings, others, problems);
    settings.upstreams = read_upstreams(target, parse)?;
    Ok(Action::Proxy(Box::new(settings)))
}

/// The key of a files route that names the upstreams for its scripts.
const PHP: &str = "php";

/// Reads a files route, with the keys of its scripts if it has any.
fn read_files<'a>(
    target: &Value<'a>,
    others: Vec<&(Name, Value<'a>)>,
    problems: &mut Vec<Problem>,
) -> ConfigResult<Action> {
    let mut files = Box::<FilesConfig>::default();
    let is_php = |(name, _): &&(Name, Value<'a>)| name.value == PHP;
    let Some((_, addresses)) = others.iter().copied().find(is_php) else {
        read_other_keys(FILES.iter(), &mut *files, others.into_iter(), problems);
        return target.path().map(|root| Action::Files { root: root.value, files });
    };
    let mut upstreams = Box::new(ProxySettings::fastcgi());
    let others = others.into_iter().filter(|entry| !is_php(entry));
    let (of_scripts, of_files): (Vec<_>, Vec<_>) =
        others.partition(|(name, _)| php_keys().any(|key| key.name == name.value));
    read_other_keys(FILES.iter(), &mut *files, of_files.into_iter(), problems);
    read_other_keys(php_keys(), &mut *upstreams, of_scripts.into_iter(), problems);
    upstreams.upstreams = read_upstreams(addresses, fastcgi::parse_upstreams)?;
    target.path().map(|root| Action::ScriptSite { root: root.value, files, upstreams })
}

/// Reads the keys of a table, except for the key that selects its form and for the options of every
/// route.
fn read_other_keys<'a, T: 'static>(
    keys: impl Iterator<Item = &'static Key<T>> + Clone,
    into: &mut T,
    others: impl Iterator<Item = &'a (Name, Value<'a>)>,
    problems: &mut Vec<Problem>,
) {
    for (name, value) in others {
        let done = match keys.clone().find(|key| key.name == name.value) {
            Some(key) => key.set_value(into, value),
            None => {
                let own = keys.clone().map(|key| key.name);
                let general = option_keys().iter().map(SectionKey::name);
                let of_paths = REWRITE.iter().map(|key| key.name);
                let of_shares = SPLIT.iter().map(|key| key.name);
                match suggest(&name.value, general.chain(of_paths).chain(of_shares)) {
                    Some(option) => Err(unknown_key(name, [option].into_iter())),
                    None => Err(unknown_key(name, own)),
                }
            }
        };
        problems.extend(done.err());
    }
}

/// Reads the URLs of upstreams: one string with spaces between the URLs and their options, or a list
/// of such strings.
fn read_upstreams(
    target: &Value<'_>,
    parse: impl Fn(&str) -> Result<Vec<UpstreamMember>, String>,
) -> ConfigResult<Vec<UpstreamMember>> {
    let mut upstreams = Vec::new();
    for text in target.texts()? {
        let urls = parse(&text.value);
        upstreams.extend(urls.map_err(|invalid| text.problem(invalid))?);
    }
    match upstreams.is_empty() {
        true => Err(target.problem("a proxy needs the URL of an upstream")),
        false => Ok(upstreams),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_routes_of_the_command_line() {
        for (text, expected) in [
            ("/ -> site", "* / Files site"),
            ("example.org/api/ -> /srv/api", "example.org /api/ Files /srv/api"),
            ("a b/x  ->  /srv/a -> b ", "a b /x Files /srv/a -> b"),
            ("/api/ >> http://a/ unix:/b", "* /api/ Proxy 2"),
            ("/cgi-bin/ => scripts", "* /cgi-bin/ Cgi scripts"),
            ("[::1]/ << https://a/", "[::1] / Redirect https://a/"),
            ("*.a.org/old/ << /new/", "*.a.org /old/ Redirect /new/"),
            (" a / -> b", "a / Files b"),
        ] {
            let (host, prefix, action) = parse_route(text).unwrap();
            let action = match action {
                Action::Cgi(settings) => format!("Cgi {}", settings.root.display()),
                Action::Files { root, .. } => format!("Files {}", root.display()),
                Action::Proxy(settings) => format!("Proxy {:?}", settings.upstreams.len()),
                Action::Redirect { to, .. } => format!("Redirect {to}"),
                Action::ScriptSite { .. }
                | Action::Rewrite
                | Action::Respond { .. }
                | Action::RespondFile { .. } => {
                    unreachable!("no operator produces these")
                }
            };
            assert_eq!(format!("{host} {prefix} {action}"), expected, "{text}");
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
