//! `files`: a directory, and with `php` also the scripts in it, which upstreams run.

mod keys; // the keys of [files]
mod refused_link; // the log line about a link that is not followed
mod site; // a directory of scripts and other files

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::Either;
use weft::files::{Directory, DirectorySettings, HeaderRule, Symlinks};
use weft::{Application, Request};
use weft_config::{
    ConfigLocation, ConfigResult, Key, KeySpec, PartKey, SectionKey, SectionKeys, ValueKind,
    ValueSlot, quoted,
};
use weft_upstream::{ProxySettings, ReverseProxy};

pub(crate) use self::keys::{FILES, FilesConfig};
use self::site::ScriptSite;
use super::fastcgi::{php_keys, script_files};
use super::form::{FormTable, OpenContext, Operator, PathKeys, PlanContext, RouteApp, RouteForm};
use super::proxy::{plan_upstreams, upstreams_key};
use super::{ResponseFuture, until_sent};
use crate::base::script_files::{AllScripts, ScriptFiles, SentFile};
use crate::options::RouteOptions;

/// Values of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FilesForm {
    root: PathBuf,
    files: FilesConfig,
    /// Upstreams that run the scripts.
    scripts: Option<ProxySettings>,
}

static ROOT: Key<FilesForm> = Key {
    name: "files",
    help: "directory to serve",
    kind: ValueKind::Path(|form, root| form.root = root.value),
    show: |form| quoted(&form.root.to_string_lossy()),
    ..Key::FILE_ONLY
};

static PHP: Key<ProxySettings> =
    upstreams_key("php", "addresses of upstreams that run scripts by FastCGI, such as PHP-FPM");

/// A key of the upstreams that run scripts.
struct ScriptKey(&'static Key<ProxySettings>);

impl SectionKey<FilesForm> for ScriptKey {
    fn spec(&self) -> KeySpec<'_> {
        self.0.spec()
    }

    fn show(&self, form: &FilesForm) -> String {
        form.scripts.as_ref().map_or_else(String::new, |scripts| self.0.show(scripts))
    }

    fn store(
        &self,
        form: &mut FilesForm,
        read: &mut dyn FnMut(ValueSlot<'_>) -> ConfigResult,
    ) -> ConfigResult {
        self.0.store(form.scripts.get_or_insert_with(ProxySettings::fastcgi), read)
    }
}

/// Returns the keys of a directory without scripts, besides `files`.
fn directory_keys() -> impl Iterator<Item = Box<dyn SectionKey<FilesForm>>> {
    let of_form = |key| PartKey::new(key, |form: &FilesForm| &form.files, |form| &mut form.files);
    FILES.iter().map(move |key| Box::new(of_form(key)) as _)
}

impl RouteForm for FilesForm {
    type App = FilesApp;

    fn name() -> &'static str {
        ROOT.name
    }

    fn keys() -> SectionKeys<FilesForm> {
        let mut keys: SectionKeys<FilesForm> = vec![Box::new(&ROOT), Box::new(ScriptKey(&PHP))];
        keys.extend(directory_keys());
        keys.extend(php_keys().map(|key| Box::new(ScriptKey(key)) as _));
        keys
    }

    fn defaults() -> FilesForm {
        FilesForm {
            files: FilesConfig::defaults(),
            scripts: Some(ProxySettings::fastcgi()),
            ..FilesForm::default()
        }
    }

    fn operator() -> Option<Operator<FilesForm>> {
        let parse = |folder: &str, base: &Path| Ok(FilesForm::new(base.join(folder)));
        Some(Operator { sign: "->", argument: "FOLDER", subject: "files", parse })
    }

    fn path_keys() -> PathKeys {
        PathKeys::All
    }

    fn read(table: &mut FormTable<'_, '_>) -> ConfigResult<FilesForm> {
        let mut form = FilesForm::default();
        match table.entries.iter().position(|(name, _)| name.value == PHP.name) {
            Some(position) => {
                let (_, addresses) = table.entries.remove(position);
                table.read_keys(&FilesForm::keys()[2..], &mut form);
                ScriptKey(&PHP).set_value(&mut form, addresses)?;
            }
            None => table.read_keys(&directory_keys().collect::<Vec<_>>(), &mut form),
        }
        ROOT.set_value(&mut form, table.target)?;
        Ok(form)
    }

    fn plan(
        &mut self,
        options: &mut RouteOptions,
        context: &PlanContext<'_>,
    ) -> Result<(), String> {
        let compress = options.compress.is_enabled;
        self.files.plan(options, context.files);
        let Some(scripts) = &mut self.scripts else {
            if context.has_try_files {
                // The inherited one would exist for all paths.
                self.files.fallback = None;
            }
            return Ok(());
        };
        // Scripts compress their output themselves, or a route with `compress` does.
        options.compress.is_enabled = options.compress.is_enabled.or(compress);
        plan_upstreams(scripts, options, context)?;
        scripts.fastcgi.root = Some(self.root.clone());
        Ok(())
    }

    fn open(&self, context: &OpenContext<'_>) -> Result<FilesApp, String> {
        match &self.scripts {
            None => open_directory(&self.root, &self.files, context).map(FilesApp::Directory),
            Some(upstreams) => ScriptSite::open(&self.root, &self.files, upstreams, context)
                .map(|site| FilesApp::Site(Arc::new(site))),
        }
    }

    fn served_directory(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn upstreams(&self) -> Option<&ProxySettings> {
        self.scripts.as_ref()
    }

    fn scripts(&self) -> Option<ScriptFiles> {
        let settings = &self.scripts.as_ref()?.fastcgi;
        Some(ScriptFiles { folder: Some(self.root.clone()), ..script_files(settings) })
    }

    fn withhold(&mut self, scripts: &AllScripts, inherited: &FilesConfig) {
        self.files.withheld = scripts.withheld(&self.root);
        if self.scripts.is_some() {
            return;
        }
        let is_sent = |name: &String| !scripts.has_script(Path::new(name));
        if self.files.index == inherited.index {
            self.files.index.iter_mut().for_each(|names| names.retain(is_sent));
        }
        if self.files.fallback == inherited.fallback {
            self.files.fallback = self.files.fallback.take().filter(is_sent);
        }
    }

    fn sent_files(&self) -> Vec<SentFile<'_>> {
        // A route with scripts runs its index and its fallback if they are scripts.
        let is_run = |name: &&String| {
            let suffix = self.scripts.as_ref().map(|scripts| &*scripts.fastcgi.suffix);
            suffix.is_some_and(|suffix| name.ends_with(suffix))
        };
        let index = self.files.index.iter().flatten().map(|name| ("index", name));
        let fallback = self.files.fallback.iter().map(|name| ("fallback", name));
        let names = index.chain(fallback).filter(|(_, name)| !is_run(name));
        let remedy = "a route with `php` runs it";
        names.map(|(key, name)| SentFile { key, path: Path::new(name), remedy }).collect()
    }

    fn try_files_conflict(&self) -> Option<&'static str> {
        match (&self.scripts, &self.files.fallback) {
            // A script that is looked up would run.
            (Some(_), _) => Some(
                "`try_files` and `php` exclude each other; `fallback = \"index.php\"` is the \
                 front controller",
            ),
            (None, Some(_)) => Some(
                "`fallback` and `try_files` exclude each other; the last element of \
                 `try_files` may be the path of the fallback",
            ),
            (None, None) => None,
        }
    }

    fn warnings(&self, location: &ConfigLocation) -> Vec<String> {
        self.missing_fallback().into_iter().chain(self.missing_index(location)).collect()
    }
}

impl FilesForm {
    /// Returns the form of a directory with all defaults.
    pub(crate) fn new(root: PathBuf) -> FilesForm {
        FilesForm { root, ..FilesForm::default() }
    }

    fn missing_fallback(&self) -> Option<String> {
        let path = self.root.join(self.files.fallback.as_ref()?.trim_start_matches('/'));
        let is_missing = self.root.is_dir() && !path.is_file();
        let path = path.display();
        is_missing.then(|| format!("the fallback {path} does not exist; 404 in its place"))
    }

    /// Finds a folder of the command line whose first page is 404, for a person at a terminal. In a
    /// file, such a folder is usually intended: it has style sheets or images.
    fn missing_index(&self, location: &ConfigLocation) -> Option<String> {
        let FilesConfig { index, list, fallback, .. } = &self.files;
        let names = index.as_deref().unwrap_or_default();
        let has_first_page = self.scripts.is_some()
            || *list == Some(true)
            || fallback.is_some()
            || names.iter().any(|name| self.root.join(name).is_file());
        let is_for_a_person = !location.is_in_file() && io::stderr().is_terminal();
        if !is_for_a_person || has_first_page || !self.root.is_dir() {
            return None;
        }
        let (root, names) = (self.root.display(), names.join(" and no "));
        Some(format!("{root} has no {names}; with --list, its files are listed"))
    }
}

/// A directory, or a directory of scripts and other files.
pub(crate) enum FilesApp {
    Directory(Directory),
    Site(Arc<ScriptSite>),
}

impl RouteApp for FilesApp {
    fn for_worker(&self, has_metrics: bool) -> FilesApp {
        match self {
            FilesApp::Directory(directory) => FilesApp::Directory(directory.clone()),
            FilesApp::Site(site) => FilesApp::Site(Arc::new(site.for_worker(has_metrics))),
        }
    }

    fn call(&self, request: Request) -> ResponseFuture {
        match self {
            FilesApp::Directory(directory) => Either::Left(directory.call(request)),
            FilesApp::Site(site) => {
                let site = site.clone();
                until_sent(request, async move |request, is_sent| {
                    site.respond(request, is_sent).await
                })
            }
        }
    }

    fn proxy(&self) -> Option<&ReverseProxy> {
        match self {
            FilesApp::Directory(_) => None,
            FilesApp::Site(site) => Some(site.proxy()),
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, FilesApp::Directory(_))
    }
}

fn open_directory(
    root: &Path,
    files: &FilesConfig,
    context: &OpenContext<'_>,
) -> Result<Directory, String> {
    let message = |error| format!("cannot serve {}: {error}", root.display());
    // A directory can be opened without the permission to look files up in it.
    std::fs::metadata(root.join(".")).map_err(message)?;
    let settings = directory_settings(files, context.directories);
    Directory::with_settings(root, settings).map_err(message)
}

/// Returns the settings of one of `directories` directories. The cache limits of a worker apply to
/// all directories together, so that each directory gets an equal share.
fn directory_settings(files: &FilesConfig, directories: usize) -> DirectorySettings {
    let defaults = DirectorySettings::default();
    let FilesConfig {
        index,
        list,
        list_title,
        fallback,
        fallback_for,
        cache,
        languages,
        compress,
        links,
        headers,
        is_uncoded,
        withheld,
    } = files.clone();
    let rules = cache.into_iter().chain(headers).flatten();
    let headers: Vec<HeaderRule> = rules.map(|rule| rule.rule).collect();
    DirectorySettings {
        index: index.unwrap_or_default(),
        listing: list.unwrap_or(false),
        listing_title: list_title,
        fallback,
        fallback_for: fallback_for.unwrap_or_default(),
        headers,
        languages: languages.unwrap_or_default(),
        symlinks: links.unwrap_or(Symlinks::Inside),
        on_refused_link: Some(refused_link::report),
        excluded: withheld,
        compress: compress.unwrap_or(true) && !is_uncoded,
        precompressed: !is_uncoded,
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
