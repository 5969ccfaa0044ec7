//! `fastcgi`, `scgi` and `uwsgi`: scripts and applications of an application server such as
//! PHP-FPM.

mod keys; // the keys of these routes, and of a files route with `php`

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft::{Request, Response, StatusCode};
use weft_config::{Key, PartKey, SectionKeys};
use weft_upstream::script::{Script, ScriptCall};
use weft_upstream::task::MayDrop;
use weft_upstream::{FastCgiSettings, ProxySettings, ReverseProxy};

pub(super) use self::keys::php_keys;
use self::keys::{fastcgi_keys, scgi_keys};
use super::form::{OpenContext, PathKeys, PlanContext, RouteApp, RouteForm};
use super::proxy::{ineffective_settings, open_proxy, plan_upstreams, upstreams_key};
use super::script::{LookupError, Root};
use super::script_patterns::ScriptPatterns;
use super::{ResponseFuture, until_sent};
use crate::base::script_files::{ScriptFiles, ScriptRule};
use crate::options::RouteOptions;

/// Values of the keys of a route to application servers with the protocol `P`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ServerForm<P>(ProxySettings, PhantomData<P>);

pub(crate) type FastCgiForm = ServerForm<FastCgiProtocol>;
pub(crate) type ScgiForm = ServerForm<Scgi>;
pub(crate) type UwsgiForm = ServerForm<Uwsgi>;

/// A protocol of application servers.
pub(crate) trait ServerProtocol: 'static {
    /// The key that names the upstreams.
    const UPSTREAMS: &'static Key<ProxySettings>;

    fn defaults() -> ProxySettings;

    /// Returns true if the requests are for scripts whose names have a suffix.
    fn runs_scripts() -> bool {
        false
    }

    /// Returns the other keys.
    fn keys() -> Vec<&'static Key<ProxySettings>> {
        scgi_keys().collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FastCgiProtocol;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scgi;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Uwsgi;

impl ServerProtocol for FastCgiProtocol {
    const UPSTREAMS: &'static Key<ProxySettings> =
        &upstreams_key("fastcgi", "addresses of upstreams");

    fn defaults() -> ProxySettings {
        ProxySettings::fastcgi()
    }

    fn runs_scripts() -> bool {
        true
    }

    fn keys() -> Vec<&'static Key<ProxySettings>> {
        fastcgi_keys().collect()
    }
}

impl ServerProtocol for Scgi {
    const UPSTREAMS: &'static Key<ProxySettings> = &upstreams_key("scgi", "addresses of upstreams");

    fn defaults() -> ProxySettings {
        ProxySettings::scgi()
    }
}

impl ServerProtocol for Uwsgi {
    const UPSTREAMS: &'static Key<ProxySettings> =
        &upstreams_key("uwsgi", "addresses of upstreams");

    fn defaults() -> ProxySettings {
        ProxySettings::uwsgi()
    }
}

impl<P: ServerProtocol> Default for ServerForm<P> {
    fn default() -> ServerForm<P> {
        ServerForm(P::defaults(), PhantomData)
    }
}

impl<P: ServerProtocol> RouteForm for ServerForm<P> {
    type App = Arc<FastCgi>;

    fn name() -> &'static str {
        P::UPSTREAMS.name
    }

    fn keys() -> SectionKeys<ServerForm<P>> {
        let of_form = |key| PartKey::new(key, |form: &ServerForm<P>| &form.0, |form| &mut form.0);
        let keys = std::iter::once(P::UPSTREAMS).chain(P::keys());
        keys.map(|key| Box::new(of_form(key)) as _).collect()
    }

    fn path_keys() -> PathKeys {
        PathKeys::Rewrite
    }

    fn plan(
        &mut self,
        options: &mut RouteOptions,
        context: &PlanContext<'_>,
    ) -> Result<(), String> {
        plan_upstreams(&mut self.0, options, context)
    }

    fn open(&self, context: &OpenContext<'_>) -> Result<Arc<FastCgi>, String> {
        FastCgi::open(open_proxy(&self.0, context)?, &self.0.fastcgi).map(Arc::new)
    }

    fn root(&self) -> Option<&Path> {
        self.0.fastcgi.root.as_deref()
    }

    fn upstreams(&self) -> Option<&ProxySettings> {
        Some(&self.0)
    }

    fn scripts(&self) -> Option<ScriptFiles> {
        P::runs_scripts().then(|| script_files(&self.0.fastcgi))
    }

    fn ineffective(&self) -> Vec<&'static str> {
        ineffective_settings(&self.0)
    }
}

/// Returns the scripts that an application server runs.
pub(super) fn script_files(settings: &FastCgiSettings) -> ScriptFiles {
    let rule = ScriptRule::Suffix(settings.suffix.clone());
    ScriptFiles { folder: settings.root.clone(), rule }
}

/// Application that sends requests to an application server. The proxy has its connections.
pub(crate) struct FastCgi {
    proxy: Arc<ReverseProxy>,
    scripts: Scripts,
}

#[derive(Clone)]
enum Scripts {
    Beneath(Arc<Root>),
    /// The application server itself handles all paths.
    Application,
}

impl FastCgi {
    /// Opens the directory of the scripts.
    pub(super) fn open(
        proxy: Arc<ReverseProxy>,
        settings: &FastCgiSettings,
    ) -> Result<FastCgi, String> {
        let rule = ScriptRule::Suffix(settings.suffix.clone());
        let patterns = settings.scripts.as_deref().map(ScriptPatterns::new).transpose()?;
        let open = |root: &PathBuf| Root::open(root, Some(settings.index.clone()), rule);
        let root = settings.root.as_ref().map(open).transpose();
        let root = root.map_err(|error| format!("cannot run scripts: {error}"))?;
        let root = root.map(|root| root.with_patterns(patterns));
        let scripts = root.map_or(Scripts::Application, |root| Scripts::Beneath(Arc::new(root)));
        Ok(FastCgi { proxy, scripts })
    }

    pub(super) fn proxy(&self) -> &ReverseProxy {
        &self.proxy
    }

    /// Creates the application of one worker, with connections of its own.
    pub(super) fn for_worker(&self, has_metrics: bool) -> FastCgi {
        FastCgi { proxy: self.proxy.for_worker(has_metrics), scripts: self.scripts.clone() }
    }

    /// Runs the script that the path of a request names. `is_sent` is set when the application
    /// server has got the request.
    async fn respond(&self, request: Request, is_sent: MayDrop) -> Response {
        match self.find(request.path(), &request).await {
            Ok(script) => self.run(request, script, is_sent).await,
            Err(error) => self.lookup_failed(error, &request),
        }
    }

    pub(super) async fn run(&self, request: Request, script: Script, is_sent: MayDrop) -> Response {
        let call = ScriptCall { script, is_sent };
        ReverseProxy::forward(&*self.proxy, request, Some(Box::new(call))).await
    }

    /// Finds the script at a path, which is not the path of the request for a front controller.
    pub(super) async fn find(&self, path: &str, request: &Request) -> Result<Script, LookupError> {
        match &self.scripts {
            Scripts::Beneath(root) => {
                root.find(request.mount(), path, self.proxy.limited_client(request)).await
            }
            Scripts::Application => Ok(Script::of_application(path)),
        }
    }

    pub(super) fn lookup_failed(&self, error: LookupError, request: &Request) -> Response {
        match error {
            LookupError::NotFound => StatusCode::NOT_FOUND.into(),
            LookupError::Forbidden => StatusCode::FORBIDDEN.into(),
            LookupError::Failed(error) => error.into_reported_response(&"a script", request),
        }
    }
}

impl RouteApp for Arc<FastCgi> {
    fn for_worker(&self, has_metrics: bool) -> Arc<FastCgi> {
        Arc::new(FastCgi::for_worker(self, has_metrics))
    }

    fn call(&self, request: Request) -> ResponseFuture {
        let app = self.clone();
        until_sent(request, async move |request, is_sent| app.respond(request, is_sent).await)
    }

    fn proxy(&self) -> Option<&ReverseProxy> {
        Some(&self.proxy)
    }
}
