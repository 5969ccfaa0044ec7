//! The configuration of the server: text → [`Config`] → [`Plan`].
//!
//! [`Config`] is syntax only; a file and the command line accept the same keys. [`Plan`] is
//! resolved and validated, but nothing is opened yet.

mod foreign_keys; // directives of other servers in place of keys
mod host_listeners; // listeners of hosts
mod host_names; // names of the hosts of a section
mod host_plan; // routes of a host
mod map_references; // placeholders of maps in routes and logs
mod needed_descriptors; // number of file descriptors that a plan needs
mod plan; // Config → Plan
mod print; // Plan → text
#[cfg(test)]
mod random_configs; // tests that printed configurations have the same meaning
mod route_config; // routes: an operator and a target, or a table
mod route_plan; // plans of routes
mod route_schema; // the JSON schema of a route
pub(crate) mod schema; // the JSON schema of the file
mod sent_scripts; // scripts whose text clients would get
mod section; // the list of the sections with fixed keys
mod unsupported; // values that the system cannot apply
mod upstream_sockets; // Unix sockets of upstreams that cannot be opened
mod warnings; // probable mistakes in a plan
mod without_effect; // keys without effect

use std::ffi::OsString;

use weft::Settings;
use weft_config::{
    ConfigResult, Document, Entries, Located, Name, Problem, SectionKey, Snippets, Sources, Value,
    find, find_flag, read_entries, read_section, section_entries, suggest, unknown_key,
};

pub(crate) use host_plan::HostPlan;
pub(crate) use needed_descriptors::warn_if_insufficient;
pub(crate) use plan::Plan;
pub(crate) use print::print_plan;
use route_config::read_route;
pub(crate) use route_config::{RouteConfig, parse_route};
pub(crate) use route_plan::RoutePlan;
pub(crate) use section::{Section, sections};

use crate::apps::FilesConfig;
use crate::options::{RouteOptions, option_keys};
use crate::route::RouteKey;
use crate::sections::acme::AcmeConfig;
use crate::sections::cluster::ClusterConfig;
use crate::sections::host::{HOST, HostSettings};
use crate::sections::log::LogSettings;
use crate::sections::maps::{MapConfig, read_maps};
use crate::sections::provided::ProvidedParts;
use crate::sections::response_cache::StoreSettings;
use crate::sections::status::StatusConfig;
use crate::sections::streams::{STREAM, StreamConfig, StreamSettings};
use crate::sections::tls::TlsConfig;
use crate::sections::top::{FORWARDING_PROXIES, TopConfig};
use crate::sections::tracing::TracingSettings;

/// The whole configuration. Keys that are not set have their defaults.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) top: TopConfig,
    pub(crate) log: LogSettings,
    pub(crate) tls: TlsConfig,
    pub(crate) acme: AcmeConfig,
    pub(crate) status: StatusConfig,
    pub(crate) tracing: TracingSettings,
    pub(crate) response_cache: StoreSettings,
    pub(crate) cluster: ClusterConfig,
    pub(crate) limits: Settings,
    pub(crate) files: FilesConfig,
    /// Options of all hosts.
    pub(crate) defaults: RouteOptions,
    pub(crate) maps: Vec<MapConfig>,
    pub(crate) hosts: Vec<HostConfig>,
    pub(crate) streams: Vec<StreamConfig>,
    /// Parts that are no text.
    pub(crate) provided: ProvidedParts,
    /// Errors. Without them the configuration is complete.
    pub(crate) problems: Vec<Problem>,
    /// Values that are valid, but probably not intended.
    pub(crate) warnings: Vec<Problem>,
}

/// A section of `[hosts]`: host names separated by spaces, and their routes.
#[derive(Debug)]
pub(crate) struct HostConfig {
    pub(crate) names: Located<String>,
    pub(crate) settings: HostSettings,
    pub(crate) options: RouteOptions,
    pub(crate) routes: Vec<RouteConfig>,
}

/// Names of the sections without fixed keys.
const TABLES: [&str; 4] = ["snippets", "hosts", "streams", "maps"];

impl Config {
    /// Parses the files of a configuration as if they were one.
    pub(crate) fn parse(sources: &Sources) -> Config {
        let mut config = Config::default();
        let document = Document::parse(sources);
        let mut problems = Vec::new();
        let (mut hosts, mut snippets) = (Entries::new(), Entries::new());
        for (name, values) in document.sections() {
            let problems = &mut problems;
            match &*name.value {
                "hosts" => hosts = section_entries(&values, problems),
                "snippets" => snippets = section_entries(&values, problems),
                "maps" => {
                    let maps = section_entries(&values, problems);
                    config.maps = read_maps(maps, problems);
                }
                "streams" => config.streams = read_streams(&values, problems),
                section => match (Section::find(section), find(Section::top(), section)) {
                    (Some(Section { keys, .. }), _) => {
                        let special = |key: &Name| misplaced_or_renamed(key, section);
                        read_section(keys, &mut config, &values, &special, problems);
                    }
                    (None, Some(key)) => {
                        problems.extend(key.set_values(&mut config, &name, &values).err());
                    }
                    (None, None) => problems.push(unknown_top_key(&name)),
                },
            }
        }
        let snippets = Snippets::read(snippets, &mut problems);
        config.hosts = read_hosts(hosts, &snippets, &mut problems);
        let unused = snippets.unused();
        let unused = unused.map(|name| name.problem("no host and no route uses this snippet"));
        config.warnings.extend(unused);
        foreign_keys::name_directives(&mut problems);
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
        let key = sections().iter().find_map(|section| find_flag(&section.keys, flag))?;
        Some(key.set_arguments(self, &format!("--{flag}"), arguments))
    }

    /// Returns the values of keys that are not set, as the help and the reference have them.
    pub(crate) fn shown_defaults() -> Config {
        Config { files: FilesConfig::defaults(), ..Config::default() }
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
                let (settings, options) = Default::default();
                self.hosts.push(HostConfig { names, settings, options, routes: vec![route] });
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
    let specs = sections().iter().flat_map(|section| &section.keys).map(|key| key.spec());
    let flags = specs.filter(|spec| !spec.flag.is_empty());
    flags.map(|spec| Flag { name: spec.flag, is_switch: spec.is_switch() })
}

/// Explains a key that belongs to the top of the file, or that had another name.
fn misplaced_or_renamed(name: &Name, section: &str) -> Option<Problem> {
    if is_top_key(name) {
        return Some(misplaced(name, section));
    }
    ((section, &*name.value) == ("limits", "proxies")).then(|| {
        name.problem(format!(
            "`proxies` is now `proxy_protocol`: proxies that send the PROXY protocol; \
             {FORWARDING_PROXIES}"
        ))
    })
}

fn is_top_key(name: &Name) -> bool {
    find(Section::top(), &name.value).is_some()
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
    let has_key = |section: &&Section| find(&section.keys, &name.value).is_some();
    match sections().iter().find(has_key) {
        Some(Section { name: section, .. }) => {
            name.problem(format!("unknown key `{}`; it belongs in [{section}]", name.value))
        }
        None => {
            let keys = Section::top().iter().map(SectionKey::name);
            let sections = sections()[1..].iter().map(|section| section.name);
            unknown_key(name, keys.chain(sections).chain(TABLES))
        }
    }
}

fn read_streams(tables: &[Value<'_>], problems: &mut Vec<Problem>) -> Vec<StreamConfig> {
    let mut streams = Vec::new();
    for (listen, value) in section_entries(tables, problems) {
        let mut settings = StreamSettings::default();
        let special = |key: &Name| misplaced_or_renamed(key, "streams");
        read_section(&STREAM, &mut settings, &[value], &special, problems);
        streams.push(StreamConfig::new(listen, settings));
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
            snippets.read_section(option_keys(), entries, RouteOptions::or, problems);
        let mut settings = HostSettings::default();
        let others = read_entries(&HOST, &mut settings, others, problems);
        let mut routes = Vec::new();
        for (name, value) in others {
            match RouteKey::is_meant(&name.value) {
                true => routes.extend(read_route(name, &value, snippets, problems)),
                false => problems.push(unknown_host_key(&name)),
            }
        }
        hosts.push(HostConfig { names, settings, options, routes });
    }
    hosts
}

fn unknown_host_key(name: &Name) -> Problem {
    if let Some(problem) = foreign_keys::foreign_key(name) {
        return problem;
    }
    if is_top_key(name) {
        return misplaced(name, "hosts");
    }
    match suggest(&name.value, option_keys().iter().map(SectionKey::name).chain([HOST[0].name])) {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The texts of the tables in `weft-kubernetes`.
    #[test]
    fn texts_of_clusters_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weft-kubernetes/tests/plans");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let sources = Sources::default().with_generated("generated", text);
            let problems = Plan::new(Config::parse(&sources)).err().unwrap_or_default();
            assert!(problems.is_empty(), "{}: {problems:?}", path.display());
            count += 1;
        }
        assert!(count > 3);
    }

    /// Others than the operator may choose parts of a generated text.
    #[test]
    fn generated_texts_have_no_environment_variables() {
        let route = "[hosts.\"*\"]\n\"/\" = { respond = \"{env.PATH}\" }\n";
        let generated = Sources::default().with_generated("generated", route.to_owned());
        let problems = Plan::new(Config::parse(&generated)).unwrap_err();
        assert!(problems[0].message.contains("env.PATH"), "{problems:?}");
        let file = Sources::of_text("file", route.to_owned(), Path::new("/"));
        assert!(Plan::new(Config::parse(&file)).is_ok());
    }
}
