//! Opens the directories and certificates of a [`Plan`]. No socket is bound yet.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weft::{Directory, DirectorySettings, HeaderRule, Symlinks};

use crate::apps::{App, Cgi, Proxy, Redirect, Respond};
use crate::config::{ConfigLocation, FilesConfig, Located, Problem};
use crate::plan::{AppPlan, Plan};
use crate::route::{Routing, RoutingBuilder};
use crate::tls::OpenedTls;

/// The opened resources of a plan.
pub(crate) struct Opened {
    apps: HashMap<AppSource, Arc<App>>,
    pub(crate) routing: Routing,
    pub(crate) tls: Option<OpenedTls>,
}

/// Everything that an application is opened from. Applications of equal sources are
/// interchangeable.
#[derive(PartialEq, Eq, Hash)]
struct AppSource {
    plan: AppPlan,
    /// Device and inode of the root directory, so that a replaced directory is opened again. An
    /// example is a symbolic link with a new target.
    root: Option<(u64, u64)>,
}

impl Plan {
    /// Opens the resources of the plan. Those of `former` are kept with their state, such as the
    /// health of upstreams, if they are opened from the same source. Routes with the same action
    /// share one application.
    pub(crate) fn open(&self, former: Option<&Opened>) -> Result<Opened, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut builder = RoutingBuilder::default();
        let mut apps = HashMap::new();
        let routes = || self.hosts.iter().flat_map(|host| &host.routes);
        let is_files = |app: &&Located<AppPlan>| matches!(app.value, AppPlan::Files { .. });
        let directories = routes().map(|route| &route.app).filter(is_files).count();
        for host in &self.hosts {
            let mut routes = Vec::new();
            for route in &host.routes {
                let source = AppSource::new(&route.app.value);
                let app = match apps.get(&source).or_else(|| former?.apps.get(&source)) {
                    Some(app) => Ok(Arc::clone(app)),
                    None => open_app(&route.app, directories).map(Arc::new),
                };
                match app {
                    Ok(app) => {
                        apps.insert(source, app.clone());
                        routes.push((&*route.prefix, app));
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            builder.add(&host.names, routes);
        }
        let former_tls = former.and_then(|former| former.tls.as_ref());
        let tls = self.tls.as_ref().map(|plan| {
            let certificate = plan.certificates.first();
            let location =
                certificate.map_or(ConfigLocation::Unknown, |first| first.location.clone());
            OpenedTls::open(plan, former_tls).map_err(|message| Problem { location, message })
        });
        let tls = tls.transpose().map_err(|problem| problems.push(problem));
        match tls {
            Ok(tls) if problems.is_empty() => Ok(Opened { apps, routing: builder.build(), tls }),
            _ => Err(problems),
        }
    }
}

impl AppSource {
    fn new(plan: &AppPlan) -> AppSource {
        let root = match plan {
            AppPlan::Files { root, .. } => Some(root),
            AppPlan::Cgi(settings) => Some(&settings.root),
            AppPlan::Proxy(_) | AppPlan::Redirect { .. } | AppPlan::Respond { .. } => None,
        };
        // Opening the directory reports the error.
        let metadata = root.and_then(|root| std::fs::metadata(root).ok());
        AppSource { plan: plan.clone(), root: metadata.map(|root| (root.dev(), root.ino())) }
    }
}

fn open_app(plan: &Located<AppPlan>, directories: usize) -> Result<App, Problem> {
    Ok(match &plan.value {
        AppPlan::Cgi(settings) => App::Cgi(Cgi::new((**settings).clone()).map_err(|error| {
            plan.problem(format!("cannot run scripts of {}: {error}", settings.root.display()))
        })?),
        AppPlan::Files { root, files } => {
            let directory = Directory::with_settings(root, directory_settings(files, directories));
            App::Files(directory.map_err(|error| {
                plan.problem(format!("cannot serve {}: {error}", root.display()))
            })?)
        }
        AppPlan::Proxy(settings) => {
            let proxy = Proxy::new((**settings).clone());
            App::Proxy(Arc::new(proxy.map_err(|invalid| plan.problem(invalid))?))
        }
        AppPlan::Redirect { to, status } => App::Redirect(Redirect::new(to, *status)),
        AppPlan::Respond { text, status } => App::Respond(Respond::new(text, *status)),
    })
}

/// Returns the settings of one of `directories` directories. The cache limits of a worker apply to
/// all directories together, so that each directory gets an equal share.
fn directory_settings(files: &FilesConfig, directories: usize) -> DirectorySettings {
    let defaults = DirectorySettings::default();
    let FilesConfig { index, list, fallback, cache, languages, compress, links, headers } =
        files.clone();
    let rules = cache.into_iter().chain(headers).flatten();
    let headers: Vec<HeaderRule> = rules.map(|rule| rule.rule).collect();
    DirectorySettings {
        index: index.unwrap_or_default(),
        listing: list.unwrap_or(false),
        fallback,
        headers,
        languages: languages.unwrap_or_default(),
        symlinks: links.unwrap_or(Symlinks::Inside),
        compress: compress.unwrap_or(true),
        max_cached_bytes: (defaults.max_cached_bytes / directories).max(MIN_KEPT_BYTES),
        max_cached_entries: (defaults.max_cached_entries / directories).max(MIN_KEPT_ENTRIES),
        max_cached_descriptors: (defaults.max_cached_descriptors / directories)
            .max(MIN_KEPT_DESCRIPTORS),
        ..defaults
    }
}

const MIN_KEPT_BYTES: usize = 1 << 20;
const MIN_KEPT_ENTRIES: usize = 256;
const MIN_KEPT_DESCRIPTORS: usize = 8;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::apps::proxy::{Check, ProxySettings};
    use crate::config::{Config, ConfigText};
    use crate::print::print;

    fn plan(routes: &str) -> Plan {
        let text = ConfigText::new("f", format!("[hosts.\"*\"]\n{routes}"));
        Plan::new(Config::parse(&text, Path::new("")).unwrap()).unwrap()
    }

    /// Returns the plan of a proxy, after `change` was made to its settings.
    fn proxy_plan(change: fn(&mut ProxySettings)) -> Plan {
        let mut plan = plan("\"/\" = { proxy = \"http://127.0.0.1:9/\", check = \"/up\" }\n");
        let AppPlan::Proxy(settings) = &mut plan.hosts[0].routes[0].app.value else {
            panic!("the route has another application");
        };
        settings.ca = Some(OsStr::from_bytes(b"\xfe").into());
        change(settings);
        plan
    }

    fn app(opened: &Opened, number: usize) -> &App {
        opened.routing.routes().nth(number).expect("a route").1
    }

    #[test]
    fn difference_that_is_not_printed_opens_another_application() {
        fn check(settings: &mut ProxySettings) -> &mut Check {
            settings.check.as_mut().expect("a check")
        }
        let former = proxy_plan(|_| {});
        let opened = former.open(None).unwrap();
        let changes: [fn(&mut ProxySettings); 4] = [
            |settings| settings.ca = Some(OsStr::from_bytes(b"\xff").into()),
            |settings| check(settings).status = Some(200),
            |settings| check(settings).fall += 1,
            |settings| check(settings).rise += 1,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let changed = proxy_plan(change);
            assert_eq!(print(&changed), print(&former), "{number}");
            assert_ne!(changed, former, "{number}");
            let reopened = changed.open(Some(&opened)).unwrap();
            assert!(!std::ptr::eq(app(&reopened, 0), app(&opened, 0)), "{number}");
        }
        let equal = proxy_plan(|_| {});
        assert_eq!(equal, former);
        let reopened = equal.open(Some(&opened)).unwrap();
        assert!(std::ptr::eq(app(&reopened, 0), app(&opened, 0)));
    }

    #[test]
    fn equal_actions_share_an_application_that_a_reload_keeps() {
        let route = "= { respond = \"a\" }\n";
        let opened = plan(&format!("\"/a\" {route}\"/b\" {route}")).open(None).unwrap();
        assert!(std::ptr::eq(app(&opened, 0), app(&opened, 1)));
        let moved = plan(&format!("\"/c\" = {{ respond = \"c\" }}\n# moved\n\n\"/d\" {route}"));
        let reopened = moved.open(Some(&opened)).unwrap();
        assert!(!std::ptr::eq(app(&reopened, 0), app(&opened, 0)));
        assert!(std::ptr::eq(app(&reopened, 1), app(&opened, 0)));
    }
}
