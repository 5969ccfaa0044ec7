//! [`Config`] → [`Plan`]: all values are resolved and validated, but nothing is opened yet. Pure.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use weft::{Settings, StatusCode};

use crate::apps::{cgi, proxy};
use crate::config::{
    Action, CertificatePair, Config, ConfigLocation, ConfigResult, FilesConfig, Located, LogConfig,
    Problem, RouteConfig, TlsConfig, TopConfig,
};

/// The validated configuration from which the server is started. A reload compares plans by value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) listen: Addresses,
    /// `None`: one per CPU.
    pub(crate) workers: Option<usize>,
    /// Time for requests in flight to complete at a stop.
    pub(crate) drain_timeout: Duration,
    /// Time for requests in flight to complete after another process has taken over the sockets.
    pub(crate) retire_timeout: Duration,
    pub(crate) run_as: RunAs,
    pub(crate) umask: Option<u32>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) log: LogConfig,
    pub(crate) tls: Option<TlsPlan>,
    /// Addresses of the status endpoint. Empty: no endpoint.
    pub(crate) status: Addresses,
    pub(crate) limits: Settings,
    pub(crate) hosts: Vec<HostPlan>,
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
    /// Empty: a self-signed certificate is generated at startup.
    pub(crate) certificates: Vec<Located<CertificatePair>>,
    pub(crate) tickets: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) only_1_3: bool,
}

/// Routes of one or more hosts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostPlan {
    /// In lower case. `*.example.org` matches all subdomains, `*` all other hosts.
    pub(crate) names: Vec<String>,
    pub(crate) routes: Vec<RoutePlan>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    /// Without its trailing slash. Empty: all paths.
    pub(crate) prefix: String,
    pub(crate) app: Located<AppPlan>,
}

/// The application of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AppPlan {
    Cgi(Box<cgi::CgiSettings>),
    Files { root: PathBuf, files: Box<FilesConfig> },
    Proxy(Box<proxy::ProxySettings>),
    Redirect { to: String, status: StatusCode },
    Respond { text: String, status: StatusCode },
}

impl Plan {
    pub(crate) fn new(config: Config) -> Result<Plan, Vec<Problem>> {
        let mut problems = Vec::new();
        let Config { top, log, tls, status, limits, files, hosts } = config;
        let files = files.or(&FilesConfig::defaults());
        let tls = plan_tls(tls).map_err(|problem| problems.push(problem)).ok().flatten();
        let mut plans = Vec::new();
        let mut known_hosts = HashMap::new();
        for host in hosts {
            let names = host_names(&host.names, &mut known_hosts, &mut problems);
            let routes = plan_routes(host.routes, &files, &mut problems);
            plans.push(HostPlan { names, routes });
        }
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
        let TopConfig { workers, drain_timeout, retire_timeout, .. } = top;
        let listen = Addresses::new(top.listen, tls.is_none().then_some("127.0.0.1:8080"));
        Ok(Plan {
            listen,
            workers,
            log,
            drain_timeout,
            retire_timeout,
            run_as: RunAs { user: top.user, group: top.group },
            umask,
            pid_file: top.pid_file.map(|path| path.value),
            tls,
            status: Addresses::new(status.listen, None),
            limits,
            hosts: plans,
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

fn parse_umask(mask: Located<String>) -> ConfigResult<u32> {
    let parsed = u32::from_str_radix(&mask.value, 8).ok().filter(|mask| *mask <= 0o777);
    let invalid =
        || format!("expected a mask of three octal digits such as 027, found {:?}", mask.value);
    parsed.ok_or_else(|| mask.problem(invalid()))
}

/// Validates `[tls]`. Returns `None` if TLS is not configured.
fn plan_tls(tls: TlsConfig) -> ConfigResult<Option<TlsPlan>> {
    let TlsConfig { listen, certificates, self_signed, tickets, client_ca, only_1_3 } = tls;
    if let (Some(first), true) = (certificates.first(), self_signed) {
        return Err(match first.location.is_in_file() {
            true => first.problem("`self_signed` cannot be combined with `certificates`"),
            false => first.problem("--tls-self-signed cannot be combined with --tls-cert"),
        });
    }
    if certificates.is_empty() && !self_signed {
        // Keys that have no effect without a certificate.
        let paths = [&tickets, &client_ca].into_iter().flatten().map(|path| &path.location);
        let mut locations =
            listen.first().map(|address| &address.location).into_iter().chain(paths);
        return match locations.next() {
            None => Ok(None),
            Some(ConfigLocation::Option(option)) => Err(Problem {
                location: ConfigLocation::Unknown,
                message: format!("{option} needs --tls-cert or --tls-self-signed"),
            }),
            Some(location) => Err(Problem {
                location: location.clone(),
                message: "this needs `certificates` or `self_signed` in [tls]".to_owned(),
            }),
        };
    }
    let listen = Addresses::new(listen, Some("127.0.0.1:8443"));
    let [tickets, client_ca] = [tickets, client_ca].map(|path| path.map(|path| path.value));
    Ok(Some(TlsPlan { listen, certificates, tickets, client_ca, only_1_3 }))
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
    for name in names.value.split_whitespace() {
        match host_name(name) {
            Err(message) => problems.push(names.problem(message)),
            Ok(name) => match known.insert(name.clone(), names.location.clone()) {
                None => accepted.push(name),
                Some(first) => {
                    let first = match &first {
                        ConfigLocation::File { line, .. } => format!(", first in line {line}"),
                        ConfigLocation::Option(_) | ConfigLocation::Unknown => String::new(),
                    };
                    problems
                        .push(names.problem(format!("the host `{name}` is given twice{first}")));
                }
            },
        }
    }
    accepted
}

/// Returns the name of a host in lower case, without its trailing dot.
fn host_name(written: &str) -> Result<String, String> {
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if name == "*" {
        return Ok(name);
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

fn plan_routes(
    routes: Vec<RouteConfig>,
    files: &FilesConfig,
    problems: &mut Vec<Problem>,
) -> Vec<RoutePlan> {
    let mut plans = Vec::<RoutePlan>::new();
    for RouteConfig { prefix, action } in routes {
        let app = match plan_app(action, files) {
            Ok(app) => app,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        match normalize_prefix(&prefix.value) {
            Err(message) => problems.push(prefix.problem(message)),
            Ok(normal) if plans.iter().any(|known| known.prefix == normal) => {
                let written = &prefix.value;
                problems.push(prefix.problem(format!(
                    "the prefix `{written}` is given twice; a slash at its end makes no difference"
                )));
            }
            Ok(normal) => plans.push(RoutePlan { prefix: normal.to_owned(), app }),
        }
    }
    plans
}

/// Returns a prefix without its trailing slash. Prefixes are compared with decoded and normalized
/// paths, so that a prefix in any other form is an error: it would never match.
fn normalize_prefix(prefix: &str) -> Result<&str, String> {
    let normal = prefix.strip_suffix('/').unwrap_or(prefix);
    let mut segments = normal.split('/');
    let invalid = |reason: &str| Err(format!("the prefix {prefix:?} {reason}"));
    match segments.next() {
        Some("") if !prefix.is_empty() => {}
        _ => return invalid("does not begin with a slash"),
    }
    for segment in segments {
        match segment {
            "" => return invalid("has an empty segment"),
            "." | ".." => return invalid("has a segment of dots"),
            _ if segment.contains('%') => {
                return invalid("is percent-encoded; write it as it reads, such as /buenos días/");
            }
            _ if segment.contains(['?', '#', '\\']) => {
                return invalid("has one of the characters ? # \\");
            }
            _ if segment.contains(char::is_control) => return invalid("has a control character"),
            _ => {}
        }
    }
    Ok(normal)
}

fn plan_app(action: Located<Action>, defaults: &FilesConfig) -> ConfigResult<Located<AppPlan>> {
    let Located { location, value } = action;
    let problem = |message| Problem { location: location.clone(), message };
    let app = match value {
        Action::Cgi(settings) => AppPlan::Cgi(settings),
        Action::Files { root, files } => {
            AppPlan::Files { root, files: Box::new(files.or(defaults)) }
        }
        Action::Proxy(settings) => {
            settings.validate().map_err(problem)?;
            AppPlan::Proxy(settings)
        }
        Action::Redirect { to, status } => {
            check_redirect(&to).map_err(problem)?;
            let status = match status {
                301 | 302 | 303 | 307 | 308 => status_code(status),
                _ => {
                    let message = "the status of a redirect is 301, 302, 303, 307 or 308, not";
                    return Err(problem(format!("{message} {status}")));
                }
            };
            AppPlan::Redirect { to, status }
        }
        Action::Respond { text, status } => {
            if matches!(status, 204 | 205 | 304) && !text.is_empty() {
                return Err(problem(format!("a response of status {status} has no text")));
            }
            AppPlan::Respond { text, status: status_code(status) }
        }
    };
    Ok(Located { location, value: app })
}

/// Converts a status. The configuration syntax permits 200 to 599.
fn status_code(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Validates the target of a redirect. The rest of the path and the query of the request are
/// appended to it, so that it has no query and no fragment of its own.
fn check_redirect(to: &str) -> Result<(), String> {
    let authority = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
    let has_valid_form = match authority {
        Some(rest) => !rest.is_empty() && !rest.starts_with(['/', ':', '@']),
        None => to.starts_with('/') && !to.starts_with("//"),
    };
    if !has_valid_form {
        return Err(format!(
            "expected a redirect to https://HOST/PATH or to /PATH on the same host, found {to:?}"
        ));
    }
    if to.contains(['?', '#']) {
        return Err(format!(
            "the redirect to {to:?} has a query or a fragment; the rest of the path and the query \
             of the request follow its target"
        ));
    }
    if !to.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>')) {
        return Err(format!("the redirect to {to:?} has a byte that must be percent-encoded"));
    }
    Ok(())
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
    fn normalizes_and_rejects_prefixes() {
        for (prefix, expected) in [
            ("/", Some("")),
            ("/app", Some("/app")),
            ("/app/", Some("/app")),
            ("/buenos días/x", Some("/buenos días/x")),
            ("", None),
            ("app", None),
            ("//", None),
            ("/a//b", None),
            ("/a/../b", None),
            ("/%61", None),
            ("/a?b", None),
            ("/a\nb", None),
        ] {
            assert_eq!(normalize_prefix(prefix).ok(), expected, "{prefix}");
        }
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
        ] {
            assert_eq!(check_redirect(to).is_ok(), is_good, "{to}");
        }
    }
}
