//! `respond_file`: a response with the content of a file, for all paths and methods.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::FutureExt;
use weft::files::{Directory, DirectorySettings};
use weft::header::HeaderValue;
use weft::{Application, Method, Request, Response};
use weft::{StatusCode, header};
use weft_config::{Key, SectionKeys, ValueKind, quoted};

use super::form::{OpenContext, PlanContext, RouteApp, RouteForm, section_keys};
use super::response_keys::{
    content_type_key, parse_content_type, show_content_type, show_status, status_code, status_key,
};
use super::{ResponseFuture, respond_later};
use crate::base::script_files::SentFile;
use crate::options::RouteOptions;

/// Values of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RespondFileForm {
    path: PathBuf,
    /// `None`: 200.
    status: Option<u16>,
    /// `None`: by the name of the file.
    content_type: Option<HeaderValue>,
}

static KEYS: [Key<RespondFileForm>; 3] = [
    Key {
        name: "respond_file",
        help: "file to respond with",
        kind: ValueKind::Path(|form, path| form.path = path.value),
        show: |form| quoted(&form.path.to_string_lossy()),
        ..Key::FILE_ONLY
    },
    status_key(|form, number| form.status = Some(number as u16), |form| show_status(form.status)),
    content_type_key(
        |form, text| {
            form.content_type = Some(parse_content_type(&text)?);
            Ok(())
        },
        |form| show_content_type(form.content_type.as_ref()),
    ),
];

impl RouteForm for RespondFileForm {
    type App = RespondFile;

    fn name() -> &'static str {
        KEYS[0].name
    }

    fn keys() -> SectionKeys<RespondFileForm> {
        section_keys(&KEYS)
    }

    fn plan(&mut self, _: &mut RouteOptions, _: &PlanContext<'_>) -> Result<(), String> {
        match *self.status.get_or_insert(200) {
            status @ (204 | 205 | 304) => {
                Err(format!("a response of status {status} has no content"))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, _: &OpenContext<'_>) -> Result<RespondFile, String> {
        let status = status_code(self.status);
        RespondFile::open(&self.path, status, self.content_type.clone())
            .map_err(|error| format!("cannot respond with {}: {error}", self.path.display()))
    }

    fn root(&self) -> Option<&Path> {
        self.path.parent()
    }

    fn sent_files(&self) -> Vec<SentFile<'_>> {
        vec![SentFile { key: KEYS[0].name, path: &self.path, remedy: "a route of scripts runs it" }]
    }
}

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
    /// If no file has the path, or if its folder cannot be opened.
    fn open(
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

    async fn response(&self, mut request: Request) -> Response {
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

impl RouteApp for RespondFile {
    fn for_worker(&self, _: bool) -> RespondFile {
        self.clone()
    }

    fn call(&self, request: Request) -> ResponseFuture {
        let file = self.clone();
        respond_later(async move { file.response(request).await }.boxed_local())
    }
}

/// Maximum number of cached files: the file, and its compressed forms.
const MAX_CACHED: usize = 8;
