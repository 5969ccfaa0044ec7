//! Text → [`Config`]: syntax only. A file and the command line accept the same keys.

mod location; // locations of values, for error messages
mod units; // sizes and times
mod value; // a TOML value and its conversions
mod key; // type and setter of a key, for the file and the command line
mod keys; // the keys before the first section, of [tls] and of [files]
mod log; // the keys of [log]
mod limits; // the keys of [limits]
mod cgi; // the keys of a CGI route
mod proxy; // the keys of a proxy route
mod status; // the keys of [status]
mod suggestion; // "did you mean" suggestions
mod route; // routes: operators, targets and tables

use std::ffi::OsString;
use std::path::Path;

use toml::de::DeTable;
use weft::Settings;

pub(crate) use cgi::CGI;
#[cfg(test)]
pub(crate) use key::ValueKind;
pub(crate) use key::{CertificatePair, Key, WordOrPath};
pub(crate) use keys::{FILES, FilesConfig, TLS, TOP, TlsConfig, TopConfig, quoted, quoted_list};
pub(crate) use limits::LIMITS;
pub(crate) use location::{ConfigLocation, ConfigResult, ConfigText, Located, Problem};
pub(crate) use log::{LOG, LogConfig};
pub(crate) use proxy::PROXY;
pub(crate) use route::{Action, RouteConfig, parse_route};
pub(crate) use status::{STATUS, StatusConfig};
pub(crate) use suggestion::suggest;

use value::{Name, Value, entries};

/// The whole configuration. Keys that are not set have their defaults.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) top: TopConfig,
    pub(crate) log: LogConfig,
    pub(crate) tls: TlsConfig,
    pub(crate) status: StatusConfig,
    pub(crate) limits: Settings,
    pub(crate) files: FilesConfig,
    pub(crate) hosts: Vec<HostConfig>,
}

/// A section of `[hosts]`: host names separated by spaces, and their routes.
#[derive(Debug)]
pub(crate) struct HostConfig {
    pub(crate) names: Located<String>,
    pub(crate) routes: Vec<RouteConfig>,
}

/// Names of the sections.
const SECTIONS: [&str; 6] = ["log", "tls", "status", "limits", "files", "hosts"];

impl Config {
    /// Parses a file. Relative paths in it are resolved against the directory `base`.
    pub(crate) fn parse(text: &ConfigText, base: &Path) -> Result<Config, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text.as_str());
        if !errors.is_empty() {
            let problem = |error: &toml::de::Error| {
                let span = error.span().unwrap_or(0..0);
                let message = match (error.message(), text.as_str().get(span.clone())) {
                    ("duplicate key", Some(key)) => format!("the key {key} is given twice"),
                    (message, _) => message.to_owned(),
                };
                Problem { location: text.location(span), message }
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
                    None => problems.push(unknown_top_key(&name)),
                },
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// Sets the value of an option. `arguments` has one item for each occurrence. Returns `None` if
    /// there is no such option.
    pub(crate) fn set_option(
        &mut self,
        flag: &str,
        arguments: &[OsString],
    ) -> Option<ConfigResult> {
        fn set<T>(
            keys: &[Key<T>],
            into: &mut T,
            flag: &str,
            arguments: &[OsString],
        ) -> Option<ConfigResult> {
            let key = keys.iter().find(|key| key.flag == flag)?;
            Some(key.set_arguments(into, &format!("--{flag}"), arguments))
        }
        set(&TOP, &mut self.top, flag, arguments)
            .or_else(|| set(&LOG, &mut self.log, flag, arguments))
            .or_else(|| set(&TLS, &mut self.tls, flag, arguments))
            .or_else(|| set(&STATUS, &mut self.status, flag, arguments))
            .or_else(|| set(&LIMITS, &mut self.limits, flag, arguments))
            .or_else(|| set(&FILES, &mut self.files, flag, arguments))
    }

    /// Adds a route, which replaces a route of the file with the same hosts and prefix.
    pub(crate) fn add_route(&mut self, names: Located<String>, route: RouteConfig) {
        let prefix = |route: &RouteConfig| route.prefix.value.trim_end_matches('/').to_owned();
        match self.hosts.iter_mut().find(|host| host.names.value == names.value) {
            Some(host) => {
                host.routes.retain(|known| {
                    prefix(known) != prefix(&route) || !known.prefix.location.is_in_file()
                });
                host.routes.push(route);
            }
            None => self.hosts.push(HostConfig { names, routes: vec![route] }),
        }
    }
}

/// A command-line option, independent of its section.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) is_switch: bool,
}

/// All options that correspond to configuration keys.
pub(crate) fn flags() -> impl Iterator<Item = Flag> {
    fn section<T>(keys: &'static [Key<T>]) -> impl Iterator<Item = Flag> {
        keys.iter().map(|key| Flag { name: key.flag, is_switch: key.is_switch() })
    }
    let first = section(&TOP).chain(section(&LOG)).chain(section(&TLS));
    first.chain(section(&STATUS)).chain(section(&LIMITS)).chain(section(&FILES))
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
            None => problems.push(route::unknown_key(&name, keys.iter().map(|key| key.name))),
        }
    }
}

fn unknown_top_key(name: &Name) -> Problem {
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
            name.problem(format!("unknown key `{}`; it belongs in [{section}]", name.value))
        }
        None => route::unknown_key(name, TOP.iter().map(|key| key.name).chain(SECTIONS)),
    }
}

fn read_hosts(value: &Value<'_>, problems: &mut Vec<Problem>) -> Vec<HostConfig> {
    let tables = entries_or_report(value, problems).into_iter();
    let tables: Vec<_> =
        tables.map(|(names, value)| (names, entries_or_report(&value, problems))).collect();
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

fn entries_or_report<'a>(value: &Value<'a>, problems: &mut Vec<Problem>) -> Vec<(Name, Value<'a>)> {
    value.entries().map_err(|problem| problems.push(problem)).unwrap_or_default()
}
