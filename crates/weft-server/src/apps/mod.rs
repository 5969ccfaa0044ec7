//! Applications that a route can be served by.

pub(crate) mod cgi; // CGI scripts
mod gateway; // errors of proxy and CGI
pub(crate) mod proxy; // reverse proxy
mod redirect; // redirects
mod respond; // fixed text
mod timer; // timer for inactivity of an upstream or script

use futures_util::future::{LocalBoxFuture, ready};
use weft::{Application, Directory, Request, Response};

pub(crate) use cgi::Cgi;
pub(crate) use proxy::Proxy;
pub(crate) use redirect::{Redirect, escape};
pub(crate) use respond::Respond;

/// Application of a route. It gets paths without the route's prefix; the prefix is the request's
/// mount.
#[derive(Clone)]
pub(crate) enum App {
    Cgi(Cgi),
    Files(Directory),
    Proxy(Proxy),
    Redirect(Redirect),
    Respond(Respond),
}

impl App {
    /// Returns the response if it is available without waiting and without a future.
    pub(crate) fn try_answer_now(&self, request: &Request) -> Option<Response> {
        match self {
            App::Files(directory) => directory.try_answer_now(request),
            App::Redirect(redirect) => Some(redirect.response(request)),
            App::Respond(respond) => Some(respond.response()),
            App::Cgi(_) | App::Proxy(_) => None,
        }
    }

    /// Computes the response asynchronously. The future is boxed because it is large: unboxed,
    /// each request for a file would need as much memory.
    pub(crate) fn wait_for<'a>(&'a self, request: Request) -> LocalBoxFuture<'a, Response> {
        match self {
            App::Files(directory) => Box::pin(directory.call(request)),
            App::Cgi(cgi) => Box::pin(cgi.call(request)),
            App::Proxy(proxy) => Box::pin(proxy.call(request)),
            App::Redirect(redirect) => Box::pin(ready(redirect.response(&request))),
            App::Respond(respond) => Box::pin(ready(respond.response())),
        }
    }
}
