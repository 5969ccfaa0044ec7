//! [`Config`] → [`Plan`]: all values are resolved and validated, but nothing is opened yet. Pure.

mod acme; // names for which certificates are ordered
mod rewrite; // changes of paths, and groups in templates

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft::{HeaderName, HeaderValue, Method, Network, Settings, StatusCode};

use crate::acme::AcmePlan;
use crate::apps::spool::BufferSpaceLimits;
use crate::apps::{cgi, proxy};
use crate::config::{
    Action, CertificatePair, ClientAuthMode, Config, ConfigLocation, ConfigResult, ErrorPage,
    FilesConfig, Located, LogConfig, Problem, RouteConfig, RouteOptions, TlsConfig, TopConfig,
    without_effect,
};
use crate::config_change::ConfigChanges;
use crate::route::{PathKey, Pattern, Rewrite, RouteKey};
use crate::template::Template;

use acme::plan_acme;
use rewrite::{
    Patterns, check_groups, check_host_groups, check_route_names, parse_template, plan_rewrite,
};

/// The validated configuration from which the server is started. A reload compares plans by value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) listen: Addresses,
    /// `None`: one per CPU.
    pub(crate) workers: Option<usize>,
    /// The kernel passes connections on with their first bytes.
    pub(crate) defer_accept: bool,
    /// Time for requests in flight to complete at a stop.
    pub(crate) drain_timeout: Duration,
    /// Time for requests in flight to complete after another process has taken over the sockets.
    pub(crate) retire_timeout: Duration,
    /// Limits of the space for buffered bodies.
    pub(crate) buffer_space: BufferSpaceLimits,
    /// Proxies whose `client_ip_header` is trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) client_ip_header: HeaderName,
    pub(crate) run_as: RunAs,
    pub(crate) umask: Option<u32>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) log: LogConfig,
    pub(crate) tls: Option<TlsPlan>,
    /// Addresses of the status endpoint. Empty: no endpoint.
    pub(crate) status: Addresses,
    /// Hosts of the status endpoint, in the form of [`HostPlan::names`].
    pub(crate) status_hosts: Vec<String>,
    pub(crate) config_changes: ConfigChanges,
    pub(crate) limits: Settings,
    pub(crate) hosts: Vec<HostPlan>,
    /// Values that are valid, but probably not intended; see also `Plan::warnings`.
    pub(crate) warnings: Vec<Problem>,
}

/// Addresses to listen on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) list: Vec<String>,
    /// The configuration has no addresses, and `list` has the default.
    pub(crate) are_defaults: bool,
}

/// User and group of the process after its sockets are bound. `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunAs {
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
}

/// Validated `[tls]` section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsPlan {
    pub(crate) listen: Addresses,
    /// Empty: they are ordered, or a self-signed certificate is generated at startup.
    pub(crate) certificates: Vec<Located<CertificatePair>>,
    pub(crate) tickets: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: ClientAuthMode,
    pub(crate) only_1_3: bool,
    /// Certificates that are ordered, if any.
    pub(crate) acme: Option<AcmePlan>,
}

/// Routes of one or more hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// In lower case. `*.example.org` matches all subdomains, `*` all other hosts, and `~ REGEX`, as
    /// the only name, those in which the pattern is found.
    pub(crate) names: Vec<String>,
    pub(crate) routes: Vec<RoutePlan>,
    /// Pages for errors of the router itself.
    pub(crate) error_pages: Vec<ErrorPage>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) key: RouteKey,
    /// With the inherited options.
    pub(crate) options: RouteOptions,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) app: Located<AppPlan>,
}

/// The application of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AppPlan {
    Cgi(Box<cgi::CgiSettings>),
    Files {
        root: PathBuf,
        files: Box<FilesConfig>,
    },
    /// Files, and scripts that upstreams run.
    ScriptSite {
        root: PathBuf,
        files: Box<FilesConfig>,
        upstreams: Box<proxy::ProxySettings>,
    },
    Proxy(Box<proxy::ProxySettings>),
    /// The route of another path.
    Rewrite,
    Redirect {
        to: Template,
        status: StatusCode,
    },
    Respond {
        text: Template,
        status: StatusCode,
        content_type: Option<HeaderValue>,
    },
    RespondFile {
        path: PathBuf,
        status: StatusCode,
        content_type: Option<HeaderValue>,
    },
}

impl HostPlan {
    /// Returns the route of a GET request for a decoded path.
    pub(crate) fn route_of(&self, path: &str) -> Option<&RoutePlan> {
        let all = self.routes.iter().filter(|route| route.key.includes(&Method::GET));
        let exact =
            all.clone().find(|route| matches!(&route.key.path, PathKey::Exact(it) if it == path));
        let pattern = || {
            let matches = |route: &&RoutePlan| matches!(&route.key.path, PathKey::Pattern(pattern) if pattern.matches(path.as_bytes()));
            all.clone().find(matches)
        };
        let prefix = || {
            let length = |route: &&RoutePlan| route.key.prefix_length(path);
            all.clone().filter(|route| length(route).is_some()).max_by_key(length)
        };
        exact.or_else(pattern).or_else(prefix)
    }
}

impl RoutePlan {
    /// The template of a redirect or a text.
    pub(crate) fn template(&self) -> Option<&Template> {
        match &self.app.value {
            AppPlan::Redirect { to: template, .. } | AppPlan::Respond { text: template, .. } => {
                Some(template)
            }
            AppPlan::Cgi(_)
            | AppPlan::Files { .. }
            | AppPlan::ScriptSite { .. }
            | AppPlan::Proxy(_)
            | AppPlan::Rewrite
            | AppPlan::RespondFile { .. } => None,
        }
    }
}

impl AppPlan {
    /// The directory whose files the route serves, and its settings.
    pub(crate) fn files(&self) -> Option<(&Path, &FilesConfig)> {
        match self {
            AppPlan::Files { root, files } | AppPlan::ScriptSite { root, files, .. } => {
                Some((root, files))
            }
            _ => None,
        }
    }

    /// The settings of the upstreams of the route.
    pub(crate) fn upstreams(&self) -> Option<&proxy::ProxySettings> {
        match self {
            AppPlan::Proxy(upstreams) | AppPlan::ScriptSite { upstreams, .. } => Some(upstreams),
            _ => None,
        }
    }
}

impl Plan {
    /// Validates the configuration. The errors are all of it, also those of its syntax.
    pub(crate) fn new(config: Config) -> Result<Plan, Vec<Problem>> {
        let mut warnings = without_effect(&config);
        warnings.extend(config.warnings);
        let Config {
            top,
            log,
            tls,
            acme,
            status,
            limits,
            files,
            mut defaults,
            hosts,
            mut problems,
            ..
        } = config;
        let is_complete = problems.is_empty();
        let listening = [&top.listen, &tls.listen, &status.listen];
        check_listening(listening.into_iter().flatten(), &mut problems);
        let files = files.or(&FilesConfig::defaults());
        if tls.is_automatic || !acme.domains.is_empty() {
            defaults.https_redirect.get_or_insert(true);
        }
        let mut plans = Vec::new();
        let mut known_hosts = HashMap::new();
        for host in hosts {
            let names = host_names(&host.names, &mut known_hosts, &mut problems);
            let host_pattern = match &*names {
                [name] => name.strip_prefix("~ ").and_then(|name| Pattern::parse(name).ok()),
                _ => None,
            };
            let options = host.options.or(&defaults);
            let groups = options
                .templates()
                .filter_map(|it| check_host_groups(it, host_pattern.as_ref()).err());
            problems.extend(groups.map(|message| host.names.problem(message)));
            let inherited = Inherited {
                host_pattern,
                options,
                files: &files,
                trusted_proxies: &top.trusted_proxies,
                max_body_bytes: limits.max_body_bytes,
            };
            let mut routes = plan_routes(host.routes, &inherited, &mut problems);
            routes.extend(route_of_others(&routes, &inherited.options, &host.names.location));
            let error_pages = inherited.options.error_pages;
            plans.push(HostPlan { names, routes, error_pages });
        }
        let has_fallback = plans.iter().any(|host| host.names.iter().any(|name| name == "*"));
        if !has_fallback && !plans.is_empty() {
            let route = route_of_others(&[], &defaults, &ConfigLocation::Unknown);
            let host = |route| HostPlan {
                names: vec!["*".to_owned()],
                routes: vec![route],
                error_pages: defaults.error_pages.clone(),
            };
            plans.extend(route.map(host));
        }
        let acme = plan_acme(acme, tls.is_automatic, &plans, &mut warnings);
        let is_automatic = acme.is_some();
        let tls = plan_tls(tls, acme, is_complete);
        let tls = tls.map_err(|problem| problems.push(problem)).ok().flatten();
        let status_hosts = host_list(status.hosts, &mut problems);
        let umask = top.umask.map(parse_umask).transpose();
        let umask = umask.map_err(|problem| problems.push(problem)).ok().flatten();
        if plans.iter().all(|host| host.routes.is_empty()) && problems.is_empty() {
            let message = "there is nothing to serve; add a section such as [hosts.\"*\"] with \
                           \"/\" = \"-> /srv/www\"";
            problems
                .push(Problem { location: ConfigLocation::Unknown, message: message.to_owned() });
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let TopConfig { workers, defer_accept, drain_timeout, retire_timeout, .. } = top;
        let buffer_space = BufferSpaceLimits {
            memory_bytes: top.max_buffer_bytes,
            memory_bytes_per_client: top.max_buffer_bytes_per_client,
            disk_bytes: top.max_temp_bytes,
        };
        let default_listen = match (is_automatic, tls.is_none()) {
            (true, _) => Some("[::]:80"),
            (false, is_plain) => is_plain.then_some("127.0.0.1:8080"),
        };
        let listen = Addresses::new(top.listen, default_listen);
        Ok(Plan {
            listen,
            workers,
            defer_accept,
            log,
            drain_timeout,
            retire_timeout,
            buffer_space,
            trusted_proxies: top.trusted_proxies,
            client_ip_header: top.client_ip_header,
            run_as: RunAs { user: top.user, group: top.group },
            umask,
            pid_file: top.pid_file.map(|path| path.value),
            tls,
            status: Addresses::new(status.listen, None),
            status_hosts,
            config_changes: status.config_changes,
            limits,
            hosts: plans,
            warnings,
        })
    }
}

impl Addresses {
    fn new(given: Vec<Located<String>>, default: Option<&str>) -> Addresses {
        let are_defaults = given.is_empty();
        let mut list: Vec<String> = given.into_iter().map(|address| address.value).collect();
        if are_defaults {
            list.extend(default.map(str::to_owned));
        }
        Addresses { list, are_defaults }
    }
}

/// Reports addresses that occur twice. Port 0 is another port each time.
fn check_listening<'a>(
    addresses: impl Iterator<Item = &'a Located<String>>,
    problems: &mut Vec<Problem>,
) {
    let mut known = HashMap::new();
    for address in addresses.filter(|address| !address.value.ends_with(":0")) {
        let all = address.value.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let normal = all.unwrap_or_else(|| address.value.clone());
        if let Some(first) = known.insert(normal, &address.location) {
            let first = first.relative_to(&address.location);
            let message = format!("the address `{}` is given twice{first}", address.value);
            problems.push(address.problem(message));
        }
    }
}

fn parse_umask(mask: Located<String>) -> ConfigResult<u32> {
    let parsed = u32::from_str_radix(&mask.value, 8).ok().filter(|mask| *mask <= 0o777);
    let invalid =
        || format!("expected a mask of three octal digits such as 027, found {:?}", mask.value);
    parsed.ok_or_else(|| mask.problem(invalid()))
}

/// Validates `[tls]`. Returns `None` if TLS is not configured. What is missing is an error only if
/// the configuration is complete.
fn plan_tls(
    tls: TlsConfig,
    acme: Option<AcmePlan>,
    is_complete: bool,
) -> ConfigResult<Option<TlsPlan>> {
    let TlsConfig { listen, certificates, self_signed, tickets, client_ca, .. } = tls;
    let TlsConfig { client_auth, only_1_3, .. } = tls;
    if let (Some(first), true) = (certificates.first(), self_signed) {
        return Err(match first.location.is_in_file() {
            true => first.problem("`self_signed` cannot be combined with `certificates`"),
            false => first.problem("--tls-self-signed cannot be combined with --tls-cert"),
        });
    }
    if certificates.is_empty() && acme.is_none() && !self_signed {
        // Keys that have no effect without a certificate.
        let paths = [&tickets, &client_ca].into_iter().flatten().map(|path| &path.location);
        let mut locations =
            listen.first().map(|address| &address.location).into_iter().chain(paths);
        return match locations.next() {
            _ if !is_complete => Ok(None),
            None => Ok(None),
            Some(ConfigLocation::Option(option)) => Err(Problem {
                location: ConfigLocation::Unknown,
                message: format!("{option} needs --tls-cert or --tls-self-signed"),
            }),
            Some(location) => Err(Problem {
                location: location.clone(),
                message:
                    "this needs `certificates` in [tls], which may be \"auto\", or `self_signed`"
                        .to_owned(),
            }),
        };
    }
    let default_listen = if acme.is_some() { "[::]:443" } else { "127.0.0.1:8443" };
    let listen = Addresses::new(listen, Some(default_listen));
    let [tickets, client_ca] = [tickets, client_ca].map(|path| path.map(|path| path.value));
    Ok(Some(TlsPlan { listen, certificates, tickets, client_ca, client_auth, only_1_3, acme }))
}

// -- hosts

/// Normalizes the names of a host section. A name that another section has already is an error.
fn host_names(
    names: &Located<String>,
    known: &mut HashMap<String, ConfigLocation>,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    if names.value.trim().is_empty() {
        problems.push(names.problem("expected the name of a host, or `*` for all others"));
    }
    let mut accepted = Vec::new();
    let is_pattern = names.value.starts_with("~ ");
    let each: Vec<&str> = match is_pattern {
        true => vec![names.value.trim()],
        false => names.value.split_whitespace().collect(),
    };
    for name in each {
        let name = if is_pattern { host_pattern(name) } else { host_name(name) };
        match name {
            Err(message) => problems.push(names.problem(message)),
            Ok(name) => match known.insert(name.clone(), names.location.clone()) {
                None => accepted.push(name),
                Some(first) => {
                    let first = first.relative_to(&names.location);
                    problems
                        .push(names.problem(format!("the host `{name}` is given twice{first}")));
                }
            },
        }
    }
    accepted
}

/// Validates a pattern of host names.
fn host_pattern(written: &str) -> Result<String, String> {
    let source = written.trim_start_matches('~').trim_start();
    let pattern =
        Pattern::parse(source).map_err(|reason| format!("the host {written:?} {reason}"))?;
    match pattern.source().bytes().any(|b| b.is_ascii_uppercase()) && !source.contains('\\') {
        true => {
            Err(format!("the host {written:?} has upper case; names are compared in lower case"))
        }
        false => Ok(format!("~ {}", pattern.source())),
    }
}

/// Normalizes a list of host names.
fn host_list(names: Vec<Located<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    let normalize = |name: Located<String>| match host_name(&name.value) {
        Ok(normalized) => Some(normalized),
        Err(message) => {
            problems.push(name.problem(message));
            None
        }
    };
    names.into_iter().filter_map(normalize).collect()
}

/// Returns the name of a host in lower case, without its trailing dot.
fn host_name(written: &str) -> Result<String, String> {
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if name == "*" {
        return Ok(name);
    }
    if name == "_" {
        return Err("no client sends the host `_`; all other hosts are `*`".to_owned());
    }
    if !name.is_ascii() {
        return Err(format!("`{written}` is not the name of a host as in the DNS (xn--…)"));
    }
    let is_name = |name: &str| {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_permitted))
    };
    let is_address = |name: &str| {
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok())
    };
    if is_name(name.strip_prefix("*.").unwrap_or(&name)) || is_address(&name) {
        return Ok(name);
    }
    let hint = match name.rsplit_once(':') {
        Some((host, port)) if is_name(host) && port.parse::<u16>().is_ok() => {
            format!("; a host is given without its port: `{host}`")
        }
        _ => String::new(),
    };
    Err(format!("`{written}` is neither the name of a host, nor `*.` and one, nor `*`{hint}"))
}

// -- routes

/// Values that the routes of a host inherit.
struct Inherited<'a> {
    /// Set if the host is a pattern.
    host_pattern: Option<Pattern>,
    options: RouteOptions,
    files: &'a FilesConfig,
    trusted_proxies: &'a [Network],
    max_body_bytes: u64,
}

fn plan_routes(
    routes: Vec<RouteConfig>,
    inherited: &Inherited<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<RoutePlan> {
    let mut plans = Vec::<RoutePlan>::new();
    for RouteConfig { key: written, options, rewrite, action } in routes {
        let key = RouteKey::parse(&written.value);
        let key = key.map_err(|message| problems.push(written.problem(message))).ok();
        let patterns = Patterns { key: key.as_ref(), host: inherited.host_pattern.as_ref() };
        let groups = options.templates().filter_map(|it| check_groups(it, patterns).err());
        problems.extend(groups.map(|message| written.problem(message)));
        let mut options = options.or(&inherited.options).without_effectless();
        let rewrite = plan_rewrite(rewrite, &action, patterns);
        let rewrite = rewrite.map_err(|problem| problems.push(problem)).ok();
        let app = plan_app(action, patterns, &mut options, inherited);
        let app = app.map_err(|problem| problems.push(problem)).ok();
        let (Some(key), Some(rewrite), Some(mut app)) = (key, rewrite, app) else { continue };
        if let (AppPlan::Files { files, .. }, Some(Rewrite::TryFiles(_))) =
            (&mut app.value, &rewrite)
        {
            // The inherited one would exist for all paths.
            files.fallback = None;
        }
        match plans.iter().any(|known| known.key.conflicts_with(&key)) {
            true => problems.push(written.problem(already_given(&written.value, &key))),
            false => plans.push(RoutePlan { key, options, rewrite, app }),
        }
    }
    check_route_names(&plans, problems);
    plans
}

fn already_given(written: &str, key: &RouteKey) -> String {
    let reason = match (&key.methods, &key.path) {
        (Some(_), _) => "for one of these methods; GET includes HEAD",
        (None, PathKey::Prefix(_)) => "a slash at its end makes no difference",
        (None, _) => "for all methods",
    };
    format!("the route `{written}` is given twice; {reason}")
}

/// Returns the route for requests that have none, with which they get the error pages of the options;
/// `None` if all requests have a route, or if there are no such pages.
fn route_of_others(
    routes: &[RoutePlan],
    options: &RouteOptions,
    location: &ConfigLocation,
) -> Option<RoutePlan> {
    let key = RouteKey { methods: None, path: PathKey::Prefix(String::new()) };
    if options.error_pages.is_empty() || routes.iter().any(|route| route.key.conflicts_with(&key)) {
        return None;
    }
    let text = Template::parse("").ok()?;
    let app = AppPlan::Respond { text, status: StatusCode::NOT_FOUND, content_type: None };
    let app = Located { location: location.clone(), value: app };
    Some(RoutePlan { key, options: options.clone(), rewrite: None, app })
}

/// Returns the application of a route. Options that its files have themselves move there.
fn plan_app(
    action: Located<Action>,
    patterns: Patterns<'_>,
    options: &mut RouteOptions,
    inherited: &Inherited<'_>,
) -> ConfigResult<Located<AppPlan>> {
    let Located { location, value } = action;
    let max_body_bytes = options.max_body_bytes.unwrap_or(inherited.max_body_bytes);
    let problem = |message| Problem { location: location.clone(), message };
    let app = match value {
        Action::Cgi(mut settings) => {
            settings.trusted = inherited.trusted_proxies.to_vec();
            settings.max_body_bytes = max_body_bytes;
            AppPlan::Cgi(settings)
        }
        Action::Files { root, files } => {
            AppPlan::Files { root, files: plan_files(*files, options, inherited) }
        }
        Action::ScriptSite { root, files, upstreams } => {
            // Scripts compress their output themselves, or a route with `compress` does.
            let compress = options.compress;
            let files = plan_files(*files, options, inherited);
            options.compress = options.compress.or(compress);
            let mut upstreams = plan_upstreams(upstreams, max_body_bytes, inherited);
            upstreams.validate().map_err(problem)?;
            upstreams.fastcgi.root = Some(root.clone());
            AppPlan::ScriptSite { root, files, upstreams }
        }
        Action::Proxy(upstreams) => {
            let upstreams = plan_upstreams(upstreams, max_body_bytes, inherited);
            upstreams.validate().map_err(problem)?;
            AppPlan::Proxy(upstreams)
        }
        Action::Rewrite => AppPlan::Rewrite,
        Action::Redirect { to, status } => {
            let appends_rest = patterns.key.is_none_or(|key| key.prefix().is_some());
            let to = parse_template(&to, patterns)
                .and_then(|to| check_redirect(&to, appends_rest).map(|()| to));
            let to = to.map_err(problem)?;
            let status = match status {
                301 | 302 | 303 | 307 | 308 => status_code(status),
                _ => {
                    let message = "the status of a redirect is 301, 302, 303, 307 or 308, not";
                    return Err(problem(format!("{message} {status}")));
                }
            };
            AppPlan::Redirect { to, status }
        }
        Action::RespondFile { path, status, content_type } => {
            if matches!(status, 204 | 205 | 304) {
                return Err(problem(format!("a response of status {status} has no content")));
            }
            AppPlan::RespondFile { path, status: status_code(status), content_type }
        }
        Action::Respond { text, status, content_type } => {
            if matches!(status, 204 | 205 | 304) && !text.is_empty() {
                return Err(problem(format!("a response of status {status} has no text")));
            }
            let text = parse_template(&text, patterns).map_err(problem)?;
            if content_type.is_some() && text.as_literal().is_none() {
                let message = "a text with placeholders has no `content_type` but text/plain: their \
                               values are not escaped";
                return Err(problem(message.to_owned()));
            }
            AppPlan::Respond { text, status: status_code(status), content_type }
        }
    };
    Ok(Located { location, value: app })
}

/// Adds inherited values. Options that files have themselves move there.
fn plan_files(
    mut files: FilesConfig,
    options: &mut RouteOptions,
    inherited: &Inherited<'_>,
) -> Box<FilesConfig> {
    files.compress = files.compress.or(options.compress.take());
    let own = files.headers.iter().flatten().map(|rule| rule.rule.name());
    let own: Vec<_> = own.collect();
    options.response_fields.set.retain(|field| !own.contains(&&field.name));
    let mut files = files.or(inherited.files);
    if options.substitutes() {
        // The substitution reads uncoded files, and its result is compressed.
        options.compress = files.compress.take();
        files.is_uncoded = true;
    }
    Box::new(files)
}

/// Adds inherited values.
fn plan_upstreams(
    mut settings: Box<proxy::ProxySettings>,
    max_body_bytes: u64,
    inherited: &Inherited<'_>,
) -> Box<proxy::ProxySettings> {
    settings.max_body_bytes = max_body_bytes;
    if !inherited.trusted_proxies.is_empty() {
        settings.trusted.get_or_insert_with(|| inherited.trusted_proxies.to_vec());
    }
    settings
}

/// Converts a status. The configuration syntax permits 200 to 599.
fn status_code(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Validates the target of a redirect. If it has no placeholders, and `appends_rest` is set, the rest of
/// the path and the query of the request are appended to it, so that it has no query and no fragment
/// of its own.
fn check_redirect(target: &Template, appends_rest: bool) -> Result<(), String> {
    let to = target.source();
    let authority =
        ["https://", "http://", "{scheme}://"].iter().find_map(|it| to.strip_prefix(it));
    let begins_with_path = |to: &str| PATHS.iter().any(|path| to.starts_with(path));
    let has_valid_form = match authority {
        Some(rest) => !rest.is_empty() && !rest.starts_with(['/', ':', '@']),
        None => (to.starts_with('/') && !to.starts_with("//")) || begins_with_path(to),
    };
    if !has_valid_form {
        return Err(format!(
            "expected a redirect to https://HOST/PATH or to /PATH on the same host, found {to:?}"
        ));
    }
    if appends_rest && target.as_literal().is_some() && to.contains(['?', '#']) {
        return Err(format!(
            "the redirect to {to:?} has a query or a fragment; the rest of the path and the query \
             of the request follow its target"
        ));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>')) {
        return Err(format!("the redirect to {to:?} has a byte that must be percent-encoded"));
    }
    if let Some(name) = authority.and_then(open_end) {
        return Err(format!(
            "the redirect to {to:?} would let clients choose the host: {name} ends its name; write \
             a domain or a slash behind it"
        ));
    }
    Ok(())
}

/// Placeholders whose values begin with a slash.
const PATHS: [&str; 3] = ["{path}", "{rest}", "{uri}"];

/// Returns the first placeholder in the authority of a URL whose values could extend the name of the
/// host or choose the port: all but the host and port of the request, groups of the pattern of the
/// host, and those that are followed by a label of the name.
fn open_end(url: &str) -> Option<&str> {
    let starts = PATHS.iter().chain(&["/", "?", "#"]).filter_map(|start| url.find(start));
    let authority = &url[..starts.min().unwrap_or(url.len())];
    authority.match_indices('{').find_map(|(at, _)| {
        let (name, behind) = authority[at..].split_once('}')?;
        let is_label = behind.strip_prefix('.').is_some_and(|label| {
            label.starts_with(|c: char| c == '{' || c.is_ascii_alphanumeric())
        });
        let is_closed = is_label || matches!(name, "{host" | "{port") || name.starts_with("{host.");
        (!is_closed).then(|| &authority[at..=at + name.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalizes_host_names() {
        for (written, expected) in [
            ("Example.ORG", Some("example.org")),
            ("example.org.", Some("example.org")),
            ("*", Some("*")),
            ("*.Example.org", Some("*.example.org")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("[2001:DB8::1]", Some("[2001:db8::1]")),
            ("_", None),
            ("a:80", None),
            ("*.*.org", None),
            ("a..b", None),
            ("http://a", None),
            ("días.example", None),
        ] {
            assert_eq!(host_name(written).ok().as_deref(), expected, "{written}");
        }
        assert!(host_name("a:80").unwrap_err().ends_with("without its port: `a`"));
    }

    #[test]
    fn checks_redirect_targets() {
        for (to, is_good) in [
            ("https://example.org", true),
            ("http://example.org:8080/a/", true),
            ("/", true),
            ("/new/", true),
            ("//evil.example/", false),
            ("example.org", false),
            ("ftp://example.org/", false),
            ("https://", false),
            ("https:///a", false),
            ("https://a/?b", false),
            ("https://a/#b", false),
            ("https://a/\r\nX: y", false),
            ("/\\evil.example", false),
            ("/días", false),
            ("https://{host}{uri}", true),
            ("{scheme}://www.{host}:{port}/a?b={query.c}#d", true),
            ("{path}?{query}", true),
            ("https://{query.sub}.example.org/", true),
            ("https://example.org{query.a}", false),
            ("https://{query.a}", false),
            ("https://{query.a}:8443/", false),
            ("https://{query.a}example.org/", false),
            ("https://{query.a}.:80/", false),
            ("https://{host}{query.a}/", false),
            ("https://a:{query.a}/", false),
            ("https://{query.a}.{query.b}.example.org:{port}/", true),
            ("https://{query.a}.{host}", true),
            ("{query.a}", false),
        ] {
            let to = Template::parse(to).unwrap();
            assert_eq!(check_redirect(&to, true).is_ok(), is_good, "{to:?}");
        }
    }
}
