//! The application that serves the files of a directory.

mod settings; // `DirectorySettings`, and header rules by pattern
mod generated; // files whose length is not known, as in /proc
mod named_file; // `Response::file`, for a file that the application names
mod path_in_root; // request path → path beneath the root
mod root; // the root directory; all files are opened beneath it
mod followed_root; // the root directory by its path, which is followed again
mod lookup; // the lookup of a path
mod disk_lookups; // the threads of lookups that wait for the disk
mod resource; // a file's representations: languages, content codings
mod entity_tag; // entity tags of representations
mod coded_slot; // the forms of files that the server compresses
mod compressed; // their compression
mod listing; // folder listings as HTML and JSON
mod file_representation; // content and header fields of a response
mod listing_cache; // the cache of listings
mod listings; // the texts of listings, cached for a short time
mod cache; // the file cache of a worker

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};

use self::cache::{CacheHandle, CachedTarget};
use self::disk_lookups::DiskLookups;
use self::followed_root::FollowedRoot;
use self::listing::{Order, PAGE_CSP};
use self::listing_cache::{ListingCache, ListingKey};
use self::lookup::{Found, LookupOptions, Site, Target};
use self::path_in_root::PathInRoot;
use self::resource::{Choice, Resource};
use self::root::{FileKind, MayBlock, Opened, Root, is_not_found};
use crate::app::Application;
use crate::client_limit::Client;
use crate::compression::{self, Coding};
use crate::disk::{File, Source};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::Response;
use crate::sys::Errno;
use weft_proto::semantics::path::decode;
use weft_proto::semantics::{accept, mime};

pub use self::settings::{DirectorySettings, FallbackPaths, HeaderRule, Symlinks};

/// Result of the one cache lookup of a request.
enum CacheLookup {
    /// The response to the request. Most requests for a popular file are answered this way.
    Response(Response),
    /// The cached target of the request's path, if there is one. The response needs an access to
    /// the file system or other waiting.
    Target(Option<CachedTarget>),
}

/// Properties of a request that its lookups depend on.
#[derive(Clone, Copy)]
struct Requester {
    /// The client for whose lookups the threads have a share.
    client: Option<Client>,
    /// Set if a content coding may be selected for the response.
    accepts_coding: bool,
}

impl Requester {
    fn of(request: &Request) -> Requester {
        let client = Client::of_request(request, &[]);
        Requester { client, accepts_coding: accepts_coding(request.head()) }
    }
}

impl CacheLookup {
    fn target(target: &Target, is_current: bool) -> CacheLookup {
        CacheLookup::Target(Some(CachedTarget { target: target.clone(), is_current }))
    }
}

/// Serves the files of a directory to `GET` and `HEAD`.
///
/// A path is percent-decoded before it is checked. Nothing outside the directory is
/// reached: the kernel itself resolves each path beneath it (`openat2(2)` with
/// `RESOLVE_BENEATH`), symbolic links included. The engine evaluates preconditions and ranges;
/// see [`File::open`](crate::File::open). [`DirectorySettings`] lists all options and their
/// defaults.
///
/// Each clone, and so each worker, has a file cache of its own. A lookup does not block the
/// event loop: if the kernel does not have all that it needs in memory, the lookup continues
/// on a thread of the runtime's blocking pool.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("a.txt"), "A\n")?;
/// let files = weft::files::Directory::open(folder.path())?;
/// weft::testing::get(files, "/a.txt").assert_text("A\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Directory {
    site: Arc<Site>,
    cache: CacheHandle,
}

impl Clone for Directory {
    fn clone(&self) -> Directory {
        Directory { site: self.site.clone(), cache: CacheHandle::new(&self.site.settings) }
    }
}

impl Directory {
    /// Opens the directory at this path. The path is followed again after
    /// [`revalidate_after`](DirectorySettings::revalidate_after), so that a deployment may switch a
    /// symbolic link to another directory. While the path leads to no directory, the last one is
    /// served.
    ///
    /// # Errors
    /// An error of the system if the path is not a directory or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        Directory::with_settings(path, DirectorySettings::default())
    }

    /// Opens the directory at this path with settings other than the defaults.
    ///
    /// # Errors
    /// As [`open`](Directory::open).
    pub fn with_settings(
        path: impl AsRef<Path>,
        settings: DirectorySettings,
    ) -> io::Result<Directory> {
        Ok(Directory::from_root(FollowedRoot::open(path.as_ref(), settings.symlinks)?, settings))
    }

    /// Serves files that are compiled into the program, given as pairs of path and contents.
    ///
    /// ```
    /// use weft::files::{Directory, DirectorySettings};
    ///
    /// let files = [
    ///     ("index.html", &b"<h1>Hello</h1>"[..]), // or include_bytes!("site/index.html")
    ///     ("css/style.css", b"h1 { color: teal }"),
    /// ];
    /// let app = Directory::embedded(files, DirectorySettings::default());
    /// weft::testing::get(app, "/").assert_text("<h1>Hello</h1>");
    /// ```
    ///
    /// The crate `include_dir` embeds a whole folder:
    ///
    /// ```
    /// use include_dir::{Dir, include_dir};
    /// use weft::files::{Directory, DirectorySettings};
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
        let trimmed = |path: P| path.into().trim_matches('/').as_bytes().to_vec();
        let files =
            files.into_iter().map(|(path, bytes)| (trimmed(path), File::from_static(bytes)));
        let root = FollowedRoot::constant(Root::Embedded(files.collect()));
        Directory::from_root(root, settings)
    }

    fn from_root(root: FollowedRoot, settings: DirectorySettings) -> Directory {
        let cache = CacheHandle::new(&settings);
        let (listings, lookups) = (ListingCache::new(), DiskLookups::new());
        Directory { site: Arc::new(Site { root, settings, listings, lookups }), cache }
    }

    /// Looks a request up in the cache.
    fn lookup_cached(&self, head: &RequestHead) -> CacheLookup {
        let path = match is_get_or_head(head) {
            true => PathInRoot::from_request(head.path(), self.site.settings.dot_files),
            false => None,
        };
        let Some(path) = path else { return CacheLookup::Target(None) };
        let respond = |target: &Target, is_current| match target {
            Target::File(resource)
                if is_current && (resource.has_all_codings() || !accepts_coding(head)) =>
            {
                match resource.choose(head) {
                    Choice::Ready(response) => CacheLookup::Response(response),
                    Choice::Compress(_) | Choice::Improve(..) => {
                        CacheLookup::target(target, is_current)
                    }
                }
            }
            _ => CacheLookup::target(target, is_current),
        };
        self.cache.with(path.cache_key(), respond).unwrap_or(CacheLookup::Target(None))
    }

    /// Responds to a request that needs an access to the file system or other waiting.
    async fn respond(&self, request: Request, cached: Option<CachedTarget>) -> Response {
        let head = request.head();
        let client = Client::of_request(&request, &[]);
        if !is_get_or_head(head) {
            let response = self.error_response(StatusCode::METHOD_NOT_ALLOWED, client).await;
            return response.with_header(ALLOW, "GET, HEAD");
        }
        // The path borrows from the request. Decoding it again is cheaper than a copy.
        let result = match PathInRoot::from_request(head.path(), self.site.settings.dot_files) {
            Some(path) => self.respond_at(&request, path, cached).await,
            None => Err(StatusCode::NOT_FOUND),
        };
        match result {
            Ok(response) => response,
            Err(status) => self.error_response(status, client).await,
        }
    }

    /// Responds with the target of a path.
    async fn respond_at(
        &self,
        request: &Request,
        path: PathInRoot<'_>,
        cached: Option<CachedTarget>,
    ) -> Result<Response, StatusCode> {
        let (head, requester) = (request.head(), Requester::of(request));
        match self.revalidate(&path, cached, requester).await? {
            Target::File(resource) => Ok(self.serve_file(head, &path, &resource).await),
            Target::Generated => self.serve_generated(path, requester.client).await,
            Target::FolderWithoutSlash => {
                let mut location = head.mount().to_owned();
                location.push_str(&path.folder_reference());
                if let Some(query) = head.query() {
                    location.push('?');
                    location.push_str(query);
                }
                Ok(Response::from(StatusCode::MOVED_PERMANENTLY).with_header(LOCATION, location))
            }
            Target::Listing => self.serve_listing(request, path).await,
            Target::Excluded => Err(StatusCode::FORBIDDEN),
            Target::NotFound => self.serve_fallback(request, &path).await,
        }
    }

    /// Returns the target of a path of the settings from the cache or the file system.
    async fn lookup(
        &self,
        path: &PathInRoot<'_>,
        requester: Requester,
    ) -> Result<Target, StatusCode> {
        self.revalidate(path, self.cache.get(path.cache_key()), requester).await
    }

    /// Returns the cached target of a path if it is current and complete for the request, and
    /// otherwise that in the file system.
    async fn revalidate(
        &self,
        path: &PathInRoot<'_>,
        cached: Option<CachedTarget>,
        requester: Requester,
    ) -> Result<Target, StatusCode> {
        let cached = match cached {
            Some(CachedTarget { target, is_current: true })
                if target.is_complete(requester.accepts_coding) =>
            {
                return Ok(target);
            }
            cached => cached.map(|cached| cached.target),
        };
        let mut found = self.lookup_uncached(path, cached.clone(), requester).await;
        if let Err(Errno::MFILE | Errno::NFILE) = found.as_ref().map_err(errno) {
            // No descriptors are left: a stale entry is better than an error.
            if let Some(target) = cached {
                return Ok(target);
            }
            self.cache.close_descriptors();
            found = self.lookup_uncached(path, None, requester).await;
        }
        match found {
            Ok(Found { target, generation }) => {
                self.cache.insert(path.cache_key(), target.clone(), generation);
                Ok(target)
            }
            Err(error) => {
                self.cache.remove(path.cache_key());
                Err(status_of(&error))
            }
        }
    }

    /// Looks a path up in the file system: on the event loop if the kernel has all that is
    /// needed in memory, otherwise on a thread of the blocking pool.
    async fn lookup_uncached(
        &self,
        path: &PathInRoot<'_>,
        cached: Option<Target>,
        requester: Requester,
    ) -> io::Result<Found> {
        let Requester { client, accepts_coding } = requester;
        let may_keep_open = self.cache.has_spare_descriptors();
        let options = LookupOptions {
            cached: cached.as_ref(),
            may_block: MayBlock::No,
            may_keep_open,
            accepts_coding,
        };
        match self.site.lookup(path, options) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let (site, path) = (self.site.clone(), path.clone().into_owned());
                let lookup = move || {
                    let (cached, may_block) = (cached.as_ref(), MayBlock::Yes);
                    let options =
                        LookupOptions { cached, may_block, may_keep_open, accepts_coding };
                    site.lookup(&path, options)
                };
                self.site.lookups.run(client, lookup).await
            }
            found => found,
        }
    }

    async fn serve_file(
        &self,
        head: &RequestHead,
        path: &PathInRoot<'_>,
        resource: &Arc<Resource>,
    ) -> Response {
        match resource.choose(head) {
            Choice::Ready(response) => response,
            Choice::Compress(form) => {
                compressed::compress(&self.cache, path.cache_key(), resource, form).await;
                resource.after_compression(form)
            }
            Choice::Improve(response, form) => {
                compressed::improve(&self.cache, path.cache_key(), resource, form);
                response
            }
        }
    }

    /// Responds with a file of unknown length. It has no validator: its contents change with each
    /// read.
    async fn serve_generated(
        &self,
        path: PathInRoot<'_>,
        client: Option<Client>,
    ) -> Result<Response, StatusCode> {
        let (site, path) = (self.site.clone(), path.into_owned());
        let mut fields = vec![(CONTENT_TYPE, site.settings.media_type(path.path()))];
        site.settings.apply_header_rules(path.path(), &mut fields);
        let open = move || site.root.latest().0.open_path(path.path(), MayBlock::Yes);
        let opened = self.site.lookups.run(client, open);
        let Opened { kind: FileKind::Generated, file: File { source: Source::Open(file), .. } } =
            opened.await.map_err(|error| status_of(&error))?
        else {
            return Err(StatusCode::NOT_FOUND);
        };
        let mut response = Response::from_body(generated::contents(file));
        fields.into_iter().for_each(|(name, value)| response.set_header(name, value));
        Ok(response)
    }

    /// Responds with a listing of a folder.
    async fn serve_listing(
        &self,
        request: &Request,
        path: PathInRoot<'_>,
    ) -> Result<Response, StatusCode> {
        let (head, client) = (request.head(), Client::of_request(request, &[]));
        let order = Order::from_query(head.query());
        let as_json = listing::prefers_json(head.headers());
        let (root, generation) = self.site.root.latest();
        let (path, generation) = (path.into_owned(), generation.number());
        let mount = if as_json { Vec::new() } else { decode(head.mount().as_bytes()).into_owned() };
        let key = ListingKey { path, mount, order, as_json, generation, coding: None };
        let text = self.site.listing_text(root, key.clone(), client).await;
        let text = text.map_err(|error| status_of(&error))?;
        let may_compress = self.site.settings.may_compress(text.bytes.len() as u64);
        let coding = accept::coding(head.headers(), &compression::available());
        let coded = match coding.filter(|_| may_compress) {
            Some(coding) => {
                self.site.coded_listing(key, coding, &text).await.map(|coded| (coding, coded))
            }
            None => None,
        };
        let (coding, bytes) = match coded {
            Some((coding, coded)) => (Some(coding), coded),
            None => (None, text.bytes),
        };
        let mut response = match as_json {
            true => Response::from_body(bytes).with_header(CONTENT_TYPE, "application/json"),
            false => Response::html(bytes).with_header(CONTENT_SECURITY_POLICY, PAGE_CSP),
        };
        if let Some(coding) = coding {
            response.set_header(CONTENT_ENCODING, coding.token());
        }
        let vary = if may_compress { "accept, accept-encoding" } else { "accept" };
        Ok(response
            .with_header(X_CONTENT_TYPE_OPTIONS, "nosniff")
            .with_header(CACHE_CONTROL, "no-cache")
            .with_header(VARY, vary))
    }

    /// Responds with the fallback page to a request for a path that does not exist.
    async fn serve_fallback(
        &self,
        request: &Request,
        path: &PathInRoot<'_>,
    ) -> Result<Response, StatusCode> {
        let Some(page) = &self.site.settings.fallback else { return Err(StatusCode::NOT_FOUND) };
        let is_page =
            || mime::is_page_or_unknown(self.site.settings.media_type(path.path()).as_bytes());
        if self.site.settings.fallback_for == FallbackPaths::Pages && !is_page() {
            return Err(StatusCode::NOT_FOUND);
        }
        let path = PathInRoot::from_setting(page);
        match self.lookup(&path, Requester::of(request)).await? {
            Target::File(resource) => Ok(self.serve_file(request.head(), &path, &resource).await),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }

    async fn error_response(&self, status: StatusCode, client: Option<Client>) -> Response {
        let mut pages = self.site.settings.error_pages.iter();
        let requester = Requester { client, accepts_coding: false };
        if let Some((_, path)) = pages.find(|(of, _)| *of == status)
            && let Ok(Target::File(resource)) =
                self.lookup(&PathInRoot::from_setting(path), requester).await
        {
            return resource.error_page(status);
        }
        status.into()
    }
}

impl Application for Directory {
    // The type of the future is part of the interface, because it borrows nothing.
    #[allow(refining_impl_trait_reachable)]
    fn call(&self, request: Request) -> DirectoryFuture {
        DirectoryFuture(match self.lookup_cached(request.head()) {
            CacheLookup::Response(response) => Either::Left(ready(response)),
            CacheLookup::Target(cached) => {
                let directory = Directory { site: self.site.clone(), cache: self.cache.share() };
                let respond = async move { directory.respond(request, cached).await };
                Either::Right(Box::pin(respond))
            }
        })
    }
}

/// The response of a [`Directory`] to one request: ready at once if it is made from the cache.
/// Otherwise the future is boxed, because it is large. It does not borrow from the directory.
pub struct DirectoryFuture(Either<Ready<Response>, BoxFuture<'static, Response>>);

impl Future for DirectoryFuture {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl std::fmt::Debug for DirectoryFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DirectoryFuture")
    }
}

/// Returns true if files are served to a method.
fn is_get_or_head(head: &RequestHead) -> bool {
    matches!(*head.method(), Method::GET | Method::HEAD)
}

/// Returns true if a content coding may be selected for the response.
fn accepts_coding(head: &RequestHead) -> bool {
    accept::coding(head.headers(), &Coding::ALL).is_some()
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn status_of(error: &io::Error) -> StatusCode {
    match errno(error) {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::BUSY => StatusCode::SERVICE_UNAVAILABLE,
        // The file was removed during the lookup.
        _ if is_not_found(error) => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
