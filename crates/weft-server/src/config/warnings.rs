//! Values of a plan that are valid, but probably not intended. `weft check` prints them, and the
//! server logs them at a start and at a reload.

mod condition_warnings; // routes with conditions that are probably not intended
mod precedence_warnings; // patterns that precede a prefix with a password

use std::net::SocketAddr;

use weft_config::Problem;

use self::condition_warnings::condition_warnings;
use self::precedence_warnings::precedence_warning;
use super::host_plan::HostPlan;
use super::plan::Plan;
use super::route_plan::RoutePlan;
use super::upstream_sockets::unusable_sockets;
use crate::base::log_target::LogTarget;
use crate::route::PathKey;
use crate::sections::tls::TlsConfig;
use crate::template::nginx_variable;

/// Number of redirects after which browsers report a loop.
const MAX_REDIRECTS: usize = 20;

impl Plan {
    /// Returns warnings, among them those about files, which are read for them.
    pub(crate) fn warnings(&self) -> Vec<Problem> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.tls.iter().flat_map(TlsConfig::certificate_warnings));
        let on_demand = self.acme.as_ref().map(|acme| &acme.on_demand);
        warnings.extend(on_demand.and_then(|it| it.warning(self.limits.head_timeout)));
        for stream in &self.streams {
            let log = stream.settings.value.access_log.as_ref();
            let missing = log.and_then(missing_directory);
            warnings.extend(missing.map(|message| stream.settings.problem(message)));
        }
        for host in &self.hosts {
            for route in &host.routes {
                let of_form = route.form.value.warnings(&route.form.location);
                warnings.extend(of_form.into_iter().map(|message| route.form.problem(message)));
                let sockets = route.form.value.upstreams().into_iter().flat_map(unusable_sockets);
                warnings.extend(sockets.map(|message| route.form.problem(message)));
                warnings.extend(missing_error_pages(route));
                let own = route.options.access_log.logs().into_iter().flatten();
                let paths = own.filter_map(|log| log.to.as_ref()).filter_map(missing_directory);
                warnings.extend(paths.map(|message| route.form.problem(message)));
                warnings.extend(unreplaced_variable(route));
                warnings.extend(self.redirect_loop(host, route));
                warnings.extend(unused_name(host, route));
                warnings.extend(condition_warnings(host, route));
                warnings.extend(precedence_warning(host, route));
            }
        }
        warnings
    }

    /// Follows the redirect of a route within its host. One with placeholders may lead anywhere.
    fn redirect_loop(&self, host: &HostPlan, route: &RoutePlan) -> Option<Problem> {
        let mut path = match &route.key.path {
            PathKey::Prefix(prefix) => format!("{prefix}/"),
            PathKey::Exact(path) => path.clone(),
            // Paths that match are not known.
            PathKey::Pattern(_) | PathKey::Name(_) => return None,
        };
        for _ in 0..MAX_REDIRECTS {
            let found = host.route_of(&path)?;
            let to = found.form.value.literal_redirect()?;
            let target = self.path_of_this_server(host, &to)?;
            let target = target.split(['?', '#']).next().unwrap_or_default();
            path = match found.key.prefix() {
                Some(prefix) => {
                    let rest = path[prefix.len()..].trim_start_matches('/');
                    format!("{}/{rest}", target.trim_end_matches('/'))
                }
                None if target.is_empty() => "/".to_owned(),
                None => target.to_owned(),
            };
        }
        Some(route.form.problem(format!("the redirect of `{}` leads back to itself", route.key)))
    }

    /// Returns the path of a redirect target, if a request for it has the same host and gets the
    /// same route. Another server may be at another port, or in front of this one.
    fn path_of_this_server<'a>(&self, host: &HostPlan, target: &'a str) -> Option<&'a str> {
        let (scheme, rest) = match target.split_once("://") {
            None => return Some(target),
            Some(parts) => parts,
        };
        let is_served = match scheme {
            "https" => self.tls.is_some(),
            _ => !self.top.listen.list.is_empty() && self.tls.is_none(),
        };
        let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_name =
            |host: &HostPlan, name: &str| host.names.iter().any(|it| it.eq_ignore_ascii_case(name));
        let is_this_host = has_name(host, name)
            || has_name(host, "*")
                && self.listens_on(scheme, name)
                && !self.hosts.iter().any(|other| has_name(other, without_port(name)));
        (is_served && is_this_host).then_some(path)
    }

    /// Returns true if `name`, with a port or with the port of the scheme, is the address of a
    /// listener. A listener for all addresses has the loopback addresses, too.
    fn listens_on(&self, scheme: &str, name: &str) -> bool {
        let (listen, port) = match &self.tls {
            Some(tls) if scheme == "https" => (&tls.listen, 443),
            _ => (&self.top.listen, 80),
        };
        let address = match without_port(name) == name {
            true => format!("{name}:{port}"),
            false => name.to_owned(),
        };
        let socket = address.replace("localhost:", "127.0.0.1:").parse::<SocketAddr>();
        let is_for_all = |listener: &str| {
            let port = listener.strip_prefix("0.0.0.0:").or(listener.strip_prefix(':'));
            socket.as_ref().is_ok_and(|socket| {
                socket.ip().is_loopback() && port == Some(&socket.port().to_string())
            })
        };
        listen.texts().any(|it| it.eq_ignore_ascii_case(&address) || is_for_all(it))
    }
}

/// Returns the host of an authority such as `a.example:80`.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Returns a message about a log file that cannot be created.
fn missing_directory(to: &LogTarget) -> Option<String> {
    let LogTarget::File(path) = to else { return None };
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty())?;
    let message = || format!("the directory of the log {} does not exist", path.display());
    (!directory.is_dir()).then(message)
}

/// Finds a route that no other route leads to.
fn unused_name(host: &HostPlan, route: &RoutePlan) -> Option<Problem> {
    let PathKey::Name(name) = &route.key.path else { return None };
    let mut used = host.routes.iter().flat_map(RoutePlan::named_routes);
    let message = || format!("no `try_files`, `split` or `error_pages` leads to the route @{name}");
    (!used.any(|used| used == name)).then(|| route.form.problem(message()))
}

fn missing_error_pages(route: &RoutePlan) -> impl Iterator<Item = Problem> {
    let reasons = route.options.error_pages.missing_files();
    reasons.map(|reason| route.form.problem(format!("{reason}; the built-in page in its place")))
}

/// Finds a variable of nginx in a redirect, a text or a field.
fn unreplaced_variable(route: &RoutePlan) -> Option<Problem> {
    let of_options = route.options.templates();
    let of_options = of_options.into_iter().map(|template| template.source());
    let mut texts = route.form.value.template().into_iter().chain(of_options);
    let (variable, placeholder) = texts.find_map(nginx_variable)?;
    Some(route.form.problem(format!(
        "`${variable}`, a variable of nginx, is sent as it is; its value is {{{placeholder}}} here"
    )))
}
