//! What can answer for a route.

pub(crate) mod cgi; // scripts
pub(crate) mod proxy; // upstreams
mod redirect; // another place
mod respond; // a text

use futures_util::future::{LocalBoxFuture, ready};
use weft::{Application, Directory, Request, Response};

pub(crate) use cgi::Cgi;
pub(crate) use proxy::Proxy;
pub(crate) use redirect::{Redirect, escape};
pub(crate) use respond::Respond;

/// One of the applications. It sees paths without the prefix of its route, which is the
/// request's mount.
#[derive(Clone)]
pub(crate) enum App {
    Cgi(Cgi),
    Files(Directory),
    Proxy(Proxy),
    Redirect(Redirect),
    Respond(Respond),
}

impl App {
    /// The answer, if it is at hand: without a wait, and without a future.
    pub(crate) fn try_answer_now(&self, request: &Request) -> Option<Response> {
        match self {
            App::Files(directory) => directory.try_answer_now(request),
            App::Redirect(redirect) => Some(redirect.answer(request)),
            App::Respond(respond) => Some(respond.answer()),
            App::Cgi(_) | App::Proxy(_) => None,
        }
    }

    /// The answer that has to be waited for. Boxed, for it is large: otherwise each request
    /// for a file would take as much.
    pub(crate) fn wait_for<'a>(&'a self, request: Request) -> LocalBoxFuture<'a, Response> {
        match self {
            App::Files(directory) => Box::pin(directory.call(request)),
            App::Cgi(cgi) => Box::pin(cgi.call(request)),
            App::Proxy(proxy) => Box::pin(proxy.call(request)),
            App::Redirect(redirect) => Box::pin(ready(redirect.answer(&request))),
            App::Respond(respond) => Box::pin(ready(respond.answer())),
        }
    }
}
