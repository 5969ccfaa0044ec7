//! Applications that a route can be served by.

pub(crate) mod cgi; // CGI scripts
mod fastcgi; // scripts of an application server
mod redirect; // redirects
mod respond; // fixed text
pub(crate) mod script; // path → script
mod respond_file; // a file for all paths

use std::sync::Arc;

use futures_util::future::{Either, FutureExt, LocalBoxFuture, Ready, ready};
use weft::{Application, Directory, DirectoryFuture, Request, Response, Version};
use weft_upstream::ReverseProxy;
use weft_upstream::task::{MayDrop, UntilMayDrop};

pub(crate) use cgi::Cgi;
pub(crate) use fastcgi::{FastCgi, ScriptSite};
pub(crate) use redirect::Redirect;
pub(crate) use respond::Respond;
pub(crate) use respond_file::RespondFile;

/// The future of a response, which is boxed only if it waits. One type for the application, the router
/// and their wrappers: a future in a future is moved once more.
pub(crate) type ResponseFuture =
    Either<DirectoryFuture, Either<Ready<Response>, LocalBoxFuture<'static, Response>>>;

/// Returns the future of a response that needs no waiting.
pub(crate) fn respond_now(response: Response) -> ResponseFuture {
    Either::Right(Either::Left(ready(response)))
}

/// Returns the future of a response that waits.
pub(crate) fn respond_later(response: LocalBoxFuture<'static, Response>) -> ResponseFuture {
    Either::Right(Either::Right(response))
}

/// Returns the future of a response of an application server. It gets the request even if the client
/// disconnects at once, as WordPress does when it runs its scheduled tasks by a request to itself.
///
/// Over HTTP/2 a client could send and reset any number of requests in one connection, which would
/// all reach the application.
fn until_sent<F: Future<Output = Response> + 'static>(
    request: Request,
    respond: impl FnOnce(Request, MayDrop) -> F,
) -> LocalBoxFuture<'static, Response> {
    let (is_http2, is_sent) = (request.version() == Version::HTTP_2, MayDrop::default());
    let work = respond(request, is_sent.clone()).boxed_local();
    if is_http2 { work } else { UntilMayDrop::new(work, is_sent).boxed_local() }
}

/// Application of a route. It gets paths without the route's prefix; the prefix is the request's
/// mount.
pub(crate) enum App {
    Cgi(Cgi),
    FastCgi(Arc<FastCgi>),
    Files(Directory),
    Proxy(Arc<ReverseProxy>),
    Redirect(Redirect),
    Respond(Respond),
    ScriptSite(Arc<ScriptSite>),
    RespondFile(RespondFile),
}

impl App {
    /// Creates the application of one worker, with caches and connections of its own.
    pub(crate) fn for_worker(&self, has_metrics: bool) -> App {
        match self {
            App::Cgi(cgi) => App::Cgi(cgi.clone()),
            App::FastCgi(fastcgi) => App::FastCgi(Arc::new(fastcgi.for_worker(has_metrics))),
            App::Files(directory) => App::Files(directory.clone()),
            App::Proxy(proxy) => App::Proxy(Arc::new(proxy.for_worker(has_metrics))),
            App::Redirect(redirect) => App::Redirect(redirect.clone()),
            App::Respond(respond) => App::Respond(respond.for_worker()),
            App::RespondFile(file) => App::RespondFile(file.clone()),
            App::ScriptSite(site) => App::ScriptSite(Arc::new(site.for_worker(has_metrics))),
        }
    }

    /// The proxy by which the application reaches its upstreams.
    pub(crate) fn proxy(&self) -> Option<&ReverseProxy> {
        match self {
            App::FastCgi(fastcgi) => Some(&fastcgi.proxy),
            App::Proxy(proxy) => Some(proxy),
            App::ScriptSite(site) => Some(&site.scripts.proxy),
            App::Cgi(_)
            | App::Files(_)
            | App::Redirect(_)
            | App::Respond(_)
            | App::RespondFile(_) => None,
        }
    }

    /// Handles a request. The future is ready at once if the response needs no waiting. Futures
    /// that wait are boxed, because each request would need as much memory as the largest of them.
    /// They borrow nothing, so that a reload may replace the router meanwhile.
    pub(crate) fn call(&self, request: Request) -> ResponseFuture {
        let later = match self {
            App::Files(directory) => return Either::Left(directory.call(request)),
            App::Redirect(redirect) => return respond_now(redirect.response(&request)),
            App::Respond(respond) => return respond_now(respond.response(&request)),
            App::RespondFile(file) => {
                let file = file.clone();
                async move { file.response(request).await }.boxed_local()
            }
            App::Cgi(cgi) => {
                let cgi = cgi.clone();
                async move { cgi.call(request).await }.boxed_local()
            }
            App::FastCgi(fastcgi) => {
                let fastcgi = fastcgi.clone();
                until_sent(request, async move |request, is_sent| {
                    fastcgi.respond(request, is_sent).await
                })
            }
            App::Proxy(proxy) => ReverseProxy::respond(proxy.clone(), request),
            App::ScriptSite(site) => {
                let site = site.clone();
                until_sent(request, async move |request, is_sent| {
                    site.respond(request, is_sent).await
                })
            }
        };
        respond_later(later)
    }

    /// Handles a request like [`call`](App::call). A future that is boxed already is not boxed again.
    pub(crate) fn call_boxed(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        match self.call(request) {
            Either::Right(Either::Right(boxed)) => boxed,
            future => future.boxed_local(),
        }
    }
}
