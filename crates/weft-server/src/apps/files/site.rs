//! A directory of scripts and other files, such as WordPress.

use std::path::Path;

use weft::files::Directory;
use weft::path::decode;
use weft::{Application, Method, Request, Response, StatusCode};
use weft_upstream::task::MayDrop;
use weft_upstream::{FastCgiSettings, ProxySettings, ReverseProxy};

use super::{FilesConfig, open_directory};
use crate::apps::fastcgi::FastCgi;
use crate::apps::form::OpenContext;
use crate::apps::proxy::open_proxy;
use crate::apps::script::LookupError;

/// Application for a folder of scripts and other files, such as WordPress: runs the scripts, and
/// serves the files.
pub(crate) struct ScriptSite {
    files: Directory,
    scripts: FastCgi,
    /// End of the names of scripts.
    suffix: String,
    /// Path of the script for all paths that name neither a script nor a file.
    front_controller: Option<String>,
}

impl ScriptSite {
    pub(super) fn open(
        root: &Path,
        files: &FilesConfig,
        upstreams: &ProxySettings,
        context: &OpenContext<'_>,
    ) -> Result<ScriptSite, String> {
        let site = SiteFiles::new(files, &upstreams.fastcgi);
        let files = open_directory(root, &site.files, context)?;
        let scripts = FastCgi::open(open_proxy(upstreams, context)?, &site.scripts)?;
        let (suffix, front_controller) = (site.scripts.suffix, site.front_controller);
        Ok(ScriptSite { files, scripts, suffix, front_controller })
    }

    pub(super) fn proxy(&self) -> &ReverseProxy {
        self.scripts.proxy()
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
            match self.scripts.find(path, &request).await {
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
            Some(path) => match self.scripts.find(path, &request).await {
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

/// The parts of a folder with scripts: index files and the fallback are scripts if their names end
/// like the names of scripts.
struct SiteFiles {
    files: FilesConfig,
    scripts: FastCgiSettings,
    front_controller: Option<String>,
}

impl SiteFiles {
    fn new(files: &FilesConfig, scripts: &FastCgiSettings) -> SiteFiles {
        let (mut files, mut scripts) = (files.clone(), scripts.clone());
        let is_script = |name: &String| name.ends_with(&scripts.suffix);
        let (index, others): (Vec<_>, Vec<_>) =
            files.index.into_iter().flatten().partition(is_script);
        let fallback = files.fallback.take();
        let (front_controller, fallback) = if fallback.as_ref().is_some_and(is_script) {
            (fallback, None)
        } else {
            (None, fallback)
        };
        (files.index, files.fallback) = (Some(others), fallback);
        scripts.index = index.into_iter().next().unwrap_or(scripts.index);
        let front_controller =
            front_controller.map(|path| format!("/{}", path.trim_start_matches('/')));
        SiteFiles { files, scripts, front_controller }
    }
}
