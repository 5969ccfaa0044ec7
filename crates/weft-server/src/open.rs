//! Opens the directories and certificates of a [`Plan`]. No socket is bound yet.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use weft::tls::Tls;
use weft::{Directory, DirectorySettings, HeaderRule, Symlinks};

use crate::apps::{App, Cgi, Proxy, Redirect, Respond};
use crate::config::{ConfigLocation, FilesConfig, Located, Problem};
use crate::plan::{AppPlan, Plan};
use crate::print;
use crate::route::{Routing, RoutingBuilder};
use crate::tls;

/// The opened resources of a plan.
pub(crate) struct Opened {
    pub(crate) routing: Routing,
    pub(crate) tls: Option<Tls>,
}

impl Plan {
    /// Opens the resources of the plan. An application whose key is in `former` is taken from there
    /// with its state, such as the health of upstreams. Routes with the same action share one
    /// application.
    pub(crate) fn open(&self, former: Option<&Routing>) -> Result<Opened, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut builder = RoutingBuilder::default();
        let known = former.map(Routing::apps).unwrap_or_default();
        let mut opened = HashMap::<String, App>::new();
        let routes = || self.hosts.iter().flat_map(|host| &host.routes);
        let is_files = |app: &&Located<AppPlan>| matches!(app.value, AppPlan::Files { .. });
        let directories = routes().map(|route| &route.app).filter(is_files).count();
        for host in &self.hosts {
            let mut apps = Vec::new();
            for route in &host.routes {
                let key = app_key(&route.app.value);
                let app = match opened.get(&key).or_else(|| known.get(&*key).copied()) {
                    Some(app) => Ok(app.clone()),
                    None => open_app(&route.app, directories),
                };
                match app {
                    Ok(app) => {
                        opened.insert(key.clone(), app.clone());
                        apps.push((&*route.prefix, (key.into(), app)));
                    }
                    Err(problem) => problems.push(problem),
                }
            }
            builder.add(&host.names, apps);
        }
        let tls = self.tls.as_ref().map(|plan| {
            let certificate = plan.certificates.first();
            let location =
                certificate.map_or(ConfigLocation::Unknown, |first| first.location.clone());
            tls::set_up(plan).map_err(|message| Problem { location, message })
        });
        let tls = tls.transpose().map_err(|problem| problems.push(problem));
        match tls {
            Ok(tls) if problems.is_empty() => Ok(Opened { routing: builder.build(), tls }),
            _ => Err(problems),
        }
    }
}

/// Returns a key for everything that an application depends on. It includes the device and inode of
/// the root directory, so that a replaced directory has a different key. An example is a symbolic
/// link with a new target.
fn app_key(plan: &AppPlan) -> String {
    let key = print::app(plan);
    let root = match plan {
        AppPlan::Files { root, .. } => root,
        AppPlan::Cgi(settings) => &settings.root,
        AppPlan::Proxy(_) | AppPlan::Redirect { .. } | AppPlan::Respond { .. } => return key,
    };
    match std::fs::metadata(root) {
        Ok(root) => format!("{key} {}:{}", root.dev(), root.ino()),
        // Opening the directory reports the error.
        Err(_) => key,
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
            App::Proxy(Proxy::new((**settings).clone()).map_err(|invalid| plan.problem(invalid))?)
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
