//! Text → [`Config`]: syntax only. A file and the command line can say the same.

mod place; // where something was said
mod units; // sizes and times
mod value; // a value of the file
mod key; // what a key takes, from a file or from the command line
mod keys; // the keys of the top, of [tls] and of [files]
mod log; // the keys of [log]
mod limits; // the keys of [limits]
mod cgi; // the keys of a route to scripts
mod proxy; // the keys of a route to upstreams
mod status; // the keys of [status]
mod nearest; // the word that somebody may have meant
mod route; // operators and their targets

use std::ffi::OsString;
use std::path::Path;

use toml::de::DeTable;
use weft::Settings;

pub(crate) use cgi::CGI;
#[cfg(test)]
pub(crate) use key::Takes;
pub(crate) use key::{Key, Pair, WordOrPath};
pub(crate) use keys::{FILES, FilesConfig, TLS, TOP, TlsConfig, Top, quoted, texts};
pub(crate) use limits::LIMITS;
pub(crate) use log::{LOG, LogConfig};
pub(crate) use nearest::nearest;
pub(crate) use place::{At, Checked, Place, Problem, Text};
pub(crate) use proxy::PROXY;
pub(crate) use route::{Action, RouteConfig, parse_route};
pub(crate) use status::{STATUS, StatusConfig};

use value::{Name, Value, entries};

/// All that can be said, as far as it was.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) top: Top,
    pub(crate) log: LogConfig,
    pub(crate) tls: TlsConfig,
    pub(crate) status: StatusConfig,
    pub(crate) limits: Settings,
    pub(crate) files: FilesConfig,
    pub(crate) hosts: Vec<HostConfig>,
}

/// Some hosts by their names, between which are spaces, and their routes.
#[derive(Debug)]
pub(crate) struct HostConfig {
    pub(crate) names: At<String>,
    pub(crate) routes: Vec<RouteConfig>,
}

/// The sections, by their names in the file.
const SECTIONS: [&str; 6] = ["log", "tls", "status", "limits", "files", "hosts"];

impl Config {
    /// What a file says. Paths in it begin in the folder `base`.
    pub(crate) fn parse(text: &Text, base: &Path) -> Result<Config, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text.as_str());
        if !errors.is_empty() {
            let problem = |error: &toml::de::Error| {
                let span = error.span().unwrap_or(0..0);
                let message = match (error.message(), text.as_str().get(span.clone())) {
                    ("duplicate key", Some(key)) => format!("the key {key} is given twice"),
                    (message, _) => message.to_owned(),
                };
                Problem { place: text.place(span), message }
            };
            return Err(errors.iter().map(problem).collect());
        }
        let mut config = Config::default();
        let mut problems = Vec::new();
        for (name, value) in entries(table.get_ref(), text, base) {
            let Config { log, tls, status, limits, files, .. } = &mut config;
            match &*name.value {
                "log" => read_section(&LOG, log, &name, &value, &mut problems),
                "tls" => read_section(&TLS, tls, &name, &value, &mut problems),
                "status" => read_section(&STATUS, status, &name, &value, &mut problems),
                "limits" => read_section(&LIMITS, limits, &name, &value, &mut problems),
                "files" => read_section(&FILES, files, &name, &value, &mut problems),
                "hosts" => config.hosts = read_hosts(&value, &mut problems),
                _ => match TOP.iter().find(|key| key.name == name.value) {
                    Some(key) => problems.extend(key.set_value(&mut config.top, &value).err()),
                    None => problems.push(unknown_at_top(&name)),
                },
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Sets what an option says, with an argument for each time that it was given. `None` if
    /// there is no such option.
    pub(crate) fn set_option(&mut self, flag: &str, words: &[OsString]) -> Option<Checked> {
        fn set<T>(
            keys: &[Key<T>],
            into: &mut T,
            flag: &str,
            words: &[OsString],
        ) -> Option<Checked> {
            let key = keys.iter().find(|key| key.flag == flag)?;
            Some(key.set_words(into, &format!("--{flag}"), words))
        }
        set(&TOP, &mut self.top, flag, words)
            .or_else(|| set(&LOG, &mut self.log, flag, words))
            .or_else(|| set(&TLS, &mut self.tls, flag, words))
            .or_else(|| set(&STATUS, &mut self.status, flag, words))
            .or_else(|| set(&LIMITS, &mut self.limits, flag, words))
            .or_else(|| set(&FILES, &mut self.files, flag, words))
    }

    /// Adds a route, in place of one that is there for the same hosts and prefix.
    pub(crate) fn add_route(&mut self, names: At<String>, route: RouteConfig) {
        let prefix = |route: &RouteConfig| route.prefix.value.trim_end_matches('/').to_owned();
        match self.hosts.iter_mut().find(|host| host.names.value == names.value) {
            Some(host) => {
                host.routes.retain(|known| {
                    prefix(known) != prefix(&route) || !known.prefix.place.is_in_file()
                });
                host.routes.push(route);
            }
            None => self.hosts.push(HostConfig { names, routes: vec![route] }),
        }
    }
}

/// An option as it stands in all sections.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) is_switch: bool,
}

/// All options that are keys too.
pub(crate) fn flags() -> impl Iterator<Item = Flag> {
    fn of<T>(keys: &'static [Key<T>]) -> impl Iterator<Item = Flag> {
        keys.iter().map(|key| Flag { name: key.flag, is_switch: key.is_switch() })
    }
    let first = of(&TOP).chain(of(&LOG)).chain(of(&TLS));
    first.chain(of(&STATUS)).chain(of(&LIMITS)).chain(of(&FILES))
}

fn read_section<T>(
    keys: &'static [Key<T>],
    into: &mut T,
    section: &Name,
    value: &Value<'_>,
    problems: &mut Vec<Problem>,
) {
    let entries = match value.entries() {
        Ok(entries) => entries,
        Err(problem) => return problems.push(problem),
    };
    for (name, value) in entries {
        match keys.iter().find(|key| key.name == name.value) {
            Some(key) => problems.extend(key.set_value(into, &value).err()),
            None if TOP.iter().any(|key| key.name == name.value) => {
                problems.push(name.problem(format!(
                    "unknown key `{}` in [{}]; it belongs to the top of the file, before the \
                     first section",
                    name.value, section.value
                )));
            }
            None => problems.push(route::unknown(&name, keys.iter().map(|key| key.name))),
        }
    }
}

fn unknown_at_top(name: &Name) -> Problem {
    let in_section = |(section, mut names): (&str, Vec<&str>)| {
        names.retain(|known| *known == name.value);
        names.pop().map(|_| section.to_owned())
    };
    let sections = [
        ("limits", LIMITS.iter().map(|key| key.name).collect()),
        ("files", FILES.iter().map(|key| key.name).collect()),
        ("tls", TLS.iter().map(|key| key.name).collect()),
        ("log", LOG.iter().map(|key| key.name).collect()),
    ];
    match sections.into_iter().find_map(in_section) {
        Some(section) => {
            name.problem(format!("unknown key `{}`; it belongs into [{section}]", name.value))
        }
        None => route::unknown(name, TOP.iter().map(|key| key.name).chain(SECTIONS)),
    }
}

fn read_hosts(value: &Value<'_>, problems: &mut Vec<Problem>) -> Vec<HostConfig> {
    let tables = entries_of(value, problems).into_iter();
    let tables: Vec<_> =
        tables.map(|(names, value)| (names, entries_of(&value, problems))).collect();
    let mut hosts = Vec::new();
    for (names, entries) in tables {
        let mut routes = Vec::new();
        for (prefix, value) in entries {
            if !prefix.value.starts_with('/') {
                problems.push(prefix.problem(format!(
                    "expected a prefix that begins with a slash, found `{}`; a host is in quotes: \
                     [hosts.\"example.org\"]",
                    prefix.value
                )));
                continue;
            }
            if let Some(action) = route::read_action(&value, problems) {
                routes.push(RouteConfig { prefix, action });
            }
        }
        hosts.push(HostConfig { names, routes });
    }
    hosts
}

fn entries_of<'a>(value: &Value<'a>, problems: &mut Vec<Problem>) -> Vec<(Name, Value<'a>)> {
    value.entries().map_err(|problem| problems.push(problem)).unwrap_or_default()
}
