//! Plans of routes: each has its form, with the inherited options and values.

use std::sync::Arc;

use weft::net::IpNetwork;
use weft::{Settings, StatusCode};
use weft_config::{ConfigLocation, Located, Problem, print_entries, suggest};

use super::route_config::RouteConfig;
use crate::apps::{FilesConfig, Form, PlanContext, RespondForm};
use crate::options::{RouteOptions, option_keys};
use crate::route::{
    Conditions, MAX_PATTERNS_OF_PATH, MAX_ROUTES_OF_PATH, Otherwise, PathKey, REWRITE, Rewrite,
    RewriteConfig, RouteKey, SPLIT, Split, SplitConfig, TryFiles, WHEN, WhenConfig,
};
use crate::template::{GroupPatterns, PathPattern, Pattern};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RoutePlan {
    pub(crate) key: RouteKey,
    /// `None`: the route gets all requests that no route with conditions has.
    pub(crate) conditions: Option<Arc<Conditions>>,
    /// Options of the route, with the inherited ones.
    pub(crate) options: RouteOptions,
    pub(crate) rewrite: Option<Rewrite>,
    pub(crate) split: Option<Split>,
    pub(crate) form: Located<Form>,
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
        otherwise.into_iter().chain(groups).chain(self.options.error_pages.routes())
    }

    /// Formats the route as a table.
    pub(crate) fn print(&self) -> String {
        let rewrite = self.rewrite.as_ref().map_or_else(RewriteConfig::default, Rewrite::config);
        let split = self.split.as_ref().map_or_else(SplitConfig::default, Split::config);
        let when = WhenConfig::new(self.conditions.as_deref().cloned());
        let mut keys = self.form.value.print();
        keys.extend(print_entries(&WHEN, &when, &WhenConfig::default()));
        keys.extend(print_entries(&REWRITE, &rewrite, &RewriteConfig::default()));
        keys.extend(print_entries(&SPLIT, &split, &SplitConfig::default()));
        keys.extend(print_entries(option_keys(), &self.options, &RouteOptions::default()));
        format!("{{ {} }}", keys.join(", "))
    }
}

/// Values that the routes of a host inherit.
pub(crate) struct Inherited<'a> {
    /// Set if the host is a pattern.
    pub(crate) host_pattern: Option<Pattern>,
    pub(crate) options: RouteOptions,
    pub(crate) files: &'a FilesConfig,
    pub(crate) trusted_proxies: &'a [IpNetwork],
    pub(crate) limits: &'a Settings,
}

pub(crate) fn plan_routes(
    routes: Vec<RouteConfig>,
    inherited: &Inherited<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<RoutePlan> {
    let mut plans = Vec::<RoutePlan>::new();
    for route in routes {
        let written = route.key.clone();
        let Some(plan) = plan_route(route, inherited, problems) else { continue };
        match plans.iter().any(|known| known.key.conflicts_with(&plan.key)) {
            true => problems.push(written.problem(already_given(&written.value, &plan.key))),
            false => plans.push(plan),
        }
    }
    check_route_names(&plans, problems);
    check_conditions(&plans, problems);
    plans
}

fn plan_route(
    route: RouteConfig,
    inherited: &Inherited<'_>,
    problems: &mut Vec<Problem>,
) -> Option<RoutePlan> {
    let RouteConfig { key: written, when, options, rewrite, split, mut form } = route;
    let key = RouteKey::parse(&written.value);
    let key = key.map_err(|message| problems.push(written.problem(message))).ok();
    if let Some(key) = &key {
        problems.extend(when.check_label(key).err().map(|message| written.problem(message)));
    }
    let path = key.as_ref().map_or(PathPattern::Unknown, RouteKey::path_pattern);
    let patterns = GroupPatterns { path, host: inherited.host_pattern.as_ref() };
    let groups = options.templates().into_iter().filter_map(|it| patterns.check(it).err());
    problems.extend(groups.map(|message| written.problem(message)));
    let mut options = options.or(&inherited.options).complete(inherited.limits);
    let passes_on = matches!(form.value, Form::Rewrite(_));
    let conflict = form.value.try_files_conflict();
    let rewrite = Rewrite::plan(rewrite, passes_on, conflict, patterns);
    let rewrite = rewrite.map_err(|problem| problems.push(problem)).ok();
    let split = Split::plan(split, patterns);
    let split = split.map_err(|problem| problems.push(problem)).ok();
    let context = PlanContext {
        patterns,
        has_rest: key.as_ref().is_none_or(|key| key.prefix().is_some()),
        has_try_files: matches!(rewrite, Some(Some(Rewrite::TryFiles(_)))),
        files: inherited.files,
        trusted_proxies: inherited.trusted_proxies,
        limits: inherited.limits,
    };
    if let Err(message) = form.value.plan(&mut options, &context) {
        problems.push(form.problem(message));
        return None;
    }
    let conditions = when.conditions.map(Arc::new);
    Some(RoutePlan { key: key?, conditions, options, rewrite: rewrite?, split: split?, form })
}

/// Reports paths with too many conditional routes or patterns.
fn check_conditions(routes: &[RoutePlan], problems: &mut Vec<Problem>) {
    let conditional = || routes.iter().filter(|route| route.conditions.is_some());
    for route in conditional() {
        let of_path = || conditional().filter(|other| other.key.path == route.key.path);
        let is_first = of_path().next().is_some_and(|first| std::ptr::eq(first, route));
        let patterns = of_path().filter_map(|route| route.conditions.as_deref());
        let patterns: usize = patterns.map(Conditions::count_patterns).sum();
        let (path, count) = (&route.key.path, of_path().count());
        if is_first && count > MAX_ROUTES_OF_PATH {
            problems.push(route.form.problem(format!(
                "the path {path} has {count} routes with conditions; {MAX_ROUTES_OF_PATH} are permitted"
            )));
        }
        if is_first && patterns > MAX_PATTERNS_OF_PATH {
            problems.push(route.form.problem(format!(
                "the conditions of the path {path} have {patterns} patterns; \
                 {MAX_PATTERNS_OF_PATH} are permitted"
            )));
        }
    }
}

fn already_given(written: &str, key: &RouteKey) -> String {
    let reason = match (&key.methods, &key.path) {
        (Some(_), _) => "for one of these methods; GET includes HEAD",
        (None, PathKey::Prefix(_)) => "a slash at its end makes no difference",
        (None, _) => "for all methods",
    };
    format!("the route `{written}` is given twice; {reason}")
}

/// Returns the route for requests that have none, with which they get the error pages of the
/// options; `None` if all requests have a route, or if there are no such pages.
pub(crate) fn route_of_others(
    routes: &[RoutePlan],
    options: &RouteOptions,
    location: &ConfigLocation,
) -> Option<RoutePlan> {
    let key = RouteKey { methods: None, path: PathKey::Prefix(String::new()), label: None };
    if !options.error_pages.has_pages() || routes.iter().any(|route| route.key.conflicts_with(&key))
    {
        return None;
    }
    let form = Form::from(RespondForm::error(StatusCode::NOT_FOUND));
    let form = Located { location: location.clone(), value: form };
    let options = options.clone();
    Some(RoutePlan { key, conditions: None, options, rewrite: None, split: None, form })
}

/// Reports names of routes that their host does not have.
fn check_route_names(routes: &[RoutePlan], problems: &mut Vec<Problem>) {
    let known = routes.iter().filter_map(|route| match &route.key.path {
        PathKey::Name(name) => Some(&**name),
        _ => None,
    });
    let is_unknown = |name: &&str| !known.clone().any(|known| known == *name);
    let named = routes.iter().flat_map(|route| route.named_routes().map(move |name| (route, name)));
    for (route, name) in named.filter(|(_, name)| is_unknown(name)) {
        let hint = match suggest(name, known.clone()) {
            Some(suggestion) => format!("did you mean @{suggestion}?"),
            None => format!("it is a route of the same host with the key \"@{name}\""),
        };
        problems.push(route.form.problem(format!("unknown route @{name}; {hint}")));
    }
}
