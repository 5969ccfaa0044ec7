//! A response with the content of a file, for all paths and methods.

use std::io;
use std::path::Path;
use std::sync::Arc;

use weft::{Application, Directory, DirectorySettings, HeaderValue, Method, Request, Response};
use weft::{StatusCode, header};

/// Responds with a file, which is read again when it changes.
#[derive(Clone)]
pub(crate) struct RespondFile {
    folder: Directory,
    /// Path of the file in its folder, percent-encoded.
    path: Arc<str>,
    status: StatusCode,
    content_type: Option<HeaderValue>,
}

impl RespondFile {
    /// # Errors
    /// If the path is not that of a file, or its folder cannot be opened.
    pub(crate) fn open(
        path: &Path,
        status: StatusCode,
        content_type: Option<HeaderValue>,
    ) -> io::Result<RespondFile> {
        std::fs::File::open(path)?;
        let name = path.file_name().filter(|_| path.is_file());
        let name = name.ok_or(io::ErrorKind::IsADirectory)?;
        let mut in_folder = "/".to_owned();
        weft_proto::semantics::path::encode(&mut in_folder, name.as_encoded_bytes());
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let settings = DirectorySettings {
            dot_files: true,
            max_cached_entries: MAX_CACHED,
            ..Default::default()
        };
        let folder = Directory::with_settings(folder, settings)?;
        Ok(RespondFile { folder, path: in_folder.into(), status, content_type })
    }

    pub(crate) async fn response(&self, mut request: Request) -> Response {
        // The response is the same for all methods.
        if *request.method() != Method::HEAD {
            request.set_method(Method::GET);
        }
        request.set_path_and_query(&*self.path);
        let mut response = self.folder.call(request).await;
        if response.status() != StatusCode::OK {
            return response;
        }
        if let Some(content_type) = &self.content_type {
            response.set_header(header::CONTENT_TYPE, content_type);
        }
        if self.status != StatusCode::OK {
            // Fields of a representation, which an error page is not.
            for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES] {
                response.remove_header(name);
            }
        }
        response.with_status(self.status)
    }
}

/// Maximum number of cached files: the file, and its compressed forms.
const MAX_CACHED: usize = 8;
