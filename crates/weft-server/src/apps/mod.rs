//! Applications that a route can be served by.

pub(crate) mod cgi; // CGI scripts
mod gateway; // errors of proxy and CGI
pub(crate) mod proxy; // reverse proxy
mod redirect; // redirects
mod respond; // fixed text
mod timer; // timer for inactivity of an upstream or script

use futures_util::future::{Either, FutureExt, ready};
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
    /// Handles a request. The future is small and, except for scripts and upstreams, often ready at
    /// once: those that wait are boxed, because each request would need as much memory as the
    /// largest of them.
    pub(crate) fn call(&self, request: Request) -> impl Future<Output = Response> {
        let now = |response| Either::Left(ready(response));
        match self {
            App::Files(directory) => Either::Left(directory.call(request)),
            App::Redirect(redirect) => Either::Right(now(redirect.response(&request))),
            App::Respond(respond) => Either::Right(now(respond.response())),
            App::Cgi(cgi) => Either::Right(Either::Right(cgi.call(request).boxed_local())),
            App::Proxy(proxy) => Either::Right(Either::Right(proxy.call(request).boxed_local())),
        }
    }
}
