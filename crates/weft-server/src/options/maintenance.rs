//! Maintenance: a file that closes a route as long as it exists.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weft::header::{self, HeaderValue};
use weft::{Application, Middleware, Request, Response, StatusCode};
use weft_config::{Key, ValueKind, WordOrPath};

use super::error_pages::files::{media_type, read};
use super::layer::{Layer, OpenContext};
use super::{NONE, RouteOption, RouteOptions, Setting, show_setting};
use crate::base::script_files::SentFile;
use crate::base::watched_file::OptionalFile;

/// The file that closes a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MaintenanceOptions {
    file: Option<Setting<PathBuf>>,
}

impl MaintenanceOptions {
    fn file(&self) -> Option<&Path> {
        self.file.as_ref().and_then(Setting::value).map(PathBuf::as_path)
    }

    /// The file whose content clients get.
    pub(crate) fn sent_files(&self) -> impl Iterator<Item = SentFile<'_>> {
        let (key, remedy) = (Self::KEYS[0].name, "a page is a file with another name");
        self.file().into_iter().map(move |path| SentFile { key, path, remedy })
    }
}

impl RouteOption for MaintenanceOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "maintenance",
        flag: "maintenance",
        argument: "FILE",
        help: "file that closes a site while it exists: requests get 503 with its content, or with the \
               page for 503 if it is empty; none: no such file",
        kind: ValueKind::WordOrPath(&[NONE], |options, file| {
            options.file = Some(match file.value {
                WordOrPath::Word(_) => Setting::None,
                WordOrPath::Path(path) => Setting::Value(path),
            });
        }),
        show: |options| {
            show_setting(options.file.as_ref(), |path| path.to_string_lossy().into_owned())
        },
    }];

    fn or(self, outer: &Self) -> Self {
        MaintenanceOptions { file: self.file.or_else(|| outer.file.clone()) }
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        Ok(self
            .file()
            .map(|path| Layer::of_middleware(Maintenance::new(path)))
            .into_iter()
            .collect())
    }
}

/// Responds to all requests with 503 and the content of a file while the file exists. An empty file
/// stands for the built-in page.
#[derive(Clone)]
struct Maintenance(Arc<Notice>);

struct Notice {
    media_type: HeaderValue,
    /// `None` while there is no file.
    content: OptionalFile<Option<Bytes>>,
}

impl Maintenance {
    fn new(path: &Path) -> Maintenance {
        let content = OptionalFile::new(path, content);
        Maintenance(Arc::new(Notice { media_type: media_type(path), content }))
    }
}

impl Notice {
    /// Returns the content of the file, or `None` if the route is open.
    fn content(&self) -> Option<Bytes> {
        self.content.current(|path, exists| {
            let outcome = if exists { "closes" } else { "no longer closes" };
            log::info!("{} {outcome} its routes", path.display());
            content(path, exists)
        })
    }
}

/// Reads a file that exists. One that cannot be read closes the route, too.
fn content(path: &Path, exists: bool) -> Option<Bytes> {
    let warn = |reason| log::warn!("{reason}; the built-in page is sent");
    exists.then(|| read(path).map_err(warn).unwrap_or_default())
}

impl Middleware for Maintenance {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.0.content() {
            None => next.call(request).await,
            Some(content) if content.is_empty() => StatusCode::SERVICE_UNAVAILABLE.into(),
            Some(content) => Response::from_body(content)
                .with_header(header::CONTENT_TYPE, self.0.media_type.clone())
                .with_status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}
