//! Scripts that an application server such as PHP-FPM runs, which it is sent by FastCGI.

use std::io;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use weft::path::decode;
use weft::{Application, Directory, Method, Request, Response, StatusCode};
use weft_upstream::gateway_error::GatewayError;
use weft_upstream::script::{Script, ScriptCall};
use weft_upstream::task::MayDrop;
use weft_upstream::{FastCgiSettings, ReverseProxy};

use super::script::{LookupError, Root, ScriptRule};

/// Application that sends requests to an application server. The proxy has its connections.
pub(crate) struct FastCgi {
    pub(super) proxy: Arc<ReverseProxy>,
    scripts: Scripts,
}

#[derive(Clone)]
enum Scripts {
    Beneath(Arc<Root>),
    /// The application server itself handles all paths.
    Application,
}

impl FastCgi {
    /// # Errors
    /// Fails if the directory of the scripts does not exist.
    pub(crate) fn new(proxy: Arc<ReverseProxy>, settings: &FastCgiSettings) -> io::Result<FastCgi> {
        let rule = ScriptRule::Suffix(settings.suffix.clone());
        let scripts = match &settings.root {
            Some(root) => {
                Scripts::Beneath(Root::open(root, Some(settings.index.clone()), rule)?.into())
            }
            None => Scripts::Application,
        };
        Ok(FastCgi { proxy, scripts })
    }

    /// Creates the application of one worker, with connections of its own.
    pub(super) fn for_worker(&self, has_metrics: bool) -> FastCgi {
        let proxy = Arc::new(self.proxy.for_worker(has_metrics));
        FastCgi { proxy, scripts: self.scripts.clone() }
    }

    /// Runs the script that the path of a request names. `is_sent` is set when the application
    /// server has got the request.
    pub(super) async fn respond(&self, request: Request, is_sent: MayDrop) -> Response {
        match self.find(request.path()).await {
            Ok(script) => self.run(request, script, is_sent).await,
            Err(error) => self.lookup_failed(error, &request),
        }
    }

    async fn run(&self, request: Request, script: Script, is_sent: MayDrop) -> Response {
        let call = ScriptCall { script, is_sent };
        ReverseProxy::forward(&*self.proxy, request, Some(Box::new(call))).await
    }

    async fn find(&self, path: &str) -> Result<Script, LookupError> {
        match &self.scripts {
            Scripts::Beneath(root) => {
                let (root, path) = (root.clone(), path.to_owned());
                let found = spawn_blocking(move || root.find(&path)).await;
                found.unwrap_or_else(|error| Err(LookupError::Io(io::Error::other(error))))
            }
            Scripts::Application => Ok(Script::of_application(path)),
        }
    }

    fn lookup_failed(&self, error: LookupError, request: &Request) -> Response {
        match error {
            LookupError::NotFound => StatusCode::NOT_FOUND.into(),
            LookupError::Forbidden => StatusCode::FORBIDDEN.into(),
            LookupError::Io(error) => {
                GatewayError::from(error).into_reported_response(&"a script", request)
            }
        }
    }
}

/// Application for a folder of scripts and other files, such as that of WordPress: runs the scripts,
/// and serves the files.
pub(crate) struct ScriptSite {
    files: Directory,
    pub(super) scripts: FastCgi,
    /// End of the names of scripts.
    suffix: String,
    /// Path of the script for all paths that name neither a script nor a file.
    front_controller: Option<String>,
}

impl ScriptSite {
    pub(crate) fn new(
        files: Directory,
        scripts: FastCgi,
        suffix: String,
        front_controller: Option<String>,
    ) -> ScriptSite {
        ScriptSite { files, scripts, suffix, front_controller }
    }

    /// Creates the application of one worker, with caches and connections of its own.
    pub(super) fn for_worker(&self, has_metrics: bool) -> ScriptSite {
        ScriptSite {
            files: self.files.clone(),
            scripts: self.scripts.for_worker(has_metrics),
            suffix: self.suffix.clone(),
            front_controller: self.front_controller.clone(),
        }
    }

    /// Runs a script or serves a file. `is_sent` is set when the application server has got the
    /// request.
    pub(super) async fn respond(&self, request: Request, is_sent: MayDrop) -> Response {
        let path = request.path();
        let mut segments = path.rsplit('/').map(|segment| self.is_script_name(segment));
        // The text of a script is never sent, also if it cannot be run.
        let is_script = segments.next().unwrap_or(false);
        if is_script || path.ends_with('/') || segments.any(|is_script| is_script) {
            match self.scripts.find(path).await {
                Ok(script) => return self.scripts.run(request, script, is_sent).await,
                Err(LookupError::NotFound) => {}
                Err(error) => return self.scripts.lookup_failed(error, &request),
            }
        }
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        if !is_script && (is_read || self.front_controller.is_none()) {
            let response = self.files.call(request.without_body()).await;
            if response.status() != StatusCode::NOT_FOUND || self.front_controller.is_none() {
                return response;
            }
        }
        match &self.front_controller {
            Some(path) => match self.scripts.find(path).await {
                Ok(script) => self.scripts.run(request, script, is_sent).await,
                Err(error) => self.scripts.lookup_failed(error, &request),
            },
            None => StatusCode::NOT_FOUND.into(),
        }
    }

    /// Returns true if a segment of a path ends as the names of scripts, in any case: file systems
    /// and other servers may ignore it.
    fn is_script_name(&self, segment: &str) -> bool {
        let (name, suffix) = (decode(segment.as_bytes()), self.suffix.as_bytes());
        let start = name.len().saturating_sub(suffix.len());
        name[start..].eq_ignore_ascii_case(suffix)
    }
}
