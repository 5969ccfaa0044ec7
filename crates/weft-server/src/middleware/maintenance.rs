//! Maintenance: a file that closes a route as long as it exists.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weft::{Application, HeaderValue, Middleware, Request, Response, StatusCode, header};

use crate::base::watched_file::OptionalFile;
use crate::middleware::error_pages::{media_type, read};

/// Responds to all requests with 503 and the content of a file while the file exists. An empty file
/// stands for the built-in page.
#[derive(Clone)]
pub(super) struct Maintenance(Arc<Notice>);

struct Notice {
    media_type: HeaderValue,
    /// `None` while there is no file.
    content: OptionalFile<Option<Bytes>>,
}

impl Maintenance {
    pub(super) fn new(path: &Path) -> Maintenance {
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
            Some(content) => Response::body(content)
                .with_header_value(header::CONTENT_TYPE, self.0.media_type.clone())
                .with_status(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}
