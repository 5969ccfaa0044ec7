//! The application that serves a directory's files.

use std::ffi::OsStr;
use std::fs::{self, File as OpenFile, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::{Method, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::app::Application;
use crate::date::{http_date, is_past};
use crate::files::{Files, Kept, MAX_FILE_BYTES};
use crate::mime;
use crate::path::decode;
use crate::request::Request;
use crate::response::{File, Payload, Response};

/// Serves the files of a directory to `GET` and `HEAD`.
///
/// A path is percent-decoded before it is looked at. Nothing outside the directory is
/// reached: the kernel itself resolves each path beneath it (`openat2(2)` with
/// `RESOLVE_BENEATH`), symbolic links included. Names that begin with a dot do not exist,
/// but for `/.well-known` (RFC 8615). For a folder its `index.html` is served. What is not
/// found is answered with the directory's `404.html`, if it has one. Preconditions and
/// ranges are heeded by the engine; see [`File::open`].
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("a.txt"), "A\n")?;
/// let files = weft::Directory::open(folder.path())?;
/// weft::testing::get(files, "/a.txt").assert_text("A\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Directory {
    root: Arc<OwnedFd>,
    /// Small files, which each clone, and so each worker, keeps for itself.
    files: Files,
}

impl Clone for Directory {
    fn clone(&self) -> Directory {
        Directory { root: self.root.clone(), files: Files::default() }
    }
}

impl Directory {
    /// The directory at this path, which from now on may be renamed.
    ///
    /// # Errors
    /// Those of the system, for a path that is no directory or may not be read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        Ok(Directory { root: Arc::new(root), files: Files::default() })
    }

    fn answer(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allowed = Response::new(StatusCode::METHOD_NOT_ALLOWED);
            return page(allowed.with_header(ALLOW, "GET, HEAD"));
        }
        // The same file has many encoded paths, of which one is kept: the plain one.
        let path = request.path();
        let plain = Some(path).filter(|path| !path.contains('%') && !path.contains("//"));
        if let Some(kept) = plain.and_then(|path| self.files.get(path)) {
            return kept.into_response();
        }
        let Some(place) = Place::of(path) else { return self.not_found() };
        let found = self.find(&place);
        if let (Some(path), Err(_) | Ok(Found::Folder)) = (plain, &found) {
            self.files.forget(path);
        }
        match found {
            Ok(Found::File(file)) => match plain.and_then(|path| self.keep(path, &file)) {
                Some(kept) => kept.into_response(),
                None => file.into_response(StatusCode::OK),
            },
            Ok(Found::Folder) => {
                let mut location = place.encoded();
                if let Some(query) = request.query() {
                    location.push('?');
                    location.push_str(query);
                }
                page(Response::redirect(StatusCode::MOVED_PERMANENTLY, &location))
            }
            Err(Errno::ACCESS | Errno::PERM) => page(Response::new(StatusCode::FORBIDDEN)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                page(Response::new(StatusCode::SERVICE_UNAVAILABLE))
            }
            Err(_) => self.not_found(),
        }
    }

    fn find(&self, place: &Place) -> rustix::io::Result<Found> {
        let found = self.open_beneath(&place.path)?;
        match (found.metadata.is_dir(), place.is_folder) {
            (true, true) => self.open_beneath(&[&place.path, &b"/index.html"[..]].concat()),
            (true, false) => return Ok(Found::Folder),
            (false, true) => Err(Errno::NOTDIR),
            (false, false) => Ok(found),
        }
        // A device or a pipe has no length, and may have no end.
        .and_then(|found| if found.metadata.is_file() { Ok(found) } else { Err(Errno::NOENT) })
        .map(Found::File)
    }

    fn open_beneath(&self, path: &[u8]) -> rustix::io::Result<Opened> {
        // Without NONBLOCK, to open a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = OsStr::from_bytes(path);
        let file = rustix::fs::openat2(&self.root, name, flags, Mode::empty(), resolve)?;
        let file = Arc::new(OpenFile::from(file));
        let metadata =
            file.metadata().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(Opened { content_type: mime::of(path), file, metadata })
    }

    /// Keeps a file if it is small, and says what is kept.
    fn keep(&self, path: &str, opened: &Opened) -> Option<Kept> {
        let file = File::with_metadata(opened.file.clone(), &opened.metadata);
        if let Some(kept) = self.files.confirm(path, &file) {
            return Some(kept);
        }
        self.files.forget(path);
        let version = file.version?;
        let modified = opened.metadata.modified().ok()?;
        // What changed just now may change again without a change of its version; and a date
        // to come is not to be told, but kept fields do not age.
        let settled = is_past(version.changed(), SETTLED) && is_past(modified, Duration::ZERO);
        if file.length > MAX_FILE_BYTES || !settled {
            return None;
        }
        let bytes = file.read().ok()?;
        let after = File::open(opened.file.clone()).ok()?;
        if after.version != file.version {
            return None;
        }
        let response = opened
            .clone()
            .into_response(StatusCode::OK)
            .with_header(ETAG, version.etag())
            .with_header(LAST_MODIFIED, http_date(modified));
        let kept = Kept { file: file.with_bytes(bytes), fields: response.headers };
        self.files.keep(path, kept.clone());
        Some(kept)
    }

    fn not_found(&self) -> Response {
        match self.open_beneath(b"404.html") {
            Ok(page) if page.metadata.is_file() => page.into_response(StatusCode::NOT_FOUND),
            _ => page(Response::new(StatusCode::NOT_FOUND)),
        }
    }
}

impl Application for Directory {
    async fn call(&self, request: Request) -> Response {
        self.answer(&request)
    }
}

enum Found {
    File(Opened),
    /// A folder whose path lacks its slash.
    Folder,
}

/// How long a file must have been as it is to be kept: far longer than the kernel's clock
/// takes from one time of change to the next.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Opened {
    file: Arc<fs::File>,
    metadata: Metadata,
    content_type: &'static str,
}

impl Opened {
    fn into_response(self, status: StatusCode) -> Response {
        Response::file(File::with_metadata(self.file, &self.metadata))
            .with_status(status)
            .with_header(CONTENT_TYPE, self.content_type)
    }
}

impl Kept {
    fn into_response(self) -> Response {
        Response { headers: self.fields, ..Response::file(self.file) }
    }
}

/// A place beneath the root, decoded.
#[derive(Debug, PartialEq)]
struct Place {
    /// Relative; `.` is the root.
    path: Vec<u8>,
    /// The path ends in a slash.
    is_folder: bool,
}

impl Place {
    /// `None` for what cannot be a file's path, or shall not be one.
    fn of(path: &str) -> Option<Place> {
        let segments = path.strip_prefix('/')?.split('/');
        let mut place = Place { path: Vec::with_capacity(path.len()), is_folder: true };
        for (number, segment) in segments.enumerate() {
            let segment = decode(segment.as_bytes());
            let hidden = segment.starts_with(b".") && !(number == 0 && &*segment == b".well-known");
            if hidden || segment.iter().any(|b| matches!(b, b'/' | 0)) {
                return None;
            }
            place.is_folder = segment.is_empty();
            if !place.is_folder {
                if !place.path.is_empty() {
                    place.path.push(b'/');
                }
                place.path.extend_from_slice(&segment);
            }
        }
        if place.path.is_empty() {
            place.path.push(b'.');
        }
        Some(place)
    }

    /// The path as a folder's, with all but its plainest bytes encoded. It begins with
    /// exactly one slash: two would begin the name of another host.
    fn encoded(&self) -> String {
        let mut encoded = String::from("/");
        for &b in &self.path {
            match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                    encoded.push(b.into());
                }
                _ => encoded.push_str(&format!("%{b:02X}")),
            }
        }
        encoded.push('/');
        encoded
    }
}

/// A response with a small page that names its status.
fn page(mut response: Response) -> Response {
    let status = response.status();
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{status}</title>\n<h1>{status}</h1>\n</html>\n"
    );
    response.set_header(CONTENT_TYPE, "text/html; charset=utf-8");
    response.payload = Payload::Body(html.into());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = |path: &str, is_folder| Some(Place { path: path.into(), is_folder });
        for (path, expected) in [
            ("/", place(".", true)),
            ("/a", place("a", false)),
            ("/a/", place("a", true)),
            ("/a/b.html", place("a/b.html", false)),
            ("//a//b", place("a/b", false)),
            ("/d%C3%ADas", place("días", false)),
            ("/%2561", place("%61", false)),
            ("/.well-known/x", place(".well-known/x", false)),
            ("/a/.well-known/x", None),
            ("/.hidden", None),
            ("/a/..", None),
            ("/%2e%2e/x", None),
            ("/.%2e/x", None),
            ("/a%2fb", None),
            ("/a%00b", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(Place::of(path), expected, "{path}");
        }
    }

    #[test]
    fn a_redirect_stays_on_its_host() {
        for (path, location) in
            [("/a", "/a/"), ("//evil.example", "/evil.example/"), ("/d í", "/d%20%C3%AD/")]
        {
            assert_eq!(Place::of(path).unwrap().encoded(), location);
        }
    }
}
