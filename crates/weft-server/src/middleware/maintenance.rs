//! Maintenance: a file that closes a route as long as it exists.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use weft::{Application, HeaderValue, Middleware, Request, Response, StatusCode, header};
use weft_proto::semantics::mime;

use crate::base::watched_file::{FileVersion, REVALIDATE_AFTER};
use crate::middleware::error_pages::read;

/// Responds to all requests with 503 and the content of a file while the file exists. An empty file
/// stands for the built-in page.
#[derive(Clone)]
pub(super) struct Maintenance(Arc<Notice>);

struct Notice {
    path: PathBuf,
    media_type: HeaderValue,
    state: Mutex<State>,
}

struct State {
    checked: Instant,
    /// `None` while there is no file.
    version: Option<FileVersion>,
    content: Bytes,
}

impl Maintenance {
    pub(super) fn new(path: &Path) -> Maintenance {
        let name = path.file_name().unwrap_or_default();
        let media_type = HeaderValue::from_static(mime::from_file_name(name.as_encoded_bytes()));
        let version = FileVersion::of(path).ok();
        let state = State { checked: Instant::now(), version, content: content(path, version) };
        Maintenance(Arc::new(Notice { path: path.to_owned(), media_type, state: state.into() }))
    }
}

impl Notice {
    /// Returns the content of the file, or `None` if the route is open. The file is examined at most
    /// once in [`REVALIDATE_AFTER`].
    fn content(&self) -> Option<Bytes> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= REVALIDATE_AFTER {
            state.checked = Instant::now();
            let version = FileVersion::of(&self.path).ok();
            if version != state.version {
                let outcome = if version.is_some() { "closes" } else { "no longer closes" };
                log::info!("{} {outcome} its routes", self.path.display());
                state.content = content(&self.path, version);
                state.version = version;
            }
        }
        state.version.map(|_| state.content.clone())
    }
}

/// Reads a file that exists. One that cannot be read closes the route, too.
fn content(path: &Path, version: Option<FileVersion>) -> Bytes {
    let warn = |reason| log::warn!("{reason}; the built-in page is sent");
    version.and_then(|_| read(path).map_err(warn).ok()).unwrap_or_default()
}

impl Middleware for Maintenance {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.0.content() {
            None => next.call(request).await,
            Some(content) if content.is_empty() => StatusCode::SERVICE_UNAVAILABLE.into(),
            Some(content) => Response::body(content)
                .with_header_value(header::CONTENT_TYPE, self.0.media_type.clone())
                .with_status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}
