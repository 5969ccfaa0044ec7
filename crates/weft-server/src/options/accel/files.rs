//! Files in place of the bodies of responses: upstreams and scripts name them in
//! `X-Accel-Redirect`, as with nginx, or in `X-Sendfile`, as with Apache.
//!
//! Only files inside the folders of the route are sent. [`Directory`] refuses paths with `..`, also
//! percent-encoded, and the kernel refuses symbolic links that lead out of a folder. The engine
//! evaluates preconditions and ranges, as for all files.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::files::{Directory, DirectorySettings};
use weft::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED,
};
use weft::header::{HeaderName, HeaderValue};
use weft::{Application, Method, Request, Response, StatusCode};
use weft_proto::semantics::path::encode;
use weft_upstream::gateway_error::GatewayError;

use super::AccelFolder;
use crate::base::sys::bytes_of;
use crate::options::layer::{WorkerLayer, WrappedApp};

const X_ACCEL_REDIRECT: HeaderName = HeaderName::from_static("x-accel-redirect");
const X_SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");

/// Fields that describe the replaced body. The engine sets these fields for the file.
const REPLACED: [HeaderName; 5] =
    [ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED];

/// Limits of the cache of each folder and worker. Most of these files are large and are sent from
/// the page cache.
const MAX_CACHED_BYTES: usize = 1 << 20;
const MAX_CACHED_ENTRIES: usize = 256;
const MAX_CACHED_DESCRIPTORS: usize = 8;

/// Folders of a route with files that its application may name.
#[derive(Clone)]
pub(super) struct AccelFiles {
    /// Longer prefixes first.
    folders: Arc<[Folder]>,
}

struct Folder {
    /// Begin of the paths in `X-Accel-Redirect`, without a slash at its end.
    prefix: String,
    /// Begins of the paths in `X-Sendfile`: as configured, and without symbolic links.
    roots: [PathBuf; 2],
    files: Directory,
}

/// A file that a response names.
struct NamedFile<'a> {
    folder: &'a Folder,
    /// Path in the folder, percent-encoded. It begins with a slash.
    path: String,
}

impl AccelFiles {
    /// # Errors
    /// If a folder cannot be opened.
    pub(super) fn open(folders: &[AccelFolder]) -> Result<AccelFiles, String> {
        let open = |it: &AccelFolder| {
            Folder::open(it)
                .map_err(|error| format!("`accel`: cannot open {}: {error}", it.folder.display()))
        };
        let mut folders: Vec<_> = folders.iter().map(open).collect::<Result<_, _>>()?;
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.prefix.len()));
        Ok(AccelFiles { folders: folders.into() })
    }

    /// Creates the folders of one worker, with caches of their own.
    pub(super) fn for_worker(&self) -> AccelFiles {
        let copy = |folder: &Folder| Folder {
            prefix: folder.prefix.clone(),
            roots: folder.roots.clone(),
            files: folder.files.clone(),
        };
        AccelFiles { folders: self.folders.iter().map(copy).collect() }
    }

    /// Replaces the body of a response by the file that the response names, if it names one.
    async fn complete(&self, question: Request, mut response: Response) -> Response {
        let name = [X_ACCEL_REDIRECT, X_SENDFILE]
            .into_iter()
            .find_map(|field| Some((response.header(field.as_str())?.clone(), field)));
        let Some((value, field)) = name else { return response };
        response.remove_header(X_ACCEL_REDIRECT);
        response.remove_header(X_SENDFILE);
        if !may_have_body(response.status()) {
            return response;
        }
        let named = match field == X_SENDFILE {
            true => self.find_file(value.as_bytes()),
            false => self.find_path(value.as_bytes()),
        };
        match named {
            Some(named) => named.respond(question, response, &field).await,
            None => {
                let reason = format!("{:?} is in no folder of `accel`", printable(&value));
                GatewayError::BadResponse(reason).into_reported_response(&field, &question)
            }
        }
    }

    /// Finds the file of a path in `X-Accel-Redirect`, which is percent-encoded and may have a
    /// query.
    fn find_path(&self, value: &[u8]) -> Option<NamedFile<'_>> {
        let end = value.iter().position(|&b| b == b'?').unwrap_or(value.len());
        self.folders.iter().find_map(|folder| {
            let rest = rest_behind(folder.prefix.as_bytes(), &value[..end])?;
            let mut path = String::new();
            for &b in rest {
                match b.is_ascii_graphic() {
                    true => path.push(b.into()),
                    false => encode(&mut path, &[b]),
                }
            }
            Some(NamedFile { folder, path })
        })
    }

    /// Finds the file of a path of the file system.
    fn find_file(&self, value: &[u8]) -> Option<NamedFile<'_>> {
        self.folders.iter().find_map(|folder| {
            let mut roots = folder.roots.iter().map(bytes_of);
            let rest = roots.find_map(|root| rest_behind(root, value))?;
            let mut path = String::new();
            encode(&mut path, rest);
            Some(NamedFile { folder, path })
        })
    }
}

impl Folder {
    fn open(AccelFolder { prefix, folder, withheld }: &AccelFolder) -> io::Result<Folder> {
        // The content is sent as it is: the application may have coded it.
        let settings = DirectorySettings {
            index: Vec::new(),
            error_pages: Vec::new(),
            excluded: withheld.clone(),
            precompressed: false,
            compress: false,
            max_cached_bytes: MAX_CACHED_BYTES,
            max_cached_entries: MAX_CACHED_ENTRIES,
            max_cached_descriptors: MAX_CACHED_DESCRIPTORS,
            ..DirectorySettings::default()
        };
        let files = Directory::with_settings(folder, settings)?;
        let roots = [std::path::absolute(folder)?, folder.canonicalize()?].map(without_slash);
        Ok(Folder { prefix: prefix.clone(), roots, files })
    }
}

fn without_slash(path: PathBuf) -> PathBuf {
    // The components of a path have no slash at its end.
    path.components().as_path().to_owned()
}

/// Returns the part of a path behind a folder, which begins with a slash.
fn rest_behind<'a>(folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).filter(|rest| rest.starts_with(b"/"))
}

/// Returns false for statuses without a body (RFC 9110 §6.4.1), and for another protocol.
fn may_have_body(status: StatusCode) -> bool {
    !status.is_informational()
        && ![StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED]
            .contains(&status)
}

/// Returns a value for the error log.
fn printable(value: &HeaderValue) -> String {
    const MAX_CHARS: usize = 256;
    String::from_utf8_lossy(value.as_bytes()).chars().take(MAX_CHARS).collect()
}

impl NamedFile<'_> {
    /// Returns the response with the file. It keeps its status, for a page of an error, and all
    /// fields that do not describe the body.
    async fn respond(
        self,
        mut question: Request,
        mut response: Response,
        field: &HeaderName,
    ) -> Response {
        let request = question.without_body();
        if *question.method() != Method::HEAD {
            question.set_method(Method::GET);
        }
        question.set_path_and_query(self.path);
        let file = self.folder.files.call(question).await;
        if file.status() != StatusCode::OK {
            let reason = format!("no such file in {}", self.folder.roots[0].display());
            let error = GatewayError::BadResponse(reason).to_error(field, &request);
            let status = match file.status() {
                status if status.is_redirection() => StatusCode::NOT_FOUND,
                status => status,
            };
            return Response::from(status).with_error(error);
        }
        for name in REPLACED {
            response.remove_header(name);
        }
        if response.header(CONTENT_TYPE.as_str()).is_none()
            && let Some(media_type) = file.header(CONTENT_TYPE.as_str())
        {
            response.set_header(CONTENT_TYPE, media_type.clone());
        }
        if response.status() == StatusCode::PARTIAL_CONTENT {
            // The engine selects the parts.
            response = response.with_status(StatusCode::OK);
        }
        response.with_content_of(file)
    }
}

impl WorkerLayer for AccelFiles {
    fn respond(
        self: &Rc<Self>,
        request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        let (this, question) = (self.clone(), request.without_body());
        let response = next.respond(request);
        async move { this.complete(question, response.await).await }.boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Each row: a value, and the number of the folder and the path there by `X-Accel-Redirect`,
    /// then by `X-Sendfile`.
    #[test]
    fn finds_the_folder_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::os::unix::fs::symlink("a", at("link")).unwrap();
        let configured = [("/p", "link/"), ("/p/q", "b")].map(|(prefix, name)| AccelFolder {
            prefix: prefix.to_owned(),
            folder: at(name),
            withheld: Vec::new(),
        });
        let files = AccelFiles::open(&configured).unwrap();
        let show = |named: Option<NamedFile<'_>>| {
            named.map_or("-".to_owned(), |it| format!("{} {}", it.folder.prefix, it.path))
        };
        for (value, by_path, by_file) in [
            ("/p/x", "/p /x", "-"),
            ("/p/x%20y?z=/../", "/p /x%20y", "-"),
            ("/p/x y\u{e9}", "/p /x%20y%C3%A9", "-"),
            ("/p/q/x", "/p/q /x", "-"),
            ("/p/qx", "/p /qx", "-"),
            ("/px/x", "-", "-"),
            ("/p", "-", "-"),
            ("p/x", "-", "-"),
            ("@named", "-", "-"),
            ("", "-", "-"),
            ("/etc/passwd", "-", "-"),
            ("http://a/p/x", "-", "-"),
            ("ROOT/a/x%20?y", "-", "/p /x%2520%3Fy"),
            ("ROOT/link/x y", "-", "/p /x%20y"),
            ("ROOT/b/../a/x", "-", "/p/q /../a/x"),
            ("ROOT/linkx/x", "-", "-"),
            ("ROOT/c/x", "-", "-"),
            ("ROOT/a", "-", "-"),
        ] {
            let value = value.replace("ROOT", folder.path().to_str().unwrap());
            assert_eq!(show(files.find_path(value.as_bytes())), by_path, "{value}");
            assert_eq!(show(files.find_file(value.as_bytes())), by_file, "{value}");
        }
        std::fs::remove_dir(at("b")).unwrap();
        let message = AccelFiles::open(&configured).err().unwrap();
        assert!(message.starts_with("`accel`: cannot open "), "{message}");
    }

    #[test]
    fn removes_slashes_at_the_end_of_a_folder() {
        for (path, expected) in [("/a/b//", "/a/b"), ("/a", "/a"), ("/", "/")] {
            assert_eq!(without_slash(PathBuf::from(path)), Path::new(expected));
        }
    }
}
