//! [`Plan`] → what the system has of it: folders and certificates. Nothing listens yet.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use weft::tls::Tls;
use weft::{Directory, DirectorySettings, HeaderRule, Links};

use crate::apps::{App, Cgi, Proxy, Redirect, Respond};
use crate::config::{At, FilesConfig, Place, Problem};
use crate::plan::{AppPlan, Plan};
use crate::print;
use crate::route::{Routing, RoutingBuilder};
use crate::tls;

/// What a plan needs, opened.
pub(crate) struct Opened {
    pub(crate) routing: Routing,
    pub(crate) tls: Option<Tls>,
}

impl Plan {
    /// Opens what the plan needs. Applications that are among the former ones are taken from
    /// there, with what they know, such as the health of upstreams. Routes that are the same but
    /// for their names share one.
    pub(crate) fn open(&self, former: Option<&Routing>) -> Result<Opened, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut builder = RoutingBuilder::default();
        let known = former.map(Routing::apps).unwrap_or_default();
        let mut opened = HashMap::<String, App>::new();
        let routes = || self.hosts.iter().flat_map(|host| &host.routes);
        let is_folder = |app: &&At<AppPlan>| matches!(app.value, AppPlan::Files { .. });
        let folders = routes().map(|route| &route.app).filter(is_folder).count();
        for host in &self.hosts {
            let mut apps = Vec::new();
            for route in &host.routes {
                let key = app_key(&route.app.value);
                let app = match opened.get(&key).or_else(|| known.get(&*key).copied()) {
                    Some(app) => Ok(app.clone()),
                    None => open_app(&route.app, folders),
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
            let place = certificate.map_or(Place::Unknown, |first| first.place.clone());
            tls::set_up(plan).map_err(|message| Problem { place, message })
        });
        let tls = tls.transpose().map_err(|problem| problems.push(problem));
        match tls {
            Ok(tls) if problems.is_empty() => Ok(Opened { routing: builder.build(), tls }),
            _ => Err(problems),
        }
    }
}

/// All that an application depends on. A folder that was replaced by another, such as by a
/// symbolic link that leads elsewhere now, is not the same.
fn app_key(plan: &AppPlan) -> String {
    let key = print::app(plan);
    let root = match plan {
        AppPlan::Files { root, .. } => root,
        AppPlan::Cgi(settings) => &settings.root,
        AppPlan::Proxy(_) | AppPlan::Redirect { .. } | AppPlan::Respond { .. } => return key,
    };
    match std::fs::metadata(root) {
        Ok(folder) => format!("{key} {}:{}", folder.dev(), folder.ino()),
        // To open it says why.
        Err(_) => key,
    }
}

fn open_app(plan: &At<AppPlan>, folders: usize) -> Result<App, Problem> {
    Ok(match &plan.value {
        AppPlan::Cgi(settings) => App::Cgi(Cgi::new((**settings).clone()).map_err(|error| {
            plan.problem(format!("cannot run scripts of {}: {error}", settings.root.display()))
        })?),
        AppPlan::Files { root, files } => {
            let directory = Directory::with_settings(root, directory_settings(files, folders));
            App::Files(directory.map_err(|error| {
                plan.problem(format!("cannot serve {}: {error}", root.display()))
            })?)
        }
        AppPlan::Proxy(settings) => {
            App::Proxy(Proxy::new((**settings).clone()).map_err(|wrong| plan.problem(wrong))?)
        }
        AppPlan::Redirect { to, status } => App::Redirect(Redirect::new(to, *status)),
        AppPlan::Respond { text, status } => App::Respond(Respond::new(text, *status)),
    })
}

/// What one of several folders is served with. What a worker keeps of files is bounded for
/// all folders together, so that each gets its share.
fn directory_settings(files: &FilesConfig, folders: usize) -> DirectorySettings {
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
        links: links.unwrap_or(Links::Inside),
        compress: compress.unwrap_or(true),
        max_kept_bytes: (defaults.max_kept_bytes / folders).max(LEAST_KEPT_BYTES),
        max_kept_entries: (defaults.max_kept_entries / folders).max(LEAST_KEPT_ENTRIES),
        max_kept_descriptors: (defaults.max_kept_descriptors / folders).max(LEAST_KEPT_DESCRIPTORS),
        ..defaults
    }
}

const LEAST_KEPT_BYTES: usize = 1 << 20;
const LEAST_KEPT_ENTRIES: usize = 256;
const LEAST_KEPT_DESCRIPTORS: usize = 8;
