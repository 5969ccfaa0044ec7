//! Text → [`Config`]: syntax only. A file and the command line accept the same keys.

mod balance; // choice of an upstream
mod check; // active health checks of upstreams
mod source; // the texts of the files, with those that they include
mod syntax; // syntax errors
mod effect; // keys without effect
mod environment; // environment variables in strings
mod location; // locations of values, for error messages
mod units; // sizes and times
mod value; // a TOML value and its conversions
mod key; // a key: its type of value, and the function that stores the value
mod setter; // reads the value of a key from files and from the command line
mod files; // the keys of [files]
mod quoting; // formatting of values as in a file
mod tls; // the keys of [tls]
mod top; // the keys before the first section
mod log; // the keys of [log]
mod log_target; // destinations of logs
mod log_format; // formats of access logs
mod access_log; // the access logs of a route
mod limits; // the keys of [limits]
mod cgi; // the keys of a CGI route
mod dns; // resolution of the names of upstreams
mod respond; // the keys of redirects and fixed responses
mod mirror; // copies of requests
mod rewrite; // rewrite and try_files
mod split; // shares of requests for other routes
mod proxy; // the keys of a proxy route
mod fastcgi; // the keys of a FastCGI or SCGI route
mod status; // the keys of [status]
mod acme; // the keys of [acme]
mod tracing; // the keys of [tracing]
mod on_demand; // the keys of certificates on demand, in [acme]
mod streams; // the keys of a stream
mod stream_settings; // settings of a stream
mod statuses; // statuses and classes of them
mod options; // options of a route, a host or all hosts
mod snippet; // keys that several hosts and routes use
pub(crate) mod format; // the canonical layout of a file
pub(crate) mod schema; // a JSON schema of the file
mod route; // routes: operators, targets and tables

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;

use weft::Settings;

pub(crate) use access_log::{ACCESS_LOG, AccessLogConfig};
pub(crate) use acme::{ACME, AcmeConfig, DnsConfig, dns_server_address};
pub(crate) use cgi::CGI;
pub(crate) use effect::without_effect;
pub(crate) use fastcgi::{fastcgi_keys, php_keys, scgi_keys};
pub(crate) use files::{FILES, FilesConfig};
pub(crate) use key::{CertificatePair, Certificates, Key, ValueKind};
pub(crate) use limits::LIMITS;
pub(crate) use location::{ConfigLocation, ConfigResult, Located, Problem};
pub(crate) use log::{Facility, LOG, LogConfig};
pub(crate) use log_format::RequestValue;
pub(crate) use log_target::{DaemonAddress, LogDaemon, LogTarget};
pub(crate) use on_demand::OnDemandConfig;
pub(crate) use options::{
    AccelFolder, AuthUrl, ErrorPage, Field, FieldChanges, FieldOperation, JwtKeys, OPTIONS, Origin,
    PageSource, Rate, RouteOptions, Satisfy,
};
pub(crate) use proxy::PROXY;
pub(crate) use quoting::{quoted, quoted_list};
pub(crate) use respond::{RESPONSE, ResponseConfig, STATUS_CODE};
pub(crate) use rewrite::{REWRITE, RewriteConfig};
pub(crate) use route::{Action, RouteConfig, parse_route};
pub(crate) use source::{Sources, syntax_problems, toml_files};
pub(crate) use split::{SPLIT, SplitConfig};
pub(crate) use status::{MAX_CONFIG_BYTES, PermittedChanges, STATUS, StatusConfig, status_limits};
pub(crate) use statuses::Statuses;
pub(crate) use stream_settings::{LineFormat, ProxyVersion, ServerNamePattern, StreamSettings};
pub(crate) use streams::{STREAM, StreamConfig};
pub(crate) use tls::{ClientAuthMode, TLS, TlsConfig, TlsProfile};
pub(crate) use top::{TOP, TopConfig};
pub(crate) use tracing::{TRACING, TracingConfig};
pub(crate) use units::{show_size, show_time};

use crate::base::suggestion::suggest;
use crate::route::RouteKey;
use snippet::{Entries, Snippets};
use value::{Name, Value, entries};

/// The whole configuration. Keys that are not set have their defaults.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) top: TopConfig,
    pub(crate) log: LogConfig,
    pub(crate) tls: TlsConfig,
    pub(crate) acme: AcmeConfig,
    pub(crate) status: StatusConfig,
    pub(crate) tracing: TracingConfig,
    pub(crate) limits: Settings,
    pub(crate) files: FilesConfig,
    /// Options of all hosts.
    pub(crate) defaults: RouteOptions,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) streams: Vec<StreamConfig>,
    /// Errors. Without them the configuration is complete.
    pub(crate) problems: Vec<Problem>,
    /// Values that are valid, but probably not intended.
    pub(crate) warnings: Vec<Problem>,
}

/// A section of `[hosts]`: host names separated by spaces, and their routes.
#[derive(Debug)]
pub(crate) struct HostConfig {
    pub(crate) names: Located<String>,
    pub(crate) options: RouteOptions,
    pub(crate) routes: Vec<RouteConfig>,
}

/// Names of the sections.
const SECTIONS: [&str; 11] = [
    "log", "tls", "acme", "status", "tracing", "limits", "files", "defaults", "snippets", "hosts",
    "streams",
];

impl Config {
    /// Parses the files of a configuration as if they were one.
    pub(crate) fn parse(sources: &Sources) -> Config {
        let mut config = Config::default();
        let mut syntax_problems = sources.problems.clone();
        let tables = sources.files.iter();
        let tables = tables.map(|source| (source.table(&mut syntax_problems), source));
        let tables: Vec<_> = tables.collect();
        let mut problems = Vec::new();
        let all = tables
            .iter()
            .flat_map(|(table, source)| entries(table.get_ref(), &source.text, &source.base));
        let (mut hosts, mut snippets) = (Entries::new(), Entries::new());
        for (name, values) in group(all.collect()) {
            let Config { log, tls, acme, status, tracing, limits, files, defaults, .. } =
                &mut config;
            let problems = &mut problems;
            match &*name.value {
                "log" => read_section(&LOG, log, &name, values, problems),
                "tls" => read_section(&TLS, tls, &name, values, problems),
                "acme" => read_section(&ACME, acme, &name, values, problems),
                "status" => read_section(&STATUS, status, &name, values, problems),
                "tracing" => read_section(&TRACING, tracing, &name, values, problems),
                "limits" => read_section(&LIMITS, limits, &name, values, problems),
                "files" => read_section(&FILES, files, &name, values, problems),
                "defaults" => read_section(&OPTIONS, defaults, &name, values, problems),
                "hosts" => hosts = section_entries(values, problems),
                "snippets" => snippets = section_entries(values, problems),
                "streams" => config.streams = read_streams(values, problems),
                _ => match TOP.iter().find(|key| key.name == name.value) {
                    Some(key) => {
                        problems.extend(key.set_values(&mut config.top, &name, &values).err());
                    }
                    None => problems.push(unknown_top_key(&name)),
                },
            }
        }
        let snippets = Snippets::read(snippets, &mut problems);
        config.hosts = read_hosts(hosts, &snippets, &mut problems);
        let unused = snippets.unused();
        let unused = unused.map(|name| name.problem("no host and no route uses this snippet"));
        config.warnings.extend(unused);
        // An error of the syntax leaves a value that may be another error, and a snippet has its
        // errors in each of its uses.
        let invalid_lines: HashSet<_> =
            syntax_problems.iter().map(|problem| problem.location.line()).collect();
        let mut reported = HashSet::new();
        problems.retain(|problem: &Problem| {
            let line = problem.location.line();
            (line.is_none() || !invalid_lines.contains(&line))
                && reported.insert(problem.to_string())
        });
        config.problems = syntax_problems;
        config.problems.extend(problems);
        config
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
            let key = keys.iter().find(|key| key.flag == flag && !flag.is_empty())?;
            Some(key.set_arguments(into, &format!("--{flag}"), arguments))
        }
        set(&TOP, &mut self.top, flag, arguments)
            .or_else(|| set(&LOG, &mut self.log, flag, arguments))
            .or_else(|| set(&TLS, &mut self.tls, flag, arguments))
            .or_else(|| set(&ACME, &mut self.acme, flag, arguments))
            .or_else(|| set(&STATUS, &mut self.status, flag, arguments))
            .or_else(|| set(&LIMITS, &mut self.limits, flag, arguments))
            .or_else(|| set(&FILES, &mut self.files, flag, arguments))
            .or_else(|| set(&OPTIONS, &mut self.defaults, flag, arguments))
    }

    /// Adds a route, which replaces a route of the file with the same hosts and prefix.
    pub(crate) fn add_route(&mut self, names: Located<String>, route: RouteConfig) {
        let key = |route: &RouteConfig| route.key.value.trim_end_matches('/').to_owned();
        match self.hosts.iter_mut().find(|host| host.names.value == names.value) {
            Some(host) => {
                host.routes
                    .retain(|known| key(known) != key(&route) || !known.key.location.is_in_file());
                host.routes.push(route);
            }
            None => {
                let options = RouteOptions::default();
                self.hosts.push(HostConfig { names, options, routes: vec![route] });
            }
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
        let flags = keys.iter().filter(|key| !key.flag.is_empty());
        flags.map(|key| Flag { name: key.flag, is_switch: key.is_switch() })
    }
    let first = section(&TOP).chain(section(&LOG)).chain(section(&TLS)).chain(section(&ACME));
    let first = first.chain(section(&STATUS));
    first.chain(section(&LIMITS)).chain(section(&FILES)).chain(section(&OPTIONS))
}

/// Groups the values of equal keys, which several files may have. The name is that of the first.
fn group<'a>(entries: Entries<'a>) -> Vec<(Name, Vec<Value<'a>>)> {
    let mut groups = Vec::<(Name, Vec<Value<'_>>)>::new();
    let mut numbers = HashMap::new();
    for (name, value) in entries {
        let number = *numbers.entry(name.value.clone()).or_insert(groups.len());
        match groups.get_mut(number) {
            Some((_, values)) => values.push(value),
            None => groups.push((name, vec![value])),
        }
    }
    groups
}

/// Returns the entries of the tables that a section has in several files.
fn section_entries<'a>(tables: Vec<Value<'a>>, problems: &mut Vec<Problem>) -> Entries<'a> {
    tables.iter().flat_map(|table| entries_or_report(table, problems)).collect()
}

fn read_section<T>(
    keys: &'static [Key<T>],
    into: &mut T,
    section: &Name,
    tables: Vec<Value<'_>>,
    problems: &mut Vec<Problem>,
) {
    for (name, values) in group(section_entries(tables, problems)) {
        match keys.iter().find(|key| key.name == name.value) {
            Some(key) => problems.extend(key.set_values(into, &name, &values).err()),
            None if is_top_key(&name) => problems.push(misplaced(&name, &section.value)),
            None if (&*section.value, &*name.value) == ("limits", "proxies") => {
                problems.push(name.problem(
                    "`proxies` is now `proxy_protocol`: proxies that send the PROXY protocol; \
                     those that send X-Forwarded-For belong in `trusted_proxies` at the top of \
                     the file",
                ));
            }
            None => problems.push(route::unknown_key(&name, keys.iter().map(|key| key.name))),
        }
    }
}

fn is_top_key(name: &Name) -> bool {
    TOP.iter().any(|key| key.name == name.value)
}

/// Builds the error for a key of the top of the file that stands in a section.
fn misplaced(name: &Name, section: &str) -> Problem {
    name.problem(format!(
        "unknown key `{}` in [{section}]; it belongs to the top of the file, before the first \
         section",
        name.value
    ))
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
        ("acme", ACME.iter().map(|key| key.name).collect()),
        ("log", LOG.iter().map(|key| key.name).collect()),
        ("tracing", TRACING.iter().map(|key| key.name).collect()),
        ("defaults", OPTIONS.iter().map(|key| key.name).collect()),
    ];
    match sections.into_iter().find_map(in_section) {
        Some(section) => {
            name.problem(format!("unknown key `{}`; it belongs in [{section}]", name.value))
        }
        None => route::unknown_key(name, TOP.iter().map(|key| key.name).chain(SECTIONS)),
    }
}

fn read_streams(tables: Vec<Value<'_>>, problems: &mut Vec<Problem>) -> Vec<StreamConfig> {
    let mut streams = Vec::new();
    for (listen, value) in section_entries(tables, problems) {
        let mut settings = StreamSettings::default();
        let section = listen.clone().map(|_| "streams".to_owned());
        read_section(&STREAM, &mut settings, &section, vec![value], problems);
        streams.push(StreamConfig { listen, settings });
    }
    streams
}

fn read_hosts(
    tables: Entries<'_>,
    snippets: &Snippets<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<HostConfig> {
    let mut hosts = Vec::new();
    for (names, value) in tables {
        let entries = entries_or_report(&value, problems);
        let (options, others) = snippets.read_options(entries, |_| false, problems);
        let mut routes = Vec::new();
        for (name, value) in others {
            match RouteKey::is_meant(&name.value) {
                true => routes.extend(route::read_route(name, &value, snippets, problems)),
                false => problems.push(unknown_host_key(&name)),
            }
        }
        hosts.push(HostConfig { names, options, routes });
    }
    hosts
}

fn unknown_host_key(name: &Name) -> Problem {
    if is_top_key(name) {
        return misplaced(name, "hosts");
    }
    match suggest(&name.value, OPTIONS.iter().map(|key| key.name)) {
        Some(suggestion) => name.problem(format!(
            "unknown key `{}` in [hosts]; did you mean `{suggestion}`?",
            name.value
        )),
        None => name.problem(format!(
            "expected a prefix that begins with a slash, or an option such as `allow`, found \
             `{}`; a host is in quotes: [hosts.\"example.org\"]",
            name.value
        )),
    }
}

fn entries_or_report<'a>(value: &Value<'a>, problems: &mut Vec<Problem>) -> Entries<'a> {
    value.entries().map_err(|problem| problems.push(problem)).unwrap_or_default()
}
