//! Routes of the plan, each with its application and the inherited options.

use std::path::{Path, PathBuf};

use weft::{HeaderValue, Network, Settings, StatusCode};
use weft_config::{ConfigLocation, ConfigResult, Located, Problem};
use weft_upstream::ProxySettings;

use super::redirect::check_redirect;
use super::rewrite::{Patterns, check_groups, check_route_names, parse_template, plan_rewrite};
use super::split::plan_split;
use crate::apps::cgi;
use crate::config::{Action, FilesConfig, RouteConfig};
use crate::options::RouteOptions;
use crate::route::{Otherwise, PathKey, Pattern, Rewrite, RouteKey, Split, TryFiles};
use crate::template::Template;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) key: RouteKey,
    /// Options of the route, with the inherited ones.
    pub(crate) options: RouteOptions,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) split: Option<Split>,
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
        upstreams: Box<ProxySettings>,
    },
    Proxy(Box<ProxySettings>),
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

impl RoutePlan {
    /// Names of the routes to which this one passes requests on.
    pub(crate) fn named_routes(&self) -> impl Iterator<Item = &str> {
        let otherwise = match &self.rewrite {
            Some(Rewrite::TryFiles(TryFiles { otherwise: Otherwise::Route(name), .. })) => {
                Some(&**name)
            }
            _ => None,
        };
        let groups = self.split.iter().flat_map(|split| split.shares().map(|(name, _)| name));
        otherwise.into_iter().chain(groups)
    }

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
    pub(crate) fn upstreams(&self) -> Option<&ProxySettings> {
        match self {
            AppPlan::Proxy(upstreams) | AppPlan::ScriptSite { upstreams, .. } => Some(upstreams),
            _ => None,
        }
    }
}

/// Values that the routes of a host inherit.
pub(super) struct Inherited<'a> {
    /// Set if the host is a pattern.
    pub(super) host_pattern: Option<Pattern>,
    pub(super) options: RouteOptions,
    pub(super) files: &'a FilesConfig,
    pub(super) trusted_proxies: &'a [Network],
    pub(super) limits: &'a Settings,
}

pub(super) fn plan_routes(
    routes: Vec<RouteConfig>,
    inherited: &Inherited<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<RoutePlan> {
    let mut plans = Vec::<RoutePlan>::new();
    for RouteConfig { key: written, options, rewrite, split, action } in routes {
        let key = RouteKey::parse(&written.value);
        let key = key.map_err(|message| problems.push(written.problem(message))).ok();
        let patterns = Patterns { key: key.as_ref(), host: inherited.host_pattern.as_ref() };
        let groups =
            options.templates().into_iter().filter_map(|it| check_groups(it, patterns).err());
        problems.extend(groups.map(|message| written.problem(message)));
        let mut options = options.or(&inherited.options).complete(inherited.limits);
        let rewrite = plan_rewrite(rewrite, &action, patterns);
        let rewrite = rewrite.map_err(|problem| problems.push(problem)).ok();
        let split = plan_split(split, patterns);
        let split = split.map_err(|problem| problems.push(problem)).ok();
        let app = plan_app(action, patterns, &mut options, inherited);
        let app = app.map_err(|problem| problems.push(problem)).ok();
        let (Some(key), Some(rewrite), Some(split), Some(mut app)) = (key, rewrite, split, app)
        else {
            continue;
        };
        if let (AppPlan::Files { files, .. }, Some(Rewrite::TryFiles(_))) =
            (&mut app.value, &rewrite)
        {
            // The inherited one would exist for all paths.
            files.fallback = None;
        }
        match plans.iter().any(|known| known.key.conflicts_with(&key)) {
            true => problems.push(written.problem(already_given(&written.value, &key))),
            false => plans.push(RoutePlan { key, options, rewrite, split, app }),
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
pub(super) fn route_of_others(
    routes: &[RoutePlan],
    options: &RouteOptions,
    location: &ConfigLocation,
) -> Option<RoutePlan> {
    let key = RouteKey { methods: None, path: PathKey::Prefix(String::new()) };
    if !options.error_pages.has_pages() || routes.iter().any(|route| route.key.conflicts_with(&key))
    {
        return None;
    }
    let text = Template::parse("").ok()?;
    let app = AppPlan::Respond { text, status: StatusCode::NOT_FOUND, content_type: None };
    let app = Located { location: location.clone(), value: app };
    Some(RoutePlan { key, options: options.clone(), rewrite: None, split: None, app })
}

/// Returns the application of a route. Options that its files have themselves move there.
fn plan_app(
    action: Located<Action>,
    patterns: Patterns<'_>,
    options: &mut RouteOptions,
    inherited: &Inherited<'_>,
) -> ConfigResult<Located<AppPlan>> {
    let Located { location, value } = action;
    let max_body_bytes = options.request_body.max_bytes(inherited.limits);
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
            let compress = options.compress.is_enabled;
            let files = plan_files(*files, options, inherited);
            options.compress.is_enabled = options.compress.is_enabled.or(compress);
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
    files.compress = files.compress.or(options.compress.is_enabled.take());
    let own = files.headers.iter().flatten().map(|rule| rule.rule.name());
    let own: Vec<_> = own.collect();
    options.response_headers.keep_unset(&own);
    let mut files = files.or(inherited.files);
    if options.sub_filter.has_texts() {
        // The substitution reads uncoded files, and its result is compressed.
        options.compress.is_enabled = files.compress.take();
        files.is_uncoded = true;
    }
    Box::new(files)
}

/// Adds inherited values.
fn plan_upstreams(
    mut settings: Box<ProxySettings>,
    max_body_bytes: u64,
    inherited: &Inherited<'_>,
) -> Box<ProxySettings> {
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
