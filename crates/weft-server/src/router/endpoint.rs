//! The target of a route behind its middleware: the path that an application gets, `try_files` and
//! `split`.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture, ready};
use weft::{Method, Request, Response, StatusCode};
use weft_upstream::ThrottledWarning;

use super::{Destination, Router};
use crate::apps::App;
use crate::route::{Candidate, Otherwise, PathTemplate, Rewrite, Split, TryFiles};
use crate::template::captures::Captures;
use crate::template::{PrefixLength, escape};

/// Maximum number of times that a request is passed to another route.
const MAX_INTERNAL_REDIRECTS: u8 = 10;

/// Number of times that a request was passed to another route.
#[derive(Clone, Copy)]
struct InternalRedirects(u8);

/// The application of a route behind its middleware. It changes the path of requests.
pub(super) struct Endpoint {
    pub(super) app: Rc<App>,
    /// For a directory: `Location` of the redirect for the prefix without its trailing slash.
    pub(super) directory: Option<Arc<str>>,
    pub(super) rewrite: Option<Arc<Rewrite>>,
    pub(super) split: Option<Arc<Split>>,
    /// The current router of the worker.
    pub(super) router: Weak<RefCell<Router>>,
    pub(super) loop_warning: Arc<ThrottledWarning>,
}

impl Endpoint {
    /// Handles a request. Without a rewrite, the future is the future of the application.
    pub(super) fn respond(
        self: &Rc<Self>,
        mut request: Request,
    ) -> LocalBoxFuture<'static, Response> {
        if let Some(split) = self.split.clone()
            && let Some(route) = split.route_of(&request)
        {
            return self.respond_by_name(request, route);
        }
        if let Some(rewrite) = self.rewrite.clone() {
            let this = self.clone();
            return async move { this.rewrite(&rewrite, request).await }.boxed_local();
        }
        let mount = take_mount(&mut request);
        match enter(&mut request, mount, self.directory.as_deref()) {
            None => self.app.call_boxed(request),
            Some(redirect) => ready(redirect).boxed_local(),
        }
    }
}

impl Endpoint {
    /// Passes a request to the route of its host with this name.
    pub(super) fn respond_by_name(
        self: &Rc<Self>,
        request: Request,
        name: &str,
    ) -> LocalBoxFuture<'static, Response> {
        let (this, name) = (self.clone(), name.to_owned());
        async move { this.pass_on(request, Destination::Route(&name)).await }.boxed_local()
    }
}

/// Takes the length of the prefix that the router has noted.
fn take_mount(request: &mut Request) -> usize {
    let extensions = request.extensions_mut();
    let prefix = extensions.remove::<PrefixLength>();
    if extensions.is_empty() {
        // Frees the table, because many requests may be waiting.
        drop(std::mem::take(extensions));
    }
    prefix.map_or(0, |PrefixLength(bytes)| bytes)
}

impl Endpoint {
    async fn rewrite(&self, rewrite: &Rewrite, mut request: Request) -> Response {
        match rewrite {
            Rewrite::PassOn(path) => self.redirect(request, path).await,
            Rewrite::To(path) => {
                let mount = take_mount(&mut request);
                request.take_prefix(mount);
                match path.expand(&request) {
                    Ok(target) => {
                        request.set_path_and_query(target);
                        self.app.call(request).await
                    }
                    Err(response) => response,
                }
            }
            Rewrite::TryFiles(files) => self.try_files(files, request).await,
        }
    }

    /// Serves the first path that exists, or applies the last element. The length of the prefix
    /// stays in the request, because all elements may have `{rest}`.
    async fn try_files(&self, files: &TryFiles, mut request: Request) -> Response {
        for candidate in &files.candidates {
            match self.find_file(candidate, &mut request).await {
                Ok(None) => {}
                Ok(Some(response)) | Err(response) => return response,
            }
        }
        match &files.otherwise {
            Otherwise::Status(status) if status.as_u16() >= 400 => (*status).into(),
            Otherwise::Status(status) => Response::new(*status),
            Otherwise::Route(name) => self.pass_on(request, Destination::Route(name)).await,
            Otherwise::Redirect(path) => self.redirect(request, path).await,
        }
    }

    /// Returns the response with a file or a folder; `None` if it does not exist.
    ///
    /// # Errors
    /// If the candidate has no path for the request.
    async fn find_file(
        &self,
        candidate: &Candidate,
        request: &mut Request,
    ) -> Result<Option<Response>, Response> {
        let Some(target) = candidate.expand(request)? else { return Ok(None) };
        let path = target.split('?').next().unwrap_or_default();
        let prefix = &request.path()[..PrefixLength::of(request)];
        let Some(mount) = self.mount_of(path, prefix) else { return Ok(None) };
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let response = self.look_up(request, &target, mount).await;
        let exists = match response.status() {
            StatusCode::NOT_FOUND => false,
            // A folder, and the path has no slash at its end.
            StatusCode::MOVED_PERMANENTLY if candidate.is_folder => {
                let folder = format!("{path}/");
                self.look_up(request, &folder, mount).await.status() != StatusCode::NOT_FOUND
            }
            StatusCode::MOVED_PERMANENTLY => false,
            _ => !candidate.is_folder || path.ends_with('/'),
        };
        Ok(match exists {
            false => None,
            true if is_read => Some(response),
            // The directory refuses other methods.
            true => {
                take_mount(request);
                Some(self.app.call(std::mem::replace(request, request.without_body())).await)
            }
        })
    }

    /// Returns the response of the application to a request for the file or folder at `target`.
    /// `mount` is the length of the route's prefix in it.
    async fn look_up(&self, request: &Request, target: &str, mount: usize) -> Response {
        let mut question = request.without_body();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            question.set_method(Method::GET);
        }
        question.set_path_and_query(target);
        match enter(&mut question, mount, self.directory.as_deref()) {
            Some(redirect) => redirect,
            None => self.app.call(question).await,
        }
    }

    /// Returns the length of the route's prefix in another path, which has it as in the path of the
    /// request or as in the configuration.
    fn mount_of(&self, path: &str, prefix: &str) -> Option<usize> {
        let configured = self.directory.as_deref().and_then(|it| it.strip_suffix('/'));
        let is_prefix = |prefix: &&str| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = std::iter::once(prefix).chain(configured).find(is_prefix);
        found.map(str::len)
    }

    async fn redirect(&self, mut request: Request, path: &PathTemplate) -> Response {
        match path.expand(&request) {
            Ok(target) => {
                request.set_path_and_query(target);
                self.pass_on(request, Destination::Path).await
            }
            Err(response) => response,
        }
    }

    /// Passes a request to another route of its host.
    async fn pass_on(&self, mut request: Request, to: Destination<'_>) -> Response {
        let extensions = request.extensions_mut();
        extensions.remove::<Captures>();
        extensions.remove::<PrefixLength>();
        let count = extensions.get_or_insert_with(|| InternalRedirects(0));
        count.0 += 1;
        let router = self.router.upgrade().filter(|_| count.0 <= MAX_INTERNAL_REDIRECTS);
        let Some(router) = router else {
            self.loop_warning.warn(&format!(
                "routes of the host {} pass {} on in a loop; the response is 500",
                request.host().unwrap_or("*"),
                request.path().chars().take(MAX_LOGGED_CHARS).collect::<String>(),
            ));
            return StatusCode::INTERNAL_SERVER_ERROR.into();
        };
        let response = router.borrow().pass_on(request, to);
        response.await
    }
}

/// Maximum length of a path in the log.
const MAX_LOGGED_CHARS: usize = 256;

/// Takes the route's prefix, of `bytes` bytes, from the path of a request. Returns a redirect for
/// the path of a directory without its trailing slash.
#[inline(always)]
pub(super) fn enter(
    request: &mut Request,
    bytes: usize,
    directory: Option<&str>,
) -> Option<Response> {
    if bytes > 0 {
        if bytes == request.path().len()
            && let Some(directory) = directory
            && matches!(*request.method(), Method::GET | Method::HEAD)
        {
            return Some(redirect_to_directory(directory, request.query()));
        }
        request.take_prefix(bytes);
    }
    None
}

fn redirect_to_directory(directory: &str, query: Option<&str>) -> Response {
    let mut location = directory.to_owned();
    if let Some(query) = query {
        location.push('?');
        escape(&mut location, query);
    }
    Response::redirect(StatusCode::MOVED_PERMANENTLY, &location)
}
