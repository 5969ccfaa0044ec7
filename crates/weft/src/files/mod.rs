//! The application that serves a directory's files.

mod settings; // what they are served with
mod place; // the path of a request → a place beneath the root
mod root; // the directory, beneath which everything is opened
mod site; // what lies at a place
mod resource; // a file as it is served: languages, content codings
mod listing; // what is in a folder, as a page and as JSON
mod cache; // what a worker knows of its files

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{Either, ready};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::cache::Files;
use self::listing::{Order, POLICY};
use self::place::Place;
use self::resource::{Choice, Resource};
use self::root::{Root, Wait};
use self::site::{Found, Site, Terms, is_nothing};
use crate::app::Application;
use crate::disk;
use crate::disk::File;
use crate::message::request::{Head, Request};
use crate::message::response::{Payload, Response};
use crate::proto::semantics::mime;

pub use self::settings::{DirectorySettings, HeaderRule, Links};

/// How many files are compressed and folders listed at a time; one takes up to 33 MiB.
const MAX_WORKING: usize = 4;

/// How much of lists may wait to be sent, in shares; what is shorter than one is not counted.
const MAX_LIST_SHARES: usize = 1_024;
const LIST_SHARE_BYTES: usize = 64 << 10;

/// The text of a list, and its share of the memory that there is for lists.
struct Held {
    text: String,
    _share: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Serves the files of a directory to `GET` and `HEAD`.
///
/// A path is percent-decoded before it is looked at. Nothing outside the directory is
/// reached: the kernel itself resolves each path beneath it (`openat2(2)` with
/// `RESOLVE_BENEATH`), symbolic links included. Preconditions and ranges are heeded by the
/// engine; see [`File::open`](crate::File::open). What else there is to choose, and what is
/// done by default, is told at [`DirectorySettings`].
///
/// Each clone, and so each worker, keeps for itself what it knows of the files. Looking one up
/// does not hold up the event loop: what the kernel does not have at hand is left to a thread
/// of the runtime's pool.
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
    site: Arc<Site>,
    files: Files,
}

impl Clone for Directory {
    fn clone(&self) -> Directory {
        Directory { site: self.site.clone(), files: Files::new(&self.site.settings) }
    }
}

impl Directory {
    /// The directory at this path, which from now on may be renamed.
    ///
    /// # Errors
    /// Those of the system, for a path that is no directory or may not be read.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        Directory::with_settings(path, DirectorySettings::default())
    }

    /// The same, with other settings.
    ///
    /// # Errors
    /// As [`open`](Directory::open).
    pub fn with_settings(
        path: impl AsRef<Path>,
        settings: DirectorySettings,
    ) -> io::Result<Directory> {
        Ok(Directory::of(Root::open(path.as_ref(), settings.links)?, settings))
    }

    /// Files that are compiled into the program, by their paths.
    ///
    /// ```
    /// use weft::{Directory, DirectorySettings};
    ///
    /// let files = [
    ///     ("index.html", &b"<h1>Hello</h1>"[..]), // or include_bytes!("site/index.html")
    ///     ("css/style.css", b"h1 { color: teal }"),
    /// ];
    /// let app = Directory::embedded(files, DirectorySettings::default());
    /// weft::testing::get(app, "/").assert_text("<h1>Hello</h1>");
    /// ```
    ///
    /// A whole folder is embedded by the crate `include_dir`:
    ///
    /// ```
    /// use include_dir::{Dir, include_dir};
    /// use weft::{Directory, DirectorySettings};
    ///
    /// static SITE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../site");
    ///
    /// let every = SITE.find("**/*").expect("a valid pattern").filter_map(|entry| entry.as_file());
    /// let files = every.map(|file| (file.path().to_str().expect("UTF-8"), file.contents()));
    /// let app = Directory::embedded(files, DirectorySettings::default());
    /// assert_eq!(weft::testing::get(app, "/style.css").status, 200);
    /// ```
    pub fn embedded<P: Into<String>>(
        files: impl IntoIterator<Item = (P, &'static [u8])>,
        settings: DirectorySettings,
    ) -> Directory {
        let place = |path: P| path.into().trim_matches('/').as_bytes().to_vec();
        let files = files.into_iter().map(|(path, bytes)| (place(path), File::of_bytes(bytes)));
        Directory::of(Root::Embedded(files.collect()), settings)
    }

    fn of(root: Root, settings: DirectorySettings) -> Directory {
        let files = Files::new(&settings);
        let workshop = Arc::new(Semaphore::new(MAX_WORKING));
        let lists = Arc::new(Semaphore::new(MAX_LIST_SHARES));
        Directory { site: Arc::new(Site { root, settings, workshop, lists }), files }
    }

    /// The answer, if it is at hand: what [`call`](Application::call) gives without a look at
    /// the file system, and without a wait. Most requests for a file that is asked for often
    /// are answered so, without a future.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let folder = tempfile::tempdir()?;
    /// # std::fs::write(folder.path().join("a.txt"), "A\n")?;
    /// use weft::Application;
    ///
    /// let files = weft::Directory::open(folder.path())?;
    /// let request = weft::testing::request("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    /// assert!(files.at_hand(&request).is_none());
    /// weft::testing::get(|request| files.call(request), "/a.txt").assert_text("A\n");
    /// assert!(files.at_hand(&request).is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_hand(&self, head: &Head) -> Option<Response> {
        if !is_read(head) {
            return None;
        }
        let place = Place::of(head.path(), self.site.settings.dot_files)?;
        let look = |found: &Found, is_fresh| match found {
            Found::File(resource) if is_fresh => match resource.choose(head.headers()) {
                Choice::Ready(it) if resource.is_current() => Some(it.respond()),
                _ => None,
            },
            _ => None,
        };
        self.files.with(place.key(), look)?
    }

    /// Answers what needs a look at the file system, or time.
    async fn answer(&self, request: Request) -> Response {
        let head = request.head();
        if !is_read(head) {
            let refused = self.refuse(StatusCode::METHOD_NOT_ALLOWED).await;
            return refused.with_header(ALLOW, "GET, HEAD");
        }
        let answer = match Place::of(head.path(), self.site.settings.dot_files) {
            Some(place) => self.answer_with(head, place).await,
            None => Err(StatusCode::NOT_FOUND),
        };
        match answer {
            Ok(response) => response,
            Err(status) => self.refuse(status).await,
        }
    }

    /// Answers with what lies at a place.
    async fn answer_with(&self, head: &Head, place: Place<'_>) -> Result<Response, StatusCode> {
        match self.find(&place).await? {
            Found::File(resource) => Ok(self.serve(head, &place, &resource).await),
            Found::Folder => {
                let mut location = head.mount().to_owned();
                location.push_str(&place.folder_reference());
                if let Some(query) = head.query() {
                    location.push('?');
                    location.push_str(query);
                }
                Ok(page(Response::redirect(StatusCode::MOVED_PERMANENTLY, &location)))
            }
            Found::List => self.list(head, place).await,
            Found::Nothing => self.fall_back(head, &place).await,
        }
    }

    /// What lies at a place, as it is known or looked up.
    async fn find(&self, place: &Place<'_>) -> Result<Found, StatusCode> {
        let known = match self.files.get(place.key()) {
            Some((found, true)) if found.is_current() => return Ok(found),
            Some((found, _)) => Some(found),
            None => None,
        };
        let mut found = self.look(place, known.clone()).await;
        if let Err(Errno::MFILE | Errno::NFILE) = found.as_ref().map_err(errno) {
            // What is known may be old, but it is at hand.
            if let Some(found) = known {
                return Ok(found);
            }
            self.files.close();
            found = self.look(place, None).await;
        }
        match found {
            Ok(found) => {
                self.files.keep(place.key(), found.clone());
                Ok(found)
            }
            Err(error) => {
                self.files.forget(place.key());
                Err(status_of(&error))
            }
        }
    }

    /// Looks a place up: here if the kernel has all that is needed at hand, otherwise in the
    /// pool.
    async fn look(&self, place: &Place<'_>, known: Option<Found>) -> io::Result<Found> {
        let may_hold = self.files.has_descriptors();
        match self.site.find(place, Terms { known: known.as_ref(), wait: Wait::Never, may_hold }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (site, place) = (self.site.clone(), place.clone().into_owned());
                disk::blocking(move || {
                    let known = known.as_ref();
                    site.find(&place, Terms { known, wait: Wait::Gladly, may_hold })
                })
                .await
            }
            found => found,
        }
    }

    async fn serve(&self, head: &Head, place: &Place<'_>, resource: &Arc<Resource>) -> Response {
        match resource.choose(head.headers()) {
            Choice::Ready(representation) => representation.respond(),
            Choice::ToMake(work) => {
                // A compressor takes time and tens of megabytes. Nobody waits for a place, and
                // it is taken until the work is done, though the client may have left.
                let Ok(place_to_work) = self.site.workshop.clone().try_acquire_owned() else {
                    return work.plain().respond();
                };
                let job = work.job();
                let job = move || (job(), place_to_work).0;
                let compressed = tokio::task::spawn_blocking(job).await.unwrap_or(None);
                let has_room = |bytes| self.files.grow(place.key(), resource, bytes);
                work.done(compressed, has_room).respond()
            }
        }
    }

    /// Answers with what is in a folder. A list may be long, so that only some are read at a
    /// time, and only so much of them waits to be sent.
    async fn list(&self, head: &Head, place: Place<'_>) -> Result<Response, StatusCode> {
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        let place_to_work = self.site.workshop.clone().acquire_owned().await.map_err(|_| busy)?;
        let (site, place) = (self.site.clone(), place.into_owned());
        let (order, as_json) = (Order::of(head.query()), listing::prefers_json(head.headers()));
        let work = move || {
            let listing = site.list(&place)?;
            drop(place_to_work);
            Ok(if as_json { listing.json(order) } else { listing.html(order) })
        };
        let text = disk::blocking(work).await.map_err(|error| status_of(&error))?;
        let shares = u32::try_from(text.len() / LIST_SHARE_BYTES).map_err(|_| busy)?;
        let share = self.site.lists.clone().try_acquire_many_owned(shares).map_err(|_| busy)?;
        let text = Bytes::from_owner(Held { text, _share: share });
        Ok(match as_json {
            true => Response::body(text).with_header(CONTENT_TYPE, "application/json"),
            false => Response::html(text).with_header(CONTENT_SECURITY_POLICY, POLICY),
        }
        .with_header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_header(CACHE_CONTROL, "no-cache")
        .with_header(VARY, "accept"))
    }

    /// Answers for what is not there.
    async fn fall_back(&self, head: &Head, place: &Place<'_>) -> Result<Response, StatusCode> {
        let Some(page) = &self.site.settings.fallback else { return Err(StatusCode::NOT_FOUND) };
        let media_type = self.site.media_type(place.path());
        if !mime::is_page_or_unknown(media_type.as_bytes()) {
            return Err(StatusCode::NOT_FOUND);
        }
        let place = Place::at(page);
        match self.find(&place).await? {
            Found::File(resource) => Ok(self.serve(head, &place, &resource).await),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }

    async fn refuse(&self, status: StatusCode) -> Response {
        let mut pages = self.site.settings.error_pages.iter();
        if let Some((_, path)) = pages.find(|(of, _)| *of == status)
            && let Ok(Found::File(resource)) = self.find(&Place::at(path)).await
        {
            return resource.error_page(status);
        }
        page(Response::new(status))
    }
}

impl Application for Directory {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        // Boxed, for what has to wait is large and rare.
        match self.at_hand(&request) {
            Some(response) => Either::Left(ready(response)),
            None => Either::Right(Box::pin(self.answer(request))),
        }
    }
}

/// Whether a request's method is one that files are served to.
fn is_read(head: &Head) -> bool {
    matches!(*head.method(), Method::GET | Method::HEAD)
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn status_of(error: &io::Error) -> StatusCode {
    match errno(error) {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => StatusCode::SERVICE_UNAVAILABLE,
        // It was there a moment ago.
        _ if is_nothing(error) => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
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
