//! Error pages from files that may change.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use weft::header::{self, HeaderValue};
use weft::middleware::ErrorPages;
use weft::{Response, StatusCode};
use weft_proto::semantics::mime;

use super::{ErrorPage, PageSource};
use crate::base::watched_file::OptionalFile;

/// Maximum size of a page, which stays in memory.
const MAX_PAGE_BYTES: u64 = 1 << 20;

/// Creates the middleware for pages.
pub(super) fn pages(list: &[ErrorPage]) -> ErrorPages {
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
            // `RoutePages` requests the pages of routes.
            PageSource::Default | PageSource::Route(_) => {
                built_in.extend(statuses);
                pages
            }
            PageSource::Url(url) => {
                let url = url.clone();
                pages.page(statuses, move |_| Response::redirect(StatusCode::FOUND, &url))
            }
            PageSource::File(path) => {
                let (file, changed) = (PageFile::new(path), *changed);
                pages.page(statuses, move |status| file.response(changed.of(status), status))
            }
        };
    }
    pages
}

/// A page in a file, which is read again when it changes.
struct PageFile {
    media_type: HeaderValue,
    /// `None` if the file cannot be read.
    content: OptionalFile<Option<Bytes>>,
}

impl PageFile {
    fn new(path: &Path) -> PageFile {
        // A warning of the plan reports a file that cannot be read.
        let content = OptionalFile::new(path, |path, _| read(path).ok());
        PageFile { media_type: media_type(path), content }
    }

    /// Returns the page for an error, or the built-in one if the file cannot be read.
    fn response(&self, of_page: StatusCode, status: StatusCode) -> Response {
        let warn = |reason| log::warn!("{reason}; the built-in page is sent");
        match self.content.current(|path, _| read(path).map_err(warn).ok()) {
            Some(content) => Response::from_body(content)
                .with_header(header::CONTENT_TYPE, self.media_type.clone())
                .with_status(of_page),
            None => status.into(),
        }
    }
}

/// Returns the media type of a page, by the name of its file.
pub(in crate::options) fn media_type(path: &Path) -> HeaderValue {
    let name = path.file_name().unwrap_or_default();
    HeaderValue::from_static(mime::from_file_name(name.as_encoded_bytes()))
}

/// Reads a page.
///
/// # Errors
/// If the file cannot be read, or is too large.
pub(in crate::options) fn read(path: &Path) -> Result<Bytes, String> {
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
