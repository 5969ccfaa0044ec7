//! The error pages of a route, from files that may change.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use weft::middleware::ErrorPages;
use weft::{HeaderValue, Response, StatusCode, header};
use weft_proto::semantics::mime;

use crate::base::watched_file::{FileVersion, REVALIDATE_AFTER};
use crate::config::{ErrorPage, PageSource, RouteOptions};

/// Maximum size of a page, which stays in memory.
pub(crate) const MAX_PAGE_BYTES: u64 = 1 << 20;

/// Creates the middleware; `None` without pages.
pub(crate) fn error_pages(options: &RouteOptions) -> Option<ErrorPages> {
    let pages = pages(&options.error_pages)?;
    Some(if options.intercept_errors == Some(true) { pages.intercept() } else { pages })
}

/// Creates the middleware for pages; `None` without any.
pub(crate) fn pages(list: &[ErrorPage]) -> Option<ErrorPages> {
    if list.is_empty() {
        return None;
    }
    // The first page of a status applies.
    let (single, classes): (Vec<_>, Vec<_>) = list.iter().partition(|page| page.of.is_single());
    let mut pages = ErrorPages::new();
    let mut built_in = Vec::new();
    for ErrorPage { of, status: changed, source } in single.into_iter().chain(classes) {
        let statuses: Vec<StatusCode> = (400..=599)
            .filter_map(|number| StatusCode::from_u16(number).ok())
            .filter(|status| of.contains(*status) && !built_in.contains(status))
            .collect();
        pages = match source {
            PageSource::Default => {
                built_in.extend(statuses);
                pages
            }
            PageSource::Url(url) => {
                let url = url.clone();
                pages.page(statuses, move |_| Response::redirect(StatusCode::FOUND, &url))
            }
            PageSource::File(path) => {
                let (file, changed) = (PageFile::new(path), *changed);
                pages.page(statuses, move |status| file.response(status, changed))
            }
        };
    }
    Some(pages)
}

/// A page in a file, which is read again when it changes.
struct PageFile {
    path: PathBuf,
    media_type: HeaderValue,
    state: Mutex<State>,
}

struct State {
    checked: Instant,
    version: Option<FileVersion>,
    /// `None` if the file cannot be read.
    content: Option<Bytes>,
}

impl PageFile {
    fn new(path: &Path) -> PageFile {
        let name = path.file_name().unwrap_or_default();
        let media_type = mime::from_file_name(name.as_encoded_bytes());
        // A warning of the plan reports a file that cannot be read.
        let (version, content) = (FileVersion::of(path).ok(), read(path).ok());
        let state = State { checked: Instant::now(), version, content };
        PageFile {
            path: path.to_owned(),
            media_type: HeaderValue::from_static(media_type),
            state: Mutex::new(state),
        }
    }

    /// Returns the page for an error, or the built-in one if the file cannot be read.
    fn response(&self, status: StatusCode, changed: Option<StatusCode>) -> Response {
        match self.content() {
            Some(content) => Response::body(content)
                .with_header_value(header::CONTENT_TYPE, self.media_type.clone())
                .with_status(changed.unwrap_or(status)),
            None => status.into(),
        }
    }

    fn content(&self) -> Option<Bytes> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.checked.elapsed() >= REVALIDATE_AFTER {
            state.checked = Instant::now();
            let version = FileVersion::of(&self.path).ok();
            if version != state.version {
                let warn = |reason| log::warn!("{reason}; the built-in page is sent");
                state.content = read(&self.path).map_err(warn).ok();
                state.version = version;
            }
        }
        state.content.clone()
    }
}

/// Reads a page.
///
/// # Errors
/// If the file cannot be read, or is too large.
pub(crate) fn read(path: &Path) -> Result<Bytes, String> {
    let cannot_read = |error| format!("cannot read the error page {}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(cannot_read)?;
    if !file.metadata().map_err(cannot_read)?.is_file() {
        return Err(format!("the error page {} is no file", path.display()));
    }
    let mut content = Vec::new();
    file.take(MAX_PAGE_BYTES + 1).read_to_end(&mut content).map_err(cannot_read)?;
    match content.len() as u64 > MAX_PAGE_BYTES {
        true => {
            Err(format!("the error page {} is larger than {MAX_PAGE_BYTES} bytes", path.display()))
        }
        false => Ok(content.into()),
    }
}
