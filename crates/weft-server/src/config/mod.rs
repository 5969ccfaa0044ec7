//! Text → [`Config`]: syntax only. A file and the command line accept the same keys.

mod balance; // choice of an upstream
mod check; // active health checks of upstreams
mod effect; // keys without effect
mod files; // the keys of [files]
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
pub(crate) mod schema; // a JSON schema of the file
mod route; // routes: operators, targets and tables

use std::ffi::OsString;

use weft::Settings;
use weft_config::{
    ConfigResult, Document, Entries, Key, Located, Name, Problem, SectionKey, Snippets, Sources,
    Value, find, find_flag, read_section, section_entries, suggest, unknown_key,
};

#[cfg(test)]
pub(crate) use access_log::ACCESS_LOG;
pub(crate) use access_log::AccessLogConfig;
pub(crate) use acme::{ACME, AcmeConfig, DnsConfig, dns_server_address};
pub(crate) use cgi::CGI;
pub(crate) use effect::without_effect;
pub(crate) use fastcgi::{fastcgi_keys, php_keys, scgi_keys};
pub(crate) use files::{FILES, FilesConfig};
pub(crate) use limits::LIMITS;
pub(crate) use log::{Facility, LOG, LogConfig};
pub(crate) use log_format::RequestValue;
pub(crate) use log_target::{DaemonAddress, LogDaemon, LogTarget};
pub(crate) use on_demand::OnDemandConfig;
pub(crate) use options::{
    AccelFolder, AuthUrl, ErrorPage, Field, FieldChanges, FieldOperation, JwtKeys, OPTIONS, Origin,
    PageSource, Rate, RouteOptions, Satisfy,
};
pub(crate) use proxy::PROXY;
pub(crate) use respond::{RESPONSE, ResponseConfig, STATUS_CODE};
pub(crate) use rewrite::{REWRITE, RewriteConfig};
pub(crate) use route::{Action, RouteConfig, parse_route};
pub(crate) use split::{SPLIT, SplitConfig};
pub(crate) use status::{MAX_CONFIG_BYTES, PermittedChanges, STATUS, StatusConfig, status_limits};
pub(crate) use statuses::Statuses;
pub(crate) use stream_settings::{LineFormat, ProxyVersion, ServerNamePattern, StreamSettings};
pub(crate) use streams::{STREAM, StreamConfig};
pub(crate) use tls::{CertificatePair, Certificates, ClientAuthMode, TLS, TlsConfig, TlsProfile};
pub(crate) use top::{TOP, TopConfig};
pub(crate) use tracing::{TRACING, TracingConfig};

use crate::route::RouteKey;

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
        let document = Document::parse(sources);
        let mut problems = Vec::new();
        let (mut hosts, mut snippets) = (Entries::new(), Entries::new());
        for (name, values) in document.sections() {
            let Config { log, tls, acme, status, tracing, limits, files, defaults, .. } =
                &mut config;
            let problems = &mut problems;
            let special = |key: &Name| misplaced_or_renamed(key, &name.value);
            match &*name.value {
                "log" => read_section(&LOG, log, &values, &special, problems),
                "tls" => read_section(&TLS, tls, &values, &special, problems),
                "acme" => read_section(&ACME, acme, &values, &special, problems),
                "status" => read_section(&STATUS, status, &values, &special, problems),
                "tracing" => read_section(&TRACING, tracing, &values, &special, problems),
                "limits" => read_section(&LIMITS, limits, &values, &special, problems),
                "files" => read_section(&FILES, files, &values, &special, problems),
                "defaults" => read_section(&OPTIONS, defaults, &values, &special, problems),
                "hosts" => hosts = section_entries(&values, problems),
                "snippets" => snippets = section_entries(&values, problems),
                "streams" => config.streams = read_streams(&values, problems),
                _ => match find(&TOP, &name.value) {
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
        config.problems = document.with_syntax_problems(problems);
        config
    }

    /// Sets the value of an option. `arguments` has one item for each occurrence. Returns `None` if
    /// there is no such option.
    pub(crate) fn set_option(
        &mut self,
        flag: &str,
        arguments: &[OsString],
    ) -> Option<ConfigResult> {
        fn set<S>(
            keys: &[Key<S>],
            into: &mut S,
            flag: &str,
            arguments: &[OsString],
        ) -> Option<ConfigResult> {
            let key = find_flag(keys, flag)?;
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
        flags.map(|key| Flag { name: key.flag, is_switch: key.spec().is_switch() })
    }
    let first = section(&TOP).chain(section(&LOG)).chain(section(&TLS)).chain(section(&ACME));
    let first = first.chain(section(&STATUS));
    first.chain(section(&LIMITS)).chain(section(&FILES)).chain(section(&OPTIONS))
}

/// Explains a key that belongs to the top of the file, or that had another name.
fn misplaced_or_renamed(name: &Name, section: &str) -> Option<Problem> {
    if is_top_key(name) {
        return Some(misplaced(name, section));
    }
    ((section, &*name.value) == ("limits", "proxies")).then(|| {
        name.problem(
            "`proxies` is now `proxy_protocol`: proxies that send the PROXY protocol; those that \
             send X-Forwarded-For belong in `trusted_proxies` at the top of the file",
        )
    })
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
        None => unknown_key(name, TOP.iter().map(|key| key.name).chain(SECTIONS)),
    }
}

fn read_streams(tables: &[Value<'_>], problems: &mut Vec<Problem>) -> Vec<StreamConfig> {
    let mut streams = Vec::new();
    for (listen, value) in section_entries(tables, problems) {
        let mut settings = StreamSettings::default();
        let special = |key: &Name| misplaced_or_renamed(key, "streams");
        read_section(&STREAM, &mut settings, &[value], &special, problems);
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
        let entries = section_entries(&[value], problems);
        let (options, others) =
            snippets.read_section(&OPTIONS, entries, RouteOptions::or, problems);
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
