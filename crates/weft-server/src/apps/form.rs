//! The interface of a form of route.

use std::path::Path;
use std::sync::Arc;

use weft::net::IpNetwork;
use weft::{Request, Settings};
use weft_config::schema::{Properties, properties};
use weft_config::{
    ConfigLocation, ConfigResult, Key, Name, Problem, SectionKey, SectionKeys, Value, find,
    suggest, unknown_key,
};
use weft_upstream::spool::BufferSpace;
use weft_upstream::{LocalServices, ProxySettings, ReverseProxy};

use super::ResponseFuture;
use super::files::FilesConfig;
use crate::base::script_files::{AllScripts, ScriptFiles, SentFile};
use crate::options::RouteOptions;
use crate::template::GroupPatterns;

/// A form of route: the values of its keys. [`plan`](RouteForm::plan) completes and validates them,
/// then an application is opened from them. Forms with equal values share one application.
pub(crate) trait RouteForm {
    /// Application that serves the requests of the route.
    type App: RouteApp
    where
        Self: Sized;

    /// Returns the name of the key that selects the form.
    fn name() -> &'static str
    where
        Self: Sized;

    /// Returns the keys of the form. The keys of all routes are not among them. The first key
    /// selects the form, and has precedence over an option of the same name.
    fn keys() -> SectionKeys<Self>
    where
        Self: Sized;

    /// Returns the values with which the documentation shows the defaults.
    fn defaults() -> Self
    where
        Self: Sized + Default,
    {
        Self::default()
    }

    /// Returns the operator of the form in a text such as `-> /srv/www`.
    fn operator() -> Option<Operator<Self>>
    where
        Self: Sized,
    {
        None
    }

    /// Returns the keys for the path of requests that the form permits.
    fn path_keys() -> PathKeys
    where
        Self: Sized,
    {
        PathKeys::None
    }

    /// Reads the form from the table of a route.
    ///
    /// # Errors
    /// With an invalid value of the key that selects the form. The table reports other problems.
    fn read(table: &mut FormTable<'_, '_>) -> ConfigResult<Self>
    where
        Self: Sized + Default,
    {
        let (mut form, keys) = (Self::default(), Self::keys());
        table.read_keys(&keys[1..], &mut form);
        keys[0].set_value(&mut form, table.target)?;
        Ok(form)
    }

    /// Returns the JSON schemas of the keys.
    fn properties() -> Properties
    where
        Self: Sized,
    {
        properties(Self::keys())
    }

    /// Completes the values by inherited ones, and validates them. Options of the route that the
    /// form has itself move there.
    fn plan(&mut self, _: &mut RouteOptions, _: &PlanContext<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Opens the application.
    fn open(&self, context: &OpenContext<'_>) -> Result<Self::App, String>
    where
        Self: Sized;

    /// Directory or file on which the application depends. If another one takes its place, the
    /// application is opened again.
    fn root(&self) -> Option<&Path> {
        self.served_directory()
    }

    /// Directory whose files are served.
    fn served_directory(&self) -> Option<&Path> {
        None
    }

    /// Settings of the upstreams.
    fn upstreams(&self) -> Option<&ProxySettings> {
        None
    }

    /// Scripts that the route runs.
    fn scripts(&self) -> Option<ScriptFiles> {
        None
    }

    /// Withholds the files that are scripts of this route or of another one. `inherited` has the
    /// values of `[files]`, which are meant for routes with scripts, too.
    fn withhold(&mut self, _scripts: &AllScripts, _inherited: &FilesConfig) {}

    /// Files that clients get as they are, even if they are scripts.
    fn sent_files(&self) -> Vec<SentFile<'_>> {
        Vec::new()
    }

    /// Returns true if upstreams or scripts respond.
    fn runs_application(&self) -> bool {
        self.upstreams().is_some()
    }

    /// Text with placeholders that clients get.
    fn template(&self) -> Option<&str> {
        None
    }

    /// Returns true if all responses are redirects.
    fn is_redirect(&self) -> bool {
        false
    }

    /// Returns the target of all redirects, if it has no placeholders.
    fn literal_redirect(&self) -> Option<String> {
        None
    }

    /// Returns the reason that excludes `try_files`.
    fn try_files_conflict(&self) -> Option<&'static str> {
        None
    }

    /// Returns a message for each value that has no effect.
    fn ineffective(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Returns messages about values that are valid, but probably not intended. Reads files.
    fn warnings(&self, _location: &ConfigLocation) -> Vec<String> {
        Vec::new()
    }
}

/// Application of a route. It gets paths without the route's prefix; the prefix is the request's
/// mount.
pub(crate) trait RouteApp {
    /// Creates the application of one worker, with caches and connections of its own.
    fn for_worker(&self, has_metrics: bool) -> Self
    where
        Self: Sized;

    /// Handles a request. The future is ready at once if the response needs no waiting. Futures
    /// that wait are boxed, because each request would need as much memory as the largest of them.
    /// They borrow nothing, so that a reload may replace the router meanwhile.
    fn call(&self, request: Request) -> ResponseFuture;

    /// Proxy by which the application reaches its upstreams.
    fn proxy(&self) -> Option<&ReverseProxy> {
        None
    }

    /// Returns true if the path of the route's prefix without a slash at its end is redirected to
    /// the path with the slash.
    fn is_directory(&self) -> bool {
        false
    }

    /// Returns true if the application gets no part of a path that is matched by a pattern, or as a
    /// whole if `is_exact`.
    fn takes_path(&self, _is_exact: bool) -> bool {
        false
    }
}

/// An operator in front of a target. The Haskell web server mighty has the same operators.
pub(crate) struct Operator<F> {
    /// The operator, such as `->`.
    pub(crate) sign: &'static str,
    /// Placeholder of the target, such as `FOLDER`.
    pub(crate) argument: &'static str,
    /// Served content, such as `files`.
    pub(crate) subject: &'static str,
    /// Parses a target. A relative path is resolved against the directory.
    pub(crate) parse: fn(&str, &Path) -> Result<F, String>,
}

/// Keys for the path of requests that a form permits: `rewrite` and `try_files`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathKeys {
    None,
    /// `rewrite` only.
    Rewrite,
    All,
}

/// Values of the host and of the whole configuration, with which a form is planned.
pub(crate) struct PlanContext<'a> {
    /// Patterns whose groups templates may have.
    pub(crate) patterns: GroupPatterns<'a>,
    /// Set if requests have a rest of the path behind the prefix of the route.
    pub(crate) has_rest: bool,
    /// Set if the route has `try_files`.
    pub(crate) has_try_files: bool,
    /// Values of `[files]`.
    pub(crate) files: &'a FilesConfig,
    pub(crate) trusted_proxies: &'a [IpNetwork],
    pub(crate) limits: &'a Settings,
}

/// Values of the plan with which applications are opened.
pub(crate) struct OpenContext<'a> {
    /// Number of routes that serve a directory.
    pub(crate) directories: usize,
    /// Space for buffered bodies.
    pub(crate) buffer_space: &'a Arc<BufferSpace>,
    /// Services whose endpoints the process sets.
    pub(crate) services: &'a LocalServices,
}

/// The entries of a route's table that belong to its form.
pub(crate) struct FormTable<'t, 'a> {
    /// Value of the key that selects the form.
    pub(crate) target: &'t Value<'a>,
    /// Entries other than the target and the keys that every route may have.
    pub(crate) entries: Vec<&'t (Name, Value<'a>)>,
    /// Names of the keys that every route may have, which are suggested for unknown names.
    pub(crate) general: &'t [&'static str],
    pub(crate) problems: &'t mut Vec<Problem>,
}

impl FormTable<'_, '_> {
    /// Sets the keys of the table in `values`. Reports invalid values and unknown keys.
    pub(crate) fn read_keys<S, K: SectionKey<S>>(&mut self, keys: &[K], values: &mut S) {
        for (name, value) in &self.entries {
            let done = match find(keys, &name.value) {
                Some(key) => key.set_value(values, value),
                None => Err(match suggest(&name.value, self.general.iter().copied()) {
                    Some(option) => unknown_key(name, [option].into_iter()),
                    None => unknown_key(name, keys.iter().map(SectionKey::name)),
                }),
            };
            self.problems.extend(done.err());
        }
    }
}

/// Returns keys as the keys of a form.
pub(crate) fn section_keys<S: 'static>(
    keys: impl IntoIterator<Item = &'static Key<S>>,
) -> SectionKeys<S> {
    keys.into_iter().map(|key| Box::new(key) as Box<dyn SectionKey<S>>).collect()
}
