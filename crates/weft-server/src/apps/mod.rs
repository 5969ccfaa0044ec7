//! The forms of routes: how the requests of a route are served.
//!
//! A form is one file or folder: its keys, their plan, and the application that is opened from it.
//! The list `forms!` registers it.

mod registry; // all forms as types
mod form; // the interface of a form
mod response_keys; // status and media type of a response
mod script; // path → script
mod script_patterns; // scripts that a route runs

use std::ops::{Deref, DerefMut};

use futures_util::future::{Either, FutureExt, LocalBoxFuture, Ready, ready};
use weft::files::DirectoryFuture;
use weft::message::Version;
use weft::{Request, Response, StatusCode};
use weft_config::print_entries;
use weft_upstream::task::{MayDrop, UntilMayDrop};

pub(crate) use self::files::{FILES, FilesConfig, FilesForm};
pub(crate) use self::form::{FormTable, OpenContext, PathKeys, PlanContext, RouteApp, RouteForm};
pub(crate) use self::registry::FormType;
use self::registry::forms;
#[cfg(test)]
pub(crate) use self::respond::Respond;
pub(crate) use self::respond::RespondForm;
use crate::template::Template;

// The order in which messages and the JSON schema name the forms.
forms! {
    /// Directories, also with scripts.
    mod files: Files(FilesForm);
    /// Upstreams with HTTP.
    mod proxy: Proxy(ProxyForm);
    /// Application servers.
    mod fastcgi: FastCgi(FastCgiForm), Scgi(ScgiForm), Uwsgi(UwsgiForm);
    mod redirect: Redirect(RedirectForm);
    /// A text.
    mod respond: Respond(RespondForm);
    /// A file for all paths.
    mod respond_file: RespondFile(RespondFileForm);
    mod empty_gif: EmptyGif(EmptyGifForm);
    /// Scripts.
    mod cgi: Cgi(CgiSettings);
    /// The route of another path.
    mod rewrite: Rewrite(RewriteForm);
}

impl App {
    /// Creates the application of a route that could not be opened.
    pub(crate) fn unavailable() -> App {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        App::Respond(respond::Respond::new(&Template::default(), status, None))
    }

    /// Handles a request like [`call`](RouteApp::call). A future that is boxed already is not boxed
    /// again.
    pub(crate) fn call_boxed(&self, request: Request) -> LocalBoxFuture<'static, Response> {
        match self.call(request) {
            Either::Right(Either::Right(boxed)) => boxed,
            future => future.boxed_local(),
        }
    }
}

/// The future of a response, which is boxed only if it waits. One type for the application, the
/// router and their wrappers: a future in a future is moved once more.
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

/// Returns the future of a response of an application server. It gets the request even if the
/// client disconnects at once, as WordPress does when it runs its scheduled tasks by a request to
/// itself.
///
/// Over HTTP/2 and HTTP/3 a client could send and reset any number of requests in one connection,
/// which would all reach the application.
fn until_sent<F: Future<Output = Response> + 'static>(
    request: Request,
    respond: impl FnOnce(Request, MayDrop) -> F,
) -> ResponseFuture {
    let (has_streams, is_sent) = (request.version() >= Version::HTTP_2, MayDrop::default());
    let work = respond(request, is_sent.clone()).boxed_local();
    respond_later(if has_streams { work } else { UntilMayDrop::new(work, is_sent).boxed_local() })
}
